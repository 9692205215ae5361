import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/** The {@code producer.*} commands. */
final class Producers {
    private final Map<String, DefaultMQProducer> open = new HashMap<>();
    private final AtomicInteger checks = new AtomicInteger();

    Object start(Args args) throws Exception {
        DefaultMQProducer producer;
        if (args.flag("transaction")) {
            TransactionMQProducer transactional =
                args.has("trace") ? traced(args) : new TransactionMQProducer(args.get("group"));
            transactional.setTransactionListener(new Listener(args.get("local", "commit"), args.get("check", "commit")));
            producer = transactional;
        } else if (args.has("trace")) {
            // 5.x traces a recall only with this.
            System.setProperty("com.rocketmq.recall.default.trace.enable", "true");
            producer = new DefaultMQProducer(args.get("group"), null, true, args.get("trace"));
        } else {
            producer = new DefaultMQProducer(args.get("group"), Signing.hook(args));
        }
        producer.setNamesrvAddr(args.get("namesrv"));
        Quick.set(producer);
        producer.setInstanceName(args.get("id"));
        producer.setSendMsgTimeout(args.integer("timeout", 10000));
        producer.setRetryTimesWhenSendFailed(args.integer("retries", 2));
        producer.setVipChannelEnabled(args.flag("vip"));
        producer.setUnitMode(args.has("unit"));
        if (args.has("unit")) {
            producer.setUnitName(args.get("unit"));
        }
        if (args.has("namespace")) {
            producer.setNamespace(args.get("namespace"));
        }
        if (args.has("compressOver")) {
            producer.setCompressMsgBodyOverHowmuch(args.integer("compressOver", 4096));
        }
        if (args.has("maxSize")) {
            producer.setMaxMessageSize(args.integer("maxSize", 4194304));
        }
        if (args.has("queues")) {
            producer.setDefaultTopicQueueNums(args.integer("queues", 4));
        }
        if (args.has("compressType")) {
            Reflect.setEnum(producer, "setCompressType", "org.apache.rocketmq.common.compression.CompressionType",
                args.get("compressType"));
        }
        producer.start();
        open.put(args.get("id"), producer);
        return Collections.emptyMap();
    }

    /** Clients before 5.0 have no such constructor. */
    private static TransactionMQProducer traced(Args args) throws Exception {
        return TransactionMQProducer.class
            .getConstructor(String.class, RPCHook.class, boolean.class, String.class)
            .newInstance(args.get("group"), null, true, args.get("trace"));
    }

    /** Send a request and wait for the reply of a push consumer that was started with {@code reply}. */
    Object request(Args args) throws Exception {
        Message reply = find(args).request(Messages.make(args, args.integer("start", 0)), args.integer("timeout", 10000));
        return Collections.singletonMap("reply", new String(reply.getBody(), StandardCharsets.UTF_8));
    }

    /** Recall a timer message; clients before 5.4 cannot. */
    Object recall(Args args) throws Exception {
        DefaultMQProducer producer = find(args);
        Object id;
        try {
            id = producer.getClass().getMethod("recallMessage", String.class, String.class)
                .invoke(producer, args.get("topic"), args.get("handle"));
        } catch (java.lang.reflect.InvocationTargetException failure) {
            throw (Exception) failure.getCause();
        }
        return Collections.singletonMap("msgId", id);
    }

    Object stop(Args args) {
        DefaultMQProducer producer = open.remove(args.get("id"));
        if (producer != null) {
            producer.shutdown();
        }
        return Collections.emptyMap();
    }

    DefaultMQProducer find(String id) {
        DefaultMQProducer producer = open.get(id);
        if (producer == null) {
            throw new IllegalArgumentException("no such producer: " + id);
        }
        return producer;
    }

    private DefaultMQProducer find(Args args) {
        return find(args.get("id"));
    }

    Object queues(Args args) throws Exception {
        List<Object> out = new ArrayList<>();
        for (MessageQueue queue : find(args).fetchPublishMessageQueues(args.get("topic"))) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("broker", queue.getBrokerName());
            row.put("queueId", queue.getQueueId());
            out.add(row);
        }
        return Collections.singletonMap("queues", out);
    }

    Object send(Args args) throws Exception {
        DefaultMQProducer producer = find(args);
        int start = args.integer("start", 0);
        int end = start + args.integer("count", 1);
        String mode = args.get("mode", "sync");
        List<Object> results = new ArrayList<>();
        switch (mode) {
            case "sync":
                for (int i = start; i < end; i++) {
                    results.add(Messages.describe(sendOne(producer, args, i)));
                }
                break;
            case "oneway":
                for (int i = start; i < end; i++) {
                    producer.sendOneway(Messages.make(args, i));
                }
                break;
            case "async":
                results.addAll(sendAsync(producer, args, start, end));
                break;
            case "batch":
                List<Message> batch = new ArrayList<>();
                for (int i = start; i < end; i++) {
                    batch.add(Messages.make(args, i));
                }
                results.add(Messages.describe(producer.send(batch)));
                break;
            case "transaction":
                for (int i = start; i < end; i++) {
                    results.add(Messages.describe(producer.sendMessageInTransaction(Messages.make(args, i), null)));
                }
                break;
            default:
                throw new IllegalArgumentException("unknown mode: " + mode);
        }
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("results", results);
        out.put("checks", checks.get());
        return out;
    }

    private static SendResult sendOne(DefaultMQProducer producer, Args args, int i) throws Exception {
        Message message = Messages.make(args, i);
        if (args.has("shards")) {
            return producer.send(message, (queues, msg, shard) -> queues.get((Integer) shard % queues.size()),
                i % args.integer("shards", 1));
        }
        if (args.has("hash")) {
            return producer.send(message, new SelectMessageQueueByHash(), args.get("hash"));
        }
        if (args.has("queue")) {
            return producer.send(message,
                new MessageQueue(args.get("topic"), args.get("broker"), args.integer("queue", 0)));
        }
        return producer.send(message);
    }

    private static List<Object> sendAsync(DefaultMQProducer producer, Args args, int start, int end) throws Exception {
        Object[] results = new Object[end - start];
        CountDownLatch latch = new CountDownLatch(end - start);
        for (int i = start; i < end; i++) {
            final int slot = i - start;
            producer.send(Messages.make(args, i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    results[slot] = Messages.describe(result);
                    latch.countDown();
                }

                @Override
                public void onException(Throwable failure) {
                    results[slot] = Driver.failure(failure);
                    latch.countDown();
                }
            });
        }
        if (!latch.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("async sends unanswered: " + latch.getCount());
        }
        List<Object> out = new ArrayList<>();
        Collections.addAll(out, results);
        return out;
    }

    void close() {
        for (DefaultMQProducer producer : open.values()) {
            producer.shutdown();
        }
        open.clear();
    }

    /** Answers the local transaction and the broker's check with the state named at the start. */
    private final class Listener implements TransactionListener {
        private final LocalTransactionState local;
        private final LocalTransactionState check;

        Listener(String local, String check) {
            this.local = state(local);
            this.check = state(check);
        }

        private LocalTransactionState state(String name) {
            switch (name) {
                case "commit":
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "rollback":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return local;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            checks.incrementAndGet();
            return check;
        }
    }
}

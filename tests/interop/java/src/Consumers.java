import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageQueueListener;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The commands {@code push.*}, {@code pull.*} (DefaultMQPullConsumer) and {@code lite.*} (DefaultLitePullConsumer). */
final class Consumers {
    private final Map<String, Push> pushes = new HashMap<>();
    private final Map<String, DefaultMQPullConsumer> pulls = new HashMap<>();
    private final Map<String, Collection<MessageQueue>> queues = new HashMap<>();
    private final Map<String, DefaultLitePullConsumer> lites = new HashMap<>();

    Object startPush(Args args, DefaultMQProducer replier) throws Exception {
        Push push = new Push(args, replier);
        push.consumer.start();
        pushes.put(args.get("id"), push);
        return Collections.emptyMap();
    }

    Object pushMessages(Args args) throws Exception {
        return Collections.singletonMap("messages",
            pushes.get(args.get("id")).await(args.integer("count", 1), args.integer("timeout", 20000)));
    }

    Object pushState(Args args) {
        Push push = pushes.get(args.get("id"));
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("seen", push.size());
        out.put("shares", push.shares());
        out.put("queryCodes", push.queries == null ? null : push.queries.codes());
        if (args.has("topic")) {
            OffsetStore store = push.consumer.getDefaultMQPushConsumerImpl().getOffsetStore();
            Collection<Long> offsets = store.cloneOffsetTable(args.get("topic")).values();
            out.put("offsets", offsets.stream().mapToLong(Long::longValue).sum());
        }
        return out;
    }

    Object subscribePush(Args args) throws Exception {
        pushes.get(args.get("id")).consumer.subscribe(args.get("topic"), args.get("expression", "*"));
        return Collections.emptyMap();
    }

    /** Let calls of the listener wait from now on, or end. */
    Object holdPush(Args args) {
        pushes.get(args.get("id")).hold(args.flag("on"));
        return Collections.emptyMap();
    }

    /** Stop a push consumer; return what it has had. */
    Object stopPush(Args args) throws Exception {
        Push push = pushes.remove(args.get("id"));
        if (push == null) {
            return Collections.emptyMap();
        }
        push.consumer.shutdown();
        return Collections.singletonMap("messages", push.await(0, 0));
    }

    Object startPull(Args args) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(args.get("group"));
        consumer.setNamesrvAddr(args.get("namesrv"));
        Quick.set(consumer);
        consumer.setInstanceName(args.get("id"));
        consumer.start();
        pulls.put(args.get("id"), consumer);
        return Collections.emptyMap();
    }

    /**
     * One pull of every queue of a topic, or of one, from the given offset; {@code block} waits on the broker,
     * {@code known} uses the queues of the previous pull.
     */
    Object pull(Args args) throws Exception {
        DefaultMQPullConsumer consumer = pulls.get(args.get("id"));
        List<Object> rows = new ArrayList<>();
        if (!args.flag("known")) {
            queues.put(args.get("topic"), consumer.fetchSubscribeMessageQueues(args.get("topic")));
        }
        for (MessageQueue queue : queues.get(args.get("topic"))) {
            if (args.has("queue") && queue.getQueueId() != args.integer("queue", 0)) {
                continue;
            }
            String expression = args.get("expression", "*");
            long offset = args.number("offset", 0);
            int most = args.integer("most", 32);
            PullResult result;
            if (args.has("sql")) {
                result = consumer.pull(queue, MessageSelector.bySql(args.get("sql")), offset, most);
            } else {
                result = args.flag("block")
                    ? consumer.pullBlockIfNotFound(queue, expression, offset, most)
                    : consumer.pull(queue, expression, offset, most);
            }
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("broker", queue.getBrokerName());
            row.put("queueId", queue.getQueueId());
            row.put("status", result.getPullStatus().name());
            row.put("next", result.getNextBeginOffset());
            row.put("min", result.getMinOffset());
            row.put("max", result.getMaxOffset());
            row.put("messages", Messages.describe(found(result)));
            rows.add(row);
            if (args.flag("commit")) {
                consumer.getDefaultMQPullConsumerImpl().getOffsetStore()
                    .updateConsumeOffsetToBroker(queue, result.getNextBeginOffset(), false);
            }
        }
        return Collections.singletonMap("queues", rows);
    }

    private static List<MessageExt> found(PullResult result) {
        return result.getMsgFoundList() == null ? Collections.emptyList() : result.getMsgFoundList();
    }

    Object committed(Args args) throws Exception {
        DefaultMQPullConsumer consumer = pulls.get(args.get("id"));
        Map<String, Object> offsets = new LinkedHashMap<>();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(args.get("topic"))) {
            offsets.put(String.valueOf(queue.getQueueId()), consumer.fetchConsumeOffset(queue, true));
        }
        return Collections.singletonMap("offsets", offsets);
    }

    Object sendBack(Args args) throws Exception {
        DefaultMQPullConsumer consumer = pulls.get(args.get("id"));
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(args.get("topic"))) {
            for (MessageExt message : found(consumer.pull(queue, "*", 0, 32))) {
                consumer.sendMessageBack(message, args.integer("delay", 1), queue.getBrokerName());
            }
        }
        return Collections.emptyMap();
    }

    Object stopPull(Args args) {
        DefaultMQPullConsumer consumer = pulls.remove(args.get("id"));
        if (consumer != null) {
            consumer.shutdown();
        }
        return Collections.emptyMap();
    }

    Object startLite(Args args) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(args.get("group"));
        consumer.setNamesrvAddr(args.get("namesrv"));
        if (args.has("namespace")) {
            consumer.setNamespace(args.get("namespace"));
        }
        Quick.set(consumer);
        consumer.setInstanceName(args.get("id"));
        consumer.setAutoCommit(!args.has("autoCommit") || args.flag("autoCommit"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (args.get("mode", "assign").equals("subscribe")) {
            consumer.subscribe(args.get("topic"), args.get("expression", "*"));
            consumer.start();
        } else {
            consumer.start();
            Collection<MessageQueue> queues = consumer.fetchMessageQueues(args.get("topic"));
            consumer.assign(queues);
            if (args.has("offset")) {
                for (MessageQueue queue : queues) {
                    consumer.seek(queue, args.number("offset", 0));
                }
            }
        }
        lites.put(args.get("id"), consumer);
        return Collections.emptyMap();
    }

    Object pollLite(Args args) throws Exception {
        DefaultLitePullConsumer consumer = lites.get(args.get("id"));
        List<Object> out = new ArrayList<>();
        long end = System.currentTimeMillis() + args.integer("timeout", 20000);
        while (out.size() < args.integer("count", 1) && System.currentTimeMillis() < end) {
            out.addAll(Messages.describe(consumer.poll(500)));
        }
        if (args.flag("commit")) {
            consumer.commitSync();
        }
        return Collections.singletonMap("messages", out);
    }

    /** Commit and send it to the broker at once; the client alone sends it after ten seconds. */
    Object commitLite(Args args) throws Exception {
        DefaultLitePullConsumer consumer = lites.get(args.get("id"));
        consumer.commitSync();
        OffsetStore offsets = (OffsetStore) Reflect.part(consumer, "defaultLitePullConsumerImpl", "offsetStore");
        offsets.persistAll(new HashSet<>(consumer.fetchMessageQueues(args.get("topic"))));
        return Collections.emptyMap();
    }

    Object stopLite(Args args) {
        DefaultLitePullConsumer consumer = lites.remove(args.get("id"));
        if (consumer != null) {
            consumer.shutdown();
        }
        return Collections.emptyMap();
    }

    void close() {
        pushes.values().forEach(push -> push.consumer.shutdown());
        pulls.values().forEach(DefaultMQPullConsumer::shutdown);
        lites.values().forEach(DefaultLitePullConsumer::shutdown);
        pushes.clear();
        pulls.clear();
        lites.clear();
    }

    /** A push consumer that records its messages; {@code later}: refuses each message once; {@code replier}: answers each. */
    private static final class Push {
        final DefaultMQPushConsumer consumer;
        private final List<Object> taken = new ArrayList<>();
        private final Set<String> refused = new HashSet<>();
        private final boolean later;
        private final DefaultMQProducer replier;
        private final List<Object> shares = new ArrayList<>();
        private final Queries queries;
        private boolean held;

        Push(Args args, DefaultMQProducer replier) throws Exception {
            this.replier = replier;
            later = args.flag("later");
            queries = args.has("query") ? new Queries(args.get("query")) : null;
            consumer = new DefaultMQPushConsumer(
                args.get("group"), queries == null ? Signing.hook(args) : queries, new AllocateMessageQueueAveragely());
            consumer.setNamesrvAddr(args.get("namesrv"));
            Quick.set(consumer);
            consumer.setInstanceName(args.get("id"));
            consumer.setVipChannelEnabled(args.flag("vip"));
            consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + args.get("from", "FIRST_OFFSET")));
            consumer.setConsumeThreadMin(args.integer("threads", 4));
            consumer.setConsumeThreadMax(args.integer("threads", 4));
            consumer.setMaxReconsumeTimes(args.integer("maxReconsume", -1));
            consumer.setConsumeMessageBatchMaxSize(args.integer("batch", 1));
            consumer.setSuspendCurrentQueueTimeMillis(args.integer("suspend", 200));
            if (args.flag("broadcast")) {
                Reflect.setEnum(consumer, "setMessageModel", messageModel(), "BROADCASTING");
            }
            MessageQueueListener listener = (topic, all, mine) -> shared(topic, mine);
            Reflect.setIfThere(consumer, "setMessageQueueListener", MessageQueueListener.class, listener);
            if (args.flag("pop")) {
                Reflect.setIfThere(consumer, "setClientRebalance", boolean.class, false);
            }
            if (args.has("sql")) {
                consumer.subscribe(args.get("topic"), MessageSelector.bySql(args.get("sql")));
            } else {
                consumer.subscribe(args.get("topic"), args.get("expression", "*"));
            }
            if (args.flag("orderly")) {
                consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> take(messages)
                    ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
            } else {
                consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                    context.setDelayLevelWhenNextConsume(args.integer("level", 0));
                    return take(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                        : ConsumeConcurrentlyStatus.RECONSUME_LATER;
                });
            }
        }

        private static String messageModel() {
            for (String name : new String[] {"org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel",
                "org.apache.rocketmq.common.protocol.heartbeat.MessageModel"}) {
                try {
                    return Class.forName(name).getName();
                } catch (ClassNotFoundException missing) {
                    continue;
                }
            }
            throw new IllegalStateException("no MessageModel");
        }

        synchronized void hold(boolean on) {
            held = on;
            notifyAll();
        }

        private synchronized boolean take(List<MessageExt> messages) {
            boolean accepted = true;
            while (held) {
                try {
                    wait();
                } catch (InterruptedException ended) {
                    return false;
                }
            }
            for (MessageExt message : messages) {
                try {
                    Map<String, Object> row = Messages.describe(message);
                    boolean refuse = later && refused.add(message.getKeys() + "/" + message.getMsgId());
                    row.put("accepted", !refuse);
                    taken.add(row);
                    accepted &= !refuse;
                    if (replier != null) {
                        byte[] answer = ("reply to " + message.getKeys()).getBytes(StandardCharsets.UTF_8);
                        replier.send(MessageUtil.createReplyMessage(message, answer), 3000);
                    }
                } catch (Exception failure) {
                    throw new IllegalStateException(failure);
                }
            }
            notifyAll();
            return accepted;
        }

        private synchronized void shared(String topic, Set<MessageQueue> mine) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("topic", topic);
            row.put("queues", mine.stream().map(MessageQueue::getQueueId).sorted().collect(Collectors.toList()));
            shares.add(row);
        }

        /** What the client told its listener of queues, in order. */
        synchronized List<Object> shares() {
            return new ArrayList<>(shares);
        }

        synchronized int size() {
            return taken.size();
        }

        synchronized List<Object> await(int count, long timeoutMs) throws InterruptedException {
            long end = System.currentTimeMillis() + timeoutMs;
            while (taken.size() < count) {
                long left = end - System.currentTimeMillis();
                if (left <= 0) {
                    break;
                }
                wait(left);
            }
            return new ArrayList<>(taken);
        }
    }
}

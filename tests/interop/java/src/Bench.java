import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** The {@code bench.*} commands: loads with counts, seconds, latencies and the CPU time of this process. */
final class Bench {
    private static final int SAMPLES_PER_THREAD = 1 << 16;

    /** A generator wakes this much early and reads the clock until a send is due, as {@code benches/open_loop.py} does. */
    private static final long SPIN_NANOS = 200_000;

    /** Threads that send synchronously for some seconds, one message or one batch at a time. */
    Object send(Args args) throws Exception {
        int threads = args.integer("threads", 64);
        int batch = args.integer("batch", 1);
        DefaultMQProducer producer =
            new DefaultMQProducer(args.get("group", "bench-producer"), Signing.hook(args));
        producer.setNamesrvAddr(args.get("namesrv"));
        producer.setInstanceName("bench-" + System.nanoTime());
        producer.setSendMsgTimeout(10000);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.start();
        try {
            load(producer, args, threads, batch, args.number("warmup", 1));
            return load(producer, args, threads, batch, args.number("seconds", 5));
        } finally {
            producer.shutdown();
        }
    }

    private static Map<String, Object> load(DefaultMQProducer producer, Args args, int threads, int batch, long seconds) throws Exception {
        byte[] body = new byte[args.integer("size", 128)];
        new Random(7).nextBytes(body);
        String topic = args.get("topic");
        long most = args.number("count", Long.MAX_VALUE);
        AtomicLong sent = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        AtomicLong claimed = new AtomicLong();
        List<long[]> samples = new ArrayList<>();
        CountDownLatch done = new CountDownLatch(threads);
        double cpuBefore = cpuSeconds();
        long start = System.nanoTime();
        long end = start + TimeUnit.SECONDS.toNanos(seconds);
        for (int thread = 0; thread < threads; thread++) {
            new Thread(() -> {
                long[] mine = new long[SAMPLES_PER_THREAD];
                int taken = 0;
                while (System.nanoTime() < end && claimed.getAndAdd(batch) < most) {
                    long before = System.nanoTime();
                    try {
                        boolean stored = sendOnce(producer, topic, body, batch);
                        (stored ? sent : failed).addAndGet(batch);
                    } catch (Exception failure) {
                        failed.addAndGet(batch);
                    }
                    mine[taken++ % SAMPLES_PER_THREAD] = System.nanoTime() - before;
                }
                synchronized (samples) {
                    samples.add(Arrays.copyOf(mine, Math.min(taken, SAMPLES_PER_THREAD)));
                }
                done.countDown();
            }).start();
        }
        done.await();
        double elapsed = (System.nanoTime() - start) / 1e9;
        Map<String, Object> out = figures(sent.get(), elapsed, cpuSeconds() - cpuBefore);
        out.put("failed", failed.get());
        latencies(out, samples);
        return out;
    }

    /** One thread that sends asynchronously, with at most {@code window} messages in flight. */
    Object sendAsync(Args args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(args.get("group", "bench-producer"));
        producer.setNamesrvAddr(args.get("namesrv"));
        producer.setInstanceName("bench-" + System.nanoTime());
        producer.setSendMsgTimeout(10000);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.start();
        try {
            loadAsync(producer, args, args.number("warmup", 1));
            return loadAsync(producer, args, args.number("seconds", 5));
        } finally {
            producer.shutdown();
        }
    }

    private static Map<String, Object> loadAsync(DefaultMQProducer producer, Args args, long seconds) throws Exception {
        byte[] body = new byte[args.integer("size", 128)];
        new Random(7).nextBytes(body);
        int window = args.integer("window", 1000);
        Semaphore room = new Semaphore(window);
        AtomicLong sent = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        double cpuBefore = cpuSeconds();
        long start = System.nanoTime();
        long end = start + TimeUnit.SECONDS.toNanos(seconds);
        SendCallback told = new SendCallback() {
            @Override public void onSuccess(SendResult result) {
                sent.incrementAndGet();
                room.release();
            }

            @Override public void onException(Throwable failure) {
                failed.incrementAndGet();
                room.release();
            }
        };
        for (long number = args.number("count", Long.MAX_VALUE); number > 0 && System.nanoTime() < end; number--) {
            room.acquire();
            producer.send(new Message(args.get("topic"), body), told);
        }
        room.acquire(window);
        Map<String, Object> out = figures(sent.get(), (System.nanoTime() - start) / 1e9, cpuSeconds() - cpuBefore);
        out.put("failed", failed.get());
        return out;
    }

    private static boolean sendOnce(DefaultMQProducer producer, String topic, byte[] body, int batch) throws Exception {
        if (batch == 1) {
            return producer.send(new Message(topic, body)).getSendStatus() == SendStatus.SEND_OK;
        }
        List<Message> messages = new ArrayList<>(batch);
        for (int i = 0; i < batch; i++) {
            messages.add(new Message(topic, body));
        }
        return producer.send(messages).getSendStatus() == SendStatus.SEND_OK;
    }

    /** A push consumer of a new group that reads a topic from the beginning until {@code count} messages arrived. */
    Object drain(Args args) throws Exception {
        long count = args.number("count", 1);
        AtomicLong seen = new AtomicLong();
        AtomicLong bytes = new AtomicLong();
        AtomicLong first = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args.get("group"));
        consumer.setNamesrvAddr(args.get("namesrv"));
        consumer.setInstanceName("bench-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(args.integer("threads", 20));
        consumer.setConsumeThreadMax(args.integer("threads", 20));
        consumer.setPullBatchSize(args.integer("pullBatch", 32));
        consumer.setConsumeMessageBatchMaxSize(args.integer("batch", 1));
        if (args.flag("pop")) {
            Reflect.setIfThere(consumer, "setClientRebalance", boolean.class, false);
        }
        String sql = args.get("sql", "");
        if (sql.isEmpty()) {
            consumer.subscribe(args.get("topic"), args.get("expression", "*"));
        } else {
            consumer.subscribe(args.get("topic"), MessageSelector.bySql(sql));
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            first.compareAndSet(0, System.nanoTime());
            messages.forEach(message -> bytes.addAndGet(message.getBody().length));
            if (seen.addAndGet(messages.size()) >= count) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        double cpuBefore = cpuSeconds();
        long start = System.nanoTime();
        consumer.start();
        try {
            boolean whole = done.await(args.integer("timeout", 120), TimeUnit.SECONDS);
            long end = System.nanoTime();
            Map<String, Object> out = figures(seen.get(), (end - first.get()) / 1e9, cpuSeconds() - cpuBefore);
            out.put("whole", whole);
            out.put("bytes", bytes.get());
            out.put("secondsWithStart", (end - start) / 1e9);
            return out;
        } finally {
            consumer.shutdown();
        }
    }

    /**
     * Sends at a fixed rate to a waiting push consumer of this process. A time begins when its send was due: a send that
     * is late counts as waiting, and how late it was is returned, too.
     */
    Object latency(Args args) throws Exception {
        int count = args.integer("count", 1000);
        long interval = TimeUnit.SECONDS.toNanos(1) / args.integer("rate", 200);
        String topic = args.get("topic");
        byte[] rest = new byte[Math.max(0, args.integer("size", 128) - Long.BYTES)];
        long[] took = new long[count];
        long[] late = new long[count];
        AtomicInteger seen = new AtomicInteger();
        CountDownLatch done = new CountDownLatch(count);
        DefaultMQProducer producer = new DefaultMQProducer("bench-latency");
        producer.setNamesrvAddr(args.get("namesrv"));
        producer.setInstanceName("bench-" + System.nanoTime());
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args.get("group"));
        consumer.setNamesrvAddr(args.get("namesrv"));
        consumer.setInstanceName("bench-" + System.nanoTime());
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        if (args.flag("pop")) {
            Reflect.setIfThere(consumer, "setClientRebalance", boolean.class, false);
        }
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        CountDownLatch first = new CountDownLatch(1);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.nanoTime();
            for (Message message : messages) {
                long due = ByteBuffer.wrap(message.getBody()).getLong();
                if (due == 0) {
                    first.countDown();
                } else if (seen.get() < count) {
                    took[seen.getAndIncrement()] = now - due;
                    done.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        producer.start();
        try {
            producer.send(new Message(topic, stamped(0, rest)));
            consumer.start();
            first.await(60, TimeUnit.SECONDS);
            double cpuBefore = cpuSeconds();
            long begin = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(500);
            for (int number = 0; number < count; number++) {
                long due = begin + number * interval;
                LockSupport.parkNanos(due - SPIN_NANOS - System.nanoTime());
                long now = System.nanoTime();
                while (now < due) {
                    now = System.nanoTime();
                }
                late[number] = now - due;
                producer.send(new Message(topic, stamped(due, rest)));
            }
            boolean whole = done.await(args.integer("timeout", 60), TimeUnit.SECONDS);
            Map<String, Object> out = figures(seen.get(), (System.nanoTime() - begin) / 1e9, cpuSeconds() - cpuBefore);
            out.put("whole", whole);
            out.put("tookNanos", Arrays.stream(took).boxed().collect(Collectors.toList()));
            out.put("lateNanos", Arrays.stream(late).boxed().collect(Collectors.toList()));
            return out;
        } finally {
            consumer.shutdown();
            producer.shutdown();
        }
    }

    private static byte[] stamped(long due, byte[] rest) {
        return ByteBuffer.allocate(Long.BYTES + rest.length).putLong(due).put(rest).array();
    }

    private static Map<String, Object> figures(long messages, double seconds, double cpu) {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("messages", messages);
        out.put("seconds", seconds);
        out.put("perSecond", messages / seconds);
        out.put("clientCpuSeconds", cpu);
        return out;
    }

    private static void latencies(Map<String, Object> out, List<long[]> samples) {
        long[] all = samples.stream().flatMapToLong(Arrays::stream).sorted().toArray();
        if (all.length == 0) {
            return;
        }
        for (double share : new double[] {0.5, 0.99, 0.999}) {
            out.put("p" + String.valueOf(share * 100).replace(".0", "") + "Ms",
                all[(int) Math.min(all.length - 1, (long) (all.length * share))] / 1e6);
        }
    }

    private static double cpuSeconds() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }
}

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.impl.producer.TopicPublishInfo;
import org.apache.rocketmq.client.latency.LatencyFaultTolerance;
import org.apache.rocketmq.client.latency.MQFaultStrategy;
import org.apache.rocketmq.client.latency.Resolver;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The {@code routing.*} commands: the client's queue selection and latency fault tolerance on steps of the caller.
 */
final class Routing {
    private Routing() {
    }

    /**
     * Play steps: {@code u:broker:latency:isolation:reachable}, {@code s:last broker or nothing:fault tolerance}, {@code w:ms}.
     *
     * <p>Time passes by moving every entry of the fault table back. The answer has the indexes of the chosen queues, the brokers available
     * and reachable at the end, and the real duration: steps closer than that to a boundary prove nothing.
     */
    static Object replay(Args args) throws Exception {
        long began = System.currentTimeMillis();
        MQFaultStrategy strategy = strategy();
        TopicPublishInfo info = info(args.get("brokers").split(","), args.integer("start", 0));
        List<Integer> chosen = new ArrayList<>();
        for (String step : args.get("steps").split(";")) {
            String[] words = step.split(":", -1);
            switch (words[0]) {
                case "u":
                    update(strategy, words[1], Long.parseLong(words[2]), words[3].equals("1"), words[4].equals("1"));
                    break;
                case "s":
                    strategy.setSendLatencyFaultEnable(words[2].equals("1"));
                    chosen.add(strategy.selectOneMessageQueue(info, words[1].isEmpty() ? null : words[1], false).getQueueId());
                    break;
                default:
                    pass(strategy, Long.parseLong(words[1]));
            }
        }
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("chosen", chosen);
        Map<String, Object> available = new LinkedHashMap<>();
        Map<String, Object> reachable = new LinkedHashMap<>();
        for (String broker : args.get("ask").split(",")) {
            available.put(broker, tolerance(strategy).isAvailable(broker));
            reachable.put(broker, tolerance(strategy).isReachable(broker));
        }
        out.put("available", available);
        out.put("reachable", reachable);
        out.put("tookMs", System.currentTimeMillis() - began);
        return out;
    }

    static MQFaultStrategy strategy() {
        return new MQFaultStrategy(new ClientConfig(), (Resolver) null, null);
    }

    static TopicPublishInfo info(String[] brokers, int start) throws Exception {
        TopicPublishInfo info = new TopicPublishInfo();
        for (int place = 0; place < brokers.length; place++) {
            info.getMessageQueueList().add(new MessageQueue("topic", brokers[place], place));
        }
        @SuppressWarnings("unchecked")
        ThreadLocal<Integer> index = (ThreadLocal<Integer>) Reflect.part(info.getSendWhichQueue(), "threadLocalIndex");
        // It is incremented before it is used.
        index.set(start - 1);
        return info;
    }

    static void update(MQFaultStrategy strategy, String broker, long latency, boolean isolation, boolean reachable) {
        strategy.setSendLatencyFaultEnable(true);
        strategy.updateFaultItem(broker, latency, isolation, reachable);
    }

    @SuppressWarnings("unchecked")
    private static LatencyFaultTolerance<String> tolerance(MQFaultStrategy strategy) throws Exception {
        return (LatencyFaultTolerance<String>) Reflect.part(strategy, "latencyFaultTolerance");
    }

    private static void pass(MQFaultStrategy strategy, long ms) throws Exception {
        Object table = Reflect.part(strategy, "latencyFaultTolerance", "faultItemTable");
        for (Object item : ((ConcurrentHashMap<?, ?>) table).values()) {
            long until = (Long) item.getClass().getMethod("getStartTimestamp").invoke(item);
            item.getClass().getMethod("setStartTimestamp", long.class).invoke(item, until - ms);
        }
    }
}

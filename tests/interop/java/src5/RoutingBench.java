import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.apache.rocketmq.client.impl.producer.TopicPublishInfo;
import org.apache.rocketmq.client.latency.MQFaultStrategy;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Nanoseconds that Apache's client takes to choose a queue with fault tolerance on.
 *
 * <p>Argument: seconds per measurement. Prints one JSON object per line, in the form of {@code crates/routing/benches/select.rs}, which
 * measures the same tables with ours.
 */
public final class RoutingBench {
    private static final int BATCH = 1000;
    private static final int ROUNDS = 9;
    private static final int WARM_UP_ROUNDS = 20;

    private static long sink;

    private RoutingBench() {
    }

    public static void main(String[] args) throws Exception {
        double seconds = args.length > 0 ? Double.parseDouble(args[0]) : 0.1;
        for (int brokers : new int[] {2, 16}) {
            row("no broker was slow", brokers, 0, null, seconds);
            row("one broker is left out", brokers, 1, null, seconds);
            row("a retry", brokers, 0, "broker-1", seconds);
        }
        System.exit(sink == 0 ? 1 : 0);
    }

    private static void row(String what, int brokers, int slow, String last, double seconds) throws Exception {
        String[] names = new String[brokers * 4];
        for (int place = 0; place < names.length; place++) {
            names[place] = "broker-" + place / 4;
        }
        TopicPublishInfo info = Routing.info(names, 0);
        MQFaultStrategy strategy = Routing.strategy();
        for (int broker = 0; broker < brokers; broker++) {
            // Every answer is recorded in the table and stays there; an avoided broker stays avoided during the measurement.
            Routing.update(strategy, "broker-" + broker, 1, false, true);
        }
        for (int times = 0; times < slow; times++) {
            strategy.setNotAvailableDuration(new long[] {0, 0, 0, 0, 0, 0, 3_600_000});
            Routing.update(strategy, "broker-0", 20_000, false, true);
        }
        String text = "{\"what\":\"%s\",\"brokers\":%d,\"ns\":%.2f}%n";
        System.out.printf(Locale.ROOT, text, what, brokers, median(strategy, info, last, seconds));
    }

    private static double median(MQFaultStrategy strategy, TopicPublishInfo info, String last, double seconds) {
        List<Long> spent = new ArrayList<>();
        for (int round = 0; round < WARM_UP_ROUNDS + ROUNDS; round++) {
            long end = System.nanoTime() + (long) (seconds * 1e9);
            while (System.nanoTime() < end) {
                long began = System.nanoTime();
                for (int at = 0; at < BATCH; at++) {
                    MessageQueue queue = strategy.selectOneMessageQueue(info, last, false);
                    sink += queue.getQueueId();
                }
                long time = System.nanoTime() - began;
                if (round >= WARM_UP_ROUNDS) {
                    spent.add(time);
                }
            }
        }
        spent.sort(null);
        return spent.get(spent.size() / 2) / (double) BATCH;
    }
}

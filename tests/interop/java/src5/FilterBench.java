import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * Nanoseconds that Apache's broker takes to filter one message: properties of the record into a map, then the expression.
 *
 * <p>Argument: seconds per measurement. Prints one JSON object per line, in the form of {@code crates/routing/benches/filter.rs}, which
 * measures the same expressions and properties with ours; {@code expression} is the time without the map.
 */
public final class FilterBench {
    private static final int BATCH = 1000;
    private static final int ROUNDS = 9;
    private static final int WARM_UP_ROUNDS = 20;
    private static final String[][] EXPRESSIONS = {
        {"one text", "region = 'eu'"},
        {"one number", "price > 100"},
        {"a usual one", "price BETWEEN 10 AND 500 AND region IN ('eu', 'us', 'asia') AND TAGS IS NOT NULL"},
        {"a long one", "(price > 1000 OR region = 'mars' OR name STARTSWITH 'x') OR (TAGS = 'TagB' AND count >= 3.5) OR name CONTAINS 'tea'"},
    };
    private static final String[][] PROPERTIES = {
        {"KEYS", "order-1234567"},
        {"UNIQ_KEY", "7F000001000F18B4AAC208A7F5E30000"},
        {"WAIT", "true"},
        {"TAGS", "TagA"},
        {"region", "eu"},
        {"price", "250"},
        {"count", "3"},
        {"name", "green tea"},
    };

    private static long sink;

    private FilterBench() {
    }

    public static void main(String[] args) throws Exception {
        double seconds = args.length > 0 ? Double.parseDouble(args[0]) : 0.1;
        Map<String, String> pairs = new LinkedHashMap<>();
        for (String[] pair : PROPERTIES) {
            pairs.put(pair[0], pair[1]);
        }
        byte[] text = MessageDecoder.messageProperties2String(pairs).getBytes(StandardCharsets.UTF_8);
        for (String[] row : EXPRESSIONS) {
            Expression expression = SelectorParser.parse(row[1]);
            double alone = median(expression, null, pairs, seconds);
            double whole = median(expression, text, pairs, seconds);
            System.out.printf(Locale.ROOT, "{\"what\":\"%s\",\"ns\":%.2f,\"expression\":%.2f}%n", row[0], whole, alone);
        }
        System.exit(sink == 0 ? 1 : 0);
    }

    private static double median(Expression expression, byte[] text, Map<String, String> pairs, double seconds) throws Exception {
        List<Long> spent = new ArrayList<>();
        for (int round = 0; round < WARM_UP_ROUNDS + ROUNDS; round++) {
            long end = System.nanoTime() + (long) (seconds * 1e9);
            while (System.nanoTime() < end) {
                long began = System.nanoTime();
                for (int at = 0; at < BATCH; at++) {
                    Map<String, String> found = pairs;
                    if (text != null) {
                        found = MessageDecoder.string2messageProperties(new String(text, StandardCharsets.UTF_8));
                    }
                    sink += Boolean.TRUE.equals(expression.evaluate(new MessageEvaluationContext(found))) ? 1 : 0;
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

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * The {@code filter.*} commands: the broker's SQL92 filter on expressions and properties of the caller.
 */
final class Filtering {
    private Filtering() {
    }

    /**
     * Evaluate {@code cases}, one per line: {@code expression;name=value,name=value;...}, every part URL-encoded.
     *
     * <p>The answer has a word for each: {@code -} for a refused expression, otherwise a letter for each set of properties: T, F,
     * N for null and X for a failed evaluation.
     */
    static Object evaluate(Args args) throws Exception {
        List<String> results = new ArrayList<>();
        for (String line : args.get("cases").split("\n")) {
            String[] parts = line.split(";", -1);
            Expression expression;
            try {
                expression = SelectorParser.parse(decoded(parts[0]));
            } catch (MQFilterException refused) {
                results.add("-");
                continue;
            }
            StringBuilder letters = new StringBuilder();
            for (int at = 1; at < parts.length; at++) {
                letters.append(letter(expression, properties(parts[at])));
            }
            results.add(letters.toString());
        }
        return results;
    }

    private static char letter(Expression expression, Map<String, String> properties) {
        try {
            Object value = expression.evaluate(new MessageEvaluationContext(properties));
            return value == null ? 'N' : value == Boolean.TRUE ? 'T' : 'F';
        } catch (Exception failed) {
            return 'X';
        }
    }

    private static Map<String, String> properties(String text) throws Exception {
        Map<String, String> properties = new HashMap<>();
        for (String pair : text.isEmpty() ? new String[0] : text.split(",", -1)) {
            int at = pair.indexOf('=');
            properties.put(decoded(pair.substring(0, at)), decoded(pair.substring(at + 1)));
        }
        return properties;
    }

    static String decoded(String text) throws Exception {
        return URLDecoder.decode(text, StandardCharsets.UTF_8.name());
    }
}

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/** One command line: a name and percent-encoded {@code key=value} pairs, separated by tabs. */
final class Args {
    final String command;
    private final Map<String, String> values = new LinkedHashMap<>();

    Args(String line) {
        String[] parts = line.split("\t");
        command = parts[0];
        for (int i = 1; i < parts.length; i++) {
            int equals = parts[i].indexOf('=');
            values.put(decode(parts[i].substring(0, equals)), decode(parts[i].substring(equals + 1)));
        }
    }

    private static String decode(String text) {
        return URLDecoder.decode(text, StandardCharsets.UTF_8);
    }

    boolean has(String key) {
        return values.containsKey(key);
    }

    String get(String key) {
        String value = values.get(key);
        if (value == null) {
            throw new IllegalArgumentException("argument missing: " + key);
        }
        return value;
    }

    String get(String key, String otherwise) {
        return values.getOrDefault(key, otherwise);
    }

    int integer(String key, int otherwise) {
        return values.containsKey(key) ? Integer.parseInt(values.get(key)) : otherwise;
    }

    long number(String key, long otherwise) {
        return values.containsKey(key) ? Long.parseLong(values.get(key)) : otherwise;
    }

    boolean flag(String key) {
        return Boolean.parseBoolean(values.getOrDefault(key, "false"));
    }

    /** The pairs whose key starts with the prefix, without it. */
    Map<String, String> under(String prefix) {
        Map<String, String> found = new LinkedHashMap<>();
        for (Map.Entry<String, String> entry : values.entrySet()) {
            if (entry.getKey().startsWith(prefix)) {
                found.put(entry.getKey().substring(prefix.length()), entry.getValue());
            }
        }
        return found;
    }
}

import java.util.Map;

/** Writes plain maps, lists, strings, numbers, booleans and nulls as one line of JSON. */
final class Json {
    private Json() {
    }

    static String of(Object value) {
        StringBuilder out = new StringBuilder(256);
        write(out, value);
        return out.toString();
    }

    private static void write(StringBuilder out, Object value) {
        if (value == null) {
            out.append("null");
        } else if (value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else if (value instanceof Map) {
            String separator = "{";
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                out.append(separator);
                text(out, String.valueOf(entry.getKey()));
                out.append(':');
                write(out, entry.getValue());
                separator = ",";
            }
            out.append(((Map<?, ?>) value).isEmpty() ? "{}" : "}");
        } else if (value instanceof Iterable) {
            out.append('[');
            String separator = "";
            for (Object item : (Iterable<?>) value) {
                out.append(separator);
                write(out, item);
                separator = ",";
            }
            out.append(']');
        } else {
            text(out, value.toString());
        }
    }

    private static void text(StringBuilder out, String value) {
        out.append('"');
        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20 || c > 0x7e) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}

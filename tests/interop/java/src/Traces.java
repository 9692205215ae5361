import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;

/** The {@code trace.decode} command: what the client's reader finds in the body of a trace message. */
final class Traces {
    private Traces() {
    }

    static Object decode(Args args) {
        String text = new String(Base64.getDecoder().decode(args.get("body")), StandardCharsets.UTF_8);
        List<Object> out = new ArrayList<>();
        for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(text)) {
            TraceBean bean = context.getTraceBeans().get(0);
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("type", context.getTraceType().name());
            row.put("group", context.getGroupName());
            row.put("success", context.isSuccess());
            row.put("timestamp", context.getTimeStamp());
            row.put("topic", bean.getTopic());
            row.put("msgId", bean.getMsgId());
            row.put("offsetMsgId", bean.getOffsetMsgId());
            row.put("tags", bean.getTags());
            row.put("keys", bean.getKeys());
            row.put("storeHost", bean.getStoreHost());
            row.put("bodyLength", bean.getBodyLength());
            row.put("msgType", bean.getMsgType() == null ? null : bean.getMsgType().name());
            out.add(row);
        }
        return Collections.singletonMap("contexts", out);
    }
}

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Creates messages from arguments and describes messages and send results as maps. */
final class Messages {
    private static final int BODY_SHOWN = 4096;

    private Messages() {
    }

    /** Message number {@code i}: body {@code prefix-i}, padded with a repeated text to {@code size} bytes. */
    static Message make(Args args, int i) {
        Message message = new Message(args.get("topic"), body(args.get("prefix", "m"), i, args.integer("size", 0)));
        if (args.has("tag")) {
            message.setTags(args.get("tag"));
        }
        if (args.has("key")) {
            message.setKeys(args.get("key") + i);
        }
        if (args.has("keys")) {
            message.setKeys(args.get("keys"));
        }
        if (args.has("delay")) {
            message.setDelayTimeLevel(args.integer("delay", 0));
        }
        for (String time : new String[] {"DelayTimeSec", "DelayTimeMs", "DeliverTimeMs"}) {
            if (args.has("set" + time)) {
                setTime(message, "set" + time, args.number("set" + time, 0));
            }
        }
        if (args.has("flag")) {
            message.setFlag(args.integer("flag", 0));
        }
        if (args.has("wait")) {
            message.setWaitStoreMsgOK(args.flag("wait"));
        }
        for (Map.Entry<String, String> property : args.under("prop.").entrySet()) {
            message.putUserProperty(property.getKey(), property.getValue());
        }
        return message;
    }

    /** Clients before 5.0 have no timer. */
    private static void setTime(Message message, String setter, long value) {
        try {
            if (!Reflect.setIfThere(message, setter, long.class, value)) {
                throw new IllegalArgumentException("this client has no " + setter);
            }
        } catch (IllegalArgumentException wrong) {
            throw wrong;
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
    }

    static byte[] body(String prefix, int i, int size) {
        byte[] head = (prefix + "-" + i).getBytes(StandardCharsets.UTF_8);
        if (head.length >= size) {
            return head;
        }
        byte[] whole = new byte[size];
        byte[] filler = " pad this body with text that compresses".getBytes(StandardCharsets.UTF_8);
        for (int at = 0; at < size; at++) {
            whole[at] = at < head.length ? head[at] : filler[(at - head.length) % filler.length];
        }
        return whole;
    }

    static Map<String, Object> describe(SendResult result) {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("status", result.getSendStatus().name());
        out.put("msgId", result.getMsgId());
        out.put("offsetMsgId", result.getOffsetMsgId());
        out.put("topic", result.getMessageQueue().getTopic());
        out.put("broker", result.getMessageQueue().getBrokerName());
        out.put("queueId", result.getMessageQueue().getQueueId());
        out.put("queueOffset", result.getQueueOffset());
        out.put("transactionId", result.getTransactionId());
        out.put("regionId", result.getRegionId());
        out.put("traceOn", result.isTraceOn());
        Object handle = Reflect.getIfThere(result, "getRecallHandle");
        if (handle != null) {
            out.put("recallHandle", handle);
        }
        return out;
    }

    static Map<String, Object> describe(MessageExt message) throws Exception {
        Map<String, Object> out = new LinkedHashMap<>();
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        out.put("topic", message.getTopic());
        out.put("queueId", message.getQueueId());
        out.put("queueOffset", message.getQueueOffset());
        out.put("commitLogOffset", message.getCommitLogOffset());
        out.put("msgId", message.getMsgId());
        out.put("keys", message.getKeys());
        out.put("tags", message.getTags());
        out.put("flag", message.getFlag());
        out.put("sysFlag", message.getSysFlag());
        out.put("bodyCrc", message.getBodyCRC());
        out.put("storeSize", message.getStoreSize());
        out.put("reconsumeTimes", message.getReconsumeTimes());
        out.put("bornTimestamp", message.getBornTimestamp());
        out.put("storeTimestamp", message.getStoreTimestamp());
        out.put("bornHost", message.getBornHost() == null ? null : message.getBornHost().toString());
        out.put("storeHost", message.getStoreHost() == null ? null : message.getStoreHost().toString());
        out.put("properties", message.getProperties());
        out.put("bodyLength", body.length);
        out.put("bodyMd5", hex(MessageDigest.getInstance("MD5").digest(body)));
        if (body.length <= BODY_SHOWN) {
            out.put("body", Base64.getEncoder().encodeToString(body));
        }
        return out;
    }

    static List<Object> describe(Iterable<MessageExt> messages) throws Exception {
        List<Object> out = new ArrayList<>();
        for (MessageExt message : messages) {
            out.add(describe(message));
        }
        return out;
    }

    private static String hex(byte[] bytes) {
        StringBuilder out = new StringBuilder();
        for (byte b : bytes) {
            out.append(String.format("%02x", b));
        }
        return out.toString();
    }
}

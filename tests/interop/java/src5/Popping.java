import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.ClientRemotingProcessor;
import org.apache.rocketmq.client.impl.mqclient.MQClientAPIExt;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.NotificationRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The single POP requests of the 5.x client, as Apache's proxy and integration tests send them. */
final class Popping {
    private static final long TIMEOUT_MS = 10_000;
    private static final Map<Boolean, MQClientAPIExt> CLIENTS = new ConcurrentHashMap<>();
    private static final Map<String, CompletableFuture<Boolean>> NOTIFICATIONS = new ConcurrentHashMap<>();

    private Popping() {
    }

    static Object run(Args args) throws Exception {
        switch (args.command) {
            case "pop.pop":
                return described(pop(args));
            case "pop.ack":
                return status(ack(args, args.get("handle")));
            case "pop.batchAck":
                return status(client(false)
                    .batchAckMessageAsync(args.get("broker"), args.get("topic"), args.get("group"),
                        Arrays.asList(args.get("handles").split("\n")), TIMEOUT_MS)
                    .get(TIMEOUT_MS, TimeUnit.MILLISECONDS));
            case "pop.hide":
                return status(hide(args));
            case "pop.notify":
                NOTIFICATIONS.put(args.get("id"), notification(args));
                return Collections.emptyMap();
            case "pop.notified":
                return Collections.singletonMap("has",
                    NOTIFICATIONS.remove(args.get("id")).get(TIMEOUT_MS, TimeUnit.MILLISECONDS));
            case "pop.forward":
                return forward(args);
            case "pop.reset":
                return reset(args);
            default:
                throw new IllegalArgumentException("unknown command: " + args.command);
        }
    }

    /** {@code raw}: bodies as they are stored, perhaps compressed. */
    private static MQClientAPIExt client(boolean raw) {
        return CLIENTS.computeIfAbsent(raw, key -> {
            ClientConfig config = new ClientConfig();
            config.setInstanceName("popping-" + key);
            config.setDecodeDecompressBody(!key);
            MQClientAPIExt made = new MQClientAPIExt(
                config, new NettyClientConfig(), new ClientRemotingProcessor(null), null);
            made.start();
            return made;
        });
    }

    private static PopResult pop(Args args) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(args.get("group"));
        header.setTopic(args.get("topic"));
        header.setQueueId(args.integer("queue", -1));
        header.setMaxMsgNums(args.integer("max", 32));
        header.setInvisibleTime(args.number("invisible", 10_000));
        header.setInitMode(0);
        header.setExpType("TAG");
        header.setExp(args.get("expression", "*"));
        header.setOrder(args.flag("order"));
        header.setAttemptId(args.get("attempt", null));
        long poll = args.number("poll", 0);
        if (poll > 0) {
            header.setPollTime(poll);
            header.setBornTime(System.currentTimeMillis());
        }
        return client(args.flag("raw"))
            .popMessageAsync(args.get("broker"), args.get("brokerName"), header, poll + TIMEOUT_MS)
            .get(poll + TIMEOUT_MS, TimeUnit.MILLISECONDS);
    }

    private static Map<String, Object> described(PopResult popped) throws Exception {
        Map<String, Object> out = new LinkedHashMap<>();
        List<MessageExt> found = popped.getMsgFoundList();
        out.put("status", popped.getPopStatus().name());
        out.put("messages", found == null ? new ArrayList<>() : Messages.describe(found));
        return out;
    }

    private static AckResult ack(Args args, String handle) throws Exception {
        String[] parts = ExtraInfoUtil.split(handle);
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, args.get("topic"), args.get("group")));
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setConsumerGroup(args.get("group"));
        header.setExtraInfo(handle);
        return client(false).ackMessageAsync(args.get("broker"), header, TIMEOUT_MS)
            .get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
    }

    private static AckResult hide(Args args) throws Exception {
        String handle = args.get("handle");
        String[] parts = ExtraInfoUtil.split(handle);
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, args.get("topic"), args.get("group")));
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setConsumerGroup(args.get("group"));
        header.setExtraInfo(handle);
        header.setInvisibleTime(args.number("invisible", 0));
        return client(false)
            .changeInvisibleTimeAsync(args.get("broker"), args.get("brokerName"), header, TIMEOUT_MS)
            .get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
    }

    private static Map<String, Object> status(AckResult result) {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("status", String.valueOf(result.getStatus()));
        out.put("handle", result.getExtraInfo());
        return out;
    }

    private static CompletableFuture<Boolean> notification(Args args) {
        NotificationRequestHeader header = new NotificationRequestHeader();
        header.setConsumerGroup(args.get("group"));
        header.setTopic(args.get("topic"));
        header.setQueueId(args.integer("queue", -1));
        header.setOrder(args.flag("order"));
        header.setAttemptId(args.get("attempt", null));
        header.setPollTime(args.number("poll", 500));
        header.setBornTime(System.currentTimeMillis());
        return client(false).notification(args.get("broker"), header, TIMEOUT_MS);
    }

    /** Pops one message and sends it on, with all that it has, to another topic. */
    private static Map<String, Object> forward(Args args) throws Exception {
        MessageExt message = pop(args).getMsgFoundList().get(0);
        Map<String, Object> out = Messages.describe(message);
        DefaultMQProducer producer = new DefaultMQProducer("popping-forward");
        producer.setNamesrvAddr(args.get("namesrv"));
        producer.setInstanceName("popping-forward");
        producer.start();
        try {
            message.setTopic(args.get("to"));
            producer.send(message, new MessageQueue(args.get("to"), args.get("brokerName"), 0));
        } finally {
            producer.shutdown();
        }
        return out;
    }

    private static Map<String, Object> reset(Args args) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(args.get("namesrv"));
        admin.setInstanceName("popping-admin");
        admin.start();
        try {
            admin.resetOffsetByQueueId(args.get("broker"), args.get("group"), args.get("topic"),
                args.integer("queue", 0), args.number("offset", 0));
        } finally {
            admin.shutdown();
        }
        return Collections.emptyMap();
    }
}

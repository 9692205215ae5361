import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** The {@code admin.*} commands: the admin client's calls and whole mqadmin commands inside this process. */
final class Admin {
    private final Map<String, DefaultMQAdminExt> open = new HashMap<>();

    private DefaultMQAdminExt client(Args args) throws Exception {
        String namesrv = args.get("namesrv");
        DefaultMQAdminExt admin = open.get(namesrv);
        if (admin == null) {
            admin = new DefaultMQAdminExt(args.integer("timeout", 10000));
            admin.setNamesrvAddr(namesrv);
            Quick.set(admin);
            admin.setInstanceName("admin-" + namesrv);
            admin.start();
            open.put(namesrv, admin);
        }
        return admin;
    }

    /** Create a topic on one broker and wait until the name server knows its route. */
    Object createTopic(Args args) throws Exception {
        int queues = args.integer("queues", 4);
        TopicConfig config = new TopicConfig(args.get("topic"), queues, queues, args.integer("perm", 6));
        config.setOrder(args.flag("order"));
        DefaultMQAdminExt admin = client(args);
        admin.createAndUpdateTopicConfig(args.get("broker"), config);
        return awaitRoute(args);
    }

    /** Wait until the name server routes a topic to the address of a broker. */
    Object awaitRoute(Args args) throws Exception {
        DefaultMQAdminExt admin = client(args);
        long end = System.currentTimeMillis() + args.integer("routeTimeout", 15000);
        while (System.currentTimeMillis() < end) {
            try {
                // The return type moved between 4.x and 5.x, so a direct call would not compile against both.
                Object route = DefaultMQAdminExt.class.getMethod("examineTopicRouteInfo", String.class)
                    .invoke(admin, args.get("topic"));
                if (route.toString().contains(args.get("broker"))) {
                    return Collections.singletonMap("route", route.toString());
                }
            } catch (InvocationTargetException noRouteYet) {
                // The topic arrives with the broker's next registration.
            }
            Thread.sleep(20);
        }
        throw new IllegalStateException("no route of topic " + args.get("topic") + " to " + args.get("broker"));
    }

    Object queryKey(Args args) throws Exception {
        QueryResult result = client(args).queryMessage(args.get("topic"), args.get("key"), args.integer("most", 32), args.number("begin", 0),
            args.number("end", Long.MAX_VALUE));
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("indexLastUpdateTimestamp", result.getIndexLastUpdateTimestamp());
        out.put("messages", Messages.describe(result.getMessageList()));
        return out;
    }

    Object view(Args args) throws Exception {
        return Messages.describe(client(args).viewMessage(args.get("topic"), args.get("msgId")));
    }

    /** Request another check of an abandoned transaction: request 323. */
    Object resume(Args args) throws Exception {
        return Collections.singletonMap("resumed", client(args).resumeCheckHalfMessage(args.get("topic"), args.get("msgId")));
    }

    Object offsets(Args args) throws Exception {
        MessageQueue queue = new MessageQueue(args.get("topic"), args.get("brokerName"), args.integer("queue", 0));
        DefaultMQAdminExt admin = client(args);
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("min", admin.minOffset(queue));
        out.put("max", admin.maxOffset(queue));
        out.put("earliest", admin.earliestMsgStoreTime(queue));
        if (args.has("time")) {
            out.put("searched", admin.searchOffset(queue, args.number("time", 0)));
        }
        return out;
    }

    /** What each member of a group says of its offsets: request 223, which no mqadmin command sends in 5.5. */
    Object consumeStatus(Args args) throws Exception {
        Map<String, Object> members = new LinkedHashMap<>();
        client(args).getConsumeStatus(args.get("topic"), args.get("group"), "").forEach((member, table) -> {
            Map<String, Object> offsets = new LinkedHashMap<>();
            table.forEach((queue, offset) -> offsets.put(String.valueOf(queue.getQueueId()), offset));
            members.put(member, offsets);
        });
        return Collections.singletonMap("members", members);
    }

    /** Run one mqadmin command: {@code 0=topicList}, {@code 1=-n} and so on; the answer is its output. */
    Object mqadmin(Args args) {
        String[] words = new String[args.integer("words", 0)];
        for (int i = 0; i < words.length; i++) {
            words[i] = args.get(Integer.toString(i));
        }
        PrintStream before = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream capture = new PrintStream(printed, true);
        PrintStream errorsBefore = System.err;
        System.setOut(capture);
        System.setErr(capture);
        forbidExit(true);
        try {
            MQAdminStartup.main0(words, null);
        } catch (SecurityException exit) {
            capture.println(exit.getMessage());
        } finally {
            forbidExit(false);
            capture.flush();
            System.setOut(before);
            System.setErr(errorsBefore);
            System.clearProperty("rocketmq.namesrv.addr");
        }
        return Collections.singletonMap("output", printed.toString());
    }

    /** mqadmin exits the process on a wrong command line; this process must continue. */
    @SuppressWarnings("removal")
    private static void forbidExit(boolean forbid) {
        try {
            System.setSecurityManager(!forbid ? null : new SecurityManager() {
                @Override
                public void checkExit(int status) {
                    throw new SecurityException("mqadmin wanted to exit with status " + status);
                }

                @Override
                public void checkPermission(java.security.Permission permission) {
                    // Only the exit matters.
                }
            });
        } catch (UnsupportedOperationException newerJava) {
            return;
        }
    }

    void close() {
        open.values().forEach(DefaultMQAdminExt::shutdown);
        open.clear();
    }
}

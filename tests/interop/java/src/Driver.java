import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;

/**
 * Drives the real RocketMQ client by lines: one command on standard input, one JSON object on standard output.
 * The same source compiles against 4.6.1, 4.9.7 and 5.5.0.
 */
public final class Driver {
    private final Producers producers = new Producers();
    private final Consumers consumers = new Consumers();
    private final Admin admin = new Admin();
    private final Bench bench = new Bench();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        Driver driver = new Driver();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        answers.println("{\"ready\":true}");
        answers.flush();
        String line = lines.readLine();
        while (line != null && !line.equals("exit")) {
            answers.println(Json.of(driver.answer(line)));
            answers.flush();
            line = lines.readLine();
        }
        driver.close();
        System.exit(0);
    }

    private Map<String, Object> answer(String line) {
        try {
            Map<String, Object> out = new LinkedHashMap<>();
            out.put("ok", true);
            out.put("result", run(new Args(line)));
            return out;
        } catch (Throwable failure) {
            return failure(failure);
        }
    }

    private Object run(Args args) throws Exception {
        switch (args.command) {
            case "version":
                return Collections.singletonMap("version", org.apache.rocketmq.common.MQVersion.CURRENT_VERSION);
            case "producer.start":
                return producers.start(args);
            case "producer.send":
                return producers.send(args);
            case "producer.request":
                return producers.request(args);
            case "producer.recall":
                return producers.recall(args);
            case "producer.queues":
                return producers.queues(args);
            case "producer.stop":
                return producers.stop(args);
            case "push.start":
                return consumers.startPush(args, args.has("replier") ? producers.find(args.get("replier")) : null);
            case "push.messages":
                return consumers.pushMessages(args);
            case "push.state":
                return consumers.pushState(args);
            case "push.subscribe":
                return consumers.subscribePush(args);
            case "push.hold":
                return consumers.holdPush(args);
            case "push.stop":
                return consumers.stopPush(args);
            case "pull.start":
                return consumers.startPull(args);
            case "pull.pull":
                return consumers.pull(args);
            case "pull.committed":
                return consumers.committed(args);
            case "pull.sendBack":
                return consumers.sendBack(args);
            case "pull.stop":
                return consumers.stopPull(args);
            case "lite.start":
                return consumers.startLite(args);
            case "lite.poll":
                return consumers.pollLite(args);
            case "lite.commit":
                return consumers.commitLite(args);
            case "lite.stop":
                return consumers.stopLite(args);
            case "admin.createTopic":
                return admin.createTopic(args);
            case "admin.awaitRoute":
                return admin.awaitRoute(args);
            case "admin.queryKey":
                return admin.queryKey(args);
            case "admin.view":
                return admin.view(args);
            case "admin.resume":
                return admin.resume(args);
            case "trace.decode":
                return Traces.decode(args);
            case "admin.consumeStatus":
                return admin.consumeStatus(args);
            case "admin.offsets":
                return admin.offsets(args);
            case "admin.mqadmin":
                return admin.mqadmin(args);
            case "acl.matches":
                return Signing.matches(args);
            case "routing.replay":
                return onlyFrom5("Routing", "replay", args);
            case "filter.evaluate":
                return onlyFrom5("Filtering", "evaluate", args);
            case "allocate.shares":
                return onlyFrom5("Allocating", "shares", args);
            case "bench.send":
                return bench.send(args);
            case "bench.sendAsync":
                return bench.sendAsync(args);
            case "bench.drain":
                return bench.drain(args);
            case "bench.latency":
                return bench.latency(args);
            default:
                if (args.command.startsWith("pop.")) {
                    return onlyFrom5("Popping", "run", args);
                }
                throw new IllegalArgumentException("unknown command: " + args.command);
        }
    }

    /** Call a method that is compiled only against 5.x clients. */
    private static Object onlyFrom5(String name, String method, Args args) throws Exception {
        return Class.forName(name).getDeclaredMethod(method, Args.class).invoke(null, args);
    }

    private void close() {
        consumers.close();
        producers.close();
        admin.close();
    }

    /** Describe a failure with the response code of the peer, if there is one. */
    static Map<String, Object> failure(Throwable failure) {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("ok", false);
        out.put("error", failure.toString());
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            if (cause instanceof MQBrokerException) {
                out.put("code", ((MQBrokerException) cause).getResponseCode());
                out.put("remark", ((MQBrokerException) cause).getErrorMessage());
                break;
            }
            if (cause instanceof MQClientException && !out.containsKey("code")) {
                out.put("code", ((MQClientException) cause).getResponseCode());
                out.put("remark", ((MQClientException) cause).getErrorMessage());
            }
        }
        return out;
    }
}

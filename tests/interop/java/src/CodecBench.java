import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.function.Predicate;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Nanoseconds that Apache's codec takes to decode and to encode one recorded frame.
 *
 * <p>Arguments: the directory with the recorded frames, seconds per measurement. Prints one JSON object a line, in the
 * form of {@code crates/remoting/benches/codec.rs}, which measures the same frames with our codec.
 */
public final class CodecBench {
    private static final int BATCH = 64;
    private static final int ROUNDS = 9;
    private static final int WARM_UP_ROUNDS = 20;

    /** What the server's own pipeline calls since 4.9.3; older versions lack it. */
    private static final MethodHandle FAST_ENCODE = find("fastEncodeHeader", MethodType.methodType(void.class, ByteBuf.class));

    private static Object sink;

    private CodecBench() {
    }

    public static void main(String[] args) throws Throwable {
        double seconds = args.length > 1 ? Double.parseDouble(args[1]) : 0.1;
        for (String form : new String[] {"json", "rocketmq"}) {
            List<byte[]> frames = split(Files.readAllBytes(Path.of(args[0], "5.5.0-" + form + ".bin")));
            row("send request", form, pick(frames, c -> !c.isResponseType() && c.getCode() == 310), seconds);
            row("pull request", form, pick(frames, c -> !c.isResponseType() && c.getCode() == 11), seconds);
            row("pull response", form, pick(frames, CodecBench::isPullResponse), seconds);
            row("route request", form, pick(frames, c -> !c.isResponseType() && c.getCode() == 105), seconds);
            row("route response", form, pick(frames, CodecBench::isRouteResponse), seconds);
        }
        System.exit(sink == null ? 1 : 0);
    }

    private static boolean isPullResponse(RemotingCommand command) {
        return command.isResponseType() && command.getCode() == 0 && command.getBody() != null
            && command.getExtFields() != null && command.getExtFields().containsKey("nextBeginOffset");
    }

    private static boolean isRouteResponse(RemotingCommand command) {
        return command.isResponseType() && command.getCode() == 0 && command.getBody() != null
            && new String(command.getBody(), StandardCharsets.UTF_8).startsWith("{\"brokerDatas\"");
    }

    private static MethodHandle find(String name, MethodType type) {
        try {
            return MethodHandles.lookup().findVirtual(RemotingCommand.class, name, type);
        } catch (ReflectiveOperationException e) {
            return null;
        }
    }

    private static List<byte[]> split(byte[] file) {
        List<byte[]> frames = new ArrayList<>();
        for (int at = 0; at < file.length;) {
            int end = at + 4 + ByteBuffer.wrap(file, at, 4).getInt();
            frames.add(Arrays.copyOfRange(file, at, end));
            at = end;
        }
        return frames;
    }

    /** Of the frames that match, the one of middle size. */
    private static byte[] pick(List<byte[]> frames, Predicate<RemotingCommand> wanted) throws Exception {
        List<byte[]> found = new ArrayList<>();
        for (byte[] frame : frames) {
            if (wanted.test(RemotingCommand.decode(ByteBuffer.wrap(frame, 4, frame.length - 4).slice()))) {
                found.add(frame);
            }
        }
        found.sort(Comparator.comparingInt(frame -> frame.length));
        return found.get(found.size() / 2);
    }

    private interface Batch {
        long run() throws Throwable;
    }

    private static void row(String name, String form, byte[] frame, double seconds) throws Throwable {
        RemotingCommand command = RemotingCommand.decode(ByteBuffer.wrap(frame, 4, frame.length - 4).slice());
        ByteBuffer whole = ByteBuffer.wrap(frame, 4, frame.length - 4).slice();
        ByteBuf out = Unpooled.buffer(64 * 1024);
        double decode = median(seconds, () -> {
            long begin = System.nanoTime();
            for (int i = 0; i < BATCH; i++) {
                whole.position(0);
                sink = RemotingCommand.decode(whole);
            }
            return System.nanoTime() - begin;
        });
        double encode = median(seconds, () -> {
            long begin = System.nanoTime();
            for (int i = 0; i < BATCH; i++) {
                if (FAST_ENCODE == null) {
                    sink = command.encodeHeader();
                } else {
                    out.clear();
                    FAST_ENCODE.invokeExact(command, out);
                }
            }
            return System.nanoTime() - begin;
        });
        System.out.println(String.format(Locale.ROOT,
            "{\"frame\":\"%s\",\"form\":\"%s\",\"bytes\":%d,\"decode_ns\":%.1f,\"encode_ns\":%.1f}",
            name, form, frame.length, decode, encode));
    }

    /** Nanoseconds for one frame, the median of all batches: a batch that lost the processor does not count. */
    private static double median(double seconds, Batch batch) throws Throwable {
        List<Long> spent = new ArrayList<>();
        for (int round = 0; round < WARM_UP_ROUNDS + ROUNDS; round++) {
            long end = System.nanoTime() + (long) (seconds * 1e9);
            while (System.nanoTime() < end) {
                long time = batch.run();
                if (round >= WARM_UP_ROUNDS) {
                    spent.add(time);
                }
            }
        }
        spent.sort(null);
        return spent.get(spent.size() / 2) / (double) BATCH;
    }
}

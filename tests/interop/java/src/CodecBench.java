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
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/**
 * Nanoseconds that Apache's codec takes to decode and to encode one recorded frame.
 *
 * <p>Arguments: the directory with the recorded frames, seconds per measurement. Prints one JSON object per line, in the
 * form of {@code crates/remoting/benches/codec.rs}, which measures the same frames with our codec.
 */
public final class CodecBench {
    private static final int BATCH = 64;
    private static final int ROUNDS = 9;
    private static final int WARM_UP_ROUNDS = 20;

    /** The method that the server's pipeline calls since 4.9.3; older versions lack it. */
    private static final MethodHandle FAST_ENCODE = find("fastEncodeHeader", MethodType.methodType(void.class, ByteBuf.class));

    /** Reads from Netty's buffer, like the server's pipeline; older versions lack it. */
    private static final MethodHandle DECODE = findDecode();

    private static Object sink;

    private CodecBench() {
    }

    public static void main(String[] args) throws Throwable {
        double seconds = args.length > 1 ? Double.parseDouble(args[1]) : 0.1;
        for (String form : new String[] {"json", "rocketmq"}) {
            List<byte[]> frames = split(Files.readAllBytes(Path.of(args[0], "5.5.0-" + form + ".bin")));
            row("send request", form, pick(frames, c -> !c.isResponseType() && c.getCode() == 310),
                "SendMessageRequestHeaderV2", seconds);
            row("pull request", form, pick(frames, c -> !c.isResponseType() && c.getCode() == 11),
                "PullMessageRequestHeader", seconds);
            row("pull response", form, pick(frames, CodecBench::isPullResponse), "PullMessageResponseHeader", seconds);
            row("route request", form, pick(frames, c -> !c.isResponseType() && c.getCode() == 105),
                "GetRouteInfoRequestHeader", seconds);
            row("route response", form, pick(frames, CodecBench::isRouteResponse), null, seconds);
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

    private static MethodHandle findDecode() {
        try {
            MethodType type = MethodType.methodType(RemotingCommand.class, ByteBuf.class);
            return MethodHandles.lookup().findStatic(RemotingCommand.class, "decode", type);
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

    /** Returns the matching frame of median size. */
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

    private interface Encoder {
        RemotingCommand command() throws Throwable;
    }

    private interface Reader {
        Object read(RemotingCommand command) throws Throwable;
    }

    private static void row(String name, String form, byte[] frame, String header, double seconds) throws Throwable {
        RemotingCommand command = RemotingCommand.decode(ByteBuffer.wrap(frame, 4, frame.length - 4).slice());
        SerializeType type = command.getSerializeTypeCurrentRPC();
        Reader reader = reader(header);
        CommandCustomHeader structure = header == null ? null : command.decodeCommandCustomHeader(type(header));
        Encoder made = () -> {
            RemotingCommand next = command.isResponseType()
                ? RemotingCommand.createResponseCommand(command.getCode(), null)
                : RemotingCommand.createRequestCommand(command.getCode(), structure);
            if (command.isResponseType() && structure != null) {
                next = responseWith(command.getCode(), structure);
            }
            next.setSerializeTypeCurrentRPC(type);
            next.setBody(command.getBody());
            return next;
        };
        double decode = median(seconds, decode(frame, read -> read));
        double encode = median(seconds, encode(() -> command));
        double typedDecode = median(seconds, decode(frame, reader));
        double typedEncode = median(seconds, encode(made));
        System.out.println(String.format(Locale.ROOT, "{\"frame\":\"%s\",\"form\":\"%s\",\"bytes\":%d,\"decode_ns\":%.1f,"
                + "\"encode_ns\":%.1f,\"typed_decode_ns\":%.1f,\"typed_encode_ns\":%.1f}",
            name, form, frame.length, decode, encode, typedDecode, typedEncode));
    }

    private static RemotingCommand responseWith(int code, CommandCustomHeader structure) {
        RemotingCommand response = RemotingCommand.createRequestCommand(code, structure);
        response.markResponseType();
        return response;
    }

    private static Batch decode(byte[] frame, Reader then) {
        ByteBuf input = Unpooled.wrappedBuffer(frame, 4, frame.length - 4);
        ByteBuffer whole = ByteBuffer.wrap(frame, 4, frame.length - 4).slice();
        return () -> {
            long begin = System.nanoTime();
            for (int i = 0; i < BATCH; i++) {
                if (DECODE == null) {
                    whole.position(0);
                    sink = then.read(RemotingCommand.decode(whole));
                } else {
                    input.readerIndex(0);
                    sink = then.read((RemotingCommand) DECODE.invokeExact(input));
                }
            }
            return System.nanoTime() - begin;
        };
    }

    private static Batch encode(Encoder commands) {
        ByteBuf out = Unpooled.buffer(64 * 1024);
        return () -> {
            long begin = System.nanoTime();
            for (int i = 0; i < BATCH; i++) {
                RemotingCommand command = commands.command();
                if (FAST_ENCODE == null) {
                    sink = command.encodeHeader();
                } else {
                    out.clear();
                    FAST_ENCODE.invokeExact(command, out);
                }
            }
            return System.nanoTime() - begin;
        };
    }

    /** Reads the header structure, as a broker or client does next; a send's becomes the one with full names. */
    private static Reader reader(String header) throws ReflectiveOperationException {
        if (header == null) {
            return command -> command;
        }
        Class<? extends CommandCustomHeader> type = type(header);
        if (!header.equals("SendMessageRequestHeaderV2")) {
            return command -> command.decodeCommandCustomHeader(type);
        }
        MethodHandle full = MethodHandles.lookup().findStatic(type, "createSendMessageRequestHeaderV1",
            MethodType.methodType(type("SendMessageRequestHeader"), type))
            .asType(MethodType.methodType(CommandCustomHeader.class, CommandCustomHeader.class));
        return command -> (CommandCustomHeader) full.invokeExact((CommandCustomHeader) command.decodeCommandCustomHeader(type));
    }

    /** A header structure's class; 5.x moved them. */
    private static Class<? extends CommandCustomHeader> type(String name) throws ClassNotFoundException {
        String[] packages = name.startsWith("GetRouteInfo")
            ? new String[] {"remoting.protocol.header.namesrv", "common.protocol.header.namesrv"}
            : new String[] {"remoting.protocol.header", "common.protocol.header"};
        try {
            return Class.forName("org.apache.rocketmq." + packages[0] + "." + name).asSubclass(CommandCustomHeader.class);
        } catch (ClassNotFoundException e) {
            return Class.forName("org.apache.rocketmq." + packages[1] + "." + name).asSubclass(CommandCustomHeader.class);
        }
    }

    /** Nanoseconds for one frame, the median of all batches: so a batch that lost the processor does not count. */
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

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Changes a consumer's questions for its committed offsets. {@code query=strict}: an offset that is not there is an
 * error, not 0; {@code query=nameless}: they name no topic, which no broker takes.
 */
final class Queries implements RPCHook {
    private static final int QUERY_CONSUMER_OFFSET = 14;

    private final boolean strict;
    private final Set<Integer> codes = new ConcurrentSkipListSet<>();

    Queries(String how) {
        strict = how.equals("strict");
    }

    /** The codes of the answers, each once. */
    List<Integer> codes() {
        return new ArrayList<>(codes);
    }

    @Override
    public void doBeforeRequest(String address, RemotingCommand request) {
        if (request.getCode() != QUERY_CONSUMER_OFFSET) {
            return;
        }
        // The header's package differs between 4.x and 5.x.
        Object header = request.readCustomHeader();
        try {
            if (strict) {
                Reflect.setIfThere(header, "setSetZeroIfNotFound", Boolean.class, false);
            } else {
                Reflect.setIfThere(header, "setTopic", String.class, null);
            }
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
    }

    @Override
    public void doAfterResponse(String address, RemotingCommand request, RemotingCommand response) {
        if (request.getCode() == QUERY_CONSUMER_OFFSET) {
            codes.add(response.getCode());
        }
    }
}

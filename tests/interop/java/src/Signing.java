import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** Signs requests, and asks 4.x's own classes whether an address is in a white list. */
final class Signing {
    private static final String PLAIN = "org.apache.rocketmq.acl.plain.";

    private Signing() {
    }

    /** The hook that signs for the account of the arguments; null without one. */
    static RPCHook hook(Args args) {
        if (!args.has("accessKey")) {
            return null;
        }
        return new AclClientRPCHook(new SessionCredentials(args.get("accessKey"), args.get("secretKey")));
    }

    /** For each pair of pattern and address: whether it matches; null if the pattern is refused. */
    static Object matches(Args args) throws Exception {
        List<Object> found = new ArrayList<>();
        for (String pair : args.get("pairs").split("\n")) {
            String[] parts = pair.split(" ");
            found.add(matches(parts[0], parts[1]));
        }
        return found;
    }

    private static Object matches(String pattern, String address) throws Exception {
        Class<?> factory = Class.forName(PLAIN + "RemoteAddressStrategyFactory");
        Class<?> resource = Class.forName(PLAIN + "PlainAccessResource");
        Object peer = resource.getDeclaredConstructor().newInstance();
        resource.getMethod("setWhiteRemoteAddress", String.class).invoke(peer, address);
        Method read = factory.getMethod("getRemoteAddressStrategy", String.class);
        Method match = Class.forName(PLAIN + "RemoteAddressStrategy").getMethod("match", resource);
        try {
            Object strategy = read.invoke(factory.getDeclaredConstructor().newInstance(), pattern);
            match.setAccessible(true);
            return match.invoke(strategy, peer);
        } catch (InvocationTargetException refused) {
            return null;
        }
    }
}

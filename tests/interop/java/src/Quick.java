import org.apache.rocketmq.client.ClientConfig;

/** Settings of every client here: a loopback address, and periods for which a test can wait. */
final class Quick {
    private static final int PERIOD_MS = 1000;

    private Quick() {
    }

    static void set(ClientConfig client) {
        client.setClientIP("127.0.0.1");
        client.setPollNameServerInterval(PERIOD_MS);
        client.setHeartbeatBrokerInterval(PERIOD_MS);
        client.setPersistConsumerOffsetInterval(PERIOD_MS);
    }
}

import org.apache.rocketmq.client.ClientConfig;

/** Settings of every client here: loopback as its address, and periods that a test can wait for. */
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

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The {@code allocate.*} commands: the client's allocation strategies on groups of the caller.
 */
final class Allocating {
    private Allocating() {
    }

    /**
     * Allocate {@code cases}, one per line: {@code strategy;queue,queue;client,client;me}, a queue as {@code topic:broker:id}, every
     * part URL-encoded. A strategy is {@code AVG}, {@code AVG_BY_CIRCLE}, {@code CONSISTENT_HASH:nodes},
     * {@code MACHINE_ROOM:room:room}, {@code CONFIG} for every second queue, or {@code NEARBY:} and one of them; the room of a
     * broker or client is the text before the first {@code @}.
     *
     * <p>The answer has for each the indexes of the queues, separated by commas, or {@code -} for a refused call.
     */
    static Object shares(Args args) throws Exception {
        List<String> results = new ArrayList<>();
        for (String line : args.get("cases").split("\n")) {
            String[] parts = line.split(";", -1);
            List<MessageQueue> queues = new ArrayList<>();
            Map<MessageQueue, Integer> places = new IdentityHashMap<>();
            for (String queue : list(parts[1])) {
                String[] words = queue.split(":", -1);
                MessageQueue one = new MessageQueue(Filtering.decoded(words[0]), Filtering.decoded(words[1]), Integer.parseInt(words[2]));
                places.put(one, queues.size());
                queues.add(one);
            }
            List<String> clients = new ArrayList<>();
            for (String client : list(parts[2])) {
                clients.add(Filtering.decoded(client));
            }
            results.add(share(strategy(parts[0], queues), queues, places, clients, Filtering.decoded(parts[3])));
        }
        return results;
    }

    private static String share(AllocateMessageQueueStrategy strategy, List<MessageQueue> queues, Map<MessageQueue, Integer> places,
        List<String> clients, String me) {
        StringBuilder answer = new StringBuilder(strategy.getName());
        try {
            for (MessageQueue queue : strategy.allocate("group", me, queues, clients)) {
                answer.append(',').append(places.get(queue));
            }
        } catch (IllegalArgumentException refused) {
            return "-";
        }
        return answer.toString();
    }

    private static AllocateMessageQueueStrategy strategy(String text, List<MessageQueue> queues) throws Exception {
        String[] words = text.split(":", -1);
        switch (words[0]) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash(Integer.parseInt(words[1]));
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom room = new AllocateMessageQueueByMachineRoom();
                HashSet<String> rooms = new HashSet<>();
                for (String word : Arrays.asList(words).subList(1, words.length)) {
                    rooms.add(Filtering.decoded(word));
                }
                room.setConsumeridcs(rooms);
                return room;
            case "CONFIG":
                AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
                List<MessageQueue> mine = new ArrayList<>();
                for (int at = 0; at < queues.size(); at += 2) {
                    mine.add(queues.get(at));
                }
                config.setMessageQueueList(mine);
                return config;
            case "NEARBY":
                return new AllocateMachineRoomNearby(strategy(text.substring("NEARBY:".length()), queues),
                    new AllocateMachineRoomNearby.MachineRoomResolver() {
                        @Override
                        public String brokerDeployIn(MessageQueue queue) {
                            return queue.getBrokerName().split("@", -1)[0];
                        }

                        @Override
                        public String consumerDeployIn(String client) {
                            return client.split("@", -1)[0];
                        }
                    });
            default:
                throw new IllegalStateException("unknown strategy: " + text);
        }
    }

    private static String[] list(String text) {
        return text.isEmpty() ? new String[0] : text.split(",", -1);
    }
}

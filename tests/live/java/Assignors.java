import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Runs the Java client's own assignors on the cases of standard input, one a line:
 * {@code strategy TAB topic:partitions,... TAB member=instance=subscription,...}, where the subscription is what the
 * member's JoinGroup carries, in hex, and members come as JoinGroup lists them. Prints for each
 * {@code member=topic-partition+topic-partition,...}, members sorted, or {@code ! exception} where Java's fails.
 * Three other questions: {@code generation TAB subscription}: which one does cooperative-sticky read there?
 * {@code strings TAB a,b,...}: in which order does a HashMap walk these keys? {@code partitions TAB topic TAB +1,+2,-1}:
 * after these are put in and taken out, which partition of a HashSet comes first?
 */
public class Assignors {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null; ) {
            out.println(answer(line.split("\t", -1)));
        }
        out.flush();
    }

    private static String answer(String[] fields) {
        try {
            switch (fields[0]) {
                case "generation": return String.valueOf(new Reading().generation(subscription(fields[1])));
                case "strings": return strings(fields[1].split(","));
                case "partitions": return firstPartition(fields[1], fields[2].split(","));
            }
            return print(assignor(fields[0]).assign(cluster(fields[1]), subscriptions(fields[2])).groupAssignment());
        } catch (RuntimeException failure) {
            return "! " + failure;
        }
    }

    /** A new one for each case: the sticky assignor remembers the highest generation that it saw. */
    private static ConsumerPartitionAssignor assignor(String strategy) {
        return switch (strategy) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            default -> new CooperativeStickyAssignor();
        };
    }

    private static class Reading extends CooperativeStickyAssignor {
        int generation(Subscription subscription) {
            return memberData(subscription).generation.orElse(DEFAULT_GENERATION);
        }
    }

    private static String strings(String[] keys) {
        Map<String, Boolean> map = new HashMap<>();
        for (String key : keys) {
            map.put(key, true);
        }
        return String.join(",", map.keySet());
    }

    private static String firstPartition(String topic, String[] changes) {
        Set<TopicPartition> set = new HashSet<>();
        for (String change : changes) {
            TopicPartition partition = new TopicPartition(topic, Integer.parseInt(change.substring(1)));
            if (change.startsWith("+")) {
                set.add(partition);
            } else {
                set.remove(partition);
            }
        }
        return String.valueOf(set.iterator().next().partition());
    }

    private static Subscription subscription(String hex) {
        return ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(HexFormat.of().parseHex(hex)));
    }

    private static Cluster cluster(String topics) {
        Node node = new Node(0, "localhost", 9092);
        Node[] nodes = {node};
        List<PartitionInfo> partitions = new ArrayList<>();
        for (String topic : split(topics, ",")) {
            String[] parts = topic.split(":");
            for (int p = Integer.parseInt(parts[1]) - 1; p >= 0; p--) {
                partitions.add(new PartitionInfo(parts[0], p, node, nodes, nodes));
            }
        }
        return new Cluster("cluster", List.of(node), partitions, Set.of(), Set.of());
    }

    private static GroupSubscription subscriptions(String members) {
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (String member : split(members, ",")) {
            String[] parts = member.split("=", -1);
            Subscription subscription = subscription(parts[2]);
            subscription.setGroupInstanceId(parts[1].isEmpty() ? Optional.empty() : Optional.of(parts[1]));
            subscriptions.put(parts[0], subscription);
        }
        return new GroupSubscription(subscriptions);
    }

    private static String print(Map<String, Assignment> assignment) {
        List<String> members = new ArrayList<>();
        new TreeMap<>(assignment).forEach((member, assigned) -> {
            List<String> partitions = new ArrayList<>();
            for (TopicPartition tp : assigned.partitions()) {
                partitions.add(tp.topic() + "-" + tp.partition());
            }
            members.add(member + "=" + String.join("+", partitions));
        });
        return String.join(",", members);
    }

    private static List<String> split(String text, String separator) {
        return text.isEmpty() ? List.of() : List.of(text.split(separator));
    }
}

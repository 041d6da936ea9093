import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
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
 * A line {@code generation TAB subscription} asks for the generation that cooperative-sticky reads there.
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
        if (fields[0].equals("generation")) {
            return String.valueOf(new Reading().generation(subscription(fields[1])));
        }
        try {
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

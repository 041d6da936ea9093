import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Runs the Java client's own assignors on the cases of standard input, one a line:
 * {@code strategy TAB topic:partitions,... TAB member=instance=topic+topic,...}, and prints for each
 * {@code member=topic-partition+topic-partition,...}, members sorted.
 */
public class Assignors {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null; ) {
            String[] fields = line.split("\t", -1);
            ConsumerPartitionAssignor assignor = fields[0].equals("range") ? new RangeAssignor() : new RoundRobinAssignor();
            out.println(print(assignor.assign(cluster(fields[1]), subscriptions(fields[2])).groupAssignment()));
        }
        out.flush();
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
            Subscription subscription = new Subscription(split(parts[2], "\\+"));
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

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import kafka.producer.ByteArrayPartitioner;
import kafka.producer.DefaultPartitioner;

/**
 * For each line of standard input, {@code hex TAB count}: the partitions that the two partitioners of Kafka 0.8's Scala
 * producer choose for a key, DefaultPartitioner for the string and ByteArrayPartitioner for the bytes.
 */
public class OldPartitioners {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        DefaultPartitioner ofStrings = new DefaultPartitioner(null);
        ByteArrayPartitioner ofBytes = new ByteArrayPartitioner(null);
        for (String line; (line = in.readLine()) != null; ) {
            String[] fields = line.split("\t", -1);
            byte[] key = HexFormat.of().parseHex(fields[0]);
            int count = Integer.parseInt(fields[1]);
            String text = new String(key, StandardCharsets.UTF_8);
            System.out.println(ofStrings.partition(text, count) + "\t" + ofBytes.partition(key, count));
        }
    }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.utils.Utils;

/**
 * Answers the questions of standard input, one a line. {@code key TAB hex}: the hashes of a key: murmur2,
 * String.hashCode of its UTF-8, Arrays.hashCode of its bytes, CRC-32. {@code partition TAB hex TAB count}: the
 * partition that the producer chooses for this key. {@code config TAB name=value,...}: idempotence, acks, or
 * {@code ! message} where ProducerConfig refuses the properties.
 */
public class Partitions {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null; ) {
            out.println(answer(line.split("\t", -1)));
        }
        out.flush();
    }

    private static String answer(String[] fields) throws Exception {
        switch (fields[0]) {
            case "key": return hashes(HexFormat.of().parseHex(fields[1]));
            case "partition": return partition(HexFormat.of().parseHex(fields[1]), Integer.parseInt(fields[2]));
            default: return config(fields[1]);
        }
    }

    private static String hashes(byte[] key) {
        CRC32 crc = new CRC32();
        crc.update(key);
        List<String> hashes = new ArrayList<>();
        hashes.add(String.valueOf(Utils.murmur2(key)));
        hashes.add(String.valueOf(new String(key, StandardCharsets.UTF_8).hashCode()));
        hashes.add(String.valueOf(Arrays.hashCode(key)));
        hashes.add(String.valueOf(crc.getValue()));
        return String.join("\t", hashes);
    }

    private static String partition(byte[] key, int count) throws Exception {
        Class<?> builtIn = Class.forName("org.apache.kafka.clients.producer.internals.BuiltInPartitioner");
        return String.valueOf(builtIn.getMethod("partitionForKey", byte[].class, int.class).invoke(null, key, count));
    }

    private static String config(String properties) {
        Map<String, Object> given = new HashMap<>();
        given.put("bootstrap.servers", "localhost:9092");
        String serializer = "org.apache.kafka.common.serialization.ByteArraySerializer";
        given.put("key.serializer", serializer);
        given.put("value.serializer", serializer);
        for (String property : properties.isEmpty() ? new String[0] : properties.split(",")) {
            String[] parts = property.split("=", 2);
            given.put(parts[0], parts[1]);
        }
        try {
            ProducerConfig config = new ProducerConfig(given);
            return config.getBoolean("enable.idempotence") + "\t" + config.getString("acks");
        } catch (RuntimeException refused) {
            return "! " + refused.getMessage();
        }
    }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.NameCallback;
import javax.security.auth.callback.PasswordCallback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.security.auth.SaslExtensions;
import org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerClientInitialResponse;
import org.apache.kafka.common.security.scram.internals.ScramFormatter;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.scram.internals.ScramMessages;

/**
 * Answers the questions of standard input, one a line. All fields but the first are the hex of UTF-8; an answer is
 * fields in hex, or {@code ! message} where Java refuses. {@code jaas, text}: the login module, its control flag, and
 * each option's name and value; a name that Java takes as null is missing, {@code -}. {@code plain, user, password}:
 * the message. {@code scram, mechanism, user, password, client nonce, server nonce, salt, iterations, extension
 * names and values}: the four messages. {@code oauth, token, extension names and values}: the first message.
 */
public class SaslAnswers {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null; ) {
            out.println(answer(line.split("\t", -1)).replaceAll("[^\\x20-\\x7e\\t]", "?"));
        }
        out.flush();
    }

    private static String answer(String[] fields) {
        try {
            switch (fields[0]) {
                case "jaas": return jaas(text(fields[1]));
                case "plain": return plain(text(fields[1]), text(fields[2]));
                case "scram": return scram(fields);
                case "oauth": return oauth(text(fields[1]), pairs(fields, 2));
                default: throw new IllegalStateException(fields[0]);
            }
        } catch (Exception refused) {
            return "! " + refused.getMessage();
        }
    }

    private static String text(String field) {
        return new String(HEX.parseHex(field), StandardCharsets.UTF_8);
    }

    private static String hex(String text) {
        return text == null ? "-" : HEX.formatHex(text.getBytes(StandardCharsets.UTF_8));
    }

    private static Map<String, String> pairs(String[] fields, int from) {
        Map<String, String> pairs = new LinkedHashMap<>();
        for (int i = from; i + 1 < fields.length; i += 2) {
            pairs.put(text(fields[i]), text(fields[i + 1]));
        }
        return pairs;
    }

    private static String jaas(String config) {
        Map<String, Object> configs = Map.of("sasl.jaas.config", new Password(config));
        AppConfigurationEntry entry = JaasContext.loadClientContext(configs).configurationEntries().get(0);
        StringBuilder answer = new StringBuilder(hex(entry.getLoginModuleName()));
        String flag = entry.getControlFlag().toString();
        answer.append('\t').append(hex(flag.substring(flag.lastIndexOf(' ') + 1)));
        Map<String, String> sorted = new TreeMap<>();
        entry.getOptions().forEach((name, value) -> sorted.put(hex(name), hex((String) value)));
        sorted.forEach((name, value) -> answer.append('\t').append(name).append('\t').append(value));
        return answer.toString();
    }

    private static String plain(String user, String password) throws Exception {
        String[] mechanisms = {"PLAIN"};  // Java's own client of PLAIN, which Kafka's client uses
        Map<String, Object> properties = new HashMap<>();
        return HEX.formatHex(javax.security.sasl.Sasl.createSaslClient(mechanisms, null, "kafka", "localhost", properties,
            callbacks -> {
                for (Callback callback : callbacks) {
                    if (callback instanceof NameCallback) {
                        ((NameCallback) callback).setName(user);
                    } else {
                        ((PasswordCallback) callback).setPassword(password.toCharArray());
                    }
                }
            }).evaluateChallenge(new byte[0]));
    }

    private static String scram(String[] fields) throws Exception {
        ScramMechanism mechanism = ScramMechanism.forMechanismName(text(fields[1]));
        ScramFormatter formatter = new ScramFormatter(mechanism);
        String clientNonce = text(fields[4]);
        byte[] salt = HEX.parseHex(fields[6]);
        int iterations = Integer.parseInt(text(fields[7]));
        ScramMessages.ClientFirstMessage clientFirst = new ScramMessages.ClientFirstMessage(
            ScramFormatter.saslName(text(fields[2])), clientNonce, pairs(fields, 8));
        ScramMessages.ServerFirstMessage serverFirst =
            new ScramMessages.ServerFirstMessage(clientNonce, text(fields[5]), salt, iterations);
        byte[] salted = formatter.hi(ScramFormatter.normalize(text(fields[3])), salt, iterations);
        ScramMessages.ClientFinalMessage clientFinal = new ScramMessages.ClientFinalMessage(
            "n,,".getBytes(StandardCharsets.UTF_8), serverFirst.nonce());
        clientFinal.proof(formatter.clientProof(salted, clientFirst, serverFirst, clientFinal));
        byte[] signature = formatter.serverSignature(formatter.serverKey(salted), clientFirst, serverFirst, clientFinal);
        ScramMessages.ServerFinalMessage serverFinal = new ScramMessages.ServerFinalMessage(null, signature);
        return String.join("\t", HEX.formatHex(clientFirst.toBytes()), HEX.formatHex(serverFirst.toBytes()),
            HEX.formatHex(clientFinal.toBytes()), HEX.formatHex(serverFinal.toBytes()));
    }

    private static String oauth(String token, Map<String, String> extensions) throws Exception {
        SaslExtensions valid = new SaslExtensions(extensions);
        return HEX.formatHex(new OAuthBearerClientInitialResponse(token, valid).toBytes());
    }
}

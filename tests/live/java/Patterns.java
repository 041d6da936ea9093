import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

/**
 * Matches the names of a line with its expression: {@code expression, name, name, ...} between tabs. The answer has two
 * digits for each name, whether the expression is found in it and whether it matches the whole name; or {@code !} if
 * the expression is invalid.
 */
public class Patterns {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null; ) {
            out.println(answer(line.split("\t", -1)));
        }
        out.flush();
    }

    private static String answer(String[] fields) {
        Pattern pattern;
        try {
            pattern = Pattern.compile(fields[0]);
        } catch (PatternSyntaxException e) {
            return "!";
        }
        StringBuilder digits = new StringBuilder();
        for (int i = 1; i < fields.length; i++) {
            Matcher matcher = pattern.matcher(fields[i]);
            digits.append(matcher.find() ? '1' : '0').append(matcher.matches() ? '1' : '0');
        }
        return digits.toString();
    }
}

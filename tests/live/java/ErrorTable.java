import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.errors.RefreshRetriableException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** One line per error code: code, name, retriable, whether it asks for metadata, whether for any refresh. */
public class ErrorTable {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values()) {
            Exception raised = error.exception();
            System.out.println(String.join("\t",
                    String.valueOf(error.code()),
                    error.name(),
                    String.valueOf(raised instanceof RetriableException),
                    String.valueOf(raised instanceof InvalidMetadataException),
                    String.valueOf(raised instanceof RefreshRetriableException)));
        }
    }
}

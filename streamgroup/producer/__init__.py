"""Pure: batches per partition, the order of requests, sequences, retries."""

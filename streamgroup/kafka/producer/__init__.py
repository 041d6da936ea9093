"""The producer as a pure state machine: it chooses partitions, batches, requests, their order and retries."""

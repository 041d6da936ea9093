"""The client's view of a Kafka or Kafka 0.7 cluster: metadata, offsets of logs, groups, and changes by an operator."""

"""A cluster as planning and the command line see it: metadata, offsets of logs, groups; Kafka and Kafka 0.7."""

"""How tasks read the logs of Kafka 0.7, where an offset is a byte position."""

"""How tasks read the logs of Kafka 0.8 and everything after it."""

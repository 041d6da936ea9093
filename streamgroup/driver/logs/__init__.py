"""What the brokers tell of topics and logs, kept up to date for planning; in Kafka 0.7 also where messages end."""

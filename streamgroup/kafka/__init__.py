"""A Kafka client for 0.7 to 4.x, without Spark: wire protocol, records, connections, clusters and the producer."""

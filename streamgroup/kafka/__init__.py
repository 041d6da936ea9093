"""A Kafka client for 0.7 to 4.x: the wire protocol, records, connections, clusters and the producer. Knows no Spark."""

"""Real Kafka and ZooKeeper servers as local processes, for the demo, our tests and yours."""

"""The run's group member, and the threads that carry out its actions at brokers or in ZooKeeper."""

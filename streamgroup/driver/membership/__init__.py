"""The member of a group, and the threads that carry out what it wants: at brokers or in ZooKeeper."""

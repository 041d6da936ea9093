"""Membership in ZooKeeper, as the consumers of Kafka 0.7 and 0.8 kept it. Pure: nodes in, operations on nodes out."""

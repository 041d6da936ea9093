"""Kafka and ZooKeeper of the tests, in this process.

In memory: `group_coordinator.py` (a group and its offsets), `zookeeper.py` (nodes and sessions), `cluster.py` (logs as
numbers). Unit tests script them; the simulation gives the first two a clock and a network. At a port of the loopback:
`broker.py` (answers from a script), `scripted_cluster.py` (brokers as producers meet them, with faults by a script),
`old_broker.py` (one of a release before 0.10), `broker07.py` (one of Kafka 0.7).
"""

"""The ZooKeeper client: a session that reads nodes and applies transactions. Only this package uses kazoo."""

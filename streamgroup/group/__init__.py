"""How a member joins its consumer group, assigns partitions and commits offsets: pure state machines without I/O."""

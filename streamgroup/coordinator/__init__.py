"""The coordinator process, which is the group member of one query: threads, sockets, clock, and the control channel."""

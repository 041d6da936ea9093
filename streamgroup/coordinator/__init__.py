"""The coordinator process: threads, sockets and clock around the run's decisions, and the control channel."""

"""What runs in the coordinator process: its loop, clock and threads, commits, the control channel."""

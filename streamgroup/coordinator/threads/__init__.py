"""The threads of the coordinator process: the group's member, the offset store, the log watcher."""

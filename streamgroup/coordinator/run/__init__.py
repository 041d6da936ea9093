"""One run of a query as pure decisions: no socket, no clock, no thread, no random number, no log."""

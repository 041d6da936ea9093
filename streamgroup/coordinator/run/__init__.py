"""The decisions of one start of a query, as pure code: no socket, clock, thread, random number or log."""

"""The options of a read: their tables, how they are parsed and validated, and which of their values are secret."""

"""The options of reads and writes: their tables, their parsers and checks, and their secret values."""

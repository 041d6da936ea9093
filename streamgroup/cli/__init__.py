"""The `streamgroup` command: one module for each subcommand."""

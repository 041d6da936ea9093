"""The parts of the reference that are written from code: errors and the options of commands."""

"""Where the offsets of a group are kept: one interface, and a store for each place."""

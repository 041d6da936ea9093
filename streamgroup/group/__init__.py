"""Pure: membership, assignors, positions and commits."""

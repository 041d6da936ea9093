"""Pure: bytes <-> Arrow columns, vectorised."""

"""The only kazoo: a session that carries out operations on nodes."""

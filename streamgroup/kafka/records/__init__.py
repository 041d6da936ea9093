"""Decodes fetched bytes to Arrow columns, and encodes Arrow columns to bytes, without sockets."""

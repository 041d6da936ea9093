"""Reads planned ranges of offsets in a task."""

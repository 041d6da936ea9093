"""Writes the rows of a task."""

"""Helpers for the tests of several commands: a partition by its number, and the rows of a printed table."""

from __future__ import annotations

from streamgroup.model import TopicPartition


def orders(partition: int) -> TopicPartition:
    """A partition of the topic that the tests use."""
    return TopicPartition("orders", partition)


def cells(text: str) -> list[str]:
    """Return the rows of a printed table, with one space between two cells."""
    return [" ".join(line.split()) for line in text.splitlines()]

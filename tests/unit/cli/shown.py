"""What tests of commands name and read: partitions, and the cells of tables."""

from __future__ import annotations

from streamgroup.model import TopicPartition


def orders(partition: int) -> TopicPartition:
    """A partition of the topic that the tests use."""
    return TopicPartition("orders", partition)


def cells(text: str) -> list[str]:
    """The lines of a table, one space between cells."""
    return [" ".join(line.split()) for line in text.splitlines()]

"""The counts and offsets of several tasks are added up."""

from __future__ import annotations

from streamgroup.executor.written import PartitionWritten, WriteTotals
from streamgroup.model import TopicPartition

HERE, THERE = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_batches_of_a_partition_are_added_up() -> None:
    written = WriteTotals()
    written.add(HERE, 3, 30, 17)
    written.add(HERE, 2, 20, 10)
    written.add(THERE, 1, 5, 0)
    assert written.partitions == {HERE: PartitionWritten(5, 50, 10, 19), THERE: PartitionWritten(1, 5, 0, 0)}
    assert (written.records, written.bytes) == (6, 55)


def test_a_batch_without_an_offset_leaves_the_known_ones() -> None:
    written = WriteTotals()
    written.add(HERE, 1, 5, -1)
    assert written.partitions[HERE] == PartitionWritten(1, 5, -1, -1)
    written.add(HERE, 2, 10, 4)
    written.add(HERE, 1, 5, -1)
    assert written.partitions[HERE] == PartitionWritten(4, 20, 4, 5)


def test_tasks_are_merged_by_partition() -> None:
    one, other, unknown = WriteTotals(), WriteTotals(), WriteTotals()
    one.notes.add("seen by one")
    one.add(HERE, 2, 20, 5)
    other.add(HERE, 1, 10, 0)
    other.add(THERE, 1, 7, 3)
    unknown.add(HERE, 1, 10, -1)
    total = WriteTotals()
    for each in (unknown, one, other):
        total.merge(each)
    assert total.partitions == {HERE: PartitionWritten(4, 40, 0, 6), THERE: PartitionWritten(1, 7, 3, 3)}
    assert total.notes == {"seen by one"}
    assert one.partitions == {HERE: PartitionWritten(2, 20, 5, 6)}

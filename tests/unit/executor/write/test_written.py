"""The counts and offsets of several tasks are added up."""

from __future__ import annotations

from streamgroup.executor.write.written import PartitionWritten, WriteTotals
from streamgroup.kafka.producer.batch import NO_IDENTITY, ProducerIdentity
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


def test_the_producers_and_the_latest_append_time_are_kept() -> None:
    one, other = WriteTotals(), WriteTotals()
    one.add(HERE, 1, 5, 0, log_append_time_ms=1_700_000_000_500, producer=ProducerIdentity(4001, 0))
    one.add(HERE, 1, 5, 1, log_append_time_ms=1_700_000_000_123, producer=ProducerIdentity(4001, 1))
    other.add(HERE, 1, 5, 2, log_append_time_ms=-1, producer=NO_IDENTITY)
    other.merge(one)
    assert other.partitions[HERE].log_append_time_ms == 1_700_000_000_500
    assert other.producers == {ProducerIdentity(4001, 0), ProducerIdentity(4001, 1)}


def test_the_details_name_partitions_in_order_offsets_times_and_producers() -> None:
    written = WriteTotals()
    written.add(THERE, 2, 10, 4, log_append_time_ms=1_700_000_000_500, producer=ProducerIdentity(4001, 2))
    written.add(HERE, 1, 5, -1)
    assert list(written.details()) == [
        "orders-0: 1 record (5 bytes)",
        "orders-1: 2 records (10 bytes) at offsets 4 to 5, last appended at 1700000000500 ms (LogAppendTime)",
        "producer ids: 4001 (epoch 2)",
    ]

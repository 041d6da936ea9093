"""The shared values where they do more than hold what they are given."""

from __future__ import annotations

import json
import pickle

import pytest

from streamgroup.model import PartitionInfo, TopicInfo, TopicPartition, name_some

GAPLESS = TopicInfo("t", tuple(PartitionInfo(n, n) for n in range(3)))
BY_BROKER = TopicInfo("t", tuple(PartitionInfo(n, 1) for n in (10_000, 10_001, 30_000)))
NONE = TopicInfo("t", ())


@pytest.mark.parametrize(
    ("topic", "number", "exists"),
    [
        *((GAPLESS, n, 0 <= n < 3) for n in (-1, 0, 2, 3)),
        *((BY_BROKER, n, n in {10_000, 30_000}) for n in (-1, 0, 1, 10_000, 20_000, 30_000)),
        *((NONE, n, False) for n in (-1, 0)),
    ],
)
def test_a_partition_is_found_by_its_number_whatever_the_gaps(topic: TopicInfo, number: int, exists: bool) -> None:
    for _ in range(2):
        found = topic.partition(number)
        assert (found is not None) == exists
        assert found is None or found.partition == number


def test_looking_a_partition_up_changes_nothing_about_the_topic() -> None:
    other = TopicInfo("t", BY_BROKER.partitions)
    BY_BROKER.partition(5)
    assert other == BY_BROKER
    assert hash(other) == hash(BY_BROKER)
    assert pickle.loads(pickle.dumps(BY_BROKER)).partition(30_000) == PartitionInfo(30_000, 1)


def test_a_line_names_a_few_partitions_and_counts_the_rest() -> None:
    partitions = [TopicPartition("t", n) for n in reversed(range(10_000))]
    assert name_some(partitions[-3:]) == "t-0, t-1, t-2"
    assert name_some(partitions) == "t-0, t-1, t-2 and 9997 more partitions"


def test_partitions_sort_by_topic_then_number_and_are_named_as_kafka_names_them() -> None:
    row = [TopicPartition("b", 1), TopicPartition("a", 10), TopicPartition("a", 9)]
    assert sorted(row) == [TopicPartition("a", 9), TopicPartition("a", 10), TopicPartition("b", 1)]
    assert f"{row[0]} {row[1]!s}" == "b-1 a-10"
    assert json.dumps({str(tp): tp.partition for tp in row[:1]}) == '{"b-1": 1}'

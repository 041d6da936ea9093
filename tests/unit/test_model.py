"""The shared values that compute something, and the names of partitions and offsets in both formats of logs."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.logformat import KAFKA07_LOG, KAFKA_LOG, LogFormat, broker_partition, partition_number
from streamgroup.model import ClusterSnapshot, Dialect, PartitionInfo, TopicInfo, TopicPartition, name_some

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


BROKERS = st.integers(0, 214_000)
PARTITIONS = st.integers(0, 9_999)


@given(BROKERS, PARTITIONS)
def test_a_partition_of_0_7_is_named_after_its_broker(broker: int, partition: int) -> None:
    number = partition_number(broker, partition)
    assert broker_partition(number) == (broker, partition)
    assert KAFKA07_LOG.partition_name(number) == KAFKA07_LOG.partition_label(number) == f"{broker}-{partition}"
    assert KAFKA07_LOG.partition_number(f"{broker}-{partition}") == number
    assert KAFKA07_LOG.broker_of(number) == broker
    assert KAFKA07_LOG.name(TopicPartition("events", number)) == f"events {broker}-{partition}"


@given(st.integers(0, 2**31 - 1))
def test_a_partition_since_0_8_is_named_after_its_number_and_any_broker_can_lead_it(number: int) -> None:
    assert KAFKA_LOG.partition_name(number) == str(number)
    assert KAFKA_LOG.partition_label(number) == number
    assert KAFKA_LOG.partition_number(str(number)) == number
    assert KAFKA_LOG.broker_of(number) is None
    assert KAFKA_LOG.name(TopicPartition("events", number)) == f"events-{number}"


@pytest.mark.parametrize(("broker", "partition"), [(-1, 0), (0, -1), (0, 10_000), (214_748, 3_648), (2**40, 0)])
def test_a_partition_of_0_7_that_no_int_column_holds_has_no_number(broker: int, partition: int) -> None:
    with pytest.raises(ValueError, match="has no number"):
        partition_number(broker, partition)


SINCE_0_8 = ("", "-1", "0-1", "x", "2147483648", "01", "+1", "1\n")
OF_0_7 = ("", "1", "1-", "-1", "a-b", "1-2-3", "1-10000", "1-02", "01-2")


@pytest.mark.parametrize(
    ("log_format", "name"), [*((KAFKA_LOG, name) for name in SINCE_0_8), *((KAFKA07_LOG, name) for name in OF_0_7)]
)
def test_an_invalid_name_of_a_partition_is_refused(log_format: LogFormat, name: str) -> None:
    expected = "number" if log_format is KAFKA_LOG else r"<broker>-<partition>|has no number"
    with pytest.raises(ValueError, match=expected):
        log_format.partition_number(name)


def test_a_range_of_0_7_is_described_in_bytes() -> None:
    assert KAFKA_LOG.describe_range(TopicPartition("t", 3), 5, 9) == "t-3: the offsets [5, 9)"
    assert KAFKA07_LOG.describe_range(TopicPartition("t", 10_003), 5, 9) == "t 1-3: 4 bytes at the positions [5, 9)"


@pytest.mark.parametrize(
    ("dialect", "unit", "log_unit"), [(Dialect.KAFKA, "offsets", None), (Dialect.KAFKA07, "bytes", "bytes")]
)
def test_a_snapshot_tells_the_format_of_its_logs(dialect: Dialect, unit: str, log_unit: str | None) -> None:
    log_format = ClusterSnapshot({}, {}, dialect=dialect).log_format
    assert log_format is dialect.log_format
    assert (log_format.unit, log_format.log_unit) == (unit, log_unit)
    assert log_format.has_boundaries == log_format.is_broker_bound == (dialect is Dialect.KAFKA07)

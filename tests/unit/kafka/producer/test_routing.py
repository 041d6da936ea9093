from __future__ import annotations

import pickle
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import EncodeError, UnknownPartition
from streamgroup.kafka.producer.columns import read_columns
from streamgroup.kafka.producer.partitioners import Partitioner, ProducerTopic
from streamgroup.kafka.producer.routing import Routes, route
from streamgroup.model import PartitionInfo, TopicInfo
from tests.unit.kafka.producer import reference


def topic(name: str, numbers: Any) -> ProducerTopic:
    return ProducerTopic.of(TopicInfo(name, tuple(PartitionInfo(p, 0) for p in numbers)))


TOPICS = {"left": topic("left", range(3)), "right": topic("right", range(200)), "old": topic("old", [10_000, 990_001])}


def partitioner(name: str = "default") -> Partitioner:
    return Partitioner(name, batch_size=1_000, rng=np.random.default_rng(1))


def routed(rows: list[tuple[str, Any, Any]], by: Partitioner | None = None, first_row: int = 0) -> Routes:
    """Rows of topic, key and partition."""
    source = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b""] * len(rows), pa.binary()),
            "topic": pa.array([name for name, _, _ in rows], pa.string()),
            "key": pa.array([key for _, key, _ in rows], pa.binary()),
            "partition": pa.array([partition for _, _, partition in rows], pa.int32()),
        }
    )
    columns = read_columns(source, topic=None, now_ms=0, first_row=first_row)
    return route(columns, TOPICS, by or partitioner(), np.full(len(rows), 100, np.int64))


def partition_of(routes: Routes, count: int) -> list[Any]:
    """The partition of each row, after a check that every row has one and keeps its order."""
    order = list(range(count)) if routes.order is None else routes.order.tolist()
    assert sorted(order) == list(range(count))
    found: list[Any] = [None] * count
    at, by_partition = 0, defaultdict(list)
    for span in routes.spans:
        assert span.start == at < span.stop
        at = span.stop
        rows = order[span.start : span.stop]
        by_partition[span.partition] += rows
        for row in rows:
            found[row] = span.partition
    assert at == count
    assert all(rows == sorted(rows) for rows in by_partition.values())
    assert routes.order is None or len(by_partition) == len(routes.spans), "rows that are moved lie side by side"
    return found


ROWS = st.lists(
    st.one_of(
        st.tuples(st.just("left"), st.binary(max_size=4), st.sampled_from([None, 0, 1, 2])),
        st.tuples(st.just("right"), st.binary(max_size=4), st.sampled_from([None, 7, 199])),
        st.tuples(st.just("old"), st.binary(max_size=4), st.sampled_from([None, 10_000, 990_001])),
    ),
    max_size=60,
)


@given(rows=ROWS)
def test_each_row_goes_to_its_column_or_else_to_the_partition_of_its_key(rows: list[Any]) -> None:
    for (name, key, given_partition), found in zip(rows, partition_of(routed(rows), len(rows)), strict=True):
        numbers = TOPICS[name].numbers
        hashed = int(numbers[reference.to_positive(reference.murmur2(key)) % len(numbers)])
        assert found == (name, hashed if given_partition is None else given_partition)


def test_rows_without_a_key_go_to_few_partitions_side_by_side() -> None:
    routes = routed([("right", None, None)] * 100, partitioner("sticky"))
    assert [span.stop - span.start for span in routes.spans] == [10] * 10


def test_rows_in_order_are_not_moved() -> None:
    assert routed([("left", None, 0), ("left", None, 0), ("left", None, 2)]).order is None
    assert routed([]).spans == ()


def test_long_runs_of_rows_are_not_moved_and_short_ones_are() -> None:
    runs = [("left", None, number) for number in (2, 0, 2) for _ in range(200)]
    routes = routed(runs)
    assert routes.order is None
    assert [(span.partition.partition, span.start, span.stop) for span in routes.spans] == [
        (2, 0, 200),
        (0, 200, 400),
        (2, 400, 600),
    ]
    assert partition_of(routes, 600) == [("left", number) for _, _, number in runs]
    assert routed([("left", None, n % 2) for n in range(600)]).order is not None


def test_the_column_wins_over_a_partitioner_that_knows_no_bounds() -> None:
    rows = [("left", b"key", 2)] * 5
    assert {p.partition for p in partition_of(routed(rows, partitioner("random")), 5)} == {2}


def test_a_partition_beyond_the_topic_is_named_with_row_and_count() -> None:
    rows = [("right", None, 2), ("left", None, 2), ("left", None, 3)]
    with pytest.raises(UnknownPartition) as raised:
        routed(rows, first_row=10_000)
    assert str(raised.value).startswith(
        "cannot write row 10002 of the task to partition 3 of topic left: the topic has 3 partitions, from 0 to 2."
    )
    assert raised.value.topic == "left"
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), copy.topic) == (str(raised.value), "left")


def test_a_negative_partition_never_exists() -> None:
    with pytest.raises(EncodeError, match="cannot write row 1 of the task to partition -1 of topic left") as raised:
        routed([("left", None, 0), ("left", None, -1)])
    assert not isinstance(raised.value, UnknownPartition)


def test_a_partition_of_kafka07_is_one_of_those_registered() -> None:
    with pytest.raises(UnknownPartition, match=r"the topic has 2 partitions, from 10000 to 990001\."):
        routed([("old", None, 10_001)])


def test_after_an_unknown_partition_the_same_batch_is_routed_as_if_for_the_first_time() -> None:
    by = partitioner("round_robin")
    with pytest.raises(UnknownPartition):
        routed([("left", None, None), ("right", None, 200)], by)
    assert partition_of(routed([("left", None, None)], by), 1) == [("left", 0)]

"""Assigns the rows of an Arrow batch to partitions: by the column `partition`, or by the partitioner if it is null."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from streamgroup.errors import EncodeError, UnknownPartition
from streamgroup.frozen import frozen
from streamgroup.kafka.producer.columns import Longs, SinkColumns, stable_order
from streamgroup.kafka.producer.partitioners import Ints, Partitioner, ProducerTopic
from streamgroup.model import TopicPartition
from streamgroup.text import counted

_ROWS_OF_A_RUN = 100
"""Rows are not reordered if a partition gets at least so many consecutive rows on average."""


@frozen
class RowSpan:
    """Consecutive rows `[start, stop)`, in the order of `Routes`, that go to one partition."""

    partition: TopicPartition
    start: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """The result of `route`: the rows of a batch, grouped by partition."""

    order: Longs | None
    """The rows, grouped by partition, in their order within each. None: the rows in their own order."""
    spans: tuple[RowSpan, ...]
    """Together the spans cover all rows. The rows of a partition, span by span, are in their own order."""


@dataclass(frozen=True, slots=True, eq=False)
class _TopicRows:
    """The rows of a batch that go to one topic."""

    topic: ProducerTopic
    rows: Longs | None
    """The rows in the batch, ascending. None: all."""
    given: pa.Array | None
    """The column `partition` of these rows. None if it is null in all rows."""


def route(columns: SinkColumns, topics: Mapping[str, ProducerTopic], partitioner: Partitioner, sizes: Longs) -> Routes:
    """Assign each row of a batch to a partition.

    `topics` has every topic of the batch. `sizes` are the bytes of each row as encoded.

    Raises EncodeError for a negative partition, and UnknownPartition for a partition that the topic does not have. The
    partitioner has not been called then, so the caller may refresh the metadata and route the same batch again.
    """
    all_rows = [
        _TopicRows(topics[name], rows, _given(columns, topics[name], rows)) for name, rows in columns.rows_by_topic()
    ]
    orders: list[Longs] = []
    spans: list[RowSpan] = []
    start = 0
    for of_topic in all_rows:
        chosen = _chosen(columns, of_topic, partitioner, sizes)
        order, rows = _order(chosen), of_topic.rows
        ordered = chosen if order is None else chosen[order]
        cuts = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
        spans.extend(
            RowSpan(TopicPartition(of_topic.topic.name, int(ordered[begin])), start + begin, start + end)
            for begin, end in pairwise(cuts)
        )
        start += len(ordered)
        if order is not None:
            orders.append(order if rows is None else rows[order])
        elif rows is not None:
            orders.append(rows)
    return Routes(np.concatenate(orders) if orders else None, tuple(spans))


def _given(columns: SinkColumns, topic: ProducerTopic, rows: Longs | None) -> pa.Array | None:
    """Return the checked column `partition` of a topic's rows. None if it is null in all rows."""
    if columns.partition is None:
        return None
    given = columns.partition if rows is None else columns.partition.take(pa.array(rows))
    if given.null_count == len(given):
        return None
    named = given.fill_null(int(topic.numbers[0])).to_numpy()
    wrong = ~np.isin(named, topic.numbers if topic.nameable is None else topic.nameable)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise _wrong_partition(topic, int(named[at]), columns.first_row + (at if rows is None else int(rows[at])))
    return given


def _wrong_partition(topic: ProducerTopic, number: int, row: int) -> EncodeError:
    count = len(topic.numbers)
    if number < 0:
        return EncodeError(
            f"cannot write row {row} of the task to partition {number} of topic {topic.name}: a partition is never "
            f"negative, and the topic has {count}. Correct the column 'partition', or leave it null for the partitioner"
        )
    partitions = f"{counted(count, 'partition')}, from {topic.numbers[0]} to {topic.numbers[-1]}"
    return UnknownPartition(row, topic.name, number, partitions)


def _chosen(columns: SinkColumns, of_topic: _TopicRows, partitioner: Partitioner, sizes: Longs) -> Ints:
    given, free = of_topic.given, of_topic.rows
    if given is not None and not given.null_count:
        named: Ints = given.to_numpy()
        return named
    if given is None:
        return _partitioned(columns, of_topic.topic, free, partitioner, sizes)
    unnamed = given.is_null().to_numpy(zero_copy_only=False)
    free = np.flatnonzero(unnamed) if free is None else free[unnamed]
    mixed: Ints = given.fill_null(0).to_numpy().copy()
    mixed[unnamed] = _partitioned(columns, of_topic.topic, free, partitioner, sizes)
    return mixed


def _partitioned(
    columns: SinkColumns, topic: ProducerTopic, rows: Longs | None, partitioner: Partitioner, sizes: Longs
) -> Ints:
    """Return the partitions that the partitioner chooses for these rows, None: all."""
    if rows is None:
        return partitioner.partitions(topic, columns.key, sizes)
    keys = None if columns.key is None else columns.key.take(pa.array(rows))
    return partitioner.partitions(topic, keys, sizes[rows])


def _order(partitions: Ints) -> Longs | None:
    """Return the stable order of rows by partition, or None if long runs of rows go to one partition each.

    A partitioner of rows without keys stays with one partition for many rows. Sorting such rows would copy all of them.
    """
    changes = np.count_nonzero(partitions[1:] != partitions[:-1])
    if changes * _ROWS_OF_A_RUN <= len(partitions) or (partitions[1:] >= partitions[:-1]).all():
        return None
    return stable_order(partitions)

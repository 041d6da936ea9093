"""A run asks brokers and the offset store by plain values, which another thread reads while the run goes on."""

from __future__ import annotations

from typing import get_args

from streamgroup.coordinator.run.interface import (
    CheckPositions,
    Connect,
    DescribeGroup,
    FetchCommitted,
    ListEnds,
    ListOffsets,
    MakeFetchTasks,
    Question,
    ReadTopics,
    SnapshotEnds,
    everything,
)
from streamgroup.model import INITIAL_DOCUMENT, LogRange, OffsetRange, Position, TopicPartition
from streamgroup.options.types import LimitOptions

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
AT = {P0: Position(5)}


def asked() -> list[Question]:
    """One question of each kind, made anew."""
    return [
        Connect(frozenset({"t"})),
        ReadTopics(frozenset({"t"})),
        ListOffsets({P0: 5}, 3.0),
        DescribeGroup(3.0),
        SnapshotEnds(),
        ListEnds(dict(AT), 3.0),
        CheckPositions(dict(AT), {P0: LogRange(0, 9)}, LimitOptions(), 3.0),
        FetchCommitted(3.0),
        MakeFetchTasks(INITIAL_DOCUMENT, (OffsetRange(P0, 5, 9),)),
    ]


def test_questions_are_equal_by_kind_and_contents() -> None:
    """Connect and ReadMetadata have the same contents, and only the first one starts threads."""
    first, again = asked(), asked()
    assert {type(question) for question in first} == set(get_args(Question))
    for index, question in enumerate(first):
        assert [question == other for other in again] == [index == place for place in range(len(again))]


def test_commits_are_fetched_for_every_partition_unless_the_run_wants_fewer() -> None:
    partitions = [P0, P1, TopicPartition("", 0), TopicPartition("other", 2**31 - 1)]
    assert [everything(tp) for tp in partitions] == [True] * 4
    assert all(FetchCommitted(3.0).wanted(tp) for tp in partitions)
    assert [FetchCommitted(3.0, lambda tp: tp == P0).wanted(tp) for tp in partitions] == [True, False, False, False]

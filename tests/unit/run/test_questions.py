"""A run asks brokers and the offset store by plain values, which another thread reads while the run goes on."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest

from streamgroup.model import INITIAL_DOCUMENT, LogRange, OffsetRange, Position, TopicPartition
from streamgroup.options.types import LimitOptions
from streamgroup.run import questions
from streamgroup.run.questions import (
    CheckPositions,
    Connect,
    DescribeGroup,
    FetchCommitted,
    ListEnds,
    ListOffsets,
    MakeFetchTasks,
    Question,
    ReadMetadata,
    SnapshotEnds,
    everything,
)

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
AT = {P0: Position(5)}


def asked() -> list[Question]:
    """One question of each kind, made anew."""
    return [
        Connect(frozenset({"t"})),
        ReadMetadata(frozenset({"t"})),
        ListOffsets({P0: 5}, 3.0),
        DescribeGroup(3.0),
        SnapshotEnds(),
        ListEnds(dict(AT), 3.0),
        CheckPositions(dict(AT), {P0: LogRange(0, 9)}, LimitOptions(), 3.0),
        FetchCommitted(3.0),
        MakeFetchTasks(INITIAL_DOCUMENT, (OffsetRange(P0, 5, 9),)),
    ]


def test_every_question_of_the_module_may_be_asked() -> None:
    there = {each for each in vars(questions).values() if dataclasses.is_dataclass(each) and _is_own(each)}
    assert there == set(get_args(Question)) == {type(question) for question in asked()}


def _is_own(kind: object) -> bool:
    return getattr(kind, "__module__", "") == questions.__name__


def test_questions_are_equal_by_kind_and_contents() -> None:
    """Connect and ReadMetadata have the same contents, and only the first one starts threads."""
    first, again = asked(), asked()
    for index, question in enumerate(first):
        assert [question == other for other in again] == [index == place for place in range(len(again))]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Connect(frozenset({"t"})), Connect(None)),
        (ListOffsets({P0: 5}, 3.0), ListOffsets({P0: 6}, 3.0)),
        (ListEnds(AT, 3.0), ListEnds(AT, 1.0)),
        (FetchCommitted(3.0), FetchCommitted(3.0, lambda tp: tp == P0)),
        (MakeFetchTasks(INITIAL_DOCUMENT, ()), MakeFetchTasks(INITIAL_DOCUMENT, (), 1)),
    ],
    ids=lambda question: type(question).__name__,
)
def test_questions_with_other_contents_differ(one: Question, other: Question) -> None:
    assert one != other


@pytest.mark.parametrize("question", asked(), ids=lambda question: type(question).__name__)
def test_a_question_cannot_be_changed_once_it_is_asked(question: Question) -> None:
    for field in dataclasses.fields(question):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(question, field.name, None)


def test_commits_are_fetched_for_every_partition_unless_the_run_wants_fewer() -> None:
    partitions = [P0, P1, TopicPartition("", 0), TopicPartition("other", 2**31 - 1)]
    assert [everything(tp) for tp in partitions] == [True] * 4
    assert all(FetchCommitted(3.0).wanted(tp) for tp in partitions)
    assert [FetchCommitted(3.0, lambda tp: tp == P0).wanted(tp) for tp in partitions] == [True, False, False, False]


def test_tasks_share_no_small_ranges_unless_the_run_has_learned_a_limit() -> None:
    ranges = (OffsetRange(P0, 0, 1), OffsetRange(P1, 0, 1))
    assert MakeFetchTasks(INITIAL_DOCUMENT, ranges).packed_offsets == 0
    assert MakeFetchTasks(INITIAL_DOCUMENT, ranges, 20).packed_offsets == 20

"""A skip gives up exactly the offsets between what the group goes on at and the end that the operator chose."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.cli._skips import Commits, Skip, plan_skips
from streamgroup.errors import ConfigError
from streamgroup.group.commit_metadata import CommitMetadata
from streamgroup.model import CommittedOffset, Document, OffsetRange, Position, TopicPartition
from tests.unit.cli.shown import orders

OURS = CommitMetadata("line", "run", 1, 1, 1).text()
OF_ANOTHER = CommitMetadata("another", "run", 1, 1, 1).text()
DOCUMENT = Document(
    "g",
    "line",
    "run",
    3,
    (OffsetRange(orders(0), 10, 20), OffsetRange(orders(1), 5, 9)),
    {orders(0): Position(20), orders(1): Position(9), orders(2): Position(40)},
)
"""Its batch reads partitions 0 and 1. The query holds partition 2 too, which has no new records."""


def planned(
    committed: Commits | None = None,
    partitions: Collection[TopicPartition] = (),
    to_offset: int | None = None,
    *,
    is_sunk: bool = False,
) -> list[str]:
    skips = plan_skips(DOCUMENT, committed or {}, partitions, to_offset, is_sunk=is_sunk)
    assert all(skip.group == "g" for skip in skips)
    return [str(skip.range) for skip in skips]


def test_without_commits_the_whole_batch_is_given_up() -> None:
    assert planned() == ["orders-0[10, 20)", "orders-1[5, 9)"]


@pytest.mark.parametrize(
    ("commit", "expected"),
    [
        (CommittedOffset(10), ["orders-0[10, 20)"]),
        (CommittedOffset(11), ["orders-0[11, 20)"]),
        (CommittedOffset(19, OF_ANOTHER), ["orders-0[19, 20)"]),
        (CommittedOffset(20), []),
        (CommittedOffset(25), []),
        (CommittedOffset(7, OURS), ["orders-0[10, 20)"]),
    ],
    ids=["at the start", "within", "within, of another member", "at the end", "behind the end", "owed by the query"],
)
def test_a_skip_begins_where_the_group_goes_on(commit: CommittedOffset, expected: list[str]) -> None:
    assert planned({orders(0): commit}, [orders(0)]) == expected


@pytest.mark.parametrize("metadata", ["", "of another client", OF_ANOTHER])
def test_a_commit_behind_the_batch_that_is_not_of_the_query_is_left_alone(metadata: str) -> None:
    with pytest.raises(ConfigError) as refused:
        planned({orders(0): CommittedOffset(7, metadata)})
    text = str(refused.value)
    assert "cannot skip records of orders-0: group 'g' stands at 7" in text
    assert "the batch that has not sunk begins at 10" in text
    assert "streamgroup groups --reset-offsets --to-offset" in text


def test_a_commit_behind_a_sunk_batch_is_left_alone_too() -> None:
    with pytest.raises(ConfigError, match="stands at 19, and the newest batch ends at 20"):
        planned({orders(0): CommittedOffset(19)}, [orders(0)], 30, is_sunk=True)


@pytest.mark.parametrize(
    ("partition", "to_offset", "is_sunk", "expected"),
    [
        (0, 11, False, "orders-0[10, 11)"),
        (0, 99, False, "orders-0[10, 99)"),
        (2, 41, False, "orders-2[40, 41)"),
        (0, 21, True, "orders-0[20, 21)"),
    ],
    ids=["a part of the range", "behind the range", "a partition without a range", "behind a sunk batch"],
)
def test_an_offset_says_how_far_to_skip(partition: int, to_offset: int, is_sunk: bool, expected: str) -> None:
    assert planned({}, [orders(partition)], to_offset, is_sunk=is_sunk) == [expected]


@pytest.mark.parametrize(("to_offset", "is_sunk", "begin"), [(10, False, 10), (0, False, 10), (20, True, 20)])
def test_an_offset_that_skips_nothing_is_refused_with_the_way_to_read_again(
    to_offset: int, is_sunk: bool, begin: int
) -> None:
    with pytest.raises(ConfigError) as refused:
        planned({}, [orders(0)], to_offset, is_sunk=is_sunk)
    assert f"cannot skip orders-0 to offset {to_offset}: group 'g' goes on at {begin}" in str(refused.value)
    assert "streamgroup groups --reset-offsets" in str(refused.value)


def test_a_sunk_batch_has_nothing_to_give_up() -> None:
    assert planned(is_sunk=True) == []


@pytest.mark.parametrize(
    ("partition", "to_offset", "is_sunk", "reason", "known"),
    [
        (2, None, False, "the newest batch of the checkpoint has no range of it", "It has orders-0, orders-1"),
        (0, None, True, "the newest batch of the checkpoint has no range of it", "It has none"),
        (7, 50, False, "the newest batch of the checkpoint does not have it", "It has orders-0, orders-1, orders-2"),
    ],
    ids=["no range", "sunk", "not held"],
)
def test_a_partition_that_the_batch_does_not_have_is_named_with_those_that_it_has(
    partition: int, to_offset: int | None, is_sunk: bool, reason: str, known: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        planned({}, [orders(partition)], to_offset, is_sunk=is_sunk)
    assert f"cannot skip orders-{partition}: {reason}" in str(refused.value)
    assert known in str(refused.value)


@settings(max_examples=40)
@given(committed=st.integers(10, 40), to_offset=st.none() | st.integers(41, 60))
def test_what_is_given_up_and_what_is_committed_never_overlap_and_leave_no_gap(
    committed: int, to_offset: int | None
) -> None:
    skips = plan_skips(DOCUMENT, {orders(0): CommittedOffset(committed)}, [orders(0)], to_offset, is_sunk=False)
    until = 20 if to_offset is None else to_offset
    expected = [Skip("g", OffsetRange(orders(0), committed, until))] if committed < until else []
    assert skips == expected

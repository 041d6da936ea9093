"""The rows of `streamgroup groups`: each partition with its commit, its log's end and its member, in a fixed order."""

from __future__ import annotations

import pytest

from streamgroup.cli import _group_tables as tables
from streamgroup.cli._click import json_rows, table
from streamgroup.cli._group_tables import OffsetRow
from streamgroup.model import CommittedOffset, GroupDescription, MemberDescription, TopicPartition
from tests.unit.cli.shown import orders


def member(name: str, *partitions: TopicPartition) -> MemberDescription:
    return MemberDescription(f"{name}-1", name, "/10.0.0.1", assigned=partitions)


def group(*members: MemberDescription) -> GroupDescription:
    return GroupDescription("g", "Stable", "consumer", "range", members)


@pytest.mark.parametrize(
    ("committed", "log_end", "lag", "beyond_end"),
    [
        (CommittedOffset(90), 100, 10, None),
        (CommittedOffset(100), 100, 0, None),
        (CommittedOffset(12), 10, 0, 2),
        (CommittedOffset(0), 0, 0, None),
        (None, 100, None, None),
        (CommittedOffset(5), None, None, None),
    ],
    ids=["behind", "caught up", "beyond the end", "empty log", "no commit", "no log end"],
)
def test_the_lag_is_the_distance_to_the_end_of_the_log_where_both_are_known(
    committed: CommittedOffset | None, log_end: int | None, lag: int | None, beyond_end: int | None
) -> None:
    row = OffsetRow("g", orders(0), committed, log_end, None)
    assert (row.lag, row.beyond_end) == (lag, beyond_end)


def test_a_column_shows_commits_beyond_the_end_if_there_are_any() -> None:
    within, beyond = (OffsetRow("g", orders(0), CommittedOffset(offset), 10, None, 0) for offset in (9, 12))
    assert "BEYOND-END" not in table(tables.OFFSETS, [within])
    assert table(tables.OFFSETS, [within, beyond]).splitlines()[0].split()[5:7] == ["LAG", "BEYOND-END"]


def test_each_partition_that_is_held_or_committed_has_one_row_and_members_without_any_are_last() -> None:
    payments = TopicPartition("payments", 0)
    idle, second, first = member("z"), member("b", orders(0), payments), member("a", orders(10), orders(2))
    rows = tables.offset_rows(
        group(idle, second, first),
        {orders(2): CommittedOffset(7), orders(3): CommittedOffset(8)},
        {orders(2): 9, payments: 4},
    )
    assert rows == [
        OffsetRow("g", orders(0), None, None, second, 0),
        OffsetRow("g", orders(2), CommittedOffset(7), 9, first, 2),
        OffsetRow("g", orders(3), CommittedOffset(8), None, None, 3),
        OffsetRow("g", orders(10), None, None, first, 10),
        OffsetRow("g", payments, None, 4, second, 0),
        OffsetRow("g", None, None, None, idle),
    ]


def test_partitions_have_the_names_that_the_cluster_gives_them() -> None:
    named = group(member("a", orders(10001), TopicPartition("payments", 20000)))
    label = lambda number: f"{number // 10000}-{number % 10000}"  # noqa: E731
    assert [row.name for row in tables.offset_rows(named, {}, {}, label)] == ["1-1", "2-0"]
    (shown,) = json_rows(tables.MEMBERS, tables.member_rows(named, name_of=label))
    assert shown["assignment"] == "orders(1-1),payments(2-0)"


def test_an_unreadable_assignment_is_unknown_not_empty() -> None:
    rows = tables.member_rows(group(MemberDescription("a", assigned=None), MemberDescription("b")))
    shown = [(row["partitions"], row["assignment"]) for row in json_rows(tables.MEMBERS, rows)]
    assert shown == [(None, None), (0, None)]

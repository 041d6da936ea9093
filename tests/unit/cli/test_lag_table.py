from __future__ import annotations

import pytest

from streamgroup.cli._group_tables import OffsetRow
from streamgroup.cli._lag_table import LAG, LagRow, by_key, lag_rows, summary
from streamgroup.cli._tables import json_rows
from streamgroup.model import CommittedOffset, TopicPartition


def row(partition: int, committed: int | None, log_end: int | None, group: str = "g") -> OffsetRow:
    commit = None if committed is None else CommittedOffset(committed)
    return OffsetRow(group, TopicPartition("t", partition), commit, log_end, None, partition)


def test_the_largest_lag_is_first_and_an_unknown_one_last() -> None:
    rows = lag_rows([row(0, 5, 5), row(1, None, 9), row(2, 0, 100), row(3, 0, 7)], {}, 0.0)
    assert [each.now.name for each in rows] == [2, 3, 0, 1]


def test_rates_are_those_since_the_look_before() -> None:
    before = by_key([row(0, 100, 1000), row(1, 3, 3)])
    (moving, new) = lag_rows([row(0, 600, 1200), row(7, 0, 10)], before, 5.0)
    assert (moving.committed_per_s, moving.written_per_s) == (100.0, 40.0)
    assert moving.seconds_left == pytest.approx(600 / 60)
    assert (new.committed_per_s, new.written_per_s, new.seconds_left) == (None, None, None)


@pytest.mark.parametrize(
    ("now", "before", "shown"),
    [
        (row(0, 10, 20), row(0, 10, 20), None),
        (row(0, 10, 30), row(0, 5, 20), None),
        (row(0, 30, 30), row(0, 5, 20), "0s"),
        (row(0, 100, 7300), row(0, 0, 7300), "1m12s"),
        (row(0, 1, 10_000), row(0, 0, 10_000), "2h46m"),
    ],
    ids=["stands", "falls behind", "caught up", "minutes", "hours"],
)
def test_the_time_until_it_has_caught_up(now: OffsetRow, before: OffsetRow, shown: str | None) -> None:
    (found,) = json_rows(LAG, [LagRow(now, before, 1.0)])
    assert found["seconds_left"] == shown


def test_a_look_at_the_same_moment_has_no_rates() -> None:
    (only,) = lag_rows([row(0, 6, 9)], by_key([row(0, 5, 9)]), 0.0)
    assert only.committed_per_s is None


def test_members_without_a_partition_are_left_out() -> None:
    assert lag_rows([OffsetRow("g", None, None, None, None)], {}, 0.0) == []


def test_each_group_is_summed_up() -> None:
    rows = lag_rows([row(0, 5, 15), row(1, None, 9), row(0, 0, 1, "other")], {}, 0.0)
    assert summary(rows) == ["g: lag 10 in 2 partitions, unknown in 1", "other: lag 1 in 1 partition"]


def test_a_commit_beyond_the_end_hides_no_lag_of_another_partition() -> None:
    rows = lag_rows([row(0, 0, 1_000_000), row(1, 1_000_007, 7)], {}, 0.0)
    assert summary(rows) == ["g: lag 1000000 in 2 partitions, committed beyond the end in t-1"]
    assert [(each["lag"], each["beyond_end"]) for each in json_rows(LAG, rows)] == [(1_000_000, None), (0, 1_000_000)]

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from contextlib import nullcontext

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli import lag as module
from streamgroup.cli._click import json_rows
from streamgroup.cli._group_tables import OffsetRow
from streamgroup.cli.lag import LAG, LagRow, by_key, lag_rows, summary
from streamgroup.errors import TransportError
from streamgroup.model import CommittedOffset, GroupDescription, TopicPartition
from tests.unit.cli.test_groups import FakeStore, orders
from tests.unit.coordinator.channels import JVM, FakeCoordinator, home, serve

__all__ = ["home", "serve"]


class MovingStore(FakeStore):
    """Group `g` commits 5 more offsets of orders-0 with each look. The looks of the numbers in `failing` fail."""

    def __init__(self, failing: Collection[int] = ()) -> None:
        super().__init__()
        self.looks, self.failing = 0, failing

    def committed(self, name: str, deadline: float) -> dict[TopicPartition, CommittedOffset]:
        self.looks += 1
        if self.looks in self.failing:
            raise TransportError("no broker answers")
        return {orders(0): CommittedOffset(80 + 5 * self.looks)} if name == "g" else {}


def run(
    monkeypatch: pytest.MonkeyPatch, store: FakeStore, *arguments: str, sleep: Callable[[float], None] = lambda _: None
) -> Result:
    monkeypatch.setattr(module, "opened_store", lambda _: nullcontext(store))
    monkeypatch.setattr(module.time, "sleep", sleep)
    return CliRunner().invoke(module.lag, ["-b", "broker", *arguments])


def watch(monkeypatch: pytest.MonkeyPatch, store: FakeStore, *arguments: str) -> Result:
    return run(monkeypatch, store, "--group", "g", "--watch", *arguments)


def test_one_look_has_lags_without_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, FakeStore(), "--group", "g")
    assert result.exit_code == 0, result.output
    first, *_ = result.output.splitlines()[1:]
    assert first.split()[:9] == ["g", "orders", "0", "90", "100", "10", "-", "-", "-"]
    assert "g: lag 10 in 3 partitions, unknown in 2" in result.output
    every = run(monkeypatch, FakeStore(), "--json")
    assert {row["group"] for row in json.loads(every.stdout)} == {"g", "done"}, "all groups are the default"


def test_a_watch_shows_rates_from_the_second_look_on(monkeypatch: pytest.MonkeyPatch) -> None:
    result = watch(monkeypatch, MovingStore(), "--count", "3", "--json")
    assert result.exit_code == 0, result.output
    looks = [json.loads(line)["partitions"][0] for line in result.stdout.splitlines()]
    assert [look["lag"] for look in looks] == [15, 10, 5]
    assert looks[0]["committed_per_second"] is None
    assert all(look["committed_per_second"] > 0 for look in looks[1:])
    assert looks[2]["written_per_second"] == 0


def test_a_look_that_fails_is_a_warning_and_an_error_if_all_have_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    result = watch(monkeypatch, MovingStore(failing={2}), "--count", "3", "--json")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 2)
    assert "Warning: no broker answers" in result.stderr
    result = watch(monkeypatch, MovingStore(failing={1, 2}), "--count", "2", "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert str(result.exception) == "cannot read the lag: 2 refreshes failed: see the warnings above"


def test_a_watch_in_a_pipe_prints_one_table_below_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    result = watch(monkeypatch, MovingStore(), "--count", "2", "--interval", "1")
    assert (result.stdout.count("CAUGHT-UP-IN"), result.stdout.count("every 1 s")) == (2, 2)


def test_ctrl_c_ends_a_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    store = MovingStore()
    result = run(monkeypatch, store, "--group", "g", "--watch", sleep=interrupted)
    assert (result.exit_code, store.looks) == (0, 1)


def test_a_group_whose_members_are_not_described_shows_its_commits_and_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = FakeStore()
    undescribed = GroupDescription("g", "Stable", "consumer")
    monkeypatch.setattr(store, "describe", lambda names, deadline: dict.fromkeys(names, undescribed))
    store.notes.append("cannot show the members of group 'g'")
    result = run(monkeypatch, store, "--group", "g")
    assert result.stdout.splitlines()[1].split() == ["g", "orders", "0", "90", "100", "10", "-", "-", "-", "-"]
    assert result.stderr == "Warning: cannot show the members of group 'g'\n"


def test_an_unknown_group_is_an_error_and_a_count_without_a_watch_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, FakeStore(), "--group", "nobody")
    assert result.exit_code == 1
    assert "consumer group 'nobody' does not exist" in str(result.exception)
    assert run(monkeypatch, FakeStore(), "--count", "2").exit_code == 2


@pytest.mark.usefixtures("home")
def test_a_query_of_the_group_on_this_machine_shows_what_it_has_paused(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[..., FakeCoordinator]
) -> None:
    status = {"group": "g", "positions": {"orders-0": 90, "orders-1": 0}, "paused": ["orders-0"]}
    monkeypatch.setattr(serve("r1"), "status", lambda: status)
    result = run(monkeypatch, FakeStore(), "--group", "g")
    assert result.output.splitlines()[-1] == f"g: paused on this machine (driver {JVM}): orders-0"
    assert "paused" not in run(monkeypatch, FakeStore(), "--group", "done").output
    once = json.loads(run(monkeypatch, FakeStore(), "--json").stdout)
    watched = json.loads(run(monkeypatch, FakeStore(), "--json", "--watch", "--count", "1").stdout)["partitions"]
    for rows in (once, watched):
        found = {(row["group"], row["topic"], row["partition"]): row["paused"] for row in rows}
        assert (found["g", "orders", 0], found["g", "orders", 1]) == (True, False)
        assert {paused for key, paused in found.items() if key[:2] != ("g", "orders") or key[2] > 1} == {None}


@pytest.mark.usefixtures("home")
def test_a_query_of_the_group_on_this_machine_shows_its_offset_table(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[..., FakeCoordinator]
) -> None:
    monkeypatch.setattr(serve("r1"), "status", lambda: {"group": "g", "offsets_store": "postgresql://db/shop"})
    expected = "g: the offsets are in an offset table in postgresql://db/shop; the commits follow each batch"
    assert run(monkeypatch, FakeStore(), "--group", "g").output.splitlines()[-1] == expected
    assert "offset table" not in run(monkeypatch, FakeStore(), "--group", "done").output
    rows = json.loads(run(monkeypatch, FakeStore(), "--json").stdout)
    assert {(row["group"], row["offsets_store"]) for row in rows} == {("g", "postgresql://db/shop"), ("done", None)}


def row(partition: int, committed: int | None, log_end: int | None, group: str = "g") -> OffsetRow:
    commit = None if committed is None else CommittedOffset(committed)
    return OffsetRow(group, TopicPartition("t", partition), commit, log_end, None, partition)


def test_the_largest_lag_is_first_and_an_unknown_one_last_and_members_without_a_partition_are_left_out() -> None:
    idle = OffsetRow("g", None, None, None, None)
    rows = lag_rows([row(0, 5, 5), row(1, None, 9), idle, row(2, 0, 100), row(3, 0, 7)], {}, 0.0)
    assert [each.now.name for each in rows] == [2, 3, 0, 1]


def test_rates_are_those_since_the_look_before() -> None:
    before = by_key([row(0, 100, 1000), row(1, 3, 3)])
    (moving, new) = lag_rows([row(0, 600, 1200), row(7, 0, 10)], before, 5.0)
    assert (moving.committed_per_s, moving.written_per_s) == (100.0, 40.0)
    assert moving.seconds_left == pytest.approx(600 / 60)
    assert (new.committed_per_s, new.written_per_s, new.seconds_left) == (None, None, None)
    (at_once, _) = lag_rows([row(0, 600, 1200), row(7, 0, 10)], before, 0.0)
    assert at_once.committed_per_s is None


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


def test_each_group_is_summed_up() -> None:
    rows = lag_rows([row(0, 5, 15), row(1, None, 9), row(0, 0, 1, "other")], {}, 0.0)
    assert summary(rows) == ["g: lag 10 in 2 partitions, unknown in 1", "other: lag 1 in 1 partition"]


def test_a_commit_beyond_the_end_hides_no_lag_of_another_partition() -> None:
    rows = lag_rows([row(0, 0, 1_000_000), row(1, 1_000_007, 7)], {}, 0.0)
    assert summary(rows) == ["g: lag 1000000 in 2 partitions, committed beyond the end in t-1"]
    assert [(each["lag"], each["beyond_end"]) for each in json_rows(LAG, rows)] == [(1_000_000, None), (0, 1_000_000)]

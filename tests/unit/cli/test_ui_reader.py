"""The live page reads groups, logs and the members of this machine, and says what it could not read."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streamgroup.cli import _ui_groups
from streamgroup.cli import _ui_reader as reading
from streamgroup.cli._group_stores import GroupStore
from streamgroup.cli._ui_reader import ClusterReader
from streamgroup.driver.application import control
from streamgroup.errors import AuthorizationError, TransportError, UnsupportedVersionError
from streamgroup.model import (
    EARLIEST,
    LATEST,
    ClusterSnapshot,
    Dialect,
    GroupDescription,
    TopicPartition,
)
from streamgroup.ui.history import views
from streamgroup.ui.history.history import History
from tests.unit.cli.clusters import orders_cluster
from tests.unit.cli.test_group_stores import KAFKA07, store
from tests.unit.cli.test_groups import FakeStore, orders
from tests.waiting import soon


class Store(FakeStore):
    """The groups of FakeStore; the topics of orders_cluster, whose last partition has no leader."""

    refused: Mapping[str, Exception]

    def __init__(self, refused: Mapping[str, Exception] | None = None) -> None:
        super().__init__()
        self.refused = refused or {}
        self.listed: list[set[TopicPartition]] = []

    def snapshot(self, deadline: float) -> ClusterSnapshot:
        return orders_cluster().snapshot(None, deadline)

    def describe(self, names: Any, deadline: float) -> dict[str, GroupDescription]:
        for name in names:
            if name in self.refused:
                raise self.refused[name]
        return super().describe(names, deadline)

    def offsets_once(self, wanted: Mapping[TopicPartition, int], deadline: float) -> dict[TopicPartition, int]:
        if "logs" in self.refused:
            raise self.refused["logs"]
        self.listed.append(set(wanted))
        return {tp: 10 if at == EARLIEST else 100 for tp, at in wanted.items()}


@pytest.fixture(autouse=True)
def no_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "drivers", list)


def read(store: Store, *names: str) -> Any:
    return ClusterReader([cast("GroupStore", store)], names).read(7.0, 1.0)


def test_a_reading_has_the_consumer_groups_and_the_logs_that_have_a_leader() -> None:
    store = Store()
    found = read(store)
    assert [(g.name, g.description.state) for g in found.groups] == [
        ("done", "Empty"),
        ("g", "Stable"),
        ("turning", "PreparingRebalance"),
    ]
    assert found.groups[1].committed == {orders(0): 90, orders(3): 5}
    assert found.groups[1].coordinator == "broker:9092 (7)"
    assert (found.log_starts[orders(0)], found.log_ends[orders(0)]) == (10, 100)
    assert orders(3) not in store.listed[0]
    assert (found.at, found.notes) == (7.0, ())


def test_a_reading_of_chosen_groups_has_those_only() -> None:
    assert [group.name for group in read(Store(), "g").groups] == ["g"]


def test_a_group_that_the_user_may_not_see_is_a_note_and_the_others_are_read() -> None:
    found = read(Store({"g": AuthorizationError("not authorized to describe group 'g'")}))
    assert [group.name for group in found.groups] == ["done", "turning"]
    assert found.notes == ("not authorized to describe group 'g'",)


def test_offsets_that_a_leader_does_not_tell_are_a_note_and_the_groups_are_shown() -> None:
    found = read(Store({"logs": TransportError("broker 1 does not answer")}))
    assert (len(found.groups), found.log_ends) == (3, {})
    assert found.notes == ("the offsets of the logs are not known: broker 1 does not answer",)


def test_a_reading_of_more_partitions_than_the_limit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_PARTITIONS", 1)
    found = read(Store())
    assert len(found.log_ends) == 1
    assert [note.partition(":")[0] for note in found.notes] == ["3 partitions exist"]


def test_members_of_this_machine_are_in_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "drivers", lambda: [7])
    monkeypatch.setattr(control, "statuses", lambda pid, *_: {"r1": {"group": "g", "member": "a-1", "pid": pid}})
    assert read(Store()).statuses == ({"group": "g", "member": "a-1", "pid": 7},)


def test_groups_of_kafka_07_are_read_in_zookeeper_with_its_names_of_partitions() -> None:
    found = ClusterReader([store(Dialect.KAFKA07, KAFKA07)]).read(7.0, soon())
    history = History()
    history.add(found)
    shown = views.group_view(history, "g")
    assert shown is not None
    assert (shown["state"], shown["unit"]) == ("Stable", "bytes")
    assert [(row["name"], row["committed"], row["lag"]) for row in shown["partitions"]] == [
        ("1-0", 90, 10),
        ("1-1", None, None),
        ("2-0", None, None),
    ]
    assert [group.name for group in found.groups] == ["g", "left"]
    assert any("nine" in note for note in found.notes)


def test_of_a_group_at_the_brokers_and_in_zookeeper_the_one_with_members_is_shown() -> None:
    in_zookeeper = store(Dialect.KAFKA, {"/consumers": "", "/consumers/g": "", "/consumers/old": ""})
    brokers = cast("GroupStore", Store())
    found = ClusterReader([in_zookeeper, brokers]).read(7.0, soon())
    assert [(group.name, len(group.description.members)) for group in found.groups] == [
        ("g", 2),
        ("old", 0),
        ("done", 0),
        ("turning", 0),
    ]


def test_brokers_before_0_9_leave_the_groups_of_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    in_zookeeper = store(Dialect.KAFKA, {"/consumers": "", "/consumers/old": ""})
    brokers = Store()
    monkeypatch.setattr(brokers, "list_groups", lambda _: _raise(UnsupportedVersionError("no ListGroups")))
    both = ClusterReader([in_zookeeper, cast("GroupStore", brokers)])
    assert [group.name for group in both.read(7.0, soon()).groups] == ["old"]
    with pytest.raises(UnsupportedVersionError):
        ClusterReader([cast("GroupStore", brokers)]).read(7.0, 1.0)


def _raise(error: Exception) -> None:
    raise error


def test_what_a_migration_has_left_in_zookeeper_is_not_shown_for_a_group_that_is_not_read() -> None:
    in_zookeeper = store(Dialect.KAFKA, {"/consumers": "", "/consumers/g": "", "/consumers/old": ""})
    brokers = Store()
    both = ClusterReader([in_zookeeper, cast("GroupStore", brokers)])
    both.read(7.0, soon())
    brokers.refused = {"g": TransportError("broker 1 does not answer")}
    found = both.read(12.0, soon())
    assert ([group.name for group in found.groups], found.unread) == (["old", "done", "turning"], frozenset({"g"}))


@pytest.mark.parametrize(("seconds", "ends", "starts", "statuses"), [(10.0, 2.0, 1.0, 1.5), (1.0, 4 / 15, 2 / 15, 0.2)])
def test_groups_logs_and_members_of_this_machine_have_time_whatever_the_others_take(
    seconds: float, ends: float, starts: float, statuses: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, given = [100.0], []
    for module in (reading, _ui_groups):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(control, "drivers", lambda: [7])
    monkeypatch.setattr(control, "statuses", lambda *_: {"r1": {"left": 100 + seconds - now[0]}})
    slow = Store()

    def describe(names: Any, deadline: float) -> dict[str, GroupDescription]:
        now[0] = deadline
        raise TransportError("broker 1 does not answer")

    def once(wanted: Mapping[TopicPartition, int], deadline: float) -> dict[TopicPartition, int]:
        given.append((min(wanted.values()), deadline - now[0]))
        now[0] = deadline
        return {}

    monkeypatch.setattr(slow, "describe", describe)
    monkeypatch.setattr(slow, "offsets_once", once)
    found = ClusterReader([cast("GroupStore", slow)]).read(7.0, 100 + seconds)
    assert [at for at, _ in given] == [LATEST, EARLIEST]
    assert all(round(left, 6) >= round(least, 6) for (_, left), least in zip(given, (ends, starts), strict=True))
    assert found.statuses[0]["left"] >= statuses - 1e-6


def test_a_group_that_is_not_read_stays_on_the_page_and_its_figures_are_not_known() -> None:
    silent = Store()
    reader = ClusterReader([cast("GroupStore", silent)])
    history = History()
    history.add(reader.read(7.0, 1.0))
    silent.refused = {"g": TransportError("broker 1 does not answer")}
    history.add(reader.read(12.0, 1.0))
    shown = views.group_view(history, "g")
    assert shown is not None
    assert (shown["state"], shown["lag"], shown["trend"]) == ("Unknown", None, "unknown")
    assert {(row["committed"], row["lag"]) for row in shown["partitions"]} == {(None, None)}
    assert len(shown["totals"]["times"]) == 1
    silent.refused = {}
    history.add(reader.read(17.0, 1.0))
    again = views.group_view(history, "g")
    assert again is not None
    assert (again["state"], again["lag"], again["totals"]["times"]) == ("Stable", 10, [7.0, 17.0])

"""`streamgroup ui` serves the live page: its address, its token and the names that it answers to."""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli import ui as module
from streamgroup.cli._group_stores import GroupStore
from streamgroup.cli.ui import ClusterReader, GroupsReader, KnownGroups, ui
from streamgroup.coordinator.control import channel
from streamgroup.errors import AuthorizationError, StreamGroupError, TransportError, UnsupportedVersionError
from streamgroup.model import (
    EARLIEST,
    LATEST,
    ClusterSnapshot,
    Dialect,
    GroupDescription,
    GroupListing,
    TopicPartition,
)
from streamgroup.monitoring.page import server
from streamgroup.monitoring.page.access import Access
from streamgroup.monitoring.page.history import views
from streamgroup.monitoring.page.history.history import History
from streamgroup.options.types import Isolation
from tests.unit.cli.shown import orders_cluster
from tests.unit.cli.test_group_stores import KAFKA07, store
from tests.unit.cli.test_groups import FakeStore, group, orders
from tests.waiting import soon

TOKEN = "0123456789abcdef"


def run(*arguments: str, env: Mapping[str, str] | None = None) -> Result:
    return CliRunner().invoke(ui, ["-b", "broker", *arguments], env=env)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(server, "serve", lambda opened, access, **named: calls.append({"access": access, **named}))
    return calls


def test_the_page_is_on_loopback_by_default_and_may_have_further_names(served: list[dict[str, Any]]) -> None:
    assert run("--name", "kafka.example").exit_code == 0
    access: Access = served[0]["access"]
    assert (access.host, access.token, served[0]["port"], served[0]["interval"]) == ("127.0.0.1", None, 9405, 5)
    assert access.allows_host("kafka.example:9405")


def test_a_page_for_other_machines_needs_a_token_which_is_not_shown(served: list[dict[str, Any]]) -> None:
    result = run("--host", "0.0.0.0")
    assert isinstance(result.exception, StreamGroupError)
    assert "--token" in str(result.exception)
    assert served == [], "nothing listens"
    result = run("--host", "0.0.0.0", "--token", "env:PAGE_TOKEN", env={"PAGE_TOKEN": TOKEN})
    assert result.exit_code == 0
    assert served[0]["access"].token == TOKEN
    assert TOKEN not in result.output + repr(served)


def test_a_port_in_use_is_an_error_that_names_the_next_step() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        result = run("--port", str(other.getsockname()[1]))
    assert isinstance(result.exception, StreamGroupError)
    assert "Choose another --port" in str(result.exception)


class Store(FakeStore):
    """The groups of FakeStore, and the topics of orders_cluster, whose last partition has no leader.

    `errors` are raised by group. The list of groups raises that of "", the offsets of the logs raise that of "logs".
    """

    def __init__(self, errors: Mapping[str, Exception] | None = None) -> None:
        super().__init__()
        self.errors = dict(errors or {})
        self.where = {"g": "one:9092 (1)", "done": "one:9092 (1)", "turning": "two:9092 (2)"}
        self.hidden: set[str] = set()
        self.asked: list[str] = []
        self.listed: list[set[TopicPartition]] = []

    def list_groups(self, deadline: float) -> dict[str, GroupListing]:
        self._raise("")
        listed = super().list_groups(deadline) | {name: GroupListing(name, "consumer") for name in self._described}
        return {name: listing for name, listing in listed.items() if name not in self.hidden}

    def describe(self, names: Collection[str], deadline: float) -> dict[str, GroupDescription]:
        for name in names:
            self.asked.append(name)
            self._raise(name)
        return super().describe(names, deadline)

    def snapshot(self, deadline: float) -> ClusterSnapshot:
        return orders_cluster().snapshot(None, deadline)

    def offsets_once(
        self,
        wanted: Mapping[TopicPartition, int],
        deadline: float,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, int]:
        self._raise("logs")
        self.listed.append(set(wanted))
        latest = 90 if isolation is Isolation.READ_COMMITTED else 100
        return {tp: 10 if at == EARLIEST else latest for tp, at in wanted.items()}

    def coordinator(self, name: str, deadline: float) -> str:
        return self.where.get(name, "two:9092 (2)")

    def add(self, name: str, where: str) -> None:
        self._described[name] = group(name, state="Empty")
        self.where[name] = where

    def delete(self, name: str) -> None:
        del self._described[name]

    def _raise(self, name: str) -> None:
        if name in self.errors:
            raise self.errors[name]


def reader(store: Store, *names: str, known: KnownGroups | None = None) -> GroupsReader:
    return GroupsReader(cast("GroupStore", store), names, known)


def read(groups: GroupsReader) -> list[str]:
    return [group.name for group in groups.read(1.0)]


SILENT = TransportError("broker 1 does not answer")


def test_a_group_whose_coordinator_does_not_answer_is_unread_and_the_others_are_read() -> None:
    groups = reader(Store({"g": SILENT}))
    assert read(groups) == ["done", "turning"]
    assert (groups.unread, groups.notes) == ({"g"}, ["1 group (g) not read: broker 1 does not answer"])


def test_groups_that_were_not_read_come_last_and_two_of_a_coordinator_are_tried() -> None:
    store = Store()
    for number in range(4):
        store.add(f"a{number}", "one:9092 (1)")
    groups = reader(store)
    assert len(read(groups)) == 7
    store.errors = {name: SILENT for name, where in store.where.items() if where == "one:9092 (1)"}
    for _ in range(30):  # also when the coordinators are looked up again
        del store.asked[:]
        assert read(groups) == ["turning"]
        assert len(store.asked) <= 3
        assert groups.unread == {"a0", "a1", "a2", "a3", "done", "g"}
    assert store.asked[0] == "turning"
    assert groups.notes == ["6 groups (a0, a1, a2, a3, done, ...) not read: broker 1 does not answer"]
    store.errors = {}
    assert sorted(read(groups)) == ["a0", "a1", "a2", "a3", "done", "g", "turning"]
    assert (groups.unread, groups.notes) == (set(), [])


def test_one_group_that_does_not_answer_hides_no_other_of_its_coordinator() -> None:
    store = Store()
    groups = reader(store)
    read(groups)
    store.errors = {"done": SILENT}
    assert [read(groups) for _ in range(3)] == [["g", "turning"]] * 3


def test_brokers_that_answer_nothing_leave_the_cluster_and_a_note() -> None:
    store = Store(dict.fromkeys(("", "g", "done", "turning"), SILENT))
    groups = reader(store)
    assert read(groups) == []
    assert groups.notes == ["there may be further groups: broker 1 does not answer"]
    chosen = reader(store, "g")
    assert (read(chosen), chosen.unread) == ([], {"g"})


@pytest.mark.parametrize(
    ("name", "error", "is_whole"),
    [("", SILENT, True), ("g", SILENT, True), ("", UnsupportedVersionError("no ListGroups"), False)],
    ids=["list of a service that keeps all groups", "group of such a service", "brokers without groups"],
)
def test_a_store_of_which_nothing_can_be_read_is_an_error(name: str, error: Exception, is_whole: bool) -> None:
    store = Store({name: error})
    store.is_whole = is_whole
    with pytest.raises(type(error)):
        read(reader(store))


@pytest.mark.parametrize("error", [SILENT, AuthorizationError("not authorized to list groups")])
def test_a_list_that_fails_hides_no_group_that_is_known(error: StreamGroupError) -> None:
    store = Store()
    groups = reader(store)
    read(groups)
    store.errors[""] = error
    assert read(groups) == ["done", "g", "turning"]
    assert groups.notes == [f"there may be further groups: {error}"]


def test_a_group_is_read_until_it_does_not_exist_though_old_brokers_list_it_with_members_only() -> None:
    store, known = Store(), KnownGroups()
    read(reader(store, known=known))
    store.hidden = {"done"}
    assert read(reader(store, known=known)) == ["done", "g", "turning"]  # over a new connection, too
    groups = reader(store, known=known)
    store.delete("done")
    assert read(groups) == ["g", "turning"]
    del store.asked[:]
    assert read(groups) == ["g", "turning"]
    assert store.asked == ["g", "turning"]


def test_a_refused_group_is_a_note_and_stays_if_it_was_known() -> None:
    refused = AuthorizationError("not authorized to describe group 'g'")
    store = Store({"g": refused})
    groups = reader(store)
    assert read(groups) == ["done", "turning"]
    assert (groups.unread, groups.notes) == (set(), ["not authorized to describe group 'g'"])
    store.errors, store.hidden = {}, {"g"}
    read(groups)
    store.hidden = set()
    read(groups)
    store.errors["g"] = refused
    assert (read(groups), groups.unread) == (["done", "turning"], {"g"})
    store.errors, store.hidden = {}, {"g"}
    assert read(groups) == ["done", "turning", "g"]


def test_chosen_groups_are_read_alone_whether_or_not_they_are_listed() -> None:
    store = Store({"": SILENT})
    groups = reader(store, "g", "done", "absent")
    assert (read(groups), groups.unread) == (["done", "g"], set())
    store.errors["absent"] = store.errors["g"] = SILENT
    assert (read(groups), groups.unread) == (["done"], {"g"}), "one that did not exist is not taken for one that does"


def test_two_groups_that_do_not_answer_hide_the_others_of_their_coordinator_once_only() -> None:
    store = Store()
    for number in range(4):
        store.add(f"a{number}", "one:9092 (1)")
    groups = reader(store)
    read(groups)
    store.errors = {"a1": SILENT, "a2": SILENT}
    assert read(groups) == ["a0", "turning"]
    for _ in range(20):
        assert sorted(read(groups)) == ["a0", "a3", "done", "g", "turning"]


def test_coordinators_that_are_not_found_hide_no_group_for_long() -> None:
    store = Store()
    for number in range(25):
        store.add(f"a{number:02}", "lost")
    lookups: list[str] = []
    where = store.coordinator

    def coordinator(name: str, deadline: float) -> str:
        lookups.append(name)
        if store.where[name] == "lost":
            raise SILENT
        return where(name, deadline)

    store.coordinator = coordinator  # type: ignore[method-assign]
    groups = reader(store)
    for _ in range(14):  # each tries two of the 28
        read(groups)
    for _ in range(24):
        del lookups[:]
        assert sorted(read(groups)) == ["done", "g", "turning"]
        assert len([name for name in lookups if store.where[name] == "lost"]) == 2


def test_a_note_names_the_groups_of_each_cause() -> None:
    store = Store()
    groups = reader(store)
    read(groups)
    store.errors = {"done": AuthorizationError("not yours"), "g": SILENT, "turning": TransportError("broker 2")}
    assert read(groups) == []
    assert groups.unread == {"done", "g", "turning"}
    assert groups.notes == [
        "not yours",
        "1 group (g) not read: broker 1 does not answer",
        "1 group (turning) not read: broker 2",
    ]


def test_more_groups_than_the_limit_are_left_out_with_a_note_but_none_that_the_page_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_GROUPS", 2)
    store = Store()
    groups = reader(store)
    assert read(groups) == ["done", "g"]
    assert groups.notes[0].startswith("3 groups exist: the page has the first 2")
    store.hidden = {"done"}
    groups = reader(store)
    assert read(groups) == ["g", "turning"]
    store.hidden, store.errors = {"g"}, {"g": SILENT}
    assert (read(groups), groups.unread) == (["turning"], {"g"})


def test_a_coordinator_that_has_moved_is_shown_after_some_readings() -> None:
    store = Store()
    groups = reader(store, "g")
    seen = [groups.read(1.0)[0].coordinator]
    store.where["g"] = "other:9092 (8)"
    seen += [groups.read(1.0)[0].coordinator for _ in range(12)]
    assert seen == ["one:9092 (1)"] * 12 + ["other:9092 (8)"]


def test_groups_that_do_not_answer_leave_time_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    store = Store()
    left: list[float] = []

    def describe(names: Collection[str], deadline: float) -> Any:
        left.append(deadline - now[0])
        if "turning" not in names:
            now[0] = deadline
            raise SILENT
        return FakeStore.describe(store, names, deadline)

    monkeypatch.setattr(store, "describe", describe)
    assert [group.name for group in reader(store).read(110.0)] == ["turning"]
    assert left == pytest.approx([1.5, 1.5, 1.5])


@pytest.fixture(autouse=True)
def no_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "drivers", list)


def cluster_of(*stores: Any) -> ClusterReader:
    return ClusterReader(cast("list[GroupStore]", stores))


def test_a_reading_has_the_consumer_groups_and_the_logs_that_have_a_leader() -> None:
    store = Store()
    found = cluster_of(store).read(7.0, 1.0)
    assert [(g.name, g.description.state) for g in found.groups] == [
        ("done", "Empty"),
        ("g", "Stable"),
        ("turning", "PreparingRebalance"),
    ]
    assert found.groups[1].committed == {orders(0): 90, orders(3): 5}
    assert found.groups[1].coordinator == "one:9092 (1)"
    assert (found.log_starts[orders(0)], found.log_ends[orders(0)]) == (10, 100)
    assert orders(3) not in store.listed[0]
    assert (found.at, found.notes) == (7.0, ())


def test_offsets_that_a_leader_does_not_tell_are_a_note_and_the_groups_are_shown() -> None:
    found = cluster_of(Store({"logs": SILENT})).read(7.0, 1.0)
    assert (len(found.groups), found.log_ends) == (3, {})
    assert found.notes == ("cannot read the offsets of the logs: broker 1 does not answer",)


def test_a_reading_of_more_partitions_than_the_limit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PARTITIONS", 1)
    found = cluster_of(Store()).read(7.0, 1.0)
    assert len(found.log_ends) == 1
    assert [note.partition(":")[0] for note in found.notes] == ["3 partitions exist"]


def test_members_of_this_machine_are_in_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "drivers", lambda: [7])
    monkeypatch.setattr(channel, "statuses", lambda pid, *_: {"r1": {"group": "g", "member": "a-1", "pid": pid}})
    assert cluster_of(Store()).read(7.0, 1.0).statuses == ({"group": "g", "member": "a-1", "pid": 7},)


def test_groups_of_kafka_07_are_read_in_zookeeper_with_its_names_of_partitions() -> None:
    found = cluster_of(store(Dialect.KAFKA07, KAFKA07)).read(7.0, soon())
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
    found = cluster_of(in_zookeeper, Store()).read(7.0, soon())
    assert [(group.name, len(group.description.members)) for group in found.groups] == [
        ("g", 2),
        ("old", 0),
        ("done", 0),
        ("turning", 0),
    ]


def test_brokers_before_0_9_leave_the_groups_of_zookeeper() -> None:
    in_zookeeper = store(Dialect.KAFKA, {"/consumers": "", "/consumers/old": ""})
    brokers = Store({"": UnsupportedVersionError("no ListGroups")})
    assert [group.name for group in cluster_of(in_zookeeper, brokers).read(7.0, soon()).groups] == ["old"]
    with pytest.raises(UnsupportedVersionError):
        cluster_of(brokers).read(7.0, 1.0)


def test_what_a_migration_has_left_in_zookeeper_is_not_shown_for_a_group_that_is_not_read() -> None:
    in_zookeeper = store(Dialect.KAFKA, {"/consumers": "", "/consumers/g": "", "/consumers/old": ""})
    brokers = Store()
    both = cluster_of(in_zookeeper, brokers)
    both.read(7.0, soon())
    brokers.errors = {"g": SILENT}
    found = both.read(12.0, soon())
    assert ([group.name for group in found.groups], found.unread) == (["old", "done", "turning"], frozenset({"g"}))


@pytest.mark.parametrize(("seconds", "ends", "starts", "statuses"), [(10.0, 2.0, 0.5, 1.5), (1.0, 4 / 15, 1 / 15, 0.2)])
def test_groups_logs_and_members_of_this_machine_have_time_whatever_the_others_take(
    seconds: float, ends: float, starts: float, statuses: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, given = [100.0], []
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(channel, "drivers", lambda: [7])
    monkeypatch.setattr(channel, "statuses", lambda *_: {"r1": {"left": 100 + seconds - now[0]}})
    slow = Store()

    def describe(names: Any, deadline: float) -> dict[str, GroupDescription]:
        now[0] = deadline
        raise SILENT

    def once(wanted: Mapping[TopicPartition, int], deadline: float, _: Isolation) -> dict[TopicPartition, int]:
        given.append((min(wanted.values()), deadline - now[0]))
        now[0] = deadline
        return {}

    monkeypatch.setattr(slow, "describe", describe)
    monkeypatch.setattr(slow, "offsets_once", once)
    found = cluster_of(slow).read(7.0, 100 + seconds)
    assert [at for at, _ in given] == [LATEST, EARLIEST]
    assert all(round(left, 6) >= round(least, 6) for (_, left), least in zip(given, (ends, starts), strict=True))
    assert found.statuses[0]["left"] >= statuses - 1e-6


def test_a_group_that_is_not_read_stays_on_the_page_and_its_figures_are_not_known() -> None:
    silent = Store()
    reader = cluster_of(silent)
    history = History()
    history.add(reader.read(7.0, 1.0))
    silent.errors = {"g": SILENT}
    history.add(reader.read(12.0, 1.0))
    shown = views.group_view(history, "g")
    assert shown is not None
    assert (shown["state"], shown["lag"], shown["trend"]) == ("Unknown", None, "unknown")
    assert {(row["committed"], row["lag"]) for row in shown["partitions"]} == {(None, None)}
    assert len(shown["totals"]["times"]) == 1
    silent.errors = {}
    history.add(reader.read(17.0, 1.0))
    again = views.group_view(history, "g")
    assert again is not None
    assert (again["state"], again["lag"], again["totals"]["times"]) == ("Stable", 10, [7.0, 17.0])

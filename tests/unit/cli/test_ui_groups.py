"""Readings of the groups of one place: what does not answer hides nothing else."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

import pytest

from streamgroup.cli import _ui_groups as module
from streamgroup.cli._group_stores import GroupStore
from streamgroup.cli._ui_groups import GroupsReader, KnownGroups
from streamgroup.errors import AuthorizationError, StreamGroupError, TransportError, UnsupportedVersionError
from streamgroup.model import CommittedOffset, GroupDescription, GroupListing, TopicPartition
from tests.unit.cli.test_groups import FakeStore, group


class Store(FakeStore):
    """The groups of FakeStore. `errors` are raised by group, that of "" by the list of groups."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[str, Exception] = {}
        self.where = {"g": "one:9092 (1)", "done": "one:9092 (1)", "turning": "two:9092 (2)"}
        self.hidden: set[str] = set()
        self.asked: list[str] = []

    def list_groups(self, deadline: float) -> dict[str, GroupListing]:
        self._raise("")
        listed = super().list_groups(deadline) | {name: GroupListing(name, "consumer") for name in self._described}
        return {name: listing for name, listing in listed.items() if name not in self.hidden}

    def describe(self, names: Collection[str], deadline: float) -> dict[str, GroupDescription]:
        for name in names:
            self.asked.append(name)
            self._raise(name)
        return super().describe(names, deadline)

    def committed(self, name: str, deadline: float) -> Mapping[TopicPartition, CommittedOffset]:
        return super().committed(name, deadline)

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
    store = Store()
    store.errors["g"] = SILENT
    groups = reader(store)
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
    store = Store()
    store.errors = dict.fromkeys(("", "g", "done", "turning"), SILENT)
    groups = reader(store)
    assert read(groups) == []
    assert groups.notes == ["there may be further groups: broker 1 does not answer"]
    chosen = reader(store, "g")
    assert (read(chosen), chosen.unread) == ([], {"g"})


@pytest.mark.parametrize("name", ["", "g"])
def test_a_service_that_keeps_all_groups_and_does_not_answer_is_an_error(name: str) -> None:
    store = Store()
    store.is_whole = True
    store.errors[name] = SILENT
    with pytest.raises(TransportError):
        read(reader(store))


@pytest.mark.parametrize("error", [SILENT, AuthorizationError("not authorized to list groups")])
def test_a_list_that_fails_hides_no_group_that_is_known(error: StreamGroupError) -> None:
    store = Store()
    groups = reader(store)
    read(groups)
    store.errors[""] = error
    assert read(groups) == ["done", "g", "turning"]
    assert groups.notes == [f"there may be further groups: {error}"]


def test_brokers_without_groups_are_an_error() -> None:
    store = Store()
    store.errors[""] = UnsupportedVersionError("no ListGroups")
    with pytest.raises(UnsupportedVersionError):
        read(reader(store))


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
    store = Store()
    store.errors["g"] = AuthorizationError("not authorized to describe group 'g'")
    groups = reader(store)
    assert read(groups) == ["done", "turning"]
    assert (groups.unread, groups.notes) == (set(), ["not authorized to describe group 'g'"])
    store.errors, store.hidden = {}, {"g"}
    read(groups)
    store.hidden = set()
    read(groups)
    store.errors["g"] = AuthorizationError("not authorized to describe group 'g'")
    assert (read(groups), groups.unread) == (["done", "turning"], {"g"})
    store.errors, store.hidden = {}, {"g"}
    assert read(groups) == ["done", "turning", "g"]


def test_chosen_groups_are_read_alone_whether_or_not_they_are_listed() -> None:
    store = Store()
    store.errors[""] = SILENT
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
    for _ in range(60):
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


def test_more_groups_than_the_limit_are_left_out_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_GROUPS", 2)
    groups = reader(Store())
    assert read(groups) == ["done", "g"]
    assert groups.notes[0].startswith("3 groups exist: the page has the first 2")


def test_the_limit_leaves_out_no_group_that_the_page_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_GROUPS", 2)
    store = Store()
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

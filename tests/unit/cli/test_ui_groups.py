"""Readings of the groups of one place: what does not answer hides nothing else."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

import pytest

from streamgroup.cli import _ui_groups as module
from streamgroup.cli._group_stores import GroupStore
from streamgroup.cli._ui_groups import GroupsReader
from streamgroup.errors import AuthorizationError, TransportError
from streamgroup.model import CommittedOffset, GroupDescription, GroupListing, TopicPartition
from tests.unit.cli.test_groups import FakeStore


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
        return {name: listing for name, listing in super().list_groups(deadline).items() if name not in self.hidden}

    def describe(self, names: Collection[str], deadline: float) -> dict[str, GroupDescription]:
        for name in names:
            self.asked.append(name)
            self._raise(name)
        return super().describe(names, deadline)

    def committed(self, name: str, deadline: float) -> Mapping[TopicPartition, CommittedOffset]:
        return super().committed(name, deadline)

    def coordinator(self, name: str, deadline: float) -> str:
        return self.where[name]

    def delete(self, name: str) -> None:
        del self._described[name]

    def _raise(self, name: str) -> None:
        if name in self.errors:
            raise self.errors[name]


def reader(store: Store, *names: str) -> GroupsReader:
    return GroupsReader(cast("GroupStore", store), names)


def read(groups: GroupsReader) -> list[str]:
    return [group.name for group in groups.read(1.0)]


SILENT = TransportError("broker 1 does not answer")


def test_a_group_whose_coordinator_does_not_answer_is_unread_and_the_others_are_read() -> None:
    store = Store()
    store.errors["g"] = SILENT
    groups = reader(store)
    assert read(groups) == ["done", "turning"]
    assert (groups.unread, groups.notes) == ({"g"}, ["group 'g' is not read: broker 1 does not answer"])


def test_a_silent_coordinator_that_is_known_is_asked_once_in_a_reading() -> None:
    store = Store()
    groups = reader(store)
    assert read(groups) == ["done", "g", "turning"]
    store.errors = {"done": SILENT, "g": SILENT}
    del store.asked[:]
    assert read(groups) == ["turning"]
    assert store.asked == ["done", "turning"]
    assert groups.unread == {"done", "g"}
    assert groups.notes[-1] == "1 more groups of one:9092 (1) are not read"
    store.errors = {}
    assert read(groups) == ["done", "g", "turning"]
    assert (groups.unread, groups.notes) == (set(), [])


def test_nothing_that_answers_is_an_error() -> None:
    store = Store()
    store.errors = dict.fromkeys(("g", "done", "turning"), SILENT)
    with pytest.raises(TransportError, match="broker 1 does not answer"):
        read(reader(store))


def test_a_broker_that_lists_no_groups_hides_none_that_is_known() -> None:
    store = Store()
    store.errors[""] = SILENT
    groups = reader(store)
    with pytest.raises(TransportError):
        read(groups)
    store.errors = {}
    read(groups)
    store.errors[""] = SILENT
    assert read(groups) == ["done", "g", "turning"]
    assert groups.notes == ["there may be further groups: broker 1 does not answer"]


def test_a_group_is_read_until_it_does_not_exist_though_old_brokers_list_it_with_members_only() -> None:
    store = Store()
    groups = reader(store)
    read(groups)
    store.hidden = {"done"}
    assert read(groups) == ["g", "turning", "done"]
    store.delete("done")
    assert read(groups) == ["g", "turning"]
    del store.asked[:]
    assert read(groups) == ["g", "turning"]
    assert store.asked == ["g", "turning"]


def test_a_refused_group_is_a_note_and_neither_read_nor_known() -> None:
    store = Store()
    store.errors["g"] = AuthorizationError("not authorized to describe group 'g'")
    groups = reader(store)
    assert read(groups) == ["done", "turning"]
    assert (groups.unread, groups.notes) == (set(), ["not authorized to describe group 'g'"])


def test_chosen_groups_are_read_alone() -> None:
    assert read(reader(Store(), "g")) == ["g"]


def test_more_groups_than_the_limit_are_left_out_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_GROUPS", 2)
    groups = reader(Store())
    assert read(groups) == ["done", "g"]
    assert groups.notes[0].startswith("3 groups exist: the page has the first 2")


def test_a_coordinator_that_has_moved_is_shown_after_some_readings() -> None:
    store = Store()
    groups = reader(store, "g")
    seen = [groups.read(1.0)[0].coordinator]
    store.where["g"] = "other:9092 (8)"
    seen += [groups.read(1.0)[0].coordinator for _ in range(12)]
    assert seen == ["one:9092 (1)"] * 12 + ["other:9092 (8)"]


def test_one_silent_group_leaves_time_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    store = Store()
    given: list[float] = []

    def describe(names: Collection[str], deadline: float) -> Any:
        given.append(deadline - now[0])
        now[0] = deadline
        raise SILENT

    monkeypatch.setattr(store, "describe", describe)
    with pytest.raises(TransportError):
        reader(store).read(110.0)
    assert given == pytest.approx([2.5, 1.875, 1.40625])

"""Reads the groups of one place for the live page: of the brokers, or of ZooKeeper."""

from __future__ import annotations

import time
from collections.abc import Collection

from streamgroup.cli._group_stores import GroupStore
from streamgroup.cli._group_tables import consumer_groups
from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.model import GroupDescription, GroupState
from streamgroup.ui.history.reading import GroupReading

MOST_GROUPS = 1_000
"""Groups that a reading describes; each takes two requests. Further ones are left out, with a note."""
_COORDINATORS_EVERY = 12
"""Readings after which the coordinators are looked up again: a broker may have failed."""
_LISTING, _GROUP = 1 / 2, 1 / 4
"""The parts of the time left that a list of all groups, and one group, may take: one silent broker delays the others
no longer."""


class GroupsReader:
    """Reads the groups of one store. `only`: these groups, or all where it is empty.

    A group is read until it does not exist any more, whether or not the brokers list it: those before 0.10.1 list no
    group without members.
    """

    def __init__(self, store: GroupStore, only: Collection[str] = ()) -> None:
        self._store = store
        self._only = frozenset(only)
        self._coordinators: dict[str, str] = {}
        self._readings = 0
        self._known: set[str] = set()
        """The groups that existed in the last reading."""
        self.notes: list[str] = []
        """What the newest reading could not read."""
        self.unread: set[str] = set()
        """The groups that exist, as far as is known, and could not be read."""

    def read(self, deadline: float) -> list[GroupReading]:
        """Return the groups that could be read. Raises TransportError if nothing answers."""
        self.notes, self.unread = [], set()
        if self._readings % _COORDINATORS_EVERY == 0:
            self._coordinators = {}
        self._readings += 1
        silent: dict[str, int] = {}
        failure: TransportError | None = None
        found: list[GroupReading] = []
        try:
            names = self._names(_part(_LISTING, deadline))
        except TransportError as error:
            names, failure = sorted(self._known), error
            self.notes.append(f"there may be further groups: {error}")
        for name in names:
            coordinator = self._coordinators.get(name, "")
            if coordinator in silent:
                silent[coordinator] += 1
                self.unread.add(name)
                continue
            try:
                found += self._group(name, _part(_GROUP, deadline))
            except TransportError as error:
                failure = error
                self.notes.append(f"group {name!r} is not read: {error}")
                self.unread.add(name)
                if coordinator:
                    silent[coordinator] = 0
            except StreamGroupError as error:
                self.notes.append(str(error))
        if failure is not None and not found:
            raise failure
        self.notes += [f"{count} more groups of {where} are not read" for where, count in silent.items() if count]
        self._known = {group.name for group in found} | self.unread
        self._coordinators |= {group.name: group.coordinator for group in found}
        return found

    def _names(self, deadline: float) -> list[str]:
        listed = [group.group_id for group in consumer_groups(self._store.list_groups(deadline).values())]
        names = list(dict.fromkeys([*listed, *sorted(self._known)]))
        wanted = [name for name in names if not self._only or name in self._only]
        if len(wanted) > MOST_GROUPS:
            self.notes.append(f"{len(wanted)} groups exist: the page has the first {MOST_GROUPS}. Choose with --group")
        return wanted[:MOST_GROUPS]

    def _group(self, name: str, deadline: float) -> list[GroupReading]:
        """Return the group as it is now; nothing if it does not exist."""
        description: GroupDescription = self._store.describe([name], deadline)[name]
        if description.state == GroupState.DEAD:
            return []
        committed = {tp: commit.offset for tp, commit in self._store.committed(name, deadline).items()}
        coordinator = self._coordinators.get(name) or self._store.coordinator(name, deadline)
        return [GroupReading(description, committed, coordinator)]


def _part(share: float, deadline: float) -> float:
    """Return the time at which `share` of the time until `deadline` is over."""
    now = time.monotonic()
    return now + (deadline - now) * share

"""Reads the groups of one place for the live page: of the brokers, or of ZooKeeper."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from streamgroup.cli._group_stores import GroupStore
from streamgroup.cli._group_tables import consumer_groups
from streamgroup.counting import counted
from streamgroup.errors import StreamGroupError, TransportError, UnsupportedVersionError
from streamgroup.model import GroupState
from streamgroup.ui.history.reading import GroupReading

MOST_GROUPS = 1_000
"""Groups that a reading describes. Further ones are left out, with a note."""
_COORDINATORS_EVERY = 12
"""Readings after which the coordinators are looked up again: a broker may have failed."""
_LISTING_S = 2.0
"""How long a reading waits for a broker's list of groups."""
_GROUP = 1 / 4
"""The part of the time left that one group may take, so that one which does not answer leaves time for the others."""
_TRIES = 2
"""How many groups of a coordinator a reading tries that do not answer. One group alone may have moved."""
_MOST_NAMED = 5
"""How many groups that were not read a note names."""


@dataclass(slots=True)
class KnownGroups:
    """What earlier readings have found out about the groups of one place. It outlives the connection."""

    names: set[str] = field(default_factory=set)
    """Those that existed in the last reading."""
    failed: set[str] = field(default_factory=set)
    """Those of them that were not read."""
    coordinators: dict[str, str] = field(default_factory=dict)
    readings: int = 0


class GroupsReader:
    """Reads the groups of one store. `only`: these groups, or all where it is empty.

    A group is read until it does not exist any more, whether or not the brokers list it: those before 0.10.1 list no
    group without members.
    """

    def __init__(self, store: GroupStore, only: Collection[str] = (), known: KnownGroups | None = None) -> None:
        self._store = store
        self._only = frozenset(only)
        self._known = known or KnownGroups()
        self.notes: list[str] = []
        """What the newest reading could not read."""
        self.unread: set[str] = set()
        """The groups that exist, as far as is known, and could not be read."""

    def read(self, deadline: float) -> list[GroupReading]:
        """Return the groups that could be read. Those that were not read last time come last.

        Raises TransportError if the store is whole and does not answer, and UnsupportedVersionError if the brokers
        keep no groups.
        """
        self.notes, self.unread = [], set()
        known = self._known
        if known.readings % _COORDINATORS_EVERY == 0:
            known.coordinators.clear()
        known.readings += 1
        silent: Counter[str] = Counter()
        failure: TransportError | None = None
        found: list[GroupReading] = []
        for name in sorted(self._names(deadline), key=known.failed.__contains__):
            try:
                until = _part(_GROUP, deadline)
                if name not in known.coordinators:
                    known.coordinators[name] = self._store.coordinator(name, until)
                if silent[known.coordinators[name]] < _TRIES:
                    found += self._group(name, until)
                else:
                    self.unread.add(name)
            except UnsupportedVersionError:
                raise
            except TransportError as error:
                if self._store.is_whole:
                    raise
                failure = failure or error
                silent[known.coordinators.pop(name, "")] += 1
                self.unread.add(name)
            except StreamGroupError as error:
                self.notes.append(str(error))
                self.unread |= known.names & {name}
        if failure is not None:
            self.notes.append(f"{_named(sorted(self.unread))} not read: {failure}")
        known.names = {group.name for group in found} | self.unread
        known.failed = set(self.unread)
        return found

    def _names(self, deadline: float) -> list[str]:
        """Return the groups to read."""
        if self._only:
            return sorted(self._only)
        try:
            listed = self._store.list_groups_once(min(deadline, time.monotonic() + _LISTING_S))
        except UnsupportedVersionError:
            raise
        except StreamGroupError as error:
            if self._store.is_whole:
                raise
            self.notes.append(f"there may be further groups: {error}")
            listed = {}
        consumers = [group.group_id for group in consumer_groups(listed.values())]
        names = list(dict.fromkeys([*consumers, *sorted(self._known.names)]))
        if len(names) > MOST_GROUPS:
            self.notes.append(f"{len(names)} groups exist: the page has the first {MOST_GROUPS}. Choose with --group")
        return names[:MOST_GROUPS]

    def _group(self, name: str, deadline: float) -> list[GroupReading]:
        """Return the group as it is now; nothing if it does not exist."""
        description = self._store.describe([name], deadline)[name]
        if description.state == GroupState.DEAD:
            return []
        committed = {tp: commit.offset for tp, commit in self._store.committed(name, deadline).items()}
        return [GroupReading(description, committed, self._known.coordinators[name])]


def _part(share: float, deadline: float) -> float:
    """Return the time at which `share` of the time until `deadline` is over."""
    now = time.monotonic()
    return now + (deadline - now) * share


def _named(names: list[str]) -> str:
    more = ", ..." if len(names) > _MOST_NAMED else ""
    return f"{counted(len(names), 'group')} ({', '.join(names[:_MOST_NAMED])}{more})"

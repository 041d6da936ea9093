"""Reads what the live page shows: groups and logs from the cluster, members of this machine by their channels."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from streamgroup.cli._group_stores import GroupStore, opened_stores
from streamgroup.cli._ui_groups import GroupsReader, KnownGroups
from streamgroup.driver.application import control
from streamgroup.driver.application.drains import recorded_failures
from streamgroup.errors import StreamGroupError, UnsupportedVersionError
from streamgroup.model import EARLIEST, LATEST, ClusterSnapshot, TopicPartition
from streamgroup.options.types import ClientOptions
from streamgroup.ui.history.reading import GroupReading, Reading

MOST_PARTITIONS = 20_000
"""Partitions whose log starts and ends a reading lists. Those of groups come first."""
_LOGS_S, _LOGS = 3.0, 0.4
"""The time that is kept for the logs, in seconds and as a share of the whole. The ends have two thirds of it."""
_STATUSES_S, _STATUSES = 1.5, 0.2
"""The time that is kept for the coordinator processes of this machine."""
_STATUS_S = 1.0
"""How long a reading waits for one of them."""


class PageDataReader:
    """Connects for the readings of a page. `names`: these groups only. A reading takes `timeout_ms` at most."""

    def __init__(self, options: ClientOptions, names: Sequence[str], timeout_ms: int) -> None:
        self._options = options
        self._names = names
        self._timeout_s = timeout_ms / 1000
        self._known: dict[type, KnownGroups] = {}

    @contextmanager
    def opened(self) -> Iterator[Callable[[], Reading]]:
        """Connect, and yield a function that reads the cluster once."""
        with opened_stores(self._options) as stores:
            reader = ClusterReader(stores, self._names, self._known)
            yield lambda: reader.read(time.time(), time.monotonic() + self._timeout_s)


class ClusterReader:
    """Reads the cluster, and the groups of each store. The first store tells brokers, topics and logs.

    `known` is what the readings over earlier connections have found out, by the type of the store.
    """

    def __init__(
        self, stores: Sequence[GroupStore], names: Sequence[str] = (), known: dict[type, KnownGroups] | None = None
    ) -> None:
        self._stores = stores
        found = {} if known is None else known
        self._readers = [GroupsReader(each, names, found.setdefault(type(each), KnownGroups())) for each in stores]
        self._notes: list[str] = []

    def read(self, at: float, deadline: float) -> Reading:
        """Return one reading. Raises StreamGroupError if the cluster cannot be reached.

        The result lacks a group or a log that cannot be read, and a note says why.
        """
        self._notes = []
        for store in self._stores:
            del store.notes[:]
        snapshot = self._stores[0].snapshot(deadline)
        # Each part has time of its own, whatever the others take. The ends follow the commits, since a lag needs both.
        left = deadline - time.monotonic()
        logs_until = deadline - min(_STATUSES_S, left * _STATUSES)
        groups, unread = self._groups(logs_until - min(_LOGS_S, left * _LOGS))
        starts, ends = self._logs(snapshot, groups, logs_until)
        statuses = [
            status for pid in control.drivers() for status in control.statuses(pid, _STATUS_S, deadline).values()
        ]
        notes = self._notes + [note for reader in self._readers for note in reader.notes]
        notes += [note for store in self._stores for note in store.notes]
        return Reading(
            at,
            snapshot,
            groups,
            starts,
            ends,
            tuple(statuses),
            tuple(dict.fromkeys(notes)),
            tuple(recorded_failures()),
            unread,
        )

    def _groups(self, deadline: float) -> tuple[tuple[GroupReading, ...], frozenset[str]]:
        """Return the groups of all stores, and those that were not read.

        Of two with one name the one with members counts, or else the first. One without members does not count while
        that of another store is not read: it may be what a migration has left.
        """
        found: dict[str, GroupReading] = {}
        for reader in self._readers:
            try:
                groups = reader.read(deadline)
            except UnsupportedVersionError:
                if len(self._readers) == 1:
                    raise
                continue  # brokers before 0.9 keep no groups
            for group in groups:
                known = found.get(group.name)
                if known is None or (group.description.members and not known.description.members):
                    found[group.name] = group
        missed = {name for reader in self._readers for name in reader.unread}
        unread = frozenset(name for name in missed if name not in found or not found[name].description.members)
        return tuple(group for group in found.values() if group.name not in unread), unread

    def _logs(
        self, snapshot: ClusterSnapshot, groups: Sequence[GroupReading], deadline: float
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return the starts and ends of the logs that have a leader."""
        of_groups = [tp for group in groups for tp in group.partitions()]
        others = [
            TopicPartition(topic.name, info.partition)
            for topic in snapshot.topics.values()
            if not topic.internal
            for info in topic.partitions
        ]
        wanted = [tp for tp in dict.fromkeys([*of_groups, *others]) if snapshot.leader(tp) is not None]
        if len(wanted) > MOST_PARTITIONS:
            self._notes.append(f"{len(wanted)} partitions exist: the page has the offsets of {MOST_PARTITIONS}")
            wanted = wanted[:MOST_PARTITIONS]
        begun = time.monotonic()
        left = min(_LOGS_S, deadline - begun)
        ends = self._offsets_at(LATEST, wanted, begun + left * 2 / 3)
        return self._offsets_at(EARLIEST, wanted, begun + left), ends

    def _offsets_at(self, at: int, wanted: Collection[TopicPartition], deadline: float) -> dict[TopicPartition, int]:
        """Return the offsets of the logs whose leaders answer in time. None at all if a log may not be described."""
        try:
            return self._stores[0].offsets_once(dict.fromkeys(wanted, at), deadline)
        except StreamGroupError as error:
            self._notes.append(f"the offsets of the logs are not known: {error}")
            return {}

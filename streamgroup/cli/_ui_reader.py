"""Reads what the live page shows: groups and logs from the cluster, members of this machine by their channels."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from streamgroup.cli._group_stores import GroupStore, opened_stores
from streamgroup.cli._ui_groups import GroupsReader
from streamgroup.driver.application import control
from streamgroup.driver.application.failures import recorded_failures
from streamgroup.errors import StreamGroupError, UnsupportedVersionError
from streamgroup.model import EARLIEST, LATEST, ClusterSnapshot, TopicPartition
from streamgroup.options.types import ClientOptions
from streamgroup.ui.history.reading import GroupReading, Reading

MOST_PARTITIONS = 20_000
"""Partitions whose log starts and ends a reading lists. Those of groups come first."""
_STATUS_S = 1.0
"""How long a reading waits for one coordinator process."""


@contextmanager
def opened_reader(options: ClientOptions, names: Sequence[str], timeout_ms: int) -> Iterator[Callable[[], Reading]]:
    """Connect, and yield a function that reads the cluster once within `timeout_ms`. `names`: these groups only."""
    with opened_stores(options) as stores:
        reader = ClusterReader(stores, names)
        yield lambda: reader.read(time.time(), time.monotonic() + timeout_ms / 1000)


class ClusterReader:
    """Reads the cluster, and the groups of each store. The first store tells brokers, topics and logs."""

    def __init__(self, stores: Sequence[GroupStore], names: Sequence[str] = ()) -> None:
        self._stores = stores
        self._groups_readers = [GroupsReader(store, names) for store in stores]
        self._notes: list[str] = []

    def read(self, at: float, deadline: float) -> Reading:
        """Return one reading. Raises StreamGroupError if the cluster cannot be reached.

        The result lacks a group or a log that cannot be read, and a note says why.
        """
        self._notes = []
        for store in self._stores:
            del store.notes[:]
        snapshot = self._stores[0].snapshot(deadline)
        groups = self._groups(deadline)
        starts, ends = self._logs(snapshot, groups, deadline)
        statuses = [
            status for pid in control.drivers() for status in control.statuses(pid, _STATUS_S, deadline).values()
        ]
        notes = self._notes + [note for reader in self._groups_readers for note in reader.notes]
        notes += [note for store in self._stores for note in store.notes]
        unread = frozenset[str]().union(*(reader.unread for reader in self._groups_readers))
        return Reading(
            at,
            snapshot,
            tuple(groups),
            starts,
            ends,
            tuple(statuses),
            tuple(dict.fromkeys(notes)),
            tuple(recorded_failures()),
            unread - {group.name for group in groups},
        )

    def _groups(self, deadline: float) -> list[GroupReading]:
        """Return the groups of all stores. Of two with one name the one with members counts, or else the first."""
        found: dict[str, GroupReading] = {}
        for reader in self._groups_readers:
            try:
                groups = reader.read(deadline)
            except UnsupportedVersionError:
                if len(self._groups_readers) == 1:
                    raise
                continue  # brokers before 0.9 keep no groups
            for group in groups:
                known = found.get(group.name)
                if known is None or (group.description.members and not known.description.members):
                    found[group.name] = group
        return list(found.values())

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
        half = (time.monotonic() + deadline) / 2  # a silent leader takes it all, and the ends are asked for after it
        return self._offsets_at(EARLIEST, wanted, half), self._offsets_at(LATEST, wanted, deadline)

    def _offsets_at(self, at: int, wanted: Collection[TopicPartition], deadline: float) -> dict[TopicPartition, int]:
        """Return the offsets of the logs whose leaders answer in time."""
        try:
            return self._stores[0].offsets_once(dict.fromkeys(wanted, at), deadline)
        except StreamGroupError as error:
            self._notes.append(f"the offsets of the logs are not known: {error}")
            return {}

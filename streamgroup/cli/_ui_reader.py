"""Reads what the live page shows: groups and logs from the cluster, members of this machine by their channels."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from streamgroup.cli._group_stores import GroupStore, opened_store
from streamgroup.cli._group_tables import consumer_groups
from streamgroup.driver.application import control
from streamgroup.driver.application.failures import recorded_failures
from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.model import EARLIEST, LATEST, ClusterSnapshot, GroupDescription, GroupState, TopicPartition
from streamgroup.options.types import ClientOptions
from streamgroup.ui.history.reading import GroupReading, Reading

MOST_GROUPS = 1_000
"""Groups that a reading describes; each takes two requests. Further ones are left out, with a note."""
MOST_PARTITIONS = 20_000
"""Partitions whose log starts and ends a reading lists. Those of groups come first."""
_COORDINATORS_EVERY = 12
"""Readings after which the coordinators are looked up again: a broker may have failed."""
_STATUS_S = 1.0
"""How long a reading waits for one coordinator process."""


@contextmanager
def opened_reader(options: ClientOptions, names: Sequence[str], timeout_ms: int) -> Iterator[Callable[[], Reading]]:
    """Connect, and yield a function that reads the cluster once within `timeout_ms`. `names`: these groups only."""
    with opened_store(options) as store:
        reader = ClusterReader(store, names)
        yield lambda: reader.read(time.time(), time.monotonic() + timeout_ms / 1000)


class ClusterReader:
    """Reads the cluster of one store."""

    def __init__(self, store: GroupStore, names: Sequence[str] = ()) -> None:
        self._store = store
        self._names = frozenset(names)
        self._notes: list[str] = []
        self._coordinators: dict[str, str] = {}
        self._readings = 0

    def read(self, at: float, deadline: float) -> Reading:
        """Return one reading. Raises StreamGroupError if the cluster cannot be reached.

        The result lacks a group or a log that cannot be read, and a note says why.
        """
        self._notes = []
        if self._readings % _COORDINATORS_EVERY == 0:
            self._coordinators = {}
        self._readings += 1
        del self._store.notes[:]
        snapshot = self._store.snapshot(deadline)
        groups = self._groups(deadline)
        starts, ends = self._logs(snapshot, groups, deadline)
        statuses = [
            status for pid in control.drivers() for status in control.statuses(pid, _STATUS_S, deadline).values()
        ]
        notes = dict.fromkeys([*self._notes, *self._store.notes])
        failures = tuple(recorded_failures())
        return Reading(at, snapshot, tuple(groups), starts, ends, tuple(statuses), tuple(notes), failures)

    def _groups(self, deadline: float) -> list[GroupReading]:
        listed = [group.group_id for group in consumer_groups(self._store.list_groups(deadline).values())]
        wanted = [name for name in listed if not self._names or name in self._names]
        if len(wanted) > MOST_GROUPS:
            self._notes.append(f"{len(wanted)} groups exist: the page has the first {MOST_GROUPS}. Choose with --group")
            wanted = wanted[:MOST_GROUPS]
        found = []
        for name in wanted:
            try:
                description = self._store.describe([name], deadline)[name]
                if description.state != GroupState.DEAD:
                    found.append(self._group(description, deadline))
            except TransportError:
                raise
            except StreamGroupError as error:
                self._notes.append(str(error))
        self._coordinators = {group.name: group.coordinator for group in found}
        return found

    def _group(self, description: GroupDescription, deadline: float) -> GroupReading:
        name = description.group_id
        committed = {tp: commit.offset for tp, commit in self._store.committed(name, deadline).items()}
        coordinator = self._coordinators.get(name) or self._store.coordinator(name, deadline)
        return GroupReading(description, committed, coordinator)

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
        return self._offsets_at(EARLIEST, wanted, deadline), self._offsets_at(LATEST, wanted, deadline)

    def _offsets_at(self, at: int, wanted: Collection[TopicPartition], deadline: float) -> dict[TopicPartition, int]:
        """Return the offsets; none at all if a leader does not answer in time."""
        try:
            return self._store.offsets_at(dict.fromkeys(wanted, at), deadline)
        except StreamGroupError as error:
            self._notes.append(f"the offsets of the logs are not known: {error}")
            return {}

"""Chooses the replica to fetch each range from: the leader, or the follower that the leader names (KIP-392).

Only a leader has the whole log. A follower may lag, be partitioned from the leader or be damaged. If a follower returns
an error, no records, or records that cannot be decoded, the range is fetched from its leader. Only the leader's
response decides whether records are lost (R14).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from streamgroup.errors import TransportError
from streamgroup.executor.read.cursor import Cursor
from streamgroup.executor.read.read_format import LAST_LOOK_TIMEOUT_S, LogLookup, describe_failure
from streamgroup.executor.read.recovery import Recovery
from streamgroup.model import Broker, TopicPartition
from streamgroup.options.types import ClientOptions, FetchOptions

log = logging.getLogger(__name__)

SILENCE_S = 1.0
"""How many seconds a follower may send no records that its leader has. A follower usually lags by one round trip."""
_MOST_NAMED = 3
"""The most partitions that one log line names."""


class ReadReplicas:
    """Chooses the replica that each range of one task is fetched from. `clock` returns seconds.

    A choice is valid for `metadata.max.age.ms`, as in Java's consumer. The leader is then asked again.
    """

    def __init__(
        self, lookup: LogLookup, client: ClientOptions, fetch: FetchOptions, clock: Callable[[], float]
    ) -> None:
        self._lookup = lookup
        self._max_age_s = client.metadata_max_age_ms / 1000
        self._silence_s = min(SILENCE_S, fetch.poll_timeout_s / 2)
        self._clock = clock
        self._key = (client, fetch.rack)

    def begin(self, cursors: Sequence[Cursor]) -> None:
        """Fetch from the replicas that leaders named to earlier tasks of this process."""
        memory = REPLICAS.get(self._key)
        if memory is None:
            return
        now = self._clock()
        for cursor in cursors:
            choice = memory.choice(cursor, now)
            if choice is not None and choice.replica != cursor.leader:
                cursor.read_from(choice.replica, choice.until, is_leader_only=choice.replica is None)

    def leave(self, cursors: Sequence[Cursor], recovery: Recovery) -> None:
        """Mark the cursors that must stop fetching from a follower: it sends nothing, or the choice has expired."""
        now = self._clock()
        for cursor in cursors:
            is_silent = cursor.replica is not None and recovery.waited_s(cursor) >= self._silence_s
            if is_silent or now >= cursor.review_at:
                cursor.is_moving = True

    def settle(self, cursors: Sequence[Cursor]) -> list[Cursor]:
        """Choose the replica for the rest of each cursor. Return the cursors whose leaders have failed."""
        failed = []
        left: dict[tuple[Broker, str], list[Cursor]] = {}
        for cursor in cursors:
            if cursor.replica is not None:
                replica = cursor.replica
                if why := self._return_to_leader(cursor, replica):
                    left.setdefault((replica, why), []).append(cursor)
            elif cursor.named_replica is not None:
                self._follow(cursor, cursor.named_replica)
            elif cursor.is_moving:
                cursor.read_from(None, math.inf)
            if cursor.failure is not None or cursor.source is None:
                failed.append(cursor)
        for (replica, why), those in left.items():
            names = ", ".join(map(str, those[:_MOST_NAMED])) + (", ..." if len(those) > _MOST_NAMED else "")
            words = "reading from the leaders for %.0f s, because follower %s failed for %d partitions: %s (%s)"
            log.warning(words, self._max_age_s, replica, len(those), why, names)
        return failed

    def _return_to_leader(self, cursor: Cursor, replica: Broker) -> str:
        """Fetch from the leader. Return why the follower has failed, or "" if the choice has expired."""
        failure, now = cursor.failure, self._clock()
        if failure is None and now >= cursor.review_at:
            cursor.read_from(None, math.inf)
            return ""
        if isinstance(failure, TransportError):
            self._memory().avoid(replica, now + self._max_age_s)
        why = "it sends no records" if failure is None else describe_failure(cursor)
        self._stay_with_leader(cursor, now + self._max_age_s)
        return why

    def _follow(self, cursor: Cursor, node_id: int) -> None:
        now = self._clock()
        if cursor.is_leader_only:  # a custom replica selector may ignore the rack
            self._memory().forget(cursor)
            cursor.read_from(None, math.inf)
            cursor.mark_failed(TransportError(f"the leader names only follower {node_id}, which has failed"), now)
            return
        replica = self._replica(cursor, node_id, now)
        avoided_until = None if replica is None else self._memory().avoided_until(replica, now)
        if replica is None or avoided_until is not None:
            self._stay_with_leader(cursor, avoided_until or now + self._max_age_s)
            return
        choice = ReplicaChoice(replica, now + self._max_age_s)
        self._memory().keep(cursor, choice)
        cursor.read_from(*choice)

    def _replica(self, cursor: Cursor, node_id: int, now: float) -> Broker | None:
        try:
            return self._lookup.replica(cursor, node_id, now + LAST_LOOK_TIMEOUT_S)
        except TransportError as error:
            log.warning("%s: cannot look up follower %d, reading from the leader: %s", cursor, node_id, error)
            return None

    def _stay_with_leader(self, cursor: Cursor, until: float) -> None:
        self._memory().keep(cursor, ReplicaChoice(None, until))
        cursor.read_from(None, until, is_leader_only=True)

    def _memory(self) -> ReplicaMemory:
        return memory_of(*self._key)


_MAX_CHOICES = 10_000

_Key = tuple[TopicPartition, str]


class ReplicaChoice(NamedTuple):
    """The replica to fetch a partition from until the time `until` (seconds). None means the leader."""

    replica: Broker | None
    until: float


class ReplicaMemory:
    """Remembers the chosen replica of each partition of one cluster and one rack, from task to task."""

    def __init__(self) -> None:
        self._choices: dict[_Key, ReplicaChoice] = {}
        self._unreachable: dict[Broker, float] = {}

    def choice(self, cursor: Cursor, now: float) -> ReplicaChoice | None:
        """Return the choice for the partition of `cursor`; None if there is none or it has expired."""
        found = self._choices.get((cursor.tp, cursor.topic_id))
        return found if found is not None and now < found.until else None

    def keep(self, cursor: Cursor, choice: ReplicaChoice) -> None:
        if len(self._choices) >= _MAX_CHOICES:
            self._choices.clear()
        self._choices[cursor.tp, cursor.topic_id] = choice

    def forget(self, cursor: Cursor) -> None:
        """Forget the choice for the partition of `cursor`, and all unreachable replicas."""
        self._choices.pop((cursor.tp, cursor.topic_id), None)
        self._unreachable.clear()

    def avoid(self, replica: Broker, until: float) -> None:
        """Avoid `replica`, which could not be reached, so that other partitions do not wait for the same timeout."""
        self._unreachable[replica] = until

    def avoided_until(self, replica: Broker, now: float) -> float | None:
        """Return until when `replica` is avoided; None if it is not."""
        until = self._unreachable.get(replica, now)
        return until if now < until else None


REPLICAS: dict[tuple[ClientOptions, str], ReplicaMemory] = {}
"""The memories of this process, by the options of the client and the rack."""
_MAX_MEMORIES = 64


def memory_of(client: ClientOptions, rack: str) -> ReplicaMemory:
    """Return the memory for these options and this rack. The first call creates it."""
    if len(REPLICAS) >= _MAX_MEMORIES:
        REPLICAS.clear()
    return REPLICAS.setdefault((client, rack), ReplicaMemory())

"""The replicas that leaders have named, kept between the tasks of one worker process.

Java's consumer lives as long as the query, and remembers them itself. A task of a micro-batch lives for milliseconds:
without this memory each one would ask the leader first, and try a follower that is down.
"""

from __future__ import annotations

from typing import NamedTuple

from streamgroup.executor.cursor import Cursor
from streamgroup.model import Broker, TopicPartition
from streamgroup.options.types import ClientOptions

_MAX_CHOICES = 10_000

_Key = tuple[TopicPartition, str]


class ReplicaChoice(NamedTuple):
    """Where to fetch a partition until `until` (seconds): from a follower, or from the leader alone where None."""

    replica: Broker | None
    until: float


class ReplicaMemory:
    """The choices for the partitions of one cluster and one rack."""

    def __init__(self) -> None:
        self._choices: dict[_Key, ReplicaChoice] = {}
        self._unreachable: dict[Broker, float] = {}

    def choice(self, cursor: Cursor, now: float) -> ReplicaChoice | None:
        """Return the choice for the partition of `cursor`, unless it has expired."""
        found = self._choices.get((cursor.tp, cursor.topic_id))
        return found if found is not None and now < found.until else None

    def keep(self, cursor: Cursor, choice: ReplicaChoice) -> None:
        """Keep a choice for the partition of `cursor`."""
        if len(self._choices) >= _MAX_CHOICES:
            self._choices.clear()
        self._choices[cursor.tp, cursor.topic_id] = choice

    def forget(self, cursor: Cursor) -> None:
        """Forget the choice for the partition of `cursor`, and which replicas could not be reached."""
        self._choices.pop((cursor.tp, cursor.topic_id), None)
        self._unreachable.clear()

    def avoid(self, replica: Broker, until: float) -> None:
        """Note that `replica` could not be reached. Each partition would else wait for a timeout of its own."""
        self._unreachable[replica] = until

    def avoided_until(self, replica: Broker, now: float) -> float | None:
        """Return until when `replica` is avoided; None where it is not."""
        until = self._unreachable.get(replica, now)
        return until if now < until else None


REPLICAS: dict[tuple[ClientOptions, str], ReplicaMemory] = {}
"""The memories of this process, by the options of the client and the rack."""
_MAX_MEMORIES = 64


def memory_of(client: ClientOptions, rack: str) -> ReplicaMemory:
    """Return the memory of these options, which is made at the first call."""
    if len(REPLICAS) >= _MAX_MEMORIES:
        REPLICAS.clear()
    return REPLICAS.setdefault((client, rack), ReplicaMemory())

"""A scripted `LogLookup`: a cluster that answers what a test has written down, and notes what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from streamgroup.errors import StreamGroupError
from streamgroup.executor.read.cursor import Cursor
from streamgroup.executor.read.read_format import LogLookup, Loss
from streamgroup.kafka.net.connection import Connection
from streamgroup.model import Broker, FetchRange, OffsetRange, TopicPartition

A = TypeVar("A")

LEADER, FOLLOWER, OTHER = (Broker(n, f"kafka-{n}", 9092) for n in (1, 2, 3))


def cursor(partition: int = 0, start: int = 0, until: int = 100, leader: Broker | None = LEADER) -> Cursor:
    """The cursor at the start of a planned range of `orders`."""
    return Cursor.of(FetchRange(OffsetRange(TopicPartition("orders", partition), start, until), leader))


class ScriptedLookup(LogLookup):
    """Answers from its fields. An exception in place of an answer is raised."""

    next_step = ". Look at the leader"

    def __init__(self) -> None:
        self.replicas: dict[int, Broker | StreamGroupError] = {FOLLOWER.node_id: FOLLOWER, OTHER.node_id: OTHER}
        self.mendable: StreamGroupError | None = None
        self.leader: Broker | StreamGroupError | None = LEADER
        """The leader that a look-up moves the cursors to."""
        self.losses: dict[int, Callable[[], Loss]] = {}
        """By partition: the loss that a look-up, or a look at a gap, finds."""
        self.last: Loss | str | StreamGroupError = ""
        self.asked: list[Any] = []
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True

    def replica(self, cursor: Cursor, node_id: int, deadline: float) -> Broker | None:
        self.asked.append(("replica", node_id))
        return _answer(self.replicas.get(node_id))

    def require_mendable(self, cursor: Cursor) -> None:
        _answer(self.mendable)

    def look_up(self, cursors: Sequence[Cursor], deadline: float) -> Iterator[Loss]:
        self.asked.append(("look_up", [c.tp.partition for c in cursors], deadline))
        for each in cursors:
            each.move_to(_answer(self.leader))
        yield from self._found(cursors)

    def pass_gaps(self, cursors: Sequence[Cursor], connection: Connection, deadline: float) -> Iterator[Loss]:
        self.asked.append(("pass_gaps", [c.tp.partition for c in cursors], deadline))
        yield from self._found(cursors)

    def last_look(self, cursor: Cursor, waited_s: float) -> Loss | str:
        self.asked.append(("last_look", cursor.tp.partition, waited_s))
        return _answer(self.last)

    def _found(self, cursors: Sequence[Cursor]) -> Iterator[Loss]:
        for each in cursors:
            if each.tp.partition in self.losses:
                yield self.losses[each.tp.partition]()


def _answer(scripted: A | StreamGroupError) -> A:
    if isinstance(scripted, StreamGroupError):
        raise scripted
    return scripted

"""What a membership in ZooKeeper has asked for and waits for: looks and transactions by token, and timers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from streamgroup.group.registry.events import Look, Transact
from streamgroup.model import TopicPartition
from streamgroup.znodes import Operation, Subtree

OPERATIONS_MOST = 400
"""Of one transaction: well below the mebibyte that ZooKeeper takes (`jute.maxbuffer`), with paths of 2 KiB each."""


class Ask(Enum):
    """What for."""

    REGISTER = "register"
    RENEW = "register anew"
    """The same id with another subscription, or to make all others look again (R33)."""
    IDENTIFY = "tell who it is"
    SWEEP = "delete what it was registered as before"
    LOOK = "look at the group"
    RELEASE = "give partitions up"
    CLAIM = "claim partitions"
    CONFIRM = "look at the owners"
    HEARTBEAT = "prove that it is registered"
    NEIGHBOURS = "look at what others own"
    LEAVE = "leave"


class Due(Enum):
    """What a time is waited for, in the order in which it is heard."""

    LEAVE = "leaving overdue"
    REJOIN = "release due"
    RETRY = "retry due"
    PARTIAL = "waited for owners"
    POKE = "poke due"
    HEARTBEAT = "heartbeat due"


@dataclass(frozen=True, slots=True)
class Asked:
    """Without an answer yet. `claimed`: what a CLAIM is about."""

    ask: Ask
    sent_at: float
    claimed: TopicPartition | None = None


class Asking:
    """Looks and transactions by token, and timers, at most one of each kind."""

    __slots__ = ("_due", "_pending", "_tokens")

    def __init__(self) -> None:
        self._tokens = itertools.count(1)
        self._pending: dict[int, Asked] = {}  # bounded: whoever carries them out answers each, if only `Unanswered`
        self._due: dict[Due, float] = {}

    def look(self, ask: Ask, subtrees: Iterable[Subtree], now: float) -> Look:
        """A new look."""
        return Look(self._new(Asked(ask, now)), tuple(subtrees))

    def transact(
        self,
        ask: Ask,
        operations: Iterable[Operation],
        now: float,
        *,
        ensured: tuple[str, ...] = (),
        claimed: TopicPartition | None = None,
    ) -> Transact:
        """A new transaction."""
        return Transact(self._new(Asked(ask, now, claimed)), tuple(operations), ensured)

    def _new(self, asked: Asked) -> int:
        token = next(self._tokens)
        self._pending[token] = asked
        return token

    def take(self, token: int) -> Asked | None:
        """What was asked with this token, not pending any more; None where it was given up: its answer counts for
        nothing (R18)."""
        return self._pending.pop(token, None)

    def is_pending(self, *asks: Ask) -> bool:
        """Whether one of these is without an answer."""
        return any(asked.ask in asks for asked in self._pending.values())

    @property
    def busy(self) -> bool:
        """Whether an answer is awaited before the next decision; heartbeats go beside."""
        return any(asked.ask is not Ask.HEARTBEAT for asked in self._pending.values())

    def set(self, due: Due, at: float) -> None:
        """Start a timer, or move it."""
        self._due[due] = at

    def clear(self, *due: Due) -> None:
        """Stop timers."""
        for one in due:
            self._due.pop(one, None)

    def at(self, due: Due) -> float | None:
        """When a timer is due; None where it does not run."""
        return self._due.get(due)

    def take_due(self, now: float) -> Due | None:
        """A timer whose time has come, in the order of `Due`; it is stopped. None where there is none."""
        due = next((one for one in Due if self._due.get(one, now + 1) <= now), None)
        if due is not None:
            del self._due[due]
        return due

    def reset(self) -> None:
        """Give everything up."""
        self._pending.clear()
        self._due.clear()

    @property
    def wake_at(self) -> float | None:
        """The earliest time at which something is due; None where no timer runs."""
        return min(self._due.values(), default=None)

"""What the membership machine has asked for and waits for: requests by token, and timers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from streamgroup.group.events import Lane, Send
from streamgroup.wire.messages import coordinator as c
from streamgroup.wire.messages import group as m

GRACE_S = 1.0
"""The driver reports a request that is overdue; should it not, the machine itself gives it up this much later."""


class Purpose(Enum):
    """The requests of membership: the API, and the lane that it takes."""

    FIND = (c.FindCoordinatorRequest, Lane.ANY)
    JOIN = (m.JoinGroupRequest, Lane.JOIN)
    SYNC = (m.SyncGroupRequest, Lane.JOIN)
    HEARTBEAT = (m.HeartbeatRequest, Lane.COORDINATOR)
    LEAVE = (m.LeaveGroupRequest, Lane.COORDINATOR)

    def __init__(self, api: type[Any], lane: Lane) -> None:
        self.api = api
        self.lane = lane


class Timer(Enum):
    """What a time is waited for, in the order in which it is heard: a session that is over needs no heartbeat."""

    SESSION = "session over"
    REJOIN = "rejoin due"
    RETRY = "retry due"
    TOPICS = "topics overdue"
    HEARTBEAT = "heartbeat due"


@dataclass(frozen=True, slots=True)
class Pending:
    """A request without an answer yet."""

    token: int
    purpose: Purpose
    sent_at: float
    overdue_at: float


class Exchange:
    """Requests by token (at most one of each purpose), and timers (at most one of each kind)."""

    __slots__ = ("_pending", "_timers", "_tokens")

    def __init__(self) -> None:
        self._tokens = itertools.count(1)
        self._pending: dict[int, Pending] = {}  # bounded: each is answered, or overdue after its timeout
        self._timers: dict[Timer, float] = {}

    def send(self, purpose: Purpose, build: Callable[[int], Any], timeout_ms: int, now: float) -> Send:
        """A new request, which takes the place of one of this purpose that is pending."""
        self.forget(purpose)
        token = next(self._tokens)
        self._pending[token] = Pending(token, purpose, now, now + timeout_ms / 1000 + GRACE_S)
        return Send(token, purpose.lane, purpose.api, build, timeout_ms)

    def take(self, token: int) -> Pending | None:
        """The request with this token, not pending any more; None where it was given up: its answer counts for nothing
        (R18: an answer to what was asked under another generation or member id)."""
        return self._pending.pop(token, None)

    def is_pending(self, *purposes: Purpose) -> bool:
        """Whether one of these is pending."""
        return any(p.purpose in purposes for p in self._pending.values())

    def forget(self, *purposes: Purpose) -> None:
        """Give up the requests of these purposes."""
        self._pending = {t: p for t, p in self._pending.items() if p.purpose not in purposes}

    def overdue(self, now: float) -> list[Pending]:
        """Requests that nobody has reported although their time is over."""
        return [p for p in self._pending.values() if p.overdue_at <= now]

    def set(self, timer: Timer, at: float) -> None:
        """Start a timer, or move it."""
        self._timers[timer] = at

    def clear(self, *timers: Timer) -> None:
        """Stop timers."""
        for timer in timers:
            self._timers.pop(timer, None)

    def at(self, timer: Timer) -> float | None:
        """When a timer is due; None where it does not run."""
        return self._timers.get(timer)

    def take_due(self, now: float) -> Timer | None:
        """A timer whose time has come, in the order of `Timer`; it is stopped. None where there is none."""
        timer = next((t for t in Timer if self._timers.get(t, now + 1) <= now), None)
        if timer is not None:
            del self._timers[timer]
        return timer

    def reset(self, *but: Purpose) -> None:
        """Give everything up, but requests of these purposes."""
        self.forget(*(purpose for purpose in Purpose if purpose not in but))
        self._timers.clear()

    @property
    def wake_at(self) -> float | None:
        """The earliest time at which something is due; None where nothing is pending."""
        return min([*self._timers.values(), *(p.overdue_at for p in self._pending.values())], default=None)

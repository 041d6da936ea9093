"""The book of one state machine: its requests that have no answer yet, by token, and its timers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

P = TypeVar("P", bound=Enum)
T = TypeVar("T", bound=Enum)


@dataclass(frozen=True, slots=True)
class PendingRequest(Generic[P]):
    """A request without an answer yet. Times are monotonic seconds."""

    token: int
    purpose: P
    sent_at: float
    overdue_at: float | None = None
    """When the machine gives the request up by itself; None where its answer is certain to come."""


class RequestsAndTimers(Generic[P, T]):
    """Pending requests and running timers.

    `timers` are the kinds of timers, at most one of each runs. Their order is the order in which `take_due` returns
    those that are due at the same time.
    """

    __slots__ = ("_kinds", "_pending", "_timers", "_tokens")

    def __init__(self, timers: type[T]) -> None:
        self._kinds = tuple(timers)
        self._tokens = itertools.count(1)
        self._pending: dict[int, PendingRequest[P]] = {}  # bounded: whoever sends a request answers each token
        self._timers: dict[T, float] = {}

    def add(self, purpose: P, now: float, overdue_at: float | None = None) -> int:
        """Note a request that is sent now; return its token."""
        token = next(self._tokens)
        self._pending[token] = PendingRequest(token, purpose, now, overdue_at)
        return token

    def take(self, token: int) -> PendingRequest[P] | None:
        """Return the request with this token, which is not pending any more.

        None: the request was given up. Its answer counts for nothing, since it answers what was asked under another
        generation, member id or session (R18).
        """
        return self._pending.pop(token, None)

    def is_pending(self, *purposes: P) -> bool:
        """Return whether a request for one of these purposes is pending."""
        return any(pending.purpose in purposes for pending in self._pending.values())

    def is_pending_beside(self, purpose: P) -> bool:
        """Return whether a request for any other purpose is pending."""
        return any(pending.purpose is not purpose for pending in self._pending.values())

    def forget(self, *purposes: P) -> None:
        """Give up the requests for these purposes."""
        self._pending = {t: pending for t, pending in self._pending.items() if pending.purpose not in purposes}

    def overdue(self, now: float) -> list[PendingRequest[P]]:
        """Return the requests whose time is over although nobody has reported them."""
        return [p for p in self._pending.values() if p.overdue_at is not None and p.overdue_at <= now]

    def set(self, timer: T, at: float) -> None:
        """Start a timer, or move it."""
        self._timers[timer] = at

    def clear(self, *timers: T) -> None:
        for timer in timers:
            self._timers.pop(timer, None)

    def at(self, timer: T) -> float | None:
        """Return when a timer is due, None where it does not run."""
        return self._timers.get(timer)

    def take_due(self, now: float) -> T | None:
        """Stop one timer that is due and return it; None where no timer is due."""
        timer = next((kind for kind in self._kinds if self._timers.get(kind, now + 1) <= now), None)
        if timer is not None:
            del self._timers[timer]
        return timer

    def reset(self, *but: P) -> None:
        """Stop all timers and give up all requests but those for these purposes."""
        self.forget(*{pending.purpose for pending in self._pending.values()}.difference(but))
        self._timers.clear()

    @property
    def wake_at(self) -> float | None:
        """The earliest time at which a timer or a request is due; None where there is neither."""
        overdue = (p.overdue_at for p in self._pending.values() if p.overdue_at is not None)
        return min([*self._timers.values(), *overdue], default=None)

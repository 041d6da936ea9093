"""The events of a soak, from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

UPGRADE_AT = 1 / 3
"""The share of the run after which the members are upgraded. What follows is measured."""
_QUIET_AT_THE_END_S = 45.0


class Kind(StrEnum):
    """What happens: to one member, to the broker, or to all members one by one."""

    SIGKILL = "kill -9"
    SIGTERM = "SIGTERM"
    PAUSE = "pause"
    BROKER = "broker restart"
    UPGRADE = "upgrade"


@dataclass(frozen=True, slots=True)
class Event:
    """At `at_s` seconds of the run. `member` is empty where the event is not of one member."""

    at_s: float
    kind: Kind
    member: str = ""


def interval(seconds: float) -> float:
    """Return the mean time between two events of a run of so many seconds."""
    return min(120.0, max(30.0, seconds / 15))


def schedule(seed: int, seconds: float, members: Sequence[str]) -> tuple[Event, ...]:
    """Return the events in order. The same arguments give the same events.

    Each round has every kind once, in random order, so that a short run has all kinds too. Intervals vary by half. The
    first member is paused, and never killed: its memory is measured from the upgrade to the end of the run.
    """
    rng = random.Random(seed)
    found: list[Event] = []
    upgrade_at = seconds * UPGRADE_AT
    upgraded = False
    at = interval(seconds)
    kinds: list[Kind] = []
    while at < seconds - _QUIET_AT_THE_END_S:
        if not upgraded and at >= upgrade_at:
            upgraded = True
            found.append(Event(upgrade_at, Kind.UPGRADE))
        if not kinds:
            kinds = [Kind.SIGKILL, Kind.SIGTERM, Kind.PAUSE, Kind.BROKER]
            rng.shuffle(kinds)
        kind = kinds.pop()
        found.append(Event(at, kind, _struck(rng, kind, members)))
        at += interval(seconds) * rng.uniform(0.5, 1.5)
    return tuple(found)


def _struck(rng: random.Random, kind: Kind, members: Sequence[str]) -> str:
    match kind:
        case Kind.SIGKILL | Kind.SIGTERM:
            return rng.choice(members[1:])
        case Kind.PAUSE:
            return rng.choice(members)
    return ""

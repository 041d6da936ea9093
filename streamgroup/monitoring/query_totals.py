"""Totals of one query: batches, rows and seconds, added up from the progress that Spark reports for each batch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamgroup.errors import DrainedError
from streamgroup.frozen import frozen


@dataclass(slots=True)
class QueryTotals:
    """The totals since the driver began to count. `query` is the query's name, or else its id."""

    query: str
    group: str = ""
    batches: int = 0
    rows: int = 0
    last_batch_at: float = 0.0
    """When the last batch sank, in seconds since 1970."""
    most_behind: int | None = None
    """Offsets from the end of the last batch to the end of the log, of the partition with the most. None: unknown."""
    phase_s: dict[str, float] = field(default_factory=dict)
    """Seconds by Spark's names of the phases of a batch."""
    phases: Counter[str] = field(default_factory=Counter)
    """The number of times that each phase took place."""
    dead_letters: int | None = None
    """Records that were written as dead letters; None if there are none."""

    def add(self, rows: int, durations_ms: Mapping[str, int], behind: list[int], now: float) -> None:
        """Add a batch that sank at `now`, in seconds since 1970."""
        self.batches += 1
        self.rows += rows
        self.last_batch_at = now
        self.most_behind = max(behind, default=None)
        for phase, milliseconds in durations_ms.items():
            self.phase_s[phase] = self.phase_s.get(phase, 0.0) + milliseconds / 1000
            self.phases[phase] += 1


OTHER = "other"
"""The name of an error that has no class of Spark."""
MOST_CHARACTERS = 600
"""The most characters of a message."""
_OURS = re.compile(r"^streamgroup(?:\.\w+)*\.(\w+)(?:: *(.*))?$", re.MULTILINE)
"""The last line of the traceback of an error of streamgroup."""
_RAISED = re.compile(r"^.*Traceback \(most recent call last\):\n(?:[ \t].*\n)+([\w.]+(?:: .*)?)$", re.MULTILINE)
"""The last line of a traceback. Lines before it are indented."""


@frozen
class QueryFailure:
    """An error that has ended a query at `at`, in seconds since 1970.

    `query` is its name, or else its id. `groups` has the groups of its batches so far.
    """

    at: float
    query: str
    groups: tuple[str, ...]
    error: str
    text: str


def failure_of(text: str, spark_class: str | None) -> str | None:
    """Return streamgroup's class of the error in the `text` of an exception, or else Spark's. None for a drain.

    The text itself cannot be a label: it differs each time.
    """
    ours = _OURS.findall(text)
    if ours:
        name: str = ours[-1][0]
        return None if name == DrainedError.__name__ else name
    return spark_class or OTHER


def is_ours(text: str) -> bool:
    return _OURS.search(text) is not None


def message_of(text: str) -> str:
    """Return the message in the `text` of an exception.

    It is the message of streamgroup's error, or else the last line of the last Python traceback, or else the first
    line.
    """
    ours = [message for _, message in _OURS.findall(text) if message]
    raised = _RAISED.findall(text)
    first = next((line for line in text.splitlines() if line.strip()), "")
    found = ours[-1] if ours else raised[-1] if raised else first
    return found.strip()[:MOST_CHARACTERS]


def pauses(statuses: Iterable[Mapping[str, Any]], group: str) -> dict[str, bool]:
    """Return whether each partition that a member of `group` holds is paused, by name."""
    found: dict[str, bool] = {}
    for status in statuses:
        if status.get("group") == group:
            found.update(dict.fromkeys(status.get("positions") or (), False))
            found.update(dict.fromkeys(status.get("paused") or (), True))
    return found

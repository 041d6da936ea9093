"""Totals of one query: batches, rows and seconds, added up from the progress that Spark reports for each batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


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
    """Records that were set aside; None if none was."""

    def add(self, rows: int, durations_ms: Mapping[str, int], behind: list[int], now: float) -> None:
        """Add a batch that sank at `now`, in seconds since 1970."""
        self.batches += 1
        self.rows += rows
        self.last_batch_at = now
        self.most_behind = max(behind, default=None)
        for phase, milliseconds in durations_ms.items():
            self.phase_s[phase] = self.phase_s.get(phase, 0.0) + milliseconds / 1000
            self.phases[phase] += 1

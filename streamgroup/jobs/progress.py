"""The lines that a job prints, one for each batch with rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


class Reporter:
    """Turns a query's progress into lines: each batch once, and no line for a batch without rows."""

    def __init__(self) -> None:
        self._reported = -1

    def news(self, recent: Iterator[Mapping[str, Any]] | list[Mapping[str, Any]]) -> list[str]:
        """Return the lines for the batches of `recent` (Spark's progress, oldest first) that are not reported yet."""
        lines = []
        for progress in recent:
            batch = int(progress["batchId"])
            if batch > self._reported and int(progress["numInputRows"]) > 0:
                self._reported = batch
                lines.append(line_of(progress))
        return lines

    def is_news(self, last: Mapping[str, Any] | None) -> bool:
        """Return whether the query's last progress is of an unreported batch. To fetch all progress costs more."""
        return last is not None and int(last["batchId"]) > self._reported and int(last["numInputRows"]) > 0


def line_of(progress: Mapping[str, Any]) -> str:
    """Return `batch 12: 1000 rows in 0.4 s (2500 rows/s), lag 0`, without the lag if it is unknown."""
    rows = int(progress["numInputRows"])
    seconds = int(progress.get("batchDuration") or progress["durationMs"].get("triggerExecution", 0)) / 1000
    rate = f" ({rows / seconds:.0f} rows/s)" if seconds > 0 else ""
    lag = lag_of(progress)
    return f"batch {progress['batchId']}: {rows} rows in {seconds:.1f} s{rate}" + (
        "" if lag is None else f", lag {lag}"
    )


def lag_of(progress: Mapping[str, Any]) -> int | None:
    """Return the offsets from the batch's end to the log ends of the assigned partitions, or None if none is known."""
    total, known = 0, False
    for source in progress.get("sources", ()):
        latest, end = _value(source.get("latestOffset")), _value(source.get("endOffset"))
        positions = end.get("positions", {})
        for topic, partitions in latest.items():
            for number, log_end in partitions.items() if isinstance(partitions, Mapping) else ():
                position = positions.get(topic, {}).get(number)
                if position is not None and isinstance(log_end, int):
                    total, known = total + max(0, log_end - int(position[0])), True
    return total if known else None


def _value(offset: Any) -> Mapping[str, Any]:
    """Return an offset of Spark's progress as a value. Spark shows it as JSON text or as a value."""
    value = json.loads(offset) if isinstance(offset, str) and offset.startswith("{") else offset
    return value if isinstance(value, Mapping) else {}

"""When logs ended where: from it, how many seconds a position is behind."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

MOST_POINTS = 60
"""Points that are kept of a log. Where there are more, every second one of the older points is forgotten."""
KEPT_S = 600.0
"""Seconds for which a log is kept that readings lack: its coordinator may be too busy to answer."""


class LogTimes(Generic[Key]):
    """The ends of logs over time, as readings found them. A log has a key of the caller's."""

    def __init__(self) -> None:
        self._newest = float("-inf")
        self._points: dict[Key, list[tuple[float, int]]] = {}
        """Times in seconds and ends. Of an end the first and the last time at which readings found it."""
        self._seen: dict[Key, float] = {}

    def add(self, now: float, ends: Mapping[Key, int]) -> None:
        """Take the ends of one reading at `now`, in seconds. One that is older than another is left out."""
        if now < self._newest:
            return
        self._newest = now
        for key, end in ends.items():
            self._seen[key] = now
            self._add(self._points.setdefault(key, []), now, end)
        for key in [key for key, seen in self._seen.items() if now - seen > KEPT_S]:
            del self._seen[key], self._points[key]

    def _add(self, points: list[tuple[float, int]], now: float, end: int) -> None:
        if points and end < points[-1][1]:  # another log of the same name
            points.clear()
        if [known for _, known in points[-2:]] == [end, end]:
            points.pop()
        points.append((now, end))
        if len(points) > MOST_POINTS:
            points[:-2] = points[:-2:2]

    def seconds_behind(self, key: Key, position: int, now: float) -> float | None:
        """Return for how long the log has had records behind `position`.

        Between two readings the log grows evenly; before the first one, as between the first and the last. None if
        that is not known: of a log that has not grown since the first reading, a position before its end.
        """
        points = self._points.get(key, [])
        if not points:
            return None
        if position >= points[-1][1]:
            return 0.0
        later = next(number for number, (_, end) in enumerate(points) if end > position)
        (at, end), (until, last) = (points[later - 1], points[later]) if later else (points[0], points[-1])
        if end == last:
            return None
        return max(0.0, now - (at + (until - at) * (position - end) / (last - end)))

"""When logs ended where: from it, how many seconds a position is behind."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

MOST_POINTS = 60
"""Points that are kept of a log. Where there are more, every second one of the older points is forgotten."""


class LogTimes(Generic[Key]):
    """The ends of logs over time, as readings found them. A log has a key of the caller's."""

    def __init__(self) -> None:
        self._points: dict[Key, list[tuple[float, int]]] = {}
        """Times in seconds and ends, both growing."""

    def add(self, now: float, ends: Mapping[Key, int]) -> None:
        """Take the ends of one reading at `now`, in seconds. Logs that it lacks are forgotten."""
        self._points = {key: self._points.get(key, []) for key in ends}
        for key, end in ends.items():
            points = self._points[key]
            if points and end < points[-1][1]:  # another log of the same name
                points.clear()
            if points and end == points[-1][1]:
                continue
            points.append((now, end))
            if len(points) > MOST_POINTS:
                points[:-1] = points[:-1:2]

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
        if later == 0 and len(points) == 1:
            return None
        (at, end), (until, last) = (points[later - 1], points[later]) if later else (points[0], points[-1])
        return max(0.0, now - (at + (until - at) * (position - end) / (last - end)))

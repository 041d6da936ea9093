"""Measures how long the member of a run was without an assignment."""

from __future__ import annotations

from streamgroup.group import events as ev


class AssignmentClock:
    """Adds up the seconds from each `Joining` that gives up the partitions, or `Lost`, to the next `Assigned`.

    A member that has an assignment of no partitions counts as one with an assignment.
    """

    __slots__ = ("_since", "_total_s")

    def __init__(self) -> None:
        self._since: float | None = None
        self._total_s = 0.0

    def on_action(self, action: object, now: float) -> None:
        """Follow an action of the member at monotonic time `now`."""
        match action:
            case ev.Joining(keeps=False) | ev.Lost():
                if self._since is None:
                    self._since = now
            case ev.Assigned() | ev.Left():
                self._total_s = self.seconds(now)
                self._since = None

    def seconds(self, now: float) -> float:
        """Return the seconds so far. They go on while the member has no assignment."""
        return self._total_s + (0.0 if self._since is None else now - self._since)

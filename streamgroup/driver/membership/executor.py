"""The interface between the run's inbox and the thread that carries out the member's actions."""

from __future__ import annotations

from typing import Protocol

from streamgroup.group.member import MemberAction
from streamgroup.run.interface import Event


class RunInbox(Protocol):
    """The inbox of a run, as its threads use it."""

    @property
    def wake_at(self) -> float | None:
        """The monotonic time when the run wants a `Tick`; None if nothing waits."""

    def post(self, event: Event) -> None:
        """Leave an event. The actions that follow from it are carried out before this returns."""

    def tick(self, now: float) -> None:
        """Step the run if a timer is due."""


class ActionExecutor(Protocol):
    """The thread that carries out the member's actions and keeps the run's timers."""

    def start(self) -> None: ...

    def stop(self, timeout: float) -> None:
        """Close the connections in order and end the thread."""

    def carry_out(self, action: MemberAction) -> None:
        """Leave an action of the member with this thread."""

    def wake(self) -> None:
        """Have the thread look at the run's timers again."""

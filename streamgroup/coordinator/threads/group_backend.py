"""The interface of a run's backend: it carries out the member's actions, fetches commits and describes the group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Protocol

from streamgroup.coordinator.run.interface import Event, everything
from streamgroup.group.member import Member, MemberAction
from streamgroup.model import CommittedOffset, Dialect, GroupDescription, TopicPartition

Committed = Mapping[TopicPartition, CommittedOffset]
Wanted = Callable[[TopicPartition], bool]


class GroupBackend(Protocol):
    """The interface of `BrokerBackend` and `RegistryBackend`. Timeouts are seconds."""

    @property
    def member(self) -> Member:
        """The member of this run; in other modes it manages positions and commits without joining."""

    @property
    def thread(self) -> ActionExecutor:
        """The thread that carries out the member's actions."""

    def opened(self, dialect: Dialect) -> None:
        """Take the dialect of the cluster, before the member is started."""

    def committed(self, timeout: float, wanted: Wanted = everything) -> Committed:
        """Return the group's commits, at least those of `wanted`. Raises TransportError after `timeout` seconds."""

    def described(self, timeout: float) -> Future[GroupDescription]:
        """Describe the members of the group and their user data (R28)."""


class RunInbox(Protocol):
    """The inbox of a run, as its threads use it."""

    @property
    def wake_at(self) -> float | None:
        """The monotonic time when the run wants a `Tick`; None if nothing waits."""

    def post(self, event: Event) -> None:
        """Post an event. The actions that follow from it are carried out before this returns."""

    def tick(self, now: float) -> None:
        """Step the run if a timer is due."""


class ActionExecutor(Protocol):
    """The thread that carries out the member's actions and keeps the run's timers."""

    def start(self) -> None: ...

    def stop(self, timeout: float) -> None:
        """Close the connections in order and end the thread."""

    def carry_out(self, action: MemberAction) -> None:
        """Queue an action of the member for this thread."""

    def wake(self) -> None:
        """Have the thread check the run's timers again."""

"""The interface that connects a query to its group: carry out actions, fetch commits, describe the group."""

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
    """Connects a query to its group; `BrokerBackend` and `RegistryBackend` implement it. Timeouts are seconds."""

    @property
    def member(self) -> Member:
        """The member of this run; in other modes it manages positions and commits without joining."""

    @property
    def thread(self) -> ActionExecutor:
        """The thread that carries out the member's actions."""

    def opened(self, dialect: Dialect) -> None:
        """Set the dialect of the cluster, before the member is started."""

    def committed(self, timeout: float, wanted: Wanted = everything) -> Committed:
        """Return the group's committed offsets, at least for the partitions that `wanted` accepts.

        Raises TransportError after `timeout` seconds.
        """

    def described(self, timeout: float) -> Future[GroupDescription]:
        """Describe the members of the group and their user data (R28)."""


class RunInbox(Protocol):
    """The methods of a query's inbox that threads use."""

    @property
    def wake_at(self) -> float | None:
        """When the query needs its next `Tick`, from `time.monotonic()`; None if no timer runs."""

    def post(self, event: Event) -> None:
        """Post an event. The actions that follow from it are carried out before this returns."""

    def tick(self, now: float) -> None:
        """Pass a `Tick` to the query's `Run` if a timer is due."""


class ActionExecutor(Protocol):
    """The thread that carries out the member's actions and checks the query's timers."""

    def start(self) -> None: ...

    def stop(self, timeout: float) -> None:
        """Close the connections in order and end the thread."""

    def carry_out(self, action: MemberAction) -> None:
        """Queue an action of the member for this thread."""

    def wake(self) -> None:
        """Have the thread check the run's timers again."""

"""The interface of a run's backend: it carries out the member's actions, fetches commits and describes the group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Protocol

from streamgroup.driver.membership.executor import ActionExecutor
from streamgroup.group.member import Member
from streamgroup.model import CommittedOffset, Dialect, GroupDescription, TopicPartition
from streamgroup.run.interface import everything

Committed = Mapping[TopicPartition, CommittedOffset]
Wanted = Callable[[TopicPartition], bool]


class GroupBackend(Protocol):
    """The interface of both backends. Timeouts are seconds."""

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

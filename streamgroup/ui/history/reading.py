"""One reading of a cluster: its groups with their commits, the logs, and the members of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamgroup.model import ClusterSnapshot, GroupDescription, TopicPartition
from streamgroup.monitoring.query_failures import QueryFailure

Status = Mapping[str, Any]
"""The status of a coordinator process, as its control channel answers it (docs/log-events.md)."""


@dataclass(frozen=True, slots=True)
class GroupReading:
    """One group: state, members, and the offset that it has committed of each partition."""

    description: GroupDescription
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    coordinator: str = ""

    @property
    def name(self) -> str:
        """The group id."""
        return self.description.group_id

    def owners(self) -> dict[TopicPartition, str]:
        """Return the member id that holds each partition. Empty while the group rebalances."""
        return {tp: member.member_id for member in self.description.members for tp in member.assigned or ()}

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions that a member holds or that have a commit, sorted."""
        return sorted({*self.committed, *self.owners()})


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything that one poll has read. `at` is in seconds since 1970.

    `statuses` are those of coordinator processes on this machine, `failures` the errors that have ended queries of it.
    `notes` say what could not be read. `unread` are the groups that exist and could not be read.
    """

    at: float
    snapshot: ClusterSnapshot
    groups: tuple[GroupReading, ...] = ()
    log_starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    log_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    statuses: tuple[Status, ...] = ()
    notes: tuple[str, ...] = ()
    failures: tuple[QueryFailure, ...] = ()
    unread: frozenset[str] = frozenset()

    def statuses_of(self, group: str) -> Iterator[Status]:
        """Yield the statuses of the members of `group` on this machine."""
        return (status for status in self.statuses if status.get("group") == group)

    def failures_of(self, group: str) -> Iterator[QueryFailure]:
        """Yield the errors that have ended queries of `group` on this machine."""
        return (failure for failure in self.failures if group in failure.groups)

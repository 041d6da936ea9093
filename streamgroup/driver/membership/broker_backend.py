"""The backend of a group that a broker coordinates, and of a query without a group."""

from __future__ import annotations

from concurrent.futures import Future

from streamgroup.cluster.admin import committed, describe_groups
from streamgroup.cluster.interface import kafka_of
from streamgroup.driver.logs.watcher import LogWatcher
from streamgroup.driver.membership.executor import RunInbox
from streamgroup.driver.membership.group_backend import Committed, Wanted
from streamgroup.driver.membership.group_thread import GroupThread
from streamgroup.driver.membership.modes import in_zookeeper
from streamgroup.group.member import Member
from streamgroup.model import Dialect, GroupDescription
from streamgroup.options.types import GroupMode, GroupOptions, SourceOptions
from streamgroup.run.interface import everything


class BrokerBackend:
    """The backend of a group that a broker coordinates, and of a query without a group."""

    def __init__(
        self,
        options: SourceOptions,
        group: GroupOptions,
        member: Member,
        *,
        inbox: RunInbox,
        watcher: LogWatcher,
    ) -> None:
        self._group = group
        self._watcher = watcher
        self.member = member
        self.thread = GroupThread(inbox, options.client, group.group_id, lambda: watcher.snapshot)

    def opened(self, dialect: Dialect) -> None:
        """Do nothing: each connection detects its broker's release."""

    def committed(self, timeout: float, wanted: Wanted = everything) -> Committed:
        """Return the group's commits; none without a group."""
        if self._group.mode is GroupMode.OFF:
            return {}
        name, where = self._group.group_id, in_zookeeper(self._group)
        return self._watcher.ask(
            lambda cluster, until: committed(kafka_of(cluster, until), name, until, in_zookeeper=where), timeout
        )

    def described(self, timeout: float) -> Future[GroupDescription]:
        """Send DescribeGroups to the group's coordinator."""
        name = self._group.group_id
        return self._watcher.post(
            lambda cluster, until: describe_groups(kafka_of(cluster, until), [name], until)[name], timeout
        )

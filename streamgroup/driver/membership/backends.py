"""The backend of a run's group: it carries out the member's actions, fetches commits and describes the group.

| `group.mode` | `zookeeper.connect` | the group is kept by | backend | actions carried out by |
|---|---|---|---|---|
| `member` | no | its coordinator | `BrokerBackend` | `GroupThread` |
| `member` | yes | ZooKeeper | `RegistryBackend` | `RegistryThread` |
| `commit` | yes, with the offsets there | ZooKeeper | `RegistryBackend` | `RegistryThread` |
| `commit` | in all other cases | its coordinator | `BrokerBackend` | `GroupThread` |
| `off` | either | none | `BrokerBackend` | `GroupThread`; the offsets are in memory |
"""

from __future__ import annotations

import platform
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Protocol

from streamgroup.cluster.admin import committed, describe_groups
from streamgroup.cluster.interface import kafka_of
from streamgroup.driver.logs.watcher import LogWatcher
from streamgroup.driver.membership.executor import ActionExecutor, RunInbox
from streamgroup.driver.membership.group_thread import GroupThread
from streamgroup.driver.membership.modes import (
    in_zookeeper,
    machine_of,
    member_config,
    member_of,
    standalone_of,
)
from streamgroup.driver.membership.offsets_thread import OffsetsThread
from streamgroup.driver.membership.registry_thread import RegistryThread
from streamgroup.errors import ConfigError
from streamgroup.group.ledger import Ledger
from streamgroup.group.member import Machine, Member
from streamgroup.group.offsets.choice import store_at
from streamgroup.group.offsets.dual import larger
from streamgroup.group.registry.description import describe_members, member_subtrees
from streamgroup.group.registry.formats import GroupPaths, Incarnation
from streamgroup.group.registry.membership import RegistryMembership
from streamgroup.group.registry.stored import committed_in, committed_subtrees
from streamgroup.model import CommittedOffset, Dialect, GroupDescription, TopicPartition
from streamgroup.options.types import GroupMode, GroupOptions, OffsetsStorage, SourceOptions, ZooKeeperOptions
from streamgroup.run.questions import everything
from streamgroup.zookeeper.session import Session

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


def backend_of(
    options: SourceOptions,
    group: GroupOptions,
    ledger: Ledger,
    *,
    rng: random.Random,
    inbox: RunInbox,
    watcher: LogWatcher,
    is_missed: Callable[[TopicPartition], bool],
) -> GroupBackend:
    """Return one run's backend. `is_missed` goes to `StandaloneMember`."""
    registry = options.client.zookeeper
    kept_there = group.is_member or group.offsets_storage is OffsetsStorage.ZOOKEEPER
    if registry is None or group.mode is GroupMode.OFF or not kept_there:
        machine = machine_of(options, group, rng, is_missed)
        member = member_of(options, group, ledger, machine, rng=rng)
        return BrokerBackend(options, group, member, inbox=inbox, watcher=watcher)
    return RegistryBackend(options, group, ledger, registry, rng=rng, inbox=inbox, watcher=watcher, is_missed=is_missed)


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


class RegistryBackend:
    """The backend of a group that ZooKeeper keeps. `opened` decides the names and the format of its nodes."""

    def __init__(
        self,
        options: SourceOptions,
        group: GroupOptions,
        ledger: Ledger,
        registry: ZooKeeperOptions,
        *,
        rng: random.Random,
        inbox: RunInbox,
        watcher: LogWatcher,
        is_missed: Callable[[TopicPartition], bool],
    ) -> None:
        self._options = options
        self._group = group
        self._rng = rng
        self._watcher = watcher
        self._paths = GroupPaths(group.group_id, Dialect.KAFKA)
        machine: Machine = self._machine()
        if not group.is_member:
            machine = standalone_of(options, group, rng, is_missed, through_brokers=False, session=True)
        self.member = member_of(options, group, ledger, machine, paths=self._paths, rng=rng)
        self.thread = RegistryThread(inbox, registry)

    def _machine(self) -> RegistryMembership:
        return RegistryMembership(
            member_config(self._options, self._group), self._rng, self._paths, self._new_incarnation
        )

    def _new_incarnation(self) -> Incarnation:
        milliseconds = time.time_ns() // 1_000_000
        return Incarnation.of(self._group.group_id, platform.node(), milliseconds, self._rng.getrandbits(32))

    def opened(self, dialect: Dialect) -> None:
        """Use the cluster's names and formats of nodes from now on."""
        self._paths = GroupPaths(self._group.group_id, dialect)
        self.member.store = store_at(self._group.offset_location, self._paths)
        if self._group.is_member:
            self.member.membership = self._machine()
        if not self._in_kafka:
            return
        if dialect is Dialect.KAFKA07:
            raise ConfigError("kafka.offsets.storage=kafka: brokers of Kafka 0.7 keep no offsets: leave it out")
        client, group = self._options.client, self._group.group_id
        self.thread.offsets = OffsetsThread(client, group, self.thread.answered, self.thread.fail)
        self.thread.offsets.start()

    @property
    def _in_kafka(self) -> bool:
        return self._group.offsets_storage is OffsetsStorage.KAFKA

    def committed(self, timeout: float, wanted: Wanted = everything) -> Committed:
        """Return the offsets in the nodes or in Kafka; the larger of both if the group commits to both.

        Raises DecodeError if a node of `wanted` does not hold an offset.
        """
        paths, group = self._paths, self._group
        found: Committed = {}
        if self._in_kafka:
            found = self._watcher.ask(
                lambda cluster, until: committed(kafka_of(cluster, until), group.group_id, until, in_zookeeper=False),
                timeout,
            )
        if self._in_kafka and not group.dual_commit:
            return found

        def look(session: Session, until: float) -> Committed:
            return committed_in(paths, session.read(committed_subtrees(paths, None), until), wanted)

        return larger(found, self.thread.ask(look, timeout))

    def described(self, timeout: float) -> Future[GroupDescription]:
        """Read the consumers' nodes, and the nodes that streamgroup's members add to them."""
        paths = self._paths
        return self.thread.post(
            lambda session, until: describe_members(paths, session.read(member_subtrees(paths), until)), timeout
        )

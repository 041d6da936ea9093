"""The backend of a group that ZooKeeper keeps."""

from __future__ import annotations

import platform
import random
import time
from collections.abc import Callable
from concurrent.futures import Future

from streamgroup.cluster.admin import committed
from streamgroup.cluster.interface import kafka_of
from streamgroup.driver.logs.watcher import LogWatcher
from streamgroup.driver.membership.executor import RunInbox
from streamgroup.driver.membership.group_backend import Committed, Wanted
from streamgroup.driver.membership.modes import member_config, member_of, standalone_of
from streamgroup.driver.membership.offsets_thread import OffsetsThread
from streamgroup.driver.membership.registry_thread import RegistryThread
from streamgroup.errors import ConfigError
from streamgroup.group.ledger import Ledger
from streamgroup.group.member import Machine
from streamgroup.group.offsets.both import larger
from streamgroup.group.offsets.choice import store_at
from streamgroup.group.registry.membership import RegistryMembership
from streamgroup.group.registry.nodes import GroupPaths, Incarnation, committed_in, committed_subtrees
from streamgroup.group.registry.view import describe_members, member_subtrees
from streamgroup.model import Dialect, GroupDescription, TopicPartition
from streamgroup.options.types import GroupOptions, OffsetsStorage, SourceOptions, ZooKeeperOptions
from streamgroup.run.interface import everything
from streamgroup.zookeeper.session import Session


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

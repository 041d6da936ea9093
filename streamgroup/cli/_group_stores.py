"""Where groups are looked up: at the brokers, or in the ZooKeeper where old consumers register.

Both return the same types.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Protocol

from streamgroup.cli._click import Partition
from streamgroup.cli._group_tables import OffsetRow, offset_rows
from streamgroup.errors import (
    AuthorizationError,
    BrokerError,
    DecodeError,
    StreamGroupError,
    TransportError,
    UnsupportedVersionError,
)
from streamgroup.group.offsets.both import larger
from streamgroup.group.registry import nodes as formats
from streamgroup.group.registry.nodes import GroupPaths, offset_data
from streamgroup.group.registry.view import View, describe_holders, owner_subtrees, subtrees, view_of
from streamgroup.kafka.cluster import admin, changes
from streamgroup.kafka.cluster.interface import Cluster, kafka07_of, kafka_of, open_cluster
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.wire import registrations
from streamgroup.kafka.wire.consumer import PROTOCOL_TYPE
from streamgroup.logformat import KAFKA_LOG, LogFormat
from streamgroup.model import (
    LATEST,
    ClusterSnapshot,
    CommittedOffset,
    Dialect,
    GroupDescription,
    GroupListing,
    GroupState,
    TopicPartition,
)
from streamgroup.options.types import ClientOptions, Isolation
from streamgroup.text import host_port
from streamgroup.znodes import Create, Delete, Operation, Refusal, Set, Subtree
from streamgroup.zookeeper.client import RefusedError
from streamgroup.zookeeper.session import Session

OFFSETS_TOPIC = "__consumer_offsets"
_epochs = itertools.count(1)
"""Each attempt has its own, so none takes the responses to an earlier one."""
_CONSUMER = "consumer"
"""The kind of the groups of KIP-848 in ListGroups."""
_OTHER_KIND = (
    "cannot show the members of group {group!r}: it is a {kind} group, not a group of consumers. To show them, use "
    "kafka-{kind}-groups.sh"
)
_ALONE = (
    "the brokers do not return the offsets of group {group!r}: the offsets of {which} are only those in ZooKeeper "
    "({error})"
)


class GroupStore(Protocol):
    """Reads and changes groups and their offsets for `streamgroup groups`.

    `notes` names what could not be read so far. `is_whole`: one service stores all groups, so either all of them can
    be read or none.
    """

    notes: list[str]
    is_whole: bool

    def snapshot(self, deadline: float) -> ClusterSnapshot:
        """Brokers and topics, as the cluster has them now."""

    def list_groups(self, deadline: float) -> dict[str, GroupListing]:
        """All groups by id; a state may be empty."""

    def list_groups_once(self, deadline: float) -> dict[str, GroupListing]:
        """Return the groups of the brokers that answer the first attempt. `notes` names the others."""

    def describe(self, names: Collection[str], deadline: float) -> dict[str, GroupDescription]:
        """State and members. A group that does not exist is DEAD. If members cannot be read, `notes` says so."""

    def committed(self, group: str, deadline: float) -> dict[TopicPartition, CommittedOffset]:
        """The last commits, without waiting for open transactions, as Kafka's own tool shows them."""

    def log_ends(self, partitions: Iterable[TopicPartition], deadline: float) -> dict[TopicPartition, int]:
        """The log ends of the partitions that have a leader: commits of a deleted topic are still shown."""

    def coordinator(self, group: str, deadline: float) -> str:
        """The broker (group coordinator) or ZooKeeper that stores the group."""

    def name_of(self, partition: int) -> Partition:
        """A partition as this cluster's tools show it."""

    @property
    def log_format(self) -> LogFormat:
        """The meaning of offsets and the names of partitions in the logs of the cluster."""

    def partitions(self, topics: Collection[str], deadline: float) -> dict[str, tuple[int, ...]]:
        """The partitions of those of `topics` that exist."""

    def offsets_at(self, wanted: Mapping[TopicPartition, int], deadline: float) -> dict[TopicPartition, int]:
        """The offsets at EARLIEST, LATEST or a time (ms) of partitions that exist; NO_OFFSET: no record so late."""

    def offsets_once(
        self,
        wanted: Mapping[TopicPartition, int],
        deadline: float,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, int]:
        """The offsets at EARLIEST or LATEST, in one attempt. LATEST under READ_COMMITTED is the last stable offset.

        Partitions whose leaders do not answer are absent, and `notes` say why.
        """

    def starts_message(self, tp: TopicPartition, offset: int, deadline: float) -> bool:
        """Whether a member can read from this offset of the log."""

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int], deadline: float) -> None:
        """Commit as an operator. Raises StreamGroupError if the group has members by then."""

    def delete_group(self, group: str, deadline: float) -> None:
        """Delete the group with its offsets. Raises StreamGroupError if it has members or does not exist."""

    def delete_offsets(
        self, group: str, partitions: Collection[TopicPartition], deadline: float
    ) -> dict[TopicPartition, str | None]:
        """Delete the commits of `partitions`, and return the error of each that was refused."""


@contextmanager
def _zookeeper_named() -> Iterator[None]:
    """Name ZooKeeper in the error of a broker without groups: its consumers may use ZooKeeper."""
    try:
        yield
    except UnsupportedVersionError as error:
        raise UnsupportedVersionError(f"{error}. Groups of old consumers are in ZooKeeper: give --zookeeper") from error


class AtBrokers:
    """The groups that brokers coordinate: Kafka since 0.9."""

    is_whole = False

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._listed: dict[str, GroupListing] | None = None
        """The newest result of `list_groups_once`, which each reading requests again."""
        self.notes: list[str] = []

    def snapshot(self, deadline: float) -> ClusterSnapshot:
        return self._cluster.snapshot(None, deadline, refresh=True)

    def list_groups(self, deadline: float) -> dict[str, GroupListing]:
        """All groups by id. Brokers before 2.6 return no states."""
        with _zookeeper_named():
            return admin.list_groups(self._cluster, deadline)

    def list_groups_once(self, deadline: float) -> dict[str, GroupListing]:
        self._listed = {}
        with _zookeeper_named():
            self._listed, causes = admin.list_groups_once(
                self._cluster, deadline, timeout=_left(deadline), epoch=next(_epochs)
            )
        self.notes += [f"there may be further groups: {cause}" for cause in causes]
        return self._listed

    def describe(self, names: Collection[str], deadline: float) -> dict[str, GroupDescription]:
        """State and members of `names`.

        Brokers before 0.10.1 report a group with commits and no members as dead: it becomes EMPTY. A share group or a
        streams group has the state of the list, and `notes` say that its members are not known.
        """
        with _zookeeper_named():
            found = admin.describe_groups(self._cluster, names, deadline)
        dead = [name for name, group in found.items() if group.state == GroupState.DEAD]
        return found | {name: self._undescribed(name, deadline) for name in dead}

    def _undescribed(self, name: str, deadline: float) -> GroupDescription:
        listed = self._listing(name, deadline)
        if listed is None:
            state = GroupState.EMPTY if self.committed(name, deadline) else GroupState.DEAD
            return GroupDescription(name, state, PROTOCOL_TYPE)
        if listed.kind == _CONSUMER:
            with suppress(UnsupportedVersionError):
                found = admin.describe_consumer_group(self._cluster, name, deadline)
                if found.state != GroupState.DEAD:
                    return found
        group = GroupDescription(name, listed.state or GroupState.UNKNOWN, listed.protocol_type)
        if group.other_kind or group.member_count is None:
            self.notes.append(_OTHER_KIND.format(group=name, kind=listed.kind or listed.protocol_type))
        return group

    def _listing(self, group: str, deadline: float) -> GroupListing | None:
        if self._listed is not None:
            return self._listed.get(group)
        try:
            return admin.listing_of(self._cluster, group, deadline)
        except AuthorizationError:  # of brokers before 2.1, which have no other protocol
            return None

    def committed(self, group: str, deadline: float) -> dict[TopicPartition, CommittedOffset]:
        return admin.committed(self._cluster, group, deadline, stable=False)

    def log_ends(self, partitions: Iterable[TopicPartition], deadline: float) -> dict[TopicPartition, int]:
        return log_ends(self._cluster, partitions, deadline, self.notes)

    def coordinator(self, group: str, deadline: float) -> str:
        found = self._cluster.coordinator(group, deadline)
        return f"{host_port(found.host, found.port)} ({found.node_id})"

    def name_of(self, partition: int) -> Partition:
        return partition

    @property
    def log_format(self) -> LogFormat:
        return KAFKA_LOG

    def partitions(self, topics: Collection[str], deadline: float) -> dict[str, tuple[int, ...]]:
        return partitions_of(self._cluster, topics, deadline)

    def offsets_at(self, wanted: Mapping[TopicPartition, int], deadline: float) -> dict[TopicPartition, int]:
        """Requests the offsets from the leaders, and retries until the deadline if a leader is missing."""
        return offsets_at(self._cluster, wanted, deadline)

    def offsets_once(
        self,
        wanted: Mapping[TopicPartition, int],
        deadline: float,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, int]:
        return offsets_once(self._cluster, wanted, deadline, self.notes, isolation)

    def starts_message(self, tp: TopicPartition, offset: int, deadline: float) -> bool:
        return True

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int], deadline: float) -> None:
        """The group coordinator rejects the commit if the group has members."""
        changes.commit_as_admin(self._cluster, group, offsets, deadline)

    def delete_group(self, group: str, deadline: float) -> None:
        """The group coordinator rejects the deletion if the group has members."""
        changes.delete_group(self._cluster, group, deadline)

    def delete_offsets(
        self, group: str, partitions: Collection[TopicPartition], deadline: float
    ) -> dict[TopicPartition, str | None]:
        """The group coordinator rejects topics that a member subscribes to."""
        answers = changes.delete_offsets(self._cluster, group, partitions, deadline)
        return {tp: None if error is None else str(error) for tp, error in answers.items()}


class InZooKeeper:
    """The groups that old consumers, and streamgroup's members among them, store in ZooKeeper."""

    is_whole = True

    def __init__(self, session: Session, cluster: Cluster, dialect: Dialect) -> None:
        self._session = session
        self._cluster = cluster
        self._dialect = dialect
        self._silent = False
        """Whether the brokers did not answer once. A second wait would take the time of other requests."""
        self.notes: list[str] = []

    def snapshot(self, deadline: float) -> ClusterSnapshot:
        self._silent = False  # the page reads repeatedly, and the brokers may answer again
        return self._cluster.snapshot(None, deadline, refresh=True)

    def list_groups(self, deadline: float) -> dict[str, GroupListing]:
        """All groups that have a node below `/consumers`."""
        found = self._session.read([Subtree("/consumers", 1, watch=False)], deadline).get("/consumers")
        names = () if found is None else found.children
        return {name: GroupListing(name, PROTOCOL_TYPE) for name in names}

    def list_groups_once(self, deadline: float) -> dict[str, GroupListing]:
        return self.list_groups(deadline)

    def describe(self, names: Collection[str], deadline: float) -> dict[str, GroupDescription]:
        """The consumers and the partitions that they own.

        A group rebalances while an owner differs from the assignment.
        """
        return {name: describe_holders(name, self._view(name, deadline)) for name in sorted(names)}

    def committed(self, group: str, deadline: float) -> dict[TopicPartition, CommittedOffset]:
        """The larger of the offsets in ZooKeeper and in Kafka, as a member uses while a group migrates."""
        return larger(self._in_nodes(group, deadline), self._in_kafka(group, deadline))

    def _in_nodes(self, group: str, deadline: float) -> dict[TopicPartition, CommittedOffset]:
        """The offsets in the nodes. A node without a number is left out, and `notes` names it."""
        paths = GroupPaths(group, self._dialect)
        nodes = self._session.read([Subtree(paths.offsets(), 2, watch=False)], deadline)
        found: dict[TopicPartition, CommittedOffset] = {}
        for path, node in sorted(nodes.items()):
            topic, _, name = path.removeprefix(paths.offsets()).lstrip("/").partition("/")
            if not name:
                continue
            try:
                tp = TopicPartition(topic, registrations.partition_in(self._dialect.log_format, name))
                found[tp] = CommittedOffset(formats.read_offset(path, node.data))
            except DecodeError as error:
                self.notes.append(str(error))
        return found

    def _in_kafka(self, group: str, deadline: float) -> dict[TopicPartition, CommittedOffset]:
        """The offsets that brokers since 0.8.2 store (`offsets.storage=kafka`).

        Without their topic the brokers store nothing, and a FindCoordinator request would create the topic.
        """
        if self._dialect is Dialect.KAFKA07 or self._silent:
            return {}
        until = (time.monotonic() + deadline) / 2  # leaves time to request the log ends
        try:
            if OFFSETS_TOPIC not in self._cluster.snapshot([OFFSETS_TOPIC], until).topics:
                return {}
            return admin.committed(kafka_of(self._cluster, until), group, until, stable=False, in_zookeeper=False)
        except UnsupportedVersionError:
            return {}
        except BrokerError as error:
            self.notes.append(_ALONE.format(group=group, which="it", error=error))
        except TransportError as error:
            self._silent = True
            self.notes.append(_ALONE.format(group=group, which="it and of those after it", error=error))
        return {}

    def log_ends(self, partitions: Iterable[TopicPartition], deadline: float) -> dict[TopicPartition, int]:
        """The ends that the brokers return; in Kafka 0.7 the flushed ends."""
        return log_ends(self._cluster, partitions, deadline, self.notes)

    def coordinator(self, group: str, deadline: float) -> str:
        return self._session.where

    def name_of(self, partition: int) -> Partition:
        """`1-2` in Kafka 0.7."""
        return self._dialect.log_format.partition_label(partition)

    @property
    def log_format(self) -> LogFormat:
        """Offsets are byte positions in Kafka 0.7."""
        return self._dialect.log_format

    def partitions(self, topics: Collection[str], deadline: float) -> dict[str, tuple[int, ...]]:
        """In Kafka 0.7 only the partitions of registered brokers."""
        return partitions_of(self._cluster, topics, deadline)

    def offsets_at(self, wanted: Mapping[TopicPartition, int], deadline: float) -> dict[TopicPartition, int]:
        """Brokers before 0.10.1 look up timestamps by segment only."""
        return offsets_at(self._cluster, wanted, deadline)

    def offsets_once(
        self,
        wanted: Mapping[TopicPartition, int],
        deadline: float,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, int]:
        return offsets_once(self._cluster, wanted, deadline, self.notes, isolation)

    def starts_message(self, tp: TopicPartition, offset: int, deadline: float) -> bool:
        """In Kafka 0.7 a member can read only from the start of a message (R34)."""
        if not self.log_format.has_boundaries:
            return True
        return kafka07_of(self._cluster, deadline).is_message_start(tp, offset, deadline)

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int], deadline: float) -> None:
        """Write the offset nodes, and commit to the brokers if they store a commit too: the larger offset counts.

        streamgroup's metadata nodes stay: they do not apply to another offset (R32).
        """
        kept = self._in_kafka(group, deadline)
        set_offsets(self._session, GroupPaths(group, self._dialect), offsets, deadline)
        both = {tp: offset for tp, offset in offsets.items() if tp in kept}
        if both:
            changes.commit_as_admin(kafka_of(self._cluster, deadline), group, both, deadline)

    def delete_group(self, group: str, deadline: float) -> None:
        """Delete all nodes of the group, and its commits at the brokers."""
        kept = self._in_kafka(group, deadline)
        delete_group(self._session, GroupPaths(group, self._dialect), deadline)
        if kept:
            with self._noting_what_brokers_keep(group):
                changes.delete_group(kafka_of(self._cluster, deadline), group, deadline)

    def delete_offsets(
        self, group: str, partitions: Collection[TopicPartition], deadline: float
    ) -> dict[TopicPartition, str | None]:
        """Delete the offset nodes with streamgroup's metadata, and the commits at the brokers."""
        kept = self._in_kafka(group, deadline).keys() & set(partitions)
        delete_offsets(self._session, GroupPaths(group, self._dialect), partitions, deadline)
        found: dict[TopicPartition, str | None] = dict.fromkeys(partitions)
        if kept:
            with self._noting_what_brokers_keep(group):
                answers = changes.delete_offsets(kafka_of(self._cluster, deadline), group, kept, deadline)
                found |= {tp: None if error is None else str(error) for tp, error in answers.items()}
        return found

    @contextmanager
    def _noting_what_brokers_keep(self, group: str) -> Iterator[None]:
        try:
            yield
        except UnsupportedVersionError as error:
            self.notes.append(f"the brokers still keep offsets of group {group!r}, which count on: {error}")

    def _view(self, group: str, deadline: float) -> View | None:
        """The nodes of `group` in ZooKeeper; None if it has none."""
        paths = GroupPaths(group, self._dialect)
        wanted = [*subtrees(paths, None, watch=False), *owner_subtrees(paths, None, watch=False)]
        nodes = self._session.read([Subtree(paths.root, 0, watch=False), *wanted], deadline)
        if paths.root not in nodes:
            return None
        view = view_of(paths, nodes)
        self.notes += view.notes
        return view


def log_ends(
    cluster: Cluster, partitions: Iterable[TopicPartition], deadline: float, notes: list[str]
) -> dict[TopicPartition, int]:
    """The log ends of the partitions that have a leader and that the user may describe. `notes` names the others."""
    wanted = list(partitions)
    try:
        snapshot = cluster.snapshot({tp.topic for tp in wanted}, deadline)
    except AuthorizationError as error:
        notes.append(f"no lag for topics that this user is not authorized to describe: {error}")
        snapshot = cluster.snapshot(None, deadline)  # a request for all topics leaves these topics out
    led = {tp: LATEST for tp in wanted if snapshot.leader(tp) is not None}
    if not led:
        return {}
    listed = cluster.list_offsets(led, Isolation.READ_UNCOMMITTED, deadline)
    return {tp: answer.offset for tp, answer in listed.items()}


def offsets_of(store: GroupStore, deadline: float, group: GroupDescription) -> list[OffsetRow]:
    """Return a row for each partition that a member holds or gets or that has a commit, and each member without any."""
    committed = store.committed(group.group_id, deadline)
    held = (member.assigned or () for member in group.members)
    partitions = {*committed, *group.moving, *(tp for assigned in held for tp in assigned)}
    return offset_rows(group, committed, store.log_ends(partitions, deadline), store.name_of)


def partitions_of(cluster: Cluster, topics: Collection[str], deadline: float) -> dict[str, tuple[int, ...]]:
    """The partitions of those of `topics` that exist."""
    found = cluster.snapshot(topics, deadline).topics
    return {name: tuple(p.partition for p in topic.partitions) for name, topic in found.items()}


def offsets_at(cluster: Cluster, wanted: Mapping[TopicPartition, int], deadline: float) -> dict[TopicPartition, int]:
    """The offsets at EARLIEST, LATEST or a time (ms)."""
    if not wanted:
        return {}
    listed = cluster.list_offsets(wanted, Isolation.READ_UNCOMMITTED, deadline)
    return {tp: answer.offset for tp, answer in listed.items()}


def offsets_once(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    deadline: float,
    notes: list[str],
    isolation: Isolation,
) -> dict[TopicPartition, int]:
    """The offsets at EARLIEST or LATEST that the leaders return by the deadline. `notes` names the others."""
    if not wanted:
        return {}
    listed, causes = cluster.list_offsets_once(
        wanted, isolation, deadline, timeout=_left(deadline), epoch=next(_epochs)
    )
    notes += [f"cannot read the offsets of some logs: {cause}" for cause in causes]
    return {tp: answer.offset for tp, answer in listed.items()}


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


@contextmanager
def opened_store(options: ClientOptions) -> Iterator[GroupStore]:
    """The store of the groups: ZooKeeper if the options name it, else the brokers."""
    with opened_stores(options) as stores:
        yield stores[0]


@contextmanager
def opened_stores(options: ClientOptions) -> Iterator[tuple[GroupStore, ...]]:
    """All stores that may hold the groups: ZooKeeper and the brokers, as far as the options name them."""
    with closing(open_cluster(options)) as cluster:
        brokers = (AtBrokers(cluster),) if isinstance(cluster, KafkaCluster) else ()
        if options.zookeeper is None:
            yield brokers
            return
        with closing(Session(options.zookeeper)) as session:
            session.connect()
            dialect = cluster.snapshot((), cluster.deadline()).dialect
            yield (InZooKeeper(session, cluster, dialect), *brokers)


_MOST_OPERATIONS = 500
"""Operations of one transaction: about 100 KiB. ZooKeeper accepts 1 MiB (`jute.maxbuffer`)."""
_DEPTH = 8
"""Levels below a group's node that are deleted with it. Consumers create three."""


class ChangeRefusedError(StreamGroupError):
    """A consumer has registered, or has written a node, since the command read the nodes."""


def set_offsets(session: Session, paths: GroupPaths, offsets: Mapping[TopicPartition, int], deadline: float) -> None:
    """Write the offset nodes.

    Raises ChangeRefusedError if a consumer is registered; some nodes may be written by then.
    """
    wanted = [Subtree(paths.offset(tp), 0, watch=False) for tp in offsets]
    nodes = session.read([Subtree(paths.ids, 0, watch=False), *wanted], deadline)
    operations: list[Operation] = []
    for tp, offset in sorted(offsets.items()):
        path, data = paths.offset(tp), offset_data(offset)
        node = nodes.get(path)
        operations.append(Create(path, data) if node is None else Set(path, data, node.version))
    parents = sorted({paths.offsets(tp.topic) for tp in offsets})
    _transact(session, paths, operations, parents, has_ids=paths.ids in nodes, deadline=deadline)


def delete_offsets(
    session: Session, paths: GroupPaths, partitions: Collection[TopicPartition], deadline: float
) -> None:
    """Delete the offset nodes and streamgroup's metadata. Raises as `set_offsets`."""
    wanted = [path for tp in sorted(partitions) for path in (paths.metadata_of(tp), paths.offset(tp))]
    nodes = session.read([Subtree(path, 0, watch=False) for path in (paths.ids, *wanted)], deadline)
    operations = [Delete(path) for path in wanted if path in nodes]
    _transact(session, paths, operations, (), has_ids=paths.ids in nodes, deadline=deadline)


def delete_group(session: Session, paths: GroupPaths, deadline: float) -> None:
    """Delete the group's node and all below it. Raises as `set_offsets`."""
    nodes = session.read([Subtree(paths.root, _DEPTH, watch=False)], deadline)
    deepest_first = sorted((path for path in nodes if path != paths.ids), key=lambda path: (-path.count("/"), path))
    operations = [Delete(path) for path in deepest_first]
    _transact(session, paths, operations, (), has_ids=paths.ids in nodes, deadline=deadline)


def _transact(
    session: Session,
    paths: GroupPaths,
    operations: Sequence[Operation],
    parents: Sequence[str],
    *,
    has_ids: bool,
    deadline: float,
) -> None:
    try:
        for first in range(0, len(operations), _MOST_OPERATIONS):
            chunk = operations[first : first + _MOST_OPERATIONS]
            session.transact([*_without_consumers(paths, has_ids), *chunk], [paths.root, *parents], deadline)
            has_ids = False
    except RefusedError as error:
        if error.path == paths.ids and error.refusal in (Refusal.NOT_EMPTY, Refusal.NODE_EXISTS):
            cause = "a consumer is registered"
        elif error.refusal in (Refusal.NO_NODE, Refusal.NODE_EXISTS, Refusal.BAD_VERSION, Refusal.NOT_EMPTY):
            cause = f"another client has written {error.path} since this command looked"
        else:
            raise
        raise ChangeRefusedError(
            f"cannot change group {paths.group!r} in {session.where}: {cause}. Stop all "
            "consumers of the group, then run the command again"
        ) from error


def _without_consumers(paths: GroupPaths, has_ids: bool) -> Iterator[Operation]:
    """Yield operations that fail if a consumer is registered."""
    if not has_ids:
        yield Create(paths.ids)
    yield Delete(paths.ids)

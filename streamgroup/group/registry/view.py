"""A group and its cluster as read from ZooKeeper's nodes: consumers, partitions, owners, and their descriptions.

Invalid nodes are skipped and reported (`View.notes`): a consumer with an invalid registration reads nothing, and an
invalid topic or broker counts as absent. They raise no error, because one invalid node must not stop the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from streamgroup.errors import DecodeError
from streamgroup.frozen import frozen
from streamgroup.group.assignor_types import java_order
from streamgroup.group.assignors import chunks
from streamgroup.group.registry import nodes as f
from streamgroup.group.registry.nodes import GroupPaths
from streamgroup.kafka.wire.consumer import PROTOCOL_TYPE
from streamgroup.kafka.wire.registrations import (
    BROKERS,
    TOPICS,
    is_node_name,
    partition_in,
    read_broker,
    read_count,
    read_partitions,
)
from streamgroup.model import Broker, Dialect, GroupDescription, GroupState, MemberDescription, TopicPartition
from streamgroup.znodes import Subtree, ZNode

Nodes = Mapping[str, ZNode]


@frozen
class Consumer:
    """A registered consumer. `streams` is the number of its streams by topic, with patterns resolved."""

    consumer_id: str
    session_id: int
    streams: Mapping[str, int]
    identity: bytes | None
    """The identity of one of our members (R28); None for a consumer of another client."""

    @property
    def is_ours(self) -> bool:
        return self.identity is not None


@frozen
class OwnerNode:
    """The node that records which consumer thread owns a partition.

    `thread` is `<consumer>-<number>`, or `""` if its data is invalid. No other consumer can claim the partition then.
    """

    thread: str
    session_id: int
    czxid: int
    version: int

    @property
    def consumer_id(self) -> str:
        return f.consumer_of(self.thread)


@frozen
class View:
    """A group and its topics as one read of the nodes shows them.

    `partitions` has the topics that exist, numbered in the order of Kafka's client.
    """

    generation: int
    """The largest zxid of the nodes that decide the assignment, so members that read the same nodes agree."""
    consumers: Mapping[str, Consumer]
    partitions: Mapping[str, tuple[int, ...]]
    brokers: Mapping[int, Broker]
    owners: Mapping[TopicPartition, OwnerNode] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def foreign(self) -> tuple[str, ...]:
        """The consumers of other clients (R33), sorted."""
        return tuple(sorted(c.consumer_id for c in self.consumers.values() if not c.is_ours))

    @property
    def ours(self) -> tuple[str, ...]:
        """Our members, in the order of assignment."""
        return tuple(sorted((c.consumer_id for c in self.consumers.values() if c.is_ours), key=java_order))

    @property
    def total(self) -> int:
        return sum(map(len, self.partitions.values()))

    def shares(self) -> dict[TopicPartition, str]:
        """Return the thread that should own each partition."""
        return share(self.partitions, {c.consumer_id: c.streams for c in self.consumers.values()})


def subtrees(paths: GroupPaths, topics: Iterable[str] | None, *, watch: bool = True) -> tuple[Subtree, ...]:
    """Return the subtrees to read for `view_of`, without the owners. `topics` None: all topics of the cluster."""
    below: tuple[Subtree, ...]
    if topics is None:
        below = (Subtree(TOPICS, 2 if paths.dialect is Dialect.KAFKA07 else 1, watch),)
    else:
        named = sorted(filter(is_node_name, set(topics)))
        below = tuple(Subtree(f"{TOPICS}/{t}", 1 if paths.dialect is Dialect.KAFKA07 else 0, watch) for t in named)
    return (
        Subtree(paths.ids, 1, watch),
        Subtree(paths.members, 1, watch),
        Subtree(BROKERS, 1, watch),
        *below,
    )


def owner_subtrees(paths: GroupPaths, topics: Iterable[str] | None, *, watch: bool = True) -> tuple[Subtree, ...]:
    """Return the subtrees to read for `owners_in`. `topics` None: all topics of the group."""
    if topics is None:
        return (Subtree(paths.owners(), 2, watch),)
    return tuple(Subtree(paths.owners(topic), 1, watch) for topic in sorted(filter(is_node_name, set(topics))))


def view_of(paths: GroupPaths, nodes: Nodes) -> View:
    """Return the group in the nodes of `subtrees` and, if they were read, of `owner_subtrees`."""
    reader = _NodeReader(paths, nodes)
    partitions = reader.partitions()
    consumers = {consumer.consumer_id: consumer for consumer in reader.consumers(partitions)}
    brokers = {broker.node_id: broker for broker in reader.brokers()}
    return View(reader.generation(), consumers, partitions, brokers, reader.owners(), tuple(reader.notes))


def owners_in(paths: GroupPaths, nodes: Nodes) -> dict[TopicPartition, OwnerNode]:
    return _NodeReader(paths, nodes).owners()


class _NodeReader:
    """Interprets the nodes of one read."""

    def __init__(self, paths: GroupPaths, nodes: Nodes) -> None:
        self._paths = paths
        self._nodes = nodes
        self.notes: list[str] = []

    def _below(self, parent: str) -> Iterator[tuple[str, str, ZNode]]:
        """Yield name, path and node of the children that were read, in the order of their names."""
        above = self._nodes.get(parent)
        for name in () if above is None else sorted(above.children):
            path = f"{parent}/{name}"
            node = self._nodes.get(path)
            if node is not None:
                yield name, path, node

    def _note(self, error: DecodeError, what: str) -> None:
        self.notes.append(f"{error}; {what}")

    def brokers(self) -> Iterator[Broker]:
        for name, _, node in self._below(BROKERS):
            try:
                yield read_broker(name, node.data)
            except DecodeError as error:
                self._note(error, "the broker counts as absent until the node is corrected")

    # -- topics -------------------------------------------------------------------------------------------------------

    def _topics(self) -> list[str]:
        """Return the topics that exist, among those that were read."""
        prefix = f"{TOPICS}/"
        return sorted(p[len(prefix) :] for p in self._nodes if p.startswith(prefix) and "/" not in p[len(prefix) :])

    def partitions(self) -> dict[str, tuple[int, ...]]:
        return {topic: tuple(self._partitions_of(topic)) for topic in self._topics()}

    def _partitions_of(self, topic: str) -> Iterable[int]:
        if self._paths.dialect is Dialect.KAFKA07:
            # Kafka's client sorts the names as strings: 10-0 comes before 2-0.
            numbers = (
                number
                for name, _, node in self._below(f"{TOPICS}/{topic}")
                for number in self._counted(topic, name, node)
            )
            return sorted(numbers, key=self._paths.dialect.log_format.partition_name)
        try:
            return read_partitions(topic, self._nodes[f"{TOPICS}/{topic}"].data)
        except DecodeError as error:
            self._note(error, "the group assigns no partition of this topic until the node is corrected")
            return ()

    def _counted(self, topic: str, broker: str, node: ZNode) -> Iterable[int]:
        try:
            return read_count(topic, broker, node.data)
        except DecodeError as error:
            self._note(error, "the group assigns no partition of this topic on this broker until the node is corrected")
            return ()

    # -- consumers ----------------------------------------------------------------------------------------------------

    def consumers(self, topics: Mapping[str, object]) -> Iterator[Consumer]:
        for name, path, node in self._below(self._paths.ids):
            try:
                interest = f.read_consumer(path, node.data, self._paths.dialect)
                streams = {t: n for t, n in interest.topics(topics, self._paths.dialect).items() if t in topics}
            except DecodeError as error:
                self._note(error, "the group assigns no partitions to this consumer until the node is corrected")
                streams = {}
            member = self._nodes.get(self._paths.member(name))
            is_current = member is not None and member.owner == node.owner
            yield Consumer(name, node.owner, streams, member.data if member is not None and is_current else None)

    def owners(self) -> dict[TopicPartition, OwnerNode]:
        """Return the owner nodes. An invalid name is ignored; a node with invalid data still owns its partition."""
        found: dict[TopicPartition, OwnerNode] = {}
        prefix = f"{self._paths.owners()}/"
        for path, node in self._nodes.items():
            topic, _, name = path.removeprefix(prefix).rpartition("/") if path.startswith(prefix) else ("", "", "")
            if not topic:
                continue
            try:
                tp = TopicPartition(topic, partition_in(self._paths.dialect.log_format, name))
            except DecodeError as error:
                self._note(error, "the owner node is ignored")
                continue
            try:
                thread = f.read_owner(path, node.data)
            except DecodeError as error:
                self._note(error, "no consumer can claim this partition until the node is deleted")
                thread = ""
            found[tp] = OwnerNode(thread, node.owner, node.czxid, node.version)
        return found

    def generation(self) -> int:
        zxids = [0]
        zxids += (self._nodes[path].pzxid for path in (self._paths.ids, BROKERS) if path in self._nodes)
        for topic in self._topics():
            node = self._nodes[f"{TOPICS}/{topic}"]
            zxids.append(node.pzxid)
            if self._paths.dialect is Dialect.KAFKA:
                zxids.append(node.mzxid)
        return max(zxids)


def share(
    partitions: Mapping[str, Sequence[int]], consumers: Mapping[str, Mapping[str, int]]
) -> dict[TopicPartition, str]:
    """Return the thread `<consumer>-<number>` that should own each partition. Topics without a consumer are absent.

    `partitions` are the partitions of each topic in the order of Kafka's client, `consumers` the number of streams of
    each consumer by topic.
    """
    falls_to: dict[TopicPartition, str] = {}
    for topic, numbers in partitions.items():
        threads = sorted(
            (f"{consumer}-{n}" for consumer, streams in consumers.items() for n in range(streams.get(topic, 0))),
            key=java_order,
        )
        for thread, places in zip(threads, chunks(len(numbers), [1] * len(threads)), strict=True):
            falls_to |= dict.fromkeys((TopicPartition(topic, numbers[place]) for place in places), thread)
    return falls_to


def member_subtrees(paths: GroupPaths) -> tuple[Subtree, ...]:
    """Return the subtrees that `describe_members` needs."""
    return tuple(Subtree(path, 1, watch=False) for path in (paths.ids, paths.members))


def describe_members(paths: GroupPaths, nodes: Mapping[str, ZNode]) -> GroupDescription:
    """Describe the registered consumers, with the identities of our members (R28), without their partitions."""
    ids = nodes.get(paths.ids)
    members = []
    for name in () if ids is None else ids.children:
        consumer, beside = nodes.get(paths.consumer(name)), nodes.get(paths.member(name))
        if consumer is None:
            continue
        if beside is None or beside.owner != consumer.owner:
            user_data, registered_at = b"", None
        else:  # the id node does not tell: a forced rebalance creates it again (R33)
            user_data, registered_at = beside.data, beside.czxid
        host = host_in(paths.group, name)
        members.append(MemberDescription(name, name, host, user_data=user_data, registered_at=registered_at))
    return GroupDescription(paths.group, GroupState.STABLE, PROTOCOL_TYPE, members=tuple(members))


def host_in(group: str, consumer_id: str) -> str:
    """Return the host in a consumer id `<group>_<host>-<ms>-<8 hex>`; another id is returned unchanged."""
    return consumer_id.removeprefix(f"{group}_").rsplit("-", 2)[0]


def describe_holders(name: str, view: View | None) -> GroupDescription:
    """Describe the consumers and what they own. `view` None: the group does not exist.

    The group is rebalancing while a partition is not owned by the thread that should own it.
    """
    if view is None:
        return GroupDescription(name, GroupState.DEAD)
    held: dict[str, list[TopicPartition]] = {consumer_id: [] for consumer_id in view.consumers}
    for tp, owner in view.owners.items():
        held.setdefault(owner.consumer_id or "(unreadable)", []).append(tp)
    members = tuple(_holder(consumer_id, partitions, name) for consumer_id, partitions in sorted(held.items()))
    if not view.consumers:
        return GroupDescription(name, GroupState.EMPTY, PROTOCOL_TYPE, members=members)
    moves = any(_thread(view, tp) != thread for tp, thread in view.shares().items())
    state = GroupState.PREPARING_REBALANCE if moves else GroupState.STABLE
    return GroupDescription(name, state, PROTOCOL_TYPE, "range", members)


def _thread(view: View, tp: TopicPartition) -> str | None:
    owner = view.owners.get(tp)
    return None if owner is None else owner.thread


def _holder(consumer_id: str, held: Iterable[TopicPartition], group: str) -> MemberDescription:
    """Return a member with its host as brokers write it; the id of another client's consumer may have no host."""
    host, *rest = consumer_id.removeprefix(f"{group}_").rsplit("-", 2)
    return MemberDescription(consumer_id, host=f"/{host}" if len(rest) == 2 else "", assigned=tuple(sorted(held)))

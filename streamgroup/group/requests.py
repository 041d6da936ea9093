"""The requests of a member of a Kafka group, their purposes, and the member's timers.

Each function returns `build(version) -> request`: the version depends on the broker at the other end of the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from streamgroup.errors import ConfigError, StreamGroupError, UnsupportedVersionError
from streamgroup.frozen import frozen
from streamgroup.group.assignors import COOPERATIVE
from streamgroup.group.events import Lane
from streamgroup.group.sticky import encode_user_data
from streamgroup.group.timing import MemberConfig
from streamgroup.kafka.wire.consumer import PROTOCOL_TYPE, ConsumerSubscription, by_topic, encode_subscription
from streamgroup.kafka.wire.messages import group as c
from streamgroup.kafka.wire.messages import group as m
from streamgroup.kafka.wire.messages.admin import ConsumerGroupDescribeRequest, DescribeGroupsRequest
from streamgroup.model import TopicPartition


class Purpose(Enum):
    """The purpose of a request: its API, its lane, and what the member does by it, in words."""

    FIND = (c.FindCoordinatorRequest, Lane.ANY, "find its group coordinator")
    JOIN = (m.JoinGroupRequest, Lane.JOIN, "join")
    SYNC = (m.SyncGroupRequest, Lane.JOIN, "get the assignment")
    DESCRIBE = (DescribeGroupsRequest, Lane.JOIN, "read the assignments of all members")
    HEARTBEAT = (m.HeartbeatRequest, Lane.COORDINATOR, "send a heartbeat")
    LEAVE = (m.LeaveGroupRequest, Lane.COORDINATOR, "leave")
    CONSUMER_JOIN = (m.ConsumerGroupHeartbeatRequest, Lane.COORDINATOR, "join")
    CONSUMER_HEARTBEAT = (m.ConsumerGroupHeartbeatRequest, Lane.COORDINATOR, "send a heartbeat")
    CONSUMER_LEAVE = (m.ConsumerGroupHeartbeatRequest, Lane.COORDINATOR, "leave")
    CONSUMER_DESCRIBE = (ConsumerGroupDescribeRequest, Lane.JOIN, "read the assignments of all members")

    def __init__(self, api: type[Any], lane: Lane, doing: str) -> None:
        self.api = api
        self.lane = lane
        self.doing = doing

    def __str__(self) -> str:
        return str(self.api.NAME)


class Timer(Enum):
    """The timers of a member, in the order in which due ones are handled: an expired session needs no heartbeat."""

    SESSION = "session over"
    REJOIN = "rejoin due"
    RETRY = "retry due"
    TOPICS = "topics overdue"
    COMMIT = "commit due again"
    HEARTBEAT = "heartbeat due"


_MOST_REASON = 255
"""The longest reason that the broker accepts (KIP-800)."""

Build = Callable[[int], Any]


_OF_MEMBERS = (m.JoinGroupRequest, m.SyncGroupRequest, m.HeartbeatRequest, m.LeaveGroupRequest)


def not_spoken(group: str, api: type[Any], release: str, error: UnsupportedVersionError) -> StreamGroupError:
    """Return the error for a broker without an API of groups. `release` is set for brokers before 0.10."""
    if api is m.ConsumerGroupHeartbeatRequest:
        return _needs_4_0(group)
    if not release or api not in {*_OF_MEMBERS, c.FindCoordinatorRequest}:
        return error
    broker = f"the broker is Kafka {release}"
    ways = (
        "group.mode=commit (this query alone reads all partitions) or group.mode=off, or give 'zookeeper.connect': "
        "there consumers of Kafka 0.8 share the partitions of a group"
    )
    if api in _OF_MEMBERS:
        return ConfigError(
            f"cannot join group {group}: {broker}, and groups with members need 0.9 or later. Use {ways}"
        )
    return ConfigError(
        f"cannot find the group coordinator of group {group}: {broker}. Kafka stores commits of groups since 0.8.2, "
        f"and supports group members since 0.9. Remove kafka.offsets.storage, or use {ways}"
    )


@frozen
class JoinSubscription:
    """The subscription in JoinGroup, which the group's leader reads."""

    topics: tuple[str, ...]
    identity: bytes = b""
    """The data of the last `UserDataChanged`."""
    owned: tuple[TopicPartition, ...] = ()
    """Cooperative only: the partitions that the member holds while it joins, of `generation` (KIP-429)."""
    generation: int = -1

    def metadata(self, strategy: str) -> bytes:
        """Return the metadata of one protocol. Java's cooperative assignor reads the generation in its user data."""
        user_data = encode_user_data(self.generation, self.identity) if strategy in COOPERATIVE else self.identity
        return encode_subscription(
            ConsumerSubscription(
                topics=self.topics,
                user_data=user_data or None,
                owned_partitions=by_topic(self.owned),
                generation_id=self.generation,
            )
        )


def join_group(config: MemberConfig, member_id: str, subscription: JoinSubscription, reason: str) -> Build:
    """Build JoinGroup. `build` raises UnsupportedVersionError if the broker does not support static members."""
    protocols = tuple(
        m.JoinGroupRequestProtocol(name=name, metadata=subscription.metadata(name)) for name in config.strategies
    )

    def build(version: int) -> m.JoinGroupRequest:
        if config.instance_id is not None and version < 5:
            raise UnsupportedVersionError(
                f"cannot join group {config.group_id}: group.instance.id {config.instance_id!r} needs JoinGroup v5 "
                f"(brokers 2.3 and later), and this broker supports v{version}. Remove kafka.group.instance.id"
            )
        return m.JoinGroupRequest(
            group_id=config.group_id,
            session_timeout_ms=config.session_timeout_for(version),
            rebalance_timeout_ms=config.max_poll_interval_ms if version >= 1 else -1,
            member_id=member_id,
            group_instance_id=config.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
            reason=reason[:_MOST_REASON] if version >= 8 else None,
        )

    return build


def sync_group(
    config: MemberConfig, member_id: str, generation: int, strategy: str, assignments: Mapping[str, bytes]
) -> Build:
    """Build SyncGroup. Only the leader has `assignments`, encoded and by member id."""

    def build(version: int) -> m.SyncGroupRequest:
        return m.SyncGroupRequest(
            group_id=config.group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=config.instance_id if version >= 3 else None,
            protocol_type=PROTOCOL_TYPE if version >= 5 else None,
            protocol_name=strategy if version >= 5 else None,
            assignments=tuple(
                m.SyncGroupRequestAssignment(member_id=member, assignment=data) for member, data in assignments.items()
            ),
        )

    return build


def describe_group(config: MemberConfig) -> Build:
    return lambda _: DescribeGroupsRequest(groups=(config.group_id,))


def heartbeat(config: MemberConfig, member_id: str, generation: int) -> Build:

    def build(version: int) -> m.HeartbeatRequest:
        return m.HeartbeatRequest(
            group_id=config.group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=config.instance_id if version >= 3 else None,
        )

    return build


def leave_group(config: MemberConfig, member_id: str, reason: str) -> Build:
    """Build LeaveGroup. Up to v2 the request names one member, from v3 a list (KIP-345)."""

    def build(version: int) -> m.LeaveGroupRequest:
        if version < 3:
            return m.LeaveGroupRequest(group_id=config.group_id, member_id=member_id)
        identity = m.MemberIdentity(member_id=member_id, reason=reason[:_MOST_REASON] if version >= 5 else None)
        return m.LeaveGroupRequest(group_id=config.group_id, members=(identity,))

    return build


# -- the consumer protocol (KIP-848) -----------------------------------------------------------------------------------

LEAVES = -1
"""The epoch of a heartbeat by which a member leaves."""
LEAVES_FOR_A_WHILE = -2
"""The epoch of a heartbeat by which a static member leaves: its successor gets the same partitions."""

_NO_TOPIC = "a^"
"""A regular expression that no topic matches. A member without topics joins with it, because it must subscribe."""

OwnedPartitions = frozenset[tuple[str, int]]
"""Partitions, each as the id of its topic and its number."""


def consumer_heartbeat(
    config: MemberConfig,
    member_id: str,
    epoch: int,
    *,
    topics: tuple[str, ...] | None,
    owned: OwnedPartitions | None,
    everything: bool,
) -> Build:
    """Build a heartbeat. `topics` and `owned` are None if they have not changed since the last accepted one.

    `everything`: it also has the fields that never change. `build` raises UnsupportedVersionError before Kafka 4.0.
    """
    partitions: dict[str, list[int]] = {}
    for topic_id, partition in sorted(owned or ()):
        partitions.setdefault(topic_id, []).append(partition)
    listed = tuple(
        m.HeartbeatTopicPartitions(topic_id=topic_id, partitions=tuple(numbers))
        for topic_id, numbers in partitions.items()
    )

    def build(version: int) -> m.ConsumerGroupHeartbeatRequest:
        if version < 1:  # there the group coordinator chooses the member id, and the protocol is a preview
            raise _needs_4_0(config.group_id)
        return m.ConsumerGroupHeartbeatRequest(
            group_id=config.group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=config.instance_id,
            rebalance_timeout_ms=config.max_poll_interval_ms if everything else -1,
            subscribed_topic_names=topics,
            subscribed_topic_regex=None if topics is None else "" if topics else _NO_TOPIC,
            server_assignor=config.remote_assignor if everything else None,
            topic_partitions=None if owned is None else listed,
        )

    return build


def _needs_4_0(group: str) -> StreamGroupError:
    return UnsupportedVersionError(
        f"cannot join group {group}: kafka.group.protocol=consumer needs Kafka 4.0 or later. Use classic"
    )


def consumer_leave(config: MemberConfig, member_id: str, epoch: int) -> Build:
    return lambda _: m.ConsumerGroupHeartbeatRequest(
        group_id=config.group_id, member_id=member_id, member_epoch=epoch, instance_id=config.instance_id
    )


def consumer_describe(config: MemberConfig) -> Build:
    return lambda _: ConsumerGroupDescribeRequest(group_ids=(config.group_id,))

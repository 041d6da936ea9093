"""The "consumer" protocol: subscriptions in JoinGroup and assignments in SyncGroup, in the format of Java's consumer.

A 2-byte version precedes the message, which is never flexible. Newer versions only add fields at the end. A newer
message is therefore read as the newest version known and the rest is ignored, as Kafka's own consumer does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from streamgroup.errors import DecodeError
from streamgroup.kafka.wire.fields import Struct, array, byte_string, int32, message, string
from streamgroup.kafka.wire.primitives import INT16, Bytes, Reader
from streamgroup.kafka.wire.schema import Message, append, read
from streamgroup.model import TopicPartition

PROTOCOL_TYPE = "consumer"
"""The protocol type of JoinGroup."""
LATEST = 3


@message
class TopicPartitions(Struct):
    """Partitions of one topic in a subscription or an assignment."""

    topic: str = string("0+")
    partitions: tuple[int, ...] = array("int32", "0+")


@message
class ConsumerSubscription(Message, versions="0-3"):
    """A member's subscription, which it sends in JoinGroup.

    The member has owned `owned_partitions` since `generation_id` (KIP-429, KIP-792). `rack_id`: KIP-881.
    """

    topics: tuple[str, ...] = array("string", "0+")
    user_data: Bytes | None = byte_string("0+", nullable="0+", default=None)
    owned_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


@message
class ConsumerAssignment(Message, versions="0-3"):
    """The partitions that the group leader assigns to a member, in SyncGroup."""

    assigned_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")
    user_data: Bytes | None = byte_string("0+", nullable="0+", default=None)


M = TypeVar("M", bound=Message)


def encode_subscription(subscription: ConsumerSubscription, version: int = LATEST) -> bytes:
    """Encode `subscription` for the field `metadata` of a protocol in JoinGroup. Raises as `schema.encode` does."""
    return _encode(subscription, version)


def decode_subscription(data: Bytes) -> ConsumerSubscription:
    """Decode the subscription of a member, which may be any client.

    Raises DecodeError, or Truncated if `data` is empty or too short.
    """
    return _decode(ConsumerSubscription, data)


def encode_assignment(assignment: ConsumerAssignment, version: int = LATEST) -> bytes:
    """Encode `assignment` for one member in SyncGroup. Raises as `schema.encode` does."""
    return _encode(assignment, version)


def decode_assignment(data: Bytes) -> ConsumerAssignment:
    """Decode an assignment from the group leader, which may be any client.

    Raises DecodeError, or Truncated if `data` is empty or too short.
    """
    return _decode(ConsumerAssignment, data)


def by_topic(partitions: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
    """Group partitions by topic for these messages, sorted by topic, then partition."""
    found: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        found.setdefault(tp.topic, []).append(tp.partition)
    return tuple(TopicPartitions(topic=topic, partitions=tuple(ids)) for topic, ids in found.items())


def each_partition(rows: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    """Return all partitions in `rows`, in their order."""
    return tuple(TopicPartition(row.topic, partition) for row in rows for partition in row.partitions)


def _encode(message: Message, version: int) -> bytes:
    out = bytearray(INT16.pack(version))
    append(out, message, version)
    return bytes(out)


def _decode(cls: type[M], data: Bytes) -> M:
    reader = Reader(data)
    version = reader.int16()
    if version < 0:
        raise DecodeError(f"{cls.__name__}: version {version} is negative")
    return read(cls, reader, min(version, LATEST))

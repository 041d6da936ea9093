"""Stateless parts of the Kafka 0.7 producer: choice of broker-partitions, message sets and requests.

Brokers and topics are registered in ZooKeeper. The coordinator reads them there and passes on a `ClusterSnapshot`. A
broker-partition is numbered as in `logformat`: `2-17` is 20017. The hash of a key selects the broker-partition. The key
itself is not written, because messages of 0.7 have no keys.

Sources: the wiki page "Writing a Driver for Kafka" (Producer, Creating New Topics), ZKBrokerPartitionInfo and
DefaultEventHandler of 0.7.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from streamgroup.errors import ConfigError, ProduceError, RecordTooLargeError, UnknownTopicError
from streamgroup.frozen import frozen
from streamgroup.kafka.wire.kafka07 import MultiProduceRequest07, ProduceRequest07
from streamgroup.kafka.wire.primitives import Bytes
from streamgroup.logformat import KAFKA07_LOG, broker_partition, partition_number
from streamgroup.model import ClusterSnapshot, PartitionInfo, TopicInfo, TopicPartition
from streamgroup.text import MOST_NAMED, counted, first_of

Longs = npt.NDArray[np.int64]

CODECS = ("none", "gzip", "snappy")
"""The codecs of Kafka 0.7, by the names of `compression.type`."""

_HEAD = 10
"""Bytes of a message of magic 1 besides its payload."""
_LONGEST_TOPIC = 255
_ILLEGAL = re.compile(r"[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
_MOST_PARTS = 2**15 - 1
"""The number of parts of a MULTIPRODUCE is an int16."""
MAX_SET_BYTES = 256 * 1024
"""A compressed set is one message. A consumer of 0.7 stops at a message above its `fetch.size`, 300 KiB by default."""


@frozen
class Kafka07Config:
    """The options of a producer of Kafka 0.7. Times are in milliseconds and sizes in bytes.

    Raises ConfigError for values that exclude each other.
    """

    max_message_size: int = 1_000_000
    """`max.message.size`: bytes of a payload, or of a compressed message set. It must not exceed `max.message.size` of
    the brokers: a broker drops a set with a larger message without an error."""
    batch_size: int = MAX_SET_BYTES
    """Bytes of a message set before compression. A larger record is a set of its own."""
    max_request_size: int = 1024 * 1024
    """Bytes of the message sets in one MULTIPRODUCE. A larger set is sent in a PRODUCE of its own."""
    buffer_memory: int = 32 * 1024 * 1024
    """Bytes of unresolved message sets. The shell appends no more until some are delivered or failed."""
    codec: str = "none"
    """`compression.codec`."""
    compression_level: int | None = None
    """The codec's level; None is Java's default."""
    max_in_flight: int = 5
    """Unanswered requests to one broker."""
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    retries: int = 2**31 - 1
    """`num.retries`: how often to resend a message set that `verify` has not found in the log."""
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    verify: bool = False
    """Whether to read the logs back. A broker acknowledges nothing, so only its log shows that it has the messages."""
    verify_wait_ms: int = 10_000
    """How long `verify` waits for messages that a broker has handled. A broker returns messages only after a flush: by
    default every 3 s (`log.default.flush.interval.ms`) or 500 messages (`log.flush.interval`)."""
    fetch_size: int = 1024 * 1024
    """Bytes per FETCH of `verify`."""

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise ConfigError(f"invalid compression {self.codec!r}: Kafka 0.7 has {', '.join(CODECS)}")
        if self.verify and self.delivery_timeout_ms < self.verify_wait_ms + self.request_timeout_ms:
            raise ConfigError(
                f"delivery.timeout.ms={self.delivery_timeout_ms} is below request.timeout.ms={self.request_timeout_ms} "
                f"plus the {self.verify_wait_ms} ms that verify waits for a flush: increase it"
            )


@frozen
class Kafka07Target:
    """The Kafka 0.7 cluster that tasks write to: its brokers and topics at planning, and the producer's options."""

    snapshot: ClusterSnapshot
    config: Kafka07Config


# -- topics and broker-partitions --------------------------------------------------------------------------------------


def topic07(snapshot: ClusterSnapshot, topic: str) -> TopicInfo:
    """Return the broker-partitions that records of `topic` may be written to, by broker id and then by partition.

    Only registered brokers count. If none of them has registered the topic, it is new: it gets partition 0 of each
    registered broker, which always exists. Each broker creates the topic with its first message, and registers all its
    partitions. Raises ProduceError for an invalid name, UnknownTopicError if no broker is registered.
    """
    require_legal(topic)
    known = snapshot.topics.get(topic)
    live = () if known is None else tuple(p for p in known.partitions if p.leader in snapshot.brokers)
    if not live:
        live = tuple(PartitionInfo(partition_number(broker, 0), broker) for broker in snapshot.brokers)
    if not live:
        raise UnknownTopicError(
            f"cannot write to topic {topic}: no broker of Kafka 0.7 is registered in ZooKeeper. Start the brokers, or "
            "check that zookeeper.connect has their chroot"
        )
    return TopicInfo(topic, tuple(sorted(live, key=lambda info: info.partition)))


def require_partition(snapshot: ClusterSnapshot, tp: TopicPartition) -> None:
    """Raise UnknownTopicError if a broker-partition from the column `partition` cannot be written to.

    A broker without the topic creates it with its own default number of partitions. That number is unknown here, so
    every partition of such a broker is accepted.
    """
    require_legal(tp.topic)
    broker, _ = broker_partition(tp.partition)
    name = KAFKA07_LOG.name(tp)
    if tp.partition < 0 or broker not in snapshot.brokers:
        known = first_of([str(each) for each in sorted(snapshot.brokers)], MOST_NAMED, "broker") or "none"
        raise UnknownTopicError(
            f"cannot write to {name} (partition {tp.partition}): broker {broker} is not registered in ZooKeeper, but "
            f"{known}. Start the broker, or correct the column 'partition': broker times 10000 plus partition"
        )
    info = snapshot.topics.get(tp.topic)
    theirs = [] if info is None else [p.partition for p in info.partitions if p.leader == broker]
    if theirs and tp.partition not in theirs:
        raise UnknownTopicError(
            f"cannot write to {name} (partition {tp.partition}): broker {broker} has "
            f"{counted(len(theirs), 'partition')} of the topic. Correct the column 'partition', or raise "
            "num.partitions in the broker's server.properties"
        )


def require_legal(topic: str) -> None:
    """Raise ProduceError for an invalid topic name. A broker of 0.7 closes the connection on such a name."""
    if not 0 < len(topic) <= _LONGEST_TOPIC or topic in {".", ".."} or _ILLEGAL.search(topic):
        raise ProduceError(
            f"cannot write to topic {topic[:_LONGEST_TOPIC]!r}: a broker of Kafka 0.7 cannot make a directory of that "
            f"name. Use at most {_LONGEST_TOPIC} characters, without / and control characters"
        )


# -- message sets ------------------------------------------------------------------------------------------------------


class EncodedSet(Protocol):
    """One encoded message set, to be sent in a PRODUCE."""

    @property
    def count(self) -> int:
        """The number of records."""

    @property
    def size(self) -> int:
        """Bytes as sent."""


S = TypeVar("S", bound=EncodedSet)


def message_sets07(
    sizes: Longs, compressed: bool, encode: Callable[[int, int], S], config: Kafka07Config
) -> Iterator[S]:
    """Divide the records of one partition into message sets, in their order, and yield them.

    `sizes` are the bytes of each record as an uncompressed message. `encode(start, stop)` encodes the records `[start,
    stop)`, as one message if `compressed`. A compressed set above `max_message_size` is halved until the parts fit.
    Raises RecordTooLargeError for a single record above the limit.
    """
    if not compressed and len(sizes) and int(sizes.max()) - _HEAD > config.max_message_size:
        raise _too_large(int(sizes.max()) - _HEAD, config)
    todo = list(_slices(sizes, config.batch_size))[::-1]
    while todo:
        start, stop = todo.pop()
        encoded = encode(start, stop)
        if not compressed or encoded.size - _HEAD <= config.max_message_size:
            yield encoded
        elif stop - start == 1:
            raise _too_large(encoded.size - _HEAD, config)
        else:
            middle = (start + stop) // 2
            todo += [(middle, stop), (start, middle)]


def _slices(sizes: Longs, most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of consecutive records of at most `most` bytes in total, or of one larger record."""
    ends = np.cumsum(sizes)
    start = begin = 0
    while start < len(sizes):
        stop = max(start + 1, int(np.searchsorted(ends, begin + most, "right")))
        yield start, stop
        start, begin = stop, int(ends[stop - 1])


def _too_large(size: int, config: Kafka07Config) -> RecordTooLargeError:
    return RecordTooLargeError(
        f"a record is a message of {size} bytes, and max.message.size is {config.max_message_size}. Brokers of Kafka "
        "0.7 drop larger messages without an error: raise max.message.size at all of them first, then "
        "kafka.max.request.size"
    )


# -- requests ----------------------------------------------------------------------------------------------------------


def produce_request(parts: Sequence[tuple[TopicPartition, Bytes]]) -> ProduceRequest07 | MultiProduceRequest07:
    """Return a PRODUCE for one message set, or a MULTIPRODUCE for several sets to one broker."""
    produces = tuple(ProduceRequest07(tp.topic, broker_partition(tp.partition)[1], data) for tp, data in parts)
    return produces[0] if len(produces) == 1 else MultiProduceRequest07(produces)


def fits(count: int, size: int, more: int, config: Kafka07Config) -> bool:
    """Return whether a set of `more` bytes still fits into a request that has `count` sets of `size` bytes."""
    return count == 0 or (count < _MOST_PARTS and size + more <= config.max_request_size)

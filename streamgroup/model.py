"""The frozen values that all rooms share. A leaf module: it imports only other leaf modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from streamgroup.logformat import KAFKA07_LOG, KAFKA_LOG, LogFormat
from streamgroup.text import MOST_NAMED, first_of, host_port

NO_LEADER = -1
UNKNOWN_EPOCH = -1
NO_TOPIC_ID = ""
"""The topic id of brokers before 2.8 (Metadata below v10), which have none."""

EARLIEST = -2
LATEST = -1
"""Kafka's numbers for the start and the end of a log, as in `{"orders": {"0": -2}}`."""


def is_another_topic(old: str, new: str) -> bool:
    """Return whether two topic ids are known and differ: the topic was deleted and created again (R8)."""
    return NO_TOPIC_ID not in (old, new) and old != new


class Dialect(Enum):
    """The protocol of a cluster."""

    KAFKA07 = "0.7"
    """Kafka 0.7: no correlation ids, no versions, offsets are byte positions, brokers and topics are in ZooKeeper."""
    KAFKA = "kafka"
    """Kafka 0.8 and everything after it."""

    @property
    def log_format(self) -> LogFormat:
        """The meaning of offsets and the names of partitions in the logs of such a cluster."""
        return _LOG_FORMATS[self]


_LOG_FORMATS = {Dialect.KAFKA07: KAFKA07_LOG, Dialect.KAFKA: KAFKA_LOG}


class TopicPartition(NamedTuple):
    """One partition of one topic; sorts by topic, then partition.

    A named tuple, since it is the key of nearly every map: hashing and comparing it takes a fraction of the time of a
    dataclass, whose `__hash__` and `__lt__` run in Python.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets `[start, until)` of one partition."""

    partition: TopicPartition
    start: int
    until: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.until:
            raise ValueError(f"invalid range of offsets of {self.partition}: [{self.start}, {self.until})")

    def __len__(self) -> int:
        return self.until - self.start

    def __str__(self) -> str:
        return f"{self.partition}[{self.start}, {self.until})"


def name_some(partitions: Iterable[TopicPartition], name: Callable[[TopicPartition], str] = str) -> str:
    """Return the names of a few of `partitions`, and how many more there are."""
    return first_of([name(tp) for tp in sorted(partitions)], MOST_NAMED, "partition")


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker and its address for clients."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{host_port(self.host, self.port)} (id {self.node_id})"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition in a Metadata response. `leader` is NO_LEADER during an election."""

    partition: int
    leader: int
    leader_epoch: int = UNKNOWN_EPOCH
    # Not compared: for a query, a replica that falls out of sync is not a change.
    replicas: tuple[int, ...] = field(default=(), compare=False)
    in_sync: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic in a Metadata response. `topic_id` is the text of a UUID, or NO_TOPIC_ID."""

    name: str
    partitions: tuple[PartitionInfo, ...]
    topic_id: str = NO_TOPIC_ID
    internal: bool = False
    _by_number: Mapping[int, PartitionInfo] | None = field(default=None, init=False, repr=False, compare=False)

    def partition(self, number: int) -> PartitionInfo | None:
        """Return partition `number`, or None if the topic does not have it."""
        if 0 <= number < len(self.partitions) and self.partitions[number].partition == number:
            return self.partitions[number]  # most topics number partitions from 0 without a gap
        by_number = self._by_number
        if by_number is None:  # Kafka 0.7 numbers by broker; callers repeat look-ups of deleted partitions
            by_number = {p.partition: p for p in self.partitions}
            object.__setattr__(self, "_by_number", by_number)  # other threads see the map only when it is complete
        return by_number.get(number)


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The cluster in one Metadata response. Topics that do not exist are absent."""

    brokers: Mapping[int, Broker]
    topics: Mapping[str, TopicInfo]
    cluster_id: str | None = None
    controller_id: int = -1
    dialect: Dialect = Dialect.KAFKA
    """The protocol of its brokers, which determines the format of its logs."""

    @property
    def log_format(self) -> LogFormat:
        """The meaning of offsets and the names of partitions in the cluster's logs."""
        return self.dialect.log_format

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        """Return partition `tp`, or None if it does not exist."""
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partition(tp.partition)

    def leader(self, tp: TopicPartition) -> Broker | None:
        """Return the leader of `tp`, or None if it has none at the moment."""
        info = self.partition(tp)
        return None if info is None else self.brokers.get(info.leader)


@dataclass(frozen=True, slots=True)
class ConfiguredOffsets:
    """The starting or ending offsets: for each partition the first of these that names it.

    `timestamp` (all partitions) over `timestamps` (per partition) over `offsets` (per partition, EARLIEST and LATEST
    allowed) over `default` (EARLIEST or LATEST).
    """

    default: int
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamps: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp: int | None = None
    no_match_is_latest: bool = False
    """True if a timestamp beyond the last record means the end of the log (`startingOffsetsByTimestampStrategy=latest`,
    and always for ending offsets); otherwise it is an error."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """The offsets that a log holds: `[earliest, latest)`; under read_committed `latest` is the last stable offset."""

    earliest: int
    latest: int
    segments: tuple[int, ...] = ()
    """Kafka 0.7: where the segments of the log start, ascending.

    Messages begin at these and at `latest`. Only walking the messages finds the boundaries between (R34)."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The commit of one partition in the group's offset store."""

    offset: int
    metadata: str = ""
    leader_epoch: int = UNKNOWN_EPOCH


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset to read of a partition, with the topic id and leader epoch that were current at that time."""

    offset: int
    topic_id: str = NO_TOPIC_ID
    leader_epoch: int = UNKNOWN_EPOCH


@dataclass(frozen=True, slots=True)
class Document:
    """An end document, which describes its batch completely: Spark replays it without any other state (R1).

    `lineage` is created with the first commit or document and copied to every later one. Each start of a coordinator
    creates a `run`. `sequence` grows by one with each document of a lineage. `ranges` are those of this batch.
    `positions` hold the position after this batch of every held partition. `coordinator/planning/document.py` writes
    the text.

    `is_founded` marks a document without ranges and positions. The query has started, but its subscription had no
    partitions yet. A later run then treats every partition as new (R7).
    """

    group: str
    lineage: str
    run: str
    sequence: int
    ranges: tuple[OffsetRange, ...] = ()
    positions: Mapping[TopicPartition, Position] = field(default_factory=dict)
    is_founded: bool = False


INITIAL_DOCUMENT = Document(group="", lineage="", run="", sequence=0)
"""The constant that every query starts from. It has no ranges, so Spark can replay batch 0 with it (R2)."""


@dataclass(frozen=True, slots=True)
class FetchRange:
    """One planned range with the data to fetch it, so that the task needs no metadata request."""

    range: OffsetRange
    leader: Broker | None
    topic_id: str = NO_TOPIC_ID
    leader_epoch: int = UNKNOWN_EPOCH


@dataclass(frozen=True, slots=True)
class FetchTask:
    """The ranges of one Spark task: one large range or several small ones.

    When a leader has moved, the task requests metadata from `brokers`, too, since the options may name only ZooKeeper.
    `releases` has, by `host:port`, the releases of leaders without ApiVersions that the coordinator has identified.
    """

    ranges: tuple[FetchRange, ...]
    dialect: Dialect = Dialect.KAFKA
    brokers: tuple[tuple[str, int], ...] = ()
    releases: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return sum(len(r.range) for r in self.ranges)


class GroupState:
    """The states of a group that streamgroup distinguishes, with the brokers' names. Brokers have others."""

    DEAD = "Dead"
    """It does not exist."""
    EMPTY = "Empty"
    """It has commits and no members."""
    STABLE = "Stable"
    """Only in this state brokers return the members' subscriptions and assignments."""
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    UNKNOWN = "Unknown"
    """The brokers list the group but do not describe it: it has another protocol."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list; protocol type and state are "" if the broker does not return them."""

    group_id: str
    protocol_type: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group, as brokers or ZooKeeper describe it.

    `topics`, `user_data` and `assigned` are empty while the group rebalances. If the member's protocol is not one of
    consumers, `assigned` is None, and `topics` and `user_data` are empty.
    """

    member_id: str
    client_id: str = ""
    host: str = ""
    instance_id: str | None = None
    topics: tuple[str, ...] = ()
    """Its subscription."""
    user_data: bytes = b""
    """Its data for the other members, such as its lineage (`group/user_data.py`)."""
    assigned: tuple[TopicPartition, ...] | None = ()
    """The partitions that it holds, sorted."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members; `strategy` is the assignor in use."""

    group_id: str
    state: str
    protocol_type: str = ""
    strategy: str = ""
    members: tuple[MemberDescription, ...] = ()

    @property
    def is_rebalancing(self) -> bool:
        """Whether the members join or wait for their assignments."""
        return self.state in {GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE}

    @property
    def member_count(self) -> int | None:
        """The number of members; None for a group with members that brokers do not describe."""
        is_known = bool(self.members) or self.state in {GroupState.EMPTY, GroupState.DEAD}
        return len(self.members) if is_known else None

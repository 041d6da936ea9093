"""The frozen values that all packages of streamgroup share. A leaf module: it imports only other leaf modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from streamgroup.frozen import frozen
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
    """The two protocols of brokers: Kafka 0.7, and Kafka 0.8 and later."""

    KAFKA07 = "0.7"
    """Kafka 0.7: no correlation ids, no versions, offsets are byte positions, brokers and topics are in ZooKeeper."""
    KAFKA = "kafka"
    """Kafka 0.8 and everything after it."""

    @property
    def log_format(self) -> LogFormat:
        """The log format of a cluster with this protocol: how it numbers offsets and names partitions."""
        return _LOG_FORMATS[self]


_LOG_FORMATS = {Dialect.KAFKA07: KAFKA07_LOG, Dialect.KAFKA: KAFKA_LOG}


class TopicPartition(NamedTuple):
    """One partition of one topic. Sorts by topic, then partition.

    It is a named tuple because it is the key of nearly every map. A dataclass takes several times as long to hash and
    compare, because its `__hash__` and `__lt__` run in Python.
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
    """Return the names of a few of `partitions`, and how many more there are, for messages."""
    return first_of([name(tp) for tp in sorted(partitions)], MOST_NAMED, "partition")


@frozen
class Broker:
    """A broker's id, and the host and port at which clients connect to it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{host_port(self.host, self.port)} (id {self.node_id})"


@frozen
class PartitionInfo:
    """One partition in a Metadata response. `leader` is NO_LEADER during an election."""

    partition: int
    leader: int
    leader_epoch: int = UNKNOWN_EPOCH
    # Not compared: for a query, a replica that falls out of sync is not a change.
    replicas: tuple[int, ...] = field(default=(), compare=False)
    in_sync: tuple[int, ...] = field(default=(), compare=False)


@frozen
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


@frozen
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
        """The log format of the cluster: how it numbers offsets and names partitions."""
        return self.dialect.log_format

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        """Return partition `tp`, or None if it does not exist."""
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partition(tp.partition)

    def leader(self, tp: TopicPartition) -> Broker | None:
        """Return the leader of `tp`, or None if it has none at the moment."""
        info = self.partition(tp)
        return None if info is None else self.brokers.get(info.leader)


@frozen
class ConfiguredOffsets:
    """The starting or ending offsets of a query, from its options.

    For each partition the first of these that contains it applies: `timestamp` (for all partitions), `timestamps` (per
    partition), `offsets` (per partition, EARLIEST and LATEST allowed), `default` (EARLIEST or LATEST).
    """

    default: int
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamps: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp: int | None = None
    no_match_is_latest: bool = False
    """True if a timestamp beyond the last record means the end of the log (`startingOffsetsByTimestampStrategy=latest`,
    and always for ending offsets); otherwise it is an error."""


@frozen
class LogRange:
    """The offsets that a log holds: `[earliest, latest)`; under read_committed `latest` is the last stable offset."""

    earliest: int
    latest: int
    segments: tuple[int, ...] = ()
    """Kafka 0.7: where the segments of the log start, ascending.

    Messages begin at these and at `latest`. Only walking the messages finds the boundaries between (R34)."""


@frozen
class CommittedOffset:
    """The committed offset of one partition, as the group's offset store has it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = UNKNOWN_EPOCH


@frozen
class Position:
    """The next offset to read of a partition, with the topic id and the leader epoch at the time it was computed."""

    offset: int
    topic_id: str = NO_TOPIC_ID
    leader_epoch: int = UNKNOWN_EPOCH


@frozen
class Document:
    """The JSON that Spark stores in its checkpoint as the end offset of one batch.

    A document describes its batch completely: Spark replays the batch without any other state (R1). `lineage`
    identifies the checkpoint: it is created with the first commit or document and copied to every later one. `run`
    identifies the start of the coordinator process. `sequence` grows by one with each document of a lineage. `ranges`
    are the offsets that this batch reads. `positions` has, for every partition that the query owns, the next offset
    after this batch. `coordinator/planning/document.py` writes the JSON.

    `is_founded` marks a document without ranges and positions: the query has started, but its subscription had no
    partitions yet. After a restart every partition is then treated as new (R7).
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


@frozen
class FetchRange:
    """A range of offsets that a task reads, with the leader, so that the task needs no metadata request."""

    range: OffsetRange
    leader: Broker | None
    topic_id: str = NO_TOPIC_ID
    leader_epoch: int = UNKNOWN_EPOCH


@frozen
class FetchTask:
    """The ranges of offsets that one Spark task reads: one large range or several small ones.

    `brokers` are the brokers to request metadata from if a leader has moved, in addition to those of the options, which
    may name only ZooKeeper. `releases` has, by `host:port`, the releases of leaders without ApiVersions that the
    coordinator process has identified.
    """

    ranges: tuple[FetchRange, ...]
    dialect: Dialect = Dialect.KAFKA
    brokers: tuple[tuple[str, int], ...] = ()
    releases: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return sum(len(r.range) for r in self.ranges)


class GroupState:
    """The states of a consumer group that streamgroup distinguishes, with the names in Kafka's responses.

    Brokers have further states.
    """

    DEAD = "Dead"
    """It does not exist."""
    EMPTY = "Empty"
    """It has commits and no members."""
    STABLE = "Stable"
    """Only in this state brokers return the members' subscriptions and assignments."""
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    """KIP-848: in these two states, too, brokers return everything of the members."""
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    UNKNOWN = "Unknown"
    """The brokers list the group but do not describe it: it has another protocol."""


@frozen
class GroupListing:
    """One group in the result of ListGroups. Protocol type and state are "" if the broker does not return them."""

    group_id: str
    protocol_type: str = ""
    state: str = ""
    kind: str = ""
    """`classic`, `consumer` (KIP-848), `share` or `streams`; "" if the broker does not return it."""


@frozen
class MemberDescription:
    """A member of a group, as brokers or ZooKeeper describe it.

    `topics`, `user_data` and `assigned` are empty while the group rebalances. For a member of another protocol than the
    consumer protocol, `assigned` is None, and `topics` and `user_data` are empty.
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
    hides_user_data: bool = False
    """Whether it is a member of the classic protocol in a group of KIP-848: brokers do not return its user data."""
    epoch: int | None = None
    """Its epoch in a group of KIP-848."""
    target: tuple[TopicPartition, ...] | None = None
    """The partitions that it will hold in a group of KIP-848, sorted."""
    registered_at: int | None = None
    """The zxid of its registration in ZooKeeper, which orders the members; None in a group of Kafka."""


@frozen
class GroupDescription:
    """The state and the members of a group. `strategy` is the name of the assignor that the group uses."""

    group_id: str
    state: str
    protocol_type: str = ""
    strategy: str = ""
    members: tuple[MemberDescription, ...] = ()
    epoch: int | None = None
    """The epoch of a group of KIP-848. The group moves partitions while a member has another one."""

    @property
    def shows_members(self) -> bool:
        """Whether the description has the subscriptions and the assignments of the members."""
        return self.state in {GroupState.STABLE, GroupState.ASSIGNING, GroupState.RECONCILING}

    @property
    def is_rebalancing(self) -> bool:
        """Whether members are joining the group or waiting for their assignments."""
        return self.state in {GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE}

    @property
    def other_kind(self) -> str:
        """`share` or `streams`; "" for a group of consumers."""
        return self.protocol_type if self.protocol_type in {"share", "streams"} else ""

    @property
    def moving(self) -> dict[TopicPartition, MemberDescription]:
        """By partition, the member that a group of KIP-848 assigns it to, if another member or none holds it yet."""
        holders = {tp: member.member_id for member in self.members for tp in member.assigned or ()}
        targets = ((tp, member) for member in self.members for tp in member.target or ())
        return {tp: member for tp, member in targets if holders.get(tp) != member.member_id}

    @property
    def member_count(self) -> int | None:
        """The number of members; None if brokers do not describe the group's members."""
        is_known = bool(self.members) or self.state in {GroupState.EMPTY, GroupState.DEAD}
        return len(self.members) if is_known else None

"""What the options mean once parsed: frozen values, each room takes the one that concerns it.

All times are milliseconds, all sizes bytes. Kafka's names, Kafka's defaults; where ours differs, the reason stands
beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from streamgroup.model import OffsetSpec, TopicPartition
from streamgroup.options.secrets import Secret
from streamgroup.remediation import OffsetLocation, StoredIn


@dataclass(frozen=True, slots=True)
class ZooKeeperOptions:
    """How the ZooKeeper is reached where old brokers and consumers register; times as in the consumers of that time."""

    servers: tuple[tuple[str, int], ...]
    chroot: str = ""
    """`/kafka` of `zk1:2181,zk2:2181/kafka`; empty without one."""
    session_timeout_ms: int = 6_000
    connection_timeout_ms: int = 6_000
    username: str = ""
    password: Secret | None = None
    """Digest authentication, where `username` is given."""
    creator_only: bool = False
    """Whether the nodes made here may be written by this user alone (everybody may read them)."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How brokers are reached."""

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str = "streamgroup"
    security_protocol: str = "PLAINTEXT"
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    connection_setup_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    # -1 leaves the size to the system, which grows it with the traffic; Java's 64 and 128 KiB would hold it down.
    receive_buffer_bytes: int = -1
    send_buffer_bytes: int = -1
    max_frame_bytes: int = 100 * 1024 * 1024
    zookeeper: ZooKeeperOptions | None = None
    """Where brokers and groups are registered, before Kafka 0.9; `bootstrap_servers` may be empty then."""


class Isolation(Enum):
    """`isolation.level`; the value is the number on the wire."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """How executors fetch and decode. A task holds at most `prefetch` + 1 answers of `max_partition_bytes`."""

    isolation: Isolation = Isolation.READ_UNCOMMITTED
    min_bytes: int = 1
    max_wait_ms: int = 500
    max_bytes: int = 50 * 1024 * 1024
    max_partition_bytes: int = 4 * 1024 * 1024
    """Kafka's is 1 MiB. A task reads few partitions: with 4 MiB it takes a quarter of the round trips and a third less
    CPU time per record; beyond, an answer no longer fits into the socket's buffer while the last one is decoded."""
    check_crcs: bool = True
    include_headers: bool = False
    include_inner_index: bool = False
    """Kafka 0.7: the column `inner`, which tells apart the messages of one compressed wrapper."""
    poll_timeout_ms: int = 120_000
    prefetch: int = 1
    max_decompressed_bytes: int = 256 * 1024 * 1024


class Mode(Enum):
    """`group.mode`: how a stream stands to its group. The value is the word that users write."""

    MEMBER = "member"
    """A member of the group, which shares the partitions with the others."""
    COMMIT = "commit"
    """Reads all partitions without joining, and commits while the group has no members."""
    OFF = "off"
    """As Spark's own source: reads all partitions, and no group knows of it."""


class OffsetsStorage(Enum):
    """`kafka.offsets.storage`: where the commits of a group lie whose brokers have no group protocol (0.8)."""

    ZOOKEEPER = "zookeeper"
    KAFKA = "kafka"
    """0.8.2 and later, without any fence (R35)."""


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """How a stream takes part in its group; `group_id` is empty only where `mode` is OFF."""

    group_id: str = ""
    mode: Mode = Mode.MEMBER
    member: str = ""
    """Tells the members of one group in one application apart (R28)."""
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    strategies: tuple[str, ...] = ("streamgroup-range", "range", "roundrobin")
    join_timeout_ms: int = 60_000
    rebalance_wait_ms: int = 30_000
    max_silence_ms: int | None = None
    """R27: a driver that has called nothing for so long is taken for hung; None: never."""
    offsets_storage: OffsetsStorage | None = None
    """None: ZooKeeper where the group is registered there, else the brokers."""
    dual_commit: bool = False
    """With `offsets_storage` KAFKA: commit to ZooKeeper as well, and start at the larger of both (a migration)."""

    @property
    def is_member(self) -> bool:
        """Whether the stream joins its group, whose other members share the partitions."""
        return self.mode is Mode.MEMBER

    @property
    def offset_location(self) -> OffsetLocation:
        """Where the group's offsets are kept; it tells no secret and no address, and travels to the executors."""
        alone = self.mode is Mode.COMMIT
        if self.offsets_storage is OffsetsStorage.ZOOKEEPER:
            return OffsetLocation(self.group_id, StoredIn.ZOOKEEPER)
        if self.dual_commit and not alone:
            return OffsetLocation(self.group_id, StoredIn.BOTH)
        unknown = alone and self.offsets_storage is None
        return OffsetLocation(self.group_id, StoredIn.BROKERS if unknown else StoredIn.KAFKA)


@dataclass(frozen=True, slots=True)
class Subscription:
    """Exactly one of the three."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assign: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """How many offsets one micro-batch takes. The default sets no limit."""

    max_offsets_per_trigger: int | None = None
    """The most offsets that all partitions of the batch take together. None means no maximum."""
    min_offsets_per_trigger: int | None = None
    """The planner delays a batch until this many offsets are available. None means no minimum."""
    max_trigger_delay_ms: int = 900_000
    """Milliseconds since the batch before, after which `min_offsets_per_trigger` no longer delays a batch."""


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """How the driver splits the offset ranges of a batch into Spark tasks."""

    min_partitions: int | None = None
    """The fewest tasks of a batch. None sets no minimum."""
    max_records_per_partition: int | None = None
    """The most offsets that one task reads. None sets no maximum."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options of one read. `group` is None for a batch read, `ending` is None for a stream.

    `notes` are sentences to say once in the log: what was given and is without effect.
    """

    client: ClientOptions
    subscription: Subscription
    starting: OffsetSpec
    ending: OffsetSpec | None
    fetch: FetchOptions
    limits: LimitOptions
    split: SplitOptions
    group: GroupOptions | None
    fail_on_data_loss: bool = True
    fetch_offset_retries: int = 3
    fetch_offset_retry_interval_ms: int = 1_000
    notes: tuple[str, ...] = ()

"""The parsed options as frozen values.

Times are in milliseconds and sizes in bytes. Names and defaults are Kafka's; a comment gives the reason for any other
default.
"""

from __future__ import annotations

from enum import Enum
from math import inf

from streamgroup.advice import OffsetLocation, StoredIn
from streamgroup.frozen import frozen
from streamgroup.model import ConfiguredOffsets, TopicPartition
from streamgroup.options.sasl import SaslOptions
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import TlsOptions


@frozen
class ZooKeeperOptions:
    """How to connect to the ZooKeeper where old brokers and consumers register. The defaults are the old consumers'."""

    servers: tuple[tuple[str, int], ...]
    chroot: str = ""
    """`/kafka` for `zk1:2181,zk2:2181/kafka`; empty without a chroot."""
    session_timeout_ms: int = 6_000
    connection_timeout_ms: int = 6_000
    tls: TlsOptions | None = None
    """How to secure the connections; None without TLS."""
    username: str = ""
    password: Secret | None = None
    """The password of `username`."""
    sasl_mechanism: str = ""
    """The SASL mechanism of `username`: DIGEST-MD5; empty for ZooKeeper's scheme digest."""
    creator_only: bool = False
    """Whether only this user may write the nodes that a member creates. All users may read them."""


@frozen
class ClientOptions:
    """How to connect to the brokers."""

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str = "streamgroup"
    security_protocol: str = "PLAINTEXT"
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    connection_setup_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    # Java's is 540,000. Azure's load balancers silently drop a connection that was idle for 240 s.
    connections_max_idle_ms: int = 180_000
    # -1 leaves the size to the operating system, which grows it with the traffic. Java's 64 and 128 KiB would cap it.
    receive_buffer_bytes: int = -1
    send_buffer_bytes: int = -1
    max_frame_bytes: int = 100 * 1024 * 1024
    tls: TlsOptions | None = None
    """How to secure the connections; None if `security_protocol` has no TLS."""
    sasl: SaslOptions | None = None
    """How to authenticate to the brokers; None if `security_protocol` has no SASL."""
    zookeeper: ZooKeeperOptions | None = None
    """Where brokers and groups register before Kafka 0.9. `bootstrap_servers` may be empty if it is set."""

    @property
    def max_idle_s(self) -> float:
        """Seconds after which an idle connection is not used any more; infinity if it always is."""
        return inf if self.connections_max_idle_ms < 0 else self.connections_max_idle_ms / 1000


class Isolation(Enum):
    """`isolation.level`. The value is the number in the protocol."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@frozen
class FetchOptions:
    """How tasks fetch and decode. A task holds at most `prefetch` + 1 responses of `max_partition_bytes` each."""

    isolation: Isolation = Isolation.READ_UNCOMMITTED
    min_bytes: int = 1
    max_wait_ms: int = 500
    max_bytes: int = 50 * 1024 * 1024
    max_partition_bytes: int = 4 * 1024 * 1024
    """Kafka's default is 1 MiB. A task reads few partitions, so 4 MiB save three quarters of the round trips and a
    third of the CPU time per record. A larger response would not fit into the socket's receive buffer while the task
    decodes the one before."""
    check_crcs: bool = True
    include_headers: bool = False
    include_inner_index: bool = False
    """Kafka 0.7: whether to add the column `inner`, the index of a message within its compressed set."""
    include_damaged_batches: bool = False
    """Whether a damaged batch becomes a row with its bytes and a reason in the column `damage`."""
    timestamps_in_ms: bool = False
    """Whether the column `timestamp` has Kafka's milliseconds as a long. `streamgroup consume` sets it, no option."""
    poll_timeout_ms: int | None = None
    """None stands for the network timeout of the Spark application, which only tasks can look up."""
    rack: str = ""
    """`kafka.client.rack`: where the tasks run. Leaders may name a follower there to fetch from (KIP-392)."""
    prefetch: int = 1
    max_decompressed_bytes: int = 256 * 1024 * 1024

    @property
    def poll_timeout_s(self) -> float:
        """Return the seconds to wait for records: 120, Spark's default, if neither an option nor a task sets them."""
        return 120.0 if self.poll_timeout_ms is None else self.poll_timeout_ms / 1000


class GroupMode(Enum):
    """`group.mode`: how a stream uses its group. The value is the word that users write."""

    MEMBER = "member"
    """The stream joins the group and shares the partitions with the other members."""
    COMMIT = "commit"
    """The stream reads all partitions without joining, and commits while the group has no members."""
    OFF = "off"
    """The stream reads all partitions and commits nothing, like Spark's own Kafka source."""


class GroupProtocol(Enum):
    """`kafka.group.protocol`: the protocol between the members of a group and its coordinator."""

    CLASSIC = "classic"
    """JoinGroup and SyncGroup: a member assigns the partitions."""
    CONSUMER = "consumer"
    """KIP-848, since Kafka 4.0: the group coordinator assigns them."""
    AUTO = "auto"
    """The consumer protocol if the group coordinator accepts it, else the classic one."""


class OffsetsStorage(Enum):
    """`kafka.offsets.storage`: where a group commits whose brokers have no group protocol (0.8)."""

    ZOOKEEPER = "zookeeper"
    KAFKA = "kafka"
    """The brokers, from 0.8.2. They do not check the generation of a commit, so they do not fence a member (R35)."""


WEIGHT_OF_CORES = 0
"""The value of `group.member.weight=auto`."""


@frozen
class GroupOptions:
    """How a stream uses its group. `group_id` is empty only if `mode` is OFF."""

    group_id: str = ""
    mode: GroupMode = GroupMode.MEMBER
    member: str = ""
    """The name that distinguishes members of one group in one Spark application (R28)."""
    weight: int = 1
    """This member's share of the partitions, relative to the other members; `WEIGHT_OF_CORES` until the coordinator has
    read the number of cores."""
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    strategies: tuple[str, ...] = ("streamgroup-range", "range", "roundrobin")
    protocol: GroupProtocol = GroupProtocol.CLASSIC
    remote_assignor: str | None = None
    """The group coordinator's assignor under the consumer protocol. None: its default."""
    join_timeout_ms: int = 60_000
    rebalance_wait_ms: int = 30_000
    max_silence_ms: int | None = None
    """Milliseconds without a call of Spark after which the member leaves, because the driver counts as hung (R27). None
    means never."""
    offsets_storage: OffsetsStorage | None = None
    """None means ZooKeeper if the group is registered there, else the brokers."""
    dual_commit: bool = False
    """With `offsets_storage` KAFKA: whether to commit to ZooKeeper too, and to start at the larger of both offsets."""
    store_url: str = ""
    """The URL of the database that has the offset table, without a password. Empty: the group stores the offsets."""
    store_user: str | None = None
    store_password: Secret | None = None
    in_transaction: bool = False
    """Whether the sink's transactions of Kafka commit the offsets (R38)."""
    transactional_id: str = ""
    """The transactional id of the sink. Empty: one of the group and the checkpoint."""
    transaction_timeout_ms: int = 600_000

    @property
    def is_member(self) -> bool:
        """Return whether the stream joins its group and shares the partitions."""
        return self.mode is GroupMode.MEMBER

    @property
    def offset_location(self) -> OffsetLocation:
        """Return where the group's offsets are stored. The driver sends it to tasks, so it holds no secret."""
        if self.store_url:
            return OffsetLocation(self.group_id, StoredIn.TABLE)
        alone = self.mode is GroupMode.COMMIT
        if self.offsets_storage is OffsetsStorage.ZOOKEEPER:
            return OffsetLocation(self.group_id, StoredIn.ZOOKEEPER)
        if self.dual_commit and not alone:
            return OffsetLocation(self.group_id, StoredIn.BOTH)
        unknown = alone and self.offsets_storage is None
        return OffsetLocation(self.group_id, StoredIn.BROKERS if unknown else StoredIn.KAFKA)


@frozen
class Subscription:
    """The topics or partitions to read: exactly one of the three fields is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assign: tuple[TopicPartition, ...] = ()

    def __str__(self) -> str:
        """Return the words of Spark's own source: `Subscribe[orders, payments]`, `SubscribePattern[…]`, `Assign[…]`."""
        if self.pattern is not None:
            return f"SubscribePattern[{self.pattern}]"
        if self.assign:
            return f"Assign[{', '.join(map(str, self.assign))}]"
        return f"Subscribe[{', '.join(self.topics)}]"


@frozen
class LimitOptions:
    """How many offsets and bytes one micro-batch takes. The default sets no limit."""

    max_offsets_per_trigger: int | None = None
    """The most offsets that all partitions of the batch take together. None means no maximum."""
    min_offsets_per_trigger: int | None = None
    """The planner delays a batch until this many offsets are available. None means no minimum."""
    max_trigger_delay_ms: int = 900_000
    """Milliseconds since the batch before, after which `min_offsets_per_trigger` no longer delays a batch."""
    max_bytes_per_trigger: int | None = None
    """The most bytes that all partitions of the batch take together, by estimate. None means no maximum."""
    is_strict: bool = False
    """Whether a batch never takes more than `max_offsets_per_trigger`, even if some partitions then take nothing."""
    max_offsets_per_second: int | None = None
    """The most offsets per second of all batches together. None means no maximum."""
    max_bytes_per_second: int | None = None
    """The most bytes per second of all batches together, by estimate. None means no maximum."""
    target_batch_duration_ms: int | None = None
    """The target duration of a batch: the planner adapts its size. None disables this."""
    is_spent: bool = False
    """Whether nothing may be planned now, because earlier batches have used up what the rates allow."""


@frozen
class SplitOptions:
    """How the driver splits the offset ranges of a batch into Spark tasks."""

    min_partitions: int | None = None
    """The fewest tasks of a batch. None sets no minimum."""
    max_records_per_partition: int | None = None
    """The most offsets that one task reads. None sets no maximum."""


@frozen
class ProducerOptions:
    """How tasks write. Names and defaults are the same as in Kafka's producer 4.3."""

    acks: int = -1
    """The acknowledgements to wait for: -1 of all in-sync replicas, 1 of the leader, 0 none."""
    enable_idempotence: bool = True
    """Whether a broker that can (0.11 and later) drops repeated batches. Requires `acks` -1."""
    require_idempotence: bool = False
    """Whether a broker that cannot fails the write, because the user has asked for idempotence."""
    batch_size: int = 524_288
    linger_ms: int = 5
    compression: str = "none"
    compression_level: int | None = None
    """The level of `compression`. None means the codec's default."""
    buffer_memory: int = 32 * 1024 * 1024
    max_request_size: int = 1024 * 1024
    max_message_size: int = 1_000_000
    """Kafka 0.7: the most bytes of one message. It is `max_request_size` where that is set. The default is that of the
    brokers, which drop larger messages without a sign."""
    max_in_flight: int = 5
    """The most unanswered requests of one connection."""
    retries: int = 2**31 - 1
    delivery_timeout_ms: int = 120_000
    max_block_ms: int = 60_000
    metadata_max_idle_ms: int = 300_000
    partitioner: str = "default"
    """The name of a partitioner in `streamgroup.kafka.producer.partitioners`."""
    ignore_keys: bool = False
    adaptive_partitioning: bool = True


@frozen
class SinkOptions:
    """All options of one write. Batch writes and streams have the same."""

    client: ClientOptions
    producer: ProducerOptions
    topic: str | None = None
    """The topic of all records. None means that the column `topic` names it."""
    include_timestamp: bool = False
    """Whether the column `timestamp` is the records' timestamp."""
    verify: bool = False
    """Kafka 0.7: whether a task reads the logs back until it has found the records that it has written."""
    verify_wait_ms: int = 10_000
    """Kafka 0.7: how long `verify` waits for the flush of messages that a broker has read."""
    notes: tuple[str, ...] = ()
    """Sentences that the driver logs once, such as which options are ignored."""


@frozen
class SourceOptions:
    """All options of one read. `group` is None for a batch read, and `ending` is None for a stream."""

    client: ClientOptions
    subscription: Subscription
    starting: ConfiguredOffsets
    ending: ConfiguredOffsets | None
    fetch: FetchOptions
    limits: LimitOptions
    split: SplitOptions
    group: GroupOptions | None
    fail_on_data_loss: bool = True
    fetch_offset_retries: int = 3
    fetch_offset_retry_interval_ms: int = 1_000
    partition_metadata_cache_ttl_ms: int = -1
    """Longest time between two refreshes of the metadata of a stream; -1 leaves it to the schedule."""
    notes: tuple[str, ...] = ()
    """Sentences that the driver logs once, such as which options are ignored."""

    @property
    def description(self) -> str:
        """Return the source for people: `streamgroup[Subscribe[orders], group=orders-ingest, mode=member]`."""
        words = [str(self.subscription)]
        if self.group is not None:
            words += [f"group={self.group.group_id}"] if self.group.group_id else []
            words += [f"mode={self.group.mode.value}"]
        return f"streamgroup[{', '.join(words)}]"

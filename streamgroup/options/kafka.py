"""The table of Kafka's properties as `kafka.*`: every property of the Java consumer and of the Java producer.

A used property has Java's name and Java's default, unless `types` gives a reason for another default. An ignored
property is named once in the log. A refused property would break what Spark or streamgroup guarantees.
"""

from __future__ import annotations

from streamgroup.options import kinds
from streamgroup.options.client import CLIENT, CLIENT_IGNORED, CLIENT_REFUSED, JAVA
from streamgroup.options.foreign_names import COMMITS_FOLLOW_THE_SINK, OLD_CONSUMERS, OLD_PRODUCERS, STARTS_AND_LOSS
from streamgroup.options.rows import FOR_PRODUCERS, Option, Scope, ignored, refused, used

_OPERATIONS = (
    used(
        "default.api.timeout.ms",
        "Milliseconds that one operation on the cluster, such as a lookup of offsets, may take with all its retries.",
        kinds.POSITIVE,
        "client.default_api_timeout_ms",
    ),
)

_FETCH = (
    used(
        "isolation.level",
        "`read_committed` leaves out records of aborted transactions, and waits at open ones. `read_uncommitted` reads "
        "all records.",
        kinds.ISOLATION,
        "fetch.isolation",
        default_text="`read_uncommitted`; `read_committed` with `offsets.store=transaction`",
    ),
    used(
        "fetch.min.bytes",
        "Bytes that a broker collects before it answers a fetch request.",
        kinds.integer(0),
        "fetch.min_bytes",
    ),
    used(
        "fetch.max.wait.ms",
        "The longest time that a broker waits for `kafka.fetch.min.bytes`, in milliseconds. Must be below "
        "`kafka.request.timeout.ms`.",
        kinds.integer(0),
        "fetch.max_wait_ms",
    ),
    used("fetch.max.bytes", "The most bytes in one fetch response.", kinds.POSITIVE, "fetch.max_bytes"),
    used(
        "max.partition.fetch.bytes",
        "The most bytes of one partition in a fetch response. With `group.prefetch` it bounds the memory of a task. "
        "Decrease it if executors run out of memory.",
        kinds.POSITIVE,
        "fetch.max_partition_bytes",
    ),
    used(
        "client.rack",
        "Rack or availability zone of the executors, as in the brokers' `broker.rack`. Tasks then fetch from the "
        "replica that the leader names for this rack, if the brokers have a `replica.selector.class` (Kafka 2.4 and "
        "later). When that replica fails or lags, they fetch from the leader for `kafka.metadata.max.age.ms`.",
        kinds.RACK,
        "fetch.rack",
    ),
    used("check.crcs", "Whether tasks verify the checksums of record batches.", kinds.BOOLEAN, "fetch.check_crcs"),
)

_GROUP = (
    used(
        "group.id",
        "Name of the consumer group. `group.mode` sets how the stream uses it.",
        kinds.TEXT,
        "group.group_id",
        scope=Scope.GROUP,
    ),
    used(
        "transactional.id",
        "With `offsets.store=transaction`: the transactional id under which the sink writes. Each query needs its own, "
        "and keeps it when it is started again.",
        kinds.TEXT,
        "group.transactional_id",
        default_text="`streamgroup-`, the group, and the id of the checkpoint",
        scope=Scope.MEMBER,
    ),
    used(
        "transaction.timeout.ms",
        "With `offsets.store=transaction`: milliseconds after which the brokers abort a transaction, so that a driver "
        "that is gone does not hold up consumers of `read_committed`. It must be longer than a batch takes, and at "
        "most `transaction.max.timeout.ms` of the brokers.",
        kinds.POSITIVE,
        "group.transaction_timeout_ms",
        scope=Scope.MEMBER,
    ),
    used(
        "group.instance.id",
        "Name of a static member, which keeps its partitions if it rejoins within `kafka.session.timeout.ms`. Each "
        "member needs its own. With `kafka.group.protocol=consumer` the successor of a killed process waits for its "
        "session to expire.",
        kinds.TEXT,
        "group.instance_id",
        scope=Scope.MEMBER,
    ),
    used(
        "session.timeout.ms",
        "Milliseconds without a heartbeat after which the coordinator moves a member's partitions to other members. "
        "With `kafka.group.protocol=consumer` that is the broker's `group.consumer.session.timeout.ms`: set the same "
        "value here.",
        kinds.POSITIVE,
        "group.session_timeout_ms",
        scope=Scope.MEMBER,
    ),
    used(
        "heartbeat.interval.ms",
        "Milliseconds between two heartbeats of a member. Must be below `kafka.session.timeout.ms`. Not with "
        "`kafka.group.protocol=consumer`, where the broker sets it.",
        kinds.POSITIVE,
        "group.heartbeat_interval_ms",
        scope=Scope.MEMBER,
    ),
    used(
        "max.poll.interval.ms",
        "Milliseconds that a rebalance, or with `kafka.group.protocol=consumer` the new owner of a revoked partition, "
        "waits for a member to finish its batch. Increase it if batches take longer.",
        kinds.POSITIVE,
        "group.max_poll_interval_ms",
        scope=Scope.MEMBER,
    ),
    used(
        "partition.assignment.strategy",
        "Assignors that the member supports, the preferred one first: `streamgroup-range`, `range`, `roundrobin`, "
        "`cooperative-sticky`. Java's class names work for all but the first. The group uses one that all members "
        "support. With `cooperative-sticky` alone, batches continue during a rebalance. Not with "
        "`kafka.group.protocol=consumer`: see `kafka.group.remote.assignor`.",
        kinds.STRATEGIES,
        "group.strategies",
        scope=Scope.MEMBER,
    ),
    used(
        "offsets.storage",
        "Where a group that is registered in ZooKeeper commits its offsets: in ZooKeeper, or at the brokers (0.8.2 and "
        "later). For such a group the brokers do not check the generation of a commit.",
        kinds.STORAGE,
        "group.offsets_storage",
        default_text="`zookeeper` with `zookeeper.connect`, else the brokers",
        scope=Scope.GROUP,
    ),
    used(
        "dual.commit.enabled",
        "With `kafka.offsets.storage=kafka`, also commits to ZooKeeper, and starts at the larger of both offsets. Set "
        "`false` once no consumer reads offsets from ZooKeeper.",
        kinds.BOOLEAN,
        "group.dual_commit",
        default_text="`true` with `kafka.offsets.storage=kafka`",
        scope=Scope.GROUP,
    ),
    used(
        "group.protocol",
        "Protocol of the group: `classic`, `consumer` (KIP-848, Kafka 4.0 or later: the group coordinator assigns the "
        "partitions, and no member waits for another one) or `auto` (`consumer` if the group coordinator accepts it).",
        kinds.PROTOCOL,
        "group.protocol",
        default_text="`classic`",
        scope=Scope.MEMBER,
    ),
    used(
        "group.remote.assignor",
        "With `kafka.group.protocol=consumer`: assignor of the group coordinator, `uniform` or `range`. The group uses "
        "the one that most members name.",
        kinds.TEXT,
        "group.remote_assignor",
        default_text="the first of the broker's `group.consumer.assignors`",
        scope=Scope.MEMBER,
    ),
)

_REFUSED = (
    refused("auto.offset.reset", STARTS_AND_LOSS),
    refused("key.deserializer", "keys arrive as bytes. Cast or decode the column 'key' in the query"),
    refused("value.deserializer", "values arrive as bytes. Cast or decode the column 'value' in the query"),
    refused("enable.auto.commit", f"{COMMITS_FOLLOW_THE_SINK}. Leave the option out"),
)

_IGNORED = (
    *ignored("allow.auto.create.topics", "a source never creates topics"),
    *ignored("auto.commit.interval.ms", COMMITS_FOLLOW_THE_SINK),
    *ignored("exclude.internal.topics", "a pattern never matches internal topics"),
    *ignored("max.poll.records", "tasks do not poll; 'maxRecordsPerPartition' limits a task"),
    *ignored("internal.leave.group.on.close internal.throw.on.fetch.stable.offset.unsupported", JAVA),
    *ignored("share.acknowledgement.mode share.acquire.mode", "the property is for share groups"),
    *ignored(
        "acks batch.size buffer.memory compression.gzip.level compression.lz4.level compression.type "
        "compression.zstd.level delivery.timeout.ms enable.idempotence key.serializer linger.ms max.block.ms "
        "max.in.flight.requests.per.connection max.request.size metadata.max.idle.ms "
        "partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class "
        "partitioner.ignore.keys retries transaction.two.phase.commit.enable value.serializer",
        FOR_PRODUCERS,
    ),
)

_OF_CONSUMERS = (
    *CLIENT,
    *_OPERATIONS,
    *_FETCH,
    *_GROUP,
    *_REFUSED,
    *CLIENT_REFUSED,
    *_IGNORED,
    *CLIENT_IGNORED,
    *OLD_CONSUMERS,
)
_KNOWN = {option.name for option in _OF_CONSUMERS}

KAFKA: tuple[Option, ...] = (
    *_OF_CONSUMERS,
    *(Option(row.name, scope=Scope.NONE, why=FOR_PRODUCERS) for row in OLD_PRODUCERS if row.name not in _KNOWN),
)

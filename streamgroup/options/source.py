"""The table of Spark's options and of streamgroup's own (`group.*`); `streamgroup.options.kafka` has Kafka's.

Names, meanings and defaults are those of Spark's Kafka source.
"""

from __future__ import annotations

from streamgroup.options import kinds
from streamgroup.options.client import TOKEN_ROW
from streamgroup.options.foreign_names import LIBRDKAFKA_HINTS
from streamgroup.options.rows import Effect, Option, Scope
from streamgroup.options.sasl import TOKEN_MANAGER_HINTS

_ENDLESS = "a stream has no end. Remove the option, or use it in a batch read"
_ALL_AT_ONCE = "a batch read takes the whole backlog at once"

STRICT_ROW = Option(
    "strict",
    "`true` fails the query for every unknown option. `false` fails it for misspelled ones only. The log warns of the "
    "others, which have no effect. Set `true` if no other code adds options.",
    kinds.BOOLEAN,
    default_text="`false`; in job files `true`",
)

SPARK: tuple[Option, ...] = (
    Option(
        "subscribe",
        "Topics to read, separated by commas. Set exactly one of `subscribe`, `subscribePattern` and `assign`.",
        kinds.TOPICS,
    ),
    Option(
        "subscribePattern",
        "Regular expression in Java's syntax. The query reads each topic with a match anywhere in its name: `orders` "
        "finds `my-orders`, too, and `^orders$` does not. Internal topics never match. A stream "
        "finds new topics within 5 s (later above some 6,000 partitions), or within `kafka.metadata.max.age.ms` if "
        "that is less.",
        kinds.PATTERN,
    ),
    Option(
        "assign",
        'Partitions to read: `{"orders": [0, 1]}`. Those that a topic does not have yet are left out, and the log '
        "warns; a stream reads them once they appear. A stream with `assign` cannot be a member of a group.",
        kinds.ASSIGNED,
    ),
    Option(
        "startingTimestamp",
        "Milliseconds since 1970. Every partition starts at its first record of this time or later. Takes precedence "
        "over `startingOffsetsByTimestamp`.",
        kinds.TIMESTAMP,
    ),
    Option(
        "startingOffsetsByTimestamp",
        'Starting timestamp of each partition, in milliseconds since 1970: `{"orders": {"0": 1700000000000}}`. List '
        "all partitions. Takes precedence over `startingOffsets`.",
        kinds.TIMESTAMPS,
    ),
    Option(
        "startingOffsets",
        "Where a batch read, the first generation of a group, or a stream without group and checkpoint starts. By "
        'partition, list all partitions: `{"orders": {"0": 23, "1": -2}}`. -2 is the earliest and -1 the latest '
        "offset. A batch read accepts neither `latest` nor -1. A stream reads partitions that are created after its "
        "start from their earliest offset.",
        kinds.STREAM_STARTS,
        default_text="`latest` for streams, `earliest` for batch reads",
        batch_kind=kinds.BATCH_STARTS,
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "How to start a partition without a record at or after its starting timestamp. `error` fails the query. "
        "`latest` starts at the end of the log.",
        kinds.NO_MATCH,
        default_text="`error`",
    ),
    Option(
        "endingTimestamp",
        "Milliseconds since 1970. Every partition ends before its first record of this time or later, or at the end of "
        "its log. Takes precedence over `endingOffsetsByTimestamp`.",
        kinds.TIMESTAMP,
        scope=Scope.BATCH,
        why="a stream has no end",
    ),
    Option(
        "endingOffsetsByTimestamp",
        "Ending timestamp of each partition, in milliseconds since 1970. List all partitions. Takes precedence over "
        "`endingOffsets`.",
        kinds.TIMESTAMPS,
        scope=Scope.BATCH,
        elsewhere=Effect.REFUSED,
        why=_ENDLESS,
    ),
    Option(
        "endingOffsets",
        "Where a batch read ends; the end offset itself is not read. By partition, list all partitions; -1 is the "
        "latest offset.",
        kinds.BATCH_ENDS,
        default_text="`latest`",
        scope=Scope.BATCH,
        elsewhere=Effect.REFUSED,
        why=_ENDLESS,
    ),
    Option(
        "failOnDataLoss",
        "`true` fails the query when records are gone before it has read them. `false` logs the loss and continues "
        "with the next record that exists. Set `false` only if the loss is acceptable.",
        kinds.BOOLEAN,
        "source.fail_on_data_loss",
    ),
    Option(
        "includeHeaders",
        "Adds the column `headers`, which is null for a record without headers.",
        kinds.BOOLEAN,
        "fetch.include_headers",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "The most offsets in one batch. Partitions share them in proportion to their backlog. Set it to limit how long "
        "a batch takes.",
        kinds.POSITIVE_LONG,
        "limits.max_offsets_per_trigger",
        scope=Scope.STREAM,
        why=_ALL_AT_ONCE,
    ),
    Option(
        "minOffsetsPerTrigger",
        "Delays a batch until this many offsets are available, or until `maxTriggerDelay` has passed. The first batch "
        "of a run, Trigger.Once and Trigger.AvailableNow are never delayed. Set it to avoid many small batches.",
        kinds.POSITIVE_LONG,
        "limits.min_offsets_per_trigger",
        scope=Scope.STREAM,
        why=_ALL_AT_ONCE,
    ),
    Option(
        "maxTriggerDelay",
        "The longest time since the batch before for which `minOffsetsPerTrigger` may delay a batch. Without "
        "`minOffsetsPerTrigger` it has no effect. As in Spark it is a number of milliseconds, or has the unit `us`, "
        "`ms`, `s`, `m`, `min`, `h` or `d`; a negative time delays no batch.",
        kinds.TIME_STRING,
        "limits.max_trigger_delay_ms",
        default_text="`15m`",
        scope=Scope.STREAM,
        why=_ALL_AT_ONCE,
    ),
    Option(
        "minPartitions",
        "The fewest tasks in a batch: large offset ranges are split in proportion to their size. Set it if the "
        "executors have more cores than the topics have partitions.",
        kinds.POSITIVE,
        "split.min_partitions",
    ),
    Option(
        "maxRecordsPerPartition",
        "The most offsets that one task reads: larger ranges are split. Set it to limit how long a task takes.",
        kinds.POSITIVE_LONG,
        "split.max_records_per_partition",
    ),
    Option(
        "fetchOffset.numRetries",
        "How many times the driver retries to fetch offsets after a failed attempt.",
        kinds.integer(0),
        "source.fetch_offset_retries",
    ),
    Option(
        "fetchOffset.retryIntervalMs",
        "Milliseconds to wait between two attempts to fetch offsets.",
        kinds.integer(0),
        "source.fetch_offset_retry_interval_ms",
    ),
    Option(
        "partition.metadata.cache.ttl.ms",
        "Milliseconds after which a stream refreshes its topics and partitions, to find new ones. It refreshes them "
        "earlier after `kafka.metadata.max.age.ms`, and when a broker reports outdated metadata. -1: every 5 s, or "
        "less often if it has more than some 6,000 partitions. Increase it to send fewer requests, decrease it to find "
        "new partitions sooner. Spark's own source caches the partitions for this time, and lists them in every batch "
        "with -1.",
        kinds.POSITIVE_OR_OFF,
        "source.partition_metadata_cache_ttl_ms",
        scope=Scope.STREAM,
        why="a batch read looks for partitions once",
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        "Milliseconds that a task waits for its next records before it fails. With Kafka 0.7 also the milliseconds "
        "that a batch waits until the brokers of its partitions have registered (by default 120000). Increase it for "
        "slow brokers.",
        kinds.POSITIVE,
        "fetch.poll_timeout_ms",
        default_text="`spark.network.timeout`, which is `120s` by default",
    ),
    Option(
        "groupIdPrefix",
        scope=Scope.NONE,
        why="streamgroup never generates group ids; 'kafka.group.id' names the group",
    ),
)
"""The options of Spark's own source."""

OWN: tuple[Option, ...] = (
    Option(
        "includeInnerIndex",
        "Adds the column `inner`, the index of a message within its compressed set. For Kafka 0.7 only, where the "
        "messages of a compressed set share one offset. Set it if rows need a unique key.",
        kinds.BOOLEAN,
        "fetch.include_inner_index",
    ),
    Option(
        "includeDamagedBatches",
        "Adds the column `damage`. A damaged record batch becomes a row: `value` has the batch's bytes, and "
        "`damage` has the reason. A record with a timestamp in nanoseconds has a reason too, with its own fields. "
        "`damage` is null for all other records. By default a damaged batch fails the query. Set it only where the "
        "query treats both kinds of rows. For Kafka 0.8 and later.",
        kinds.BOOLEAN,
        "fetch.include_damaged_batches",
    ),
    Option(
        "maxBytesPerTrigger",
        "The most bytes in one batch, as stored in the logs: compressed. The driver estimates the bytes of "
        "an offset from samples of the logs; of `maxOffsetsPerTrigger` and this option the smaller limit holds. Each "
        "partition takes one offset at least, however large its record is. Set it if the records' sizes vary so "
        "much that a limit of offsets does not limit a batch's duration.",
        kinds.POSITIVE_LONG,
        "limits.max_bytes_per_trigger",
        scope=Scope.STREAM,
        why=_ALL_AT_ONCE,
    ),
    Option(
        "group.mode",
        "How a stream uses its group. `member` joins it and shares the partitions with the other members. `commit` "
        "reads all partitions without joining, and commits while the group has no members. Use it for stateful "
        "queries, so that tools still show their lag. `off` reads all partitions and commits nothing, like Spark's own "
        "Kafka source.",
        kinds.MODE,
        "group.mode",
        default_text="`member` with `kafka.group.id` (with `assign`: `commit`), else `off`",
        scope=Scope.STREAM,
    ),
    Option(
        "group.member",
        "Name of this member. Set it if several queries of one Spark application share the partitions of a group. "
        "Without names the second query fails, because neither query would read all partitions. Descriptions of the "
        "group show the name: the default of `kafka.client.id` is then `streamgroup-<name>`.",
        kinds.TEXT,
        "group.member",
        scope=Scope.MEMBER,
    ),
    Option(
        "group.member.weight",
        "Share of the partitions that this member gets, relative to the weights of the other members: with weights 1, "
        "2 and 3, 18 partitions of a topic are divided into 3, 6 and 9. Each topic is divided on its own, so it needs "
        "more partitions than the sum of the weights. Set it if the applications of a group have different numbers of "
        "cores. `auto` is the number of cores of the application's executors when the query "
        "starts; call `streamgroup.listen(spark)` before, which reports them. With dynamic allocation set a number. "
        "Weights need `streamgroup-range`, the default of "
        "`kafka.partition.assignment.strategy`. While a consumer of another client, or one of the consumer protocol, "
        "is in the group, all members get equal shares, and the log has a warning.",
        kinds.WEIGHT,
        "group.weight",
        scope=Scope.MEMBER,
    ),
    Option(
        "group.joinTimeout",
        "How long the first batch of Trigger.Once and Trigger.AvailableNow waits until the query has joined its group. "
        "In mode `commit`, how long a query waits for members to leave the group. Increase it if other members are "
        "slow to rejoin.",
        kinds.DURATION,
        "group.join_timeout_ms",
        scope=Scope.GROUP,
    ),
    Option(
        "offsets.store",
        "What stores the offsets together with the rows, so that each record is in the result once. `transaction`: "
        "`streamgroup.exactly_once` writes the rows into Kafka and commits the offsets in one transaction. Or the URL "
        "of the database that the rows are written to: `postgresql://host/database`, "
        "`mariadb://host/database` or `sqlite:////path/of/file.db`. The query starts at the offsets of the table "
        "`streamgroup_offsets` there, and `streamgroup.transaction` stores a batch and its offsets in one transaction. "
        "The offsets are also committed to the group, for tools that show its lag.",
        kinds.OFFSETS_STORE,
        "group.store_url",
        default_text="the group stores the offsets",
        scope=Scope.GROUP,
    ),
    Option(
        "offsets.store.user",
        "User of the database in `offsets.store`, if the URL names none.",
        kinds.TEXT,
        "group.store_user",
        scope=Scope.GROUP,
    ),
    Option(
        "offsets.store.password",
        "Password of that user, or `env:NAME` or `file:/path`.",
        kinds.SECRET,
        "group.store_password",
        scope=Scope.GROUP,
    ),
    Option(
        "group.prefetch",
        "How many fetch responses a task requests ahead of the one that it decodes. Each response holds up to "
        "`kafka.max.partition.fetch.bytes`. Increase it if the network has a long round-trip time.",
        kinds.integer(0, 64),
        "fetch.prefetch",
    ),
    Option(
        "group.maxDecompressedBytes",
        "The most bytes of one record batch after decompression. A larger batch fails the query, which protects the "
        "executors from decompression bombs. Increase it if producers write larger batches.",
        kinds.POSITIVE,
        "fetch.max_decompressed_bytes",
    ),
    Option(
        "group.rebalanceWait",
        "How long a member that must rejoin waits for Spark's next call after the tasks of its batch should be done. "
        "It has no effect with `streamgroup.listen`, which reports when the batch is done. Increase it if the trigger "
        "interval is longer. It has no effect under the consumer protocol, where no member waits for this one.",
        kinds.DURATION,
        "group.rebalance_wait_ms",
        scope=Scope.MEMBER,
    ),
    Option(
        "group.maxSilence",
        "The member leaves the group if Spark makes no call for this long, and rejoins at Spark's next call. A static "
        "member only stops its heartbeats: its partitions move when its session expires. Without this option a hung "
        "driver keeps its partitions. Set it longer than any batch and any trigger interval.",
        kinds.DURATION,
        "group.max_silence_ms",
        scope=Scope.MEMBER,
    ),
    Option(
        "group.maxOffsetsPerSecond",
        "The most offsets that this query reads per second, over the time between its batches. Where it has read them, "
        "it plans nothing until time has passed. Each query of a group has its own rate. Trigger.Once ignores it. Set "
        "it to protect the system that the query writes into.",
        kinds.POSITIVE_LONG,
        "limits.max_offsets_per_second",
        scope=Scope.STREAM,
        why=_ALL_AT_ONCE,
    ),
    Option(
        "group.maxBytesPerSecond",
        "The most bytes that this query reads per second, estimated as for `maxBytesPerTrigger`. Set it to share the "
        "network with others. Kafka's quotas limit a client id for the brokers' sake.",
        kinds.POSITIVE_LONG,
        "limits.max_bytes_per_second",
        scope=Scope.STREAM,
        why=_ALL_AT_ONCE,
    ),
    Option(
        "group.targetBatchDuration",
        "How long a batch is to last, from its tasks until it is completed. The query adapts the number of offsets of "
        "each batch to what earlier batches took, within the other limits. Register `streamgroup.listen`: without it "
        "the wait for the next trigger counts as part of a batch. Trigger.Once ignores it.",
        kinds.DURATION,
        "limits.target_batch_duration_ms",
        scope=Scope.STREAM,
        why=_ALL_AT_ONCE,
    ),
    STRICT_ROW,
    TOKEN_ROW,
)
"""The options that only streamgroup has."""

SOURCE: tuple[Option, ...] = (*SPARK, *OWN)

_NO_PATH = "load('…') has a path, and Kafka has none. Call load() and name the topics with 'subscribe'"
_FIXED = "the columns are always the fields of Kafka's records. Parse the column 'value' in the query"
_OF_WRITES = "the option is for writes"

HINTS: dict[str, str] = {
    **LIBRDKAFKA_HINTS,
    **TOKEN_MANAGER_HINTS,
    "maxrateperpartition": "it is of Spark's older DStreams. Set 'group.maxOffsetsPerSecond', for the whole query",
    "groupid": "the name of the group is a property of Kafka. Set 'kafka.group.id'",
    "path": _NO_PATH,
    "paths": _NO_PATH,
    "topic": "it is an option of a sink. Name the topics to read with 'subscribe'",
    "topics": "a source has another option for topics. Name the topics to read with 'subscribe'",
    "inferschema": _FIXED,
    "mode": _FIXED,
    "checkpointlocation": "it is an option of writeStream",
    "queryname": "it is an option of writeStream",
    "partitioner": _OF_WRITES,
    "includetimestamp": _OF_WRITES,
    "verify": _OF_WRITES,
    "verifywaitms": _OF_WRITES,
}
"""The cause and the next step for an unknown option whose most similar name would mislead; keys in lower case."""

"""The table of Spark's own options and of ours (`group.*`); Kafka's are in `streamgroup.options.kafka`.

Names, meanings and defaults are those of Spark's Kafka source.
"""

from __future__ import annotations

from streamgroup.options import kinds
from streamgroup.options.rows import Effect, Option

USED, WITHOUT_EFFECT, REFUSED = Effect.USED, Effect.WITHOUT_EFFECT, Effect.REFUSED

NO_GROUP_IN_BATCH = "a batch read never joins a group and commits nothing"
_ENDLESS = "a stream has no end: ending offsets are for batch reads"
_ALL_AT_ONCE = "a batch read takes all there is in one go"

SOURCE: tuple[Option, ...] = (
    Option("subscribe", "The topics to read. Exactly one of `subscribe`, `subscribePattern`, `assign`.", kinds.TOPICS),
    Option(
        "subscribePattern",
        "Reads the topics whose whole name matches, never internal ones. Python's regular expressions, nearly Java's. "
        "A stream notices new topics within `kafka.metadata.max.age.ms`.",
        kinds.PATTERN,
    ),
    Option(
        "assign",
        'Reads exactly these partitions: `{"orders": [0, 1]}`. A stream that does so is no member of a group.',
        kinds.ASSIGNED,
    ),
    Option(
        "startingTimestamp",
        "Starts all partitions at the first record of this time or later. Goes before `startingOffsetsByTimestamp`.",
        kinds.TIMESTAMP,
    ),
    Option(
        "startingOffsetsByTimestamp",
        'The same by partition, all listed: `{"orders": {"0": 1700000000000}}`. Goes before `startingOffsets`.',
        kinds.TIMESTAMPS,
    ),
    Option(
        "startingOffsets",
        "Where a group's first generation, a stream without checkpoint and group, or a batch read starts: "
        '`{"orders": {"0": 23, "1": -2}}`, all partitions listed, -2 the earliest, -1 the latest; `latest` and -1 not '
        "in batch reads. What comes to be after the start of a stream is read from its earliest offset.",
        kinds.STREAM_STARTS,
        default="`latest` for streams, `earliest` for batch reads",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "What to do where a partition has no record as late as the timestamp: fail, or start at its end.",
        kinds.NO_MATCH,
        default="`error`",
    ),
    Option(
        "endingTimestamp",
        "Ends all partitions before the first record of this time or later, else at their end. Goes before "
        "`endingOffsetsByTimestamp`.",
        kinds.TIMESTAMP,
        stream=REFUSED,
        why=_ENDLESS,
    ),
    Option(
        "endingOffsetsByTimestamp",
        "The same by partition, all listed. Goes before `endingOffsets`.",
        kinds.TIMESTAMPS,
        stream=REFUSED,
        why=_ENDLESS,
    ),
    Option(
        "endingOffsets",
        "Where a batch read ends, exclusively; all partitions listed, -1 the latest.",
        kinds.BATCH_ENDS,
        default="`latest`",
        stream=REFUSED,
        why=_ENDLESS,
    ),
    Option(
        "failOnDataLoss",
        "Whether records that are gone before they were read end the query; if not, the log tells of them.",
        kinds.BOOLEAN,
        "source.fail_on_data_loss",
    ),
    Option(
        "includeHeaders",
        "Adds the column `headers`; null where a record has none.",
        kinds.BOOLEAN,
        "fetch.include_headers",
    ),
    Option(
        "includeInnerIndex",
        "For Kafka 0.7, where the messages of a compressed set share their offset: adds the column `inner`, which "
        "tells them apart.",
        kinds.BOOLEAN,
        "fetch.include_inner_index",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "The most offsets that a batch takes, shared among the partitions in proportion to their backlog.",
        kinds.POSITIVE_LONG,
        "limits.max_offsets_per_trigger",
        batch=WITHOUT_EFFECT,
        why=_ALL_AT_ONCE,
    ),
    Option(
        "minOffsetsPerTrigger",
        "Holds a batch back until there are that many offsets to read, `maxTriggerDelay` at most; not the first batch "
        "of a run, nor any of Trigger.Once and Trigger.AvailableNow.",
        kinds.POSITIVE_LONG,
        "limits.min_offsets_per_trigger",
        batch=WITHOUT_EFFECT,
        why=_ALL_AT_ONCE,
    ),
    Option(
        "maxTriggerDelay",
        "How long after the batch before `minOffsetsPerTrigger` may hold one back.",
        kinds.DURATION,
        "limits.max_trigger_delay_ms",
        batch=WITHOUT_EFFECT,
        why=_ALL_AT_ONCE,
    ),
    Option(
        "minPartitions",
        "The fewest tasks wanted: large ranges are split in proportion to their size.",
        kinds.POSITIVE,
        "split.min_partitions",
    ),
    Option(
        "maxRecordsPerPartition",
        "The most offsets that one task reads.",
        kinds.POSITIVE_LONG,
        "split.max_records_per_partition",
    ),
    Option(
        "fetchOffset.numRetries",
        "How often the driver asks again for offsets after an error.",
        kinds.integer(0),
        "source.fetch_offset_retries",
    ),
    Option(
        "fetchOffset.retryIntervalMs",
        "How long it waits before.",
        kinds.integer(0),
        "source.fetch_offset_retry_interval_ms",
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        "How long a task waits for its next records before it fails; on Kafka 0.7 also how long a batch waits until "
        "the brokers of its partitions have registered.",
        kinds.POSITIVE,
        "fetch.poll_timeout_ms",
    ),
    Option(
        "groupIdPrefix",
        "Spark's prefix of generated group ids.",
        stream=WITHOUT_EFFECT,
        batch=WITHOUT_EFFECT,
        why="group ids are never generated: kafka.group.id names the group",
    ),
    Option(
        "group.mode",
        "How a stream stands to its group. `member` shares the partitions with the other members. `commit` reads all "
        "of them without joining, and commits for the tools that show lag, as long as the group has no members: for "
        "stateful queries. `off` is as Spark's own source: no group, nothing committed.",
        kinds.MODE,
        "group.mode",
        default="`member` with `kafka.group.id` (with `assign`: `commit`), else `off`",
        batch=WITHOUT_EFFECT,
        why=NO_GROUP_IN_BATCH,
    ),
    Option(
        "group.member",
        "A name for this member, needed where several queries of one Spark application are to share the partitions of "
        "one group: without it the second is refused, since neither would read all.",
        kinds.TEXT,
        "group.member",
        default="none",
        batch=WITHOUT_EFFECT,
        why=NO_GROUP_IN_BATCH,
    ),
    Option(
        "group.joinTimeout",
        "How long the first batch of Trigger.Once and Trigger.AvailableNow may wait until the group has been joined; "
        "in mode `commit`, how long members of the group that keep it from committing are waited for.",
        kinds.DURATION,
        "group.join_timeout_ms",
        batch=WITHOUT_EFFECT,
        why=NO_GROUP_IN_BATCH,
    ),
    Option(
        "group.prefetch",
        "How many answers of a broker a task asks for ahead of the one that it decodes: each holds up to "
        "kafka.max.partition.fetch.bytes.",
        kinds.integer(0, 64),
        "fetch.prefetch",
    ),
    Option(
        "group.maxDecompressedBytes",
        "The most bytes that a record batch may have decompressed; a larger one is taken for a bomb and is an error.",
        kinds.POSITIVE,
        "fetch.max_decompressed_bytes",
    ),
    Option(
        "group.rebalanceWait",
        "How long a member that has been told to rejoin waits for Spark's next call once its batch should be done. It "
        "has no effect with a listener, which reports when the batch is done.",
        kinds.DURATION,
        "group.rebalance_wait_ms",
        batch=WITHOUT_EFFECT,
        why=NO_GROUP_IN_BATCH,
    ),
    Option(
        "group.maxSilence",
        "Leaves the group, until Spark calls again, when it has called nothing for this long: a hung driver keeps its "
        "partitions otherwise. Longer than any batch and any trigger takes.",
        kinds.DURATION,
        "group.max_silence_ms",
        batch=WITHOUT_EFFECT,
        why=NO_GROUP_IN_BATCH,
    ),
)

HINTS: dict[str, str] = {
    "path": "load('…') was given a path, and Kafka has none: call load() and name the topics with 'subscribe'",
    "topic": "it is an option of the sink; name the topics to read with 'subscribe'",
    "topics": "name the topics to read with 'subscribe'",
    "startingoffset": "did you mean 'startingOffsets'?",
}
"""What to say to an option that is none, where the nearest name would lead astray; keys in lower case."""

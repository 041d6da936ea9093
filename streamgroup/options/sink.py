"""The table of the options of a write that are not Kafka's: Spark's own, streamgroup's, and those of ZooKeeper."""

from __future__ import annotations

import dataclasses

from streamgroup.options import kinds
from streamgroup.options.client import TOKEN_ROW
from streamgroup.options.foreign_names import LIBRDKAFKA_HINTS
from streamgroup.options.rows import FOR_READS, Option, Scope
from streamgroup.options.sasl import TOKEN_MANAGER_HINTS
from streamgroup.options.source import SOURCE, STRICT_ROW
from streamgroup.options.zookeeper import CONNECT, ZOOKEEPER

SINK: tuple[Option, ...] = (
    Option(
        "topic",
        "Topic of all records. It takes precedence over the column `topic`. Required if the query has no such column.",
        kinds.TOPIC,
        "sink.topic",
        scope=Scope.WRITE,
    ),
    Option(
        "partitioner",
        "How a record without the column `partition` gets its partition. `default`, `sticky` and `round_robin` are "
        "Java's. `random`, `murmur2_random`, `consistent` and `consistent_random` are librdkafka's. `hashcode` and "
        "`hashcode_bytes` hash keys as the producers of Kafka 0.7 and 0.8 hash strings and byte arrays. Into Kafka "
        "0.7, `default` is `hashcode`.",
        kinds.PARTITIONER,
        "producer.partitioner",
        scope=Scope.WRITE,
    ),
    Option(
        "includeTimestamp",
        "Whether the column `timestamp`, of Spark's type timestamp, is the timestamp of each record. Without it, or "
        "where it is null, a record has the time of its task. Set it to copy records with their timestamps. Brokers "
        "before 0.10 store no timestamps.",
        kinds.BOOLEAN,
        "sink.include_timestamp",
        scope=Scope.WRITE,
    ),
    Option(
        "verify",
        "Kafka 0.7 only: whether a task reads the logs back until it has found its records. Nothing else shows that "
        "they are written, because Kafka 0.7 acknowledges nothing. Later brokers acknowledge, and refuse this option.",
        kinds.BOOLEAN,
        "sink.verify",
        scope=Scope.WRITE,
    ),
    Option(
        "verifyWaitMs",
        "Milliseconds that a task with `verify` waits until it can read back its messages. A broker shows them "
        "after a flush, by default every 3 s. Increase it if a broker's `log.default.flush.interval.ms` is longer.",
        kinds.POSITIVE,
        "sink.verify_wait_ms",
        scope=Scope.WRITE,
    ),
    Option(
        "includeHeaders",
        scope=Scope.NONE,
        why="a write always takes the column 'headers' if the query has it",
    ),
    *(
        Option(option.name, scope=Scope.NONE, why=FOR_READS)
        for option in SOURCE
        if option not in (STRICT_ROW, TOKEN_ROW) and option.name != "includeHeaders"
    ),
    dataclasses.replace(STRICT_ROW, scope=Scope.WRITE),
    dataclasses.replace(TOKEN_ROW, scope=Scope.WRITE),
)

_DOCS = {
    CONNECT: (
        "Addresses of the ZooKeeper servers, with the brokers' chroot if they have one: `zk1:2181,zk2:2181/kafka`. The "
        "driver finds the brokers there before each batch. Set it for Kafka 0.7. Later brokers may be named in "
        "`kafka.bootstrap.servers`, which takes precedence."
    ),
    "zookeeper.session.timeout.ms": (
        "Milliseconds without a ping after which ZooKeeper expires the driver's session, which ends with the plan of a "
        "batch. ZooKeeper grants between 2 and 20 of its ticks."
    ),
}
"""The descriptions of ZooKeeper's options where a write differs from a read."""

SINK_ZOOKEEPER: tuple[Option, ...] = tuple(
    Option(option.name, scope=Scope.NONE, why="a write creates no nodes in ZooKeeper")
    if option.name == "zookeeper.set.acl"
    else option
    if not option.scope
    else dataclasses.replace(option, scope=Scope.WRITE, doc=_DOCS.get(option.name, option.doc))
    for option in ZOOKEEPER
)

SINK_HINTS: dict[str, str] = {
    **LIBRDKAFKA_HINTS,
    **TOKEN_MANAGER_HINTS,
    "mode": "it is a method. Call mode('append') of a batch write",
    "path": "save('…') and start('…') have a path, and Kafka has none. Name the topic with 'topic'",
    "topics": "a write has one topic or a column for it. Name the topic with 'topic', or add the column 'topic'",
}
"""The cause and the next step for unknown options whose most similar name would mislead; keys in lower case."""

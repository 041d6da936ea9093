"""The table of Kafka's properties of a write, as `kafka.*`: every property of the Java producer and of consumers.

Names, types and defaults are the same as in Kafka's producer 4.3. The log names ignored properties once. A refused
property would break what Spark or streamgroup guarantees.
"""

from __future__ import annotations

import dataclasses

from streamgroup.options import kinds
from streamgroup.options.client import CLIENT, CLIENT_IGNORED, CLIENT_REFUSED
from streamgroup.options.foreign_names import BYTES_ALREADY, OLD_PRODUCERS
from streamgroup.options.kafka import KAFKA
from streamgroup.options.rows import FOR_CONSUMERS, Option, Scope, ignored, refused, used

_NON_NEGATIVE = kinds.integer(0)
_NON_NEGATIVE_LONG = kinds.integer(0, kinds.LONG_MAX)

_DELIVERY = (
    used(
        "acks",
        "Acknowledgements that a batch needs: of all in-sync replicas (`all` or `-1`), of the leader (`1`), or none "
        "(`0`). With `0` no task notices that a batch was lost or refused. Kafka 0.7 never acknowledges.",
        kinds.ACKS,
        "producer.acks",
        default_text="`all`",
    ),
    used(
        "enable.idempotence",
        "Whether the broker (0.11 and later) drops a batch that a retry repeats. Requires `kafka.acks=all`, retries "
        "and at most 5 requests in flight. Without this option it is off if `kafka.acks`, `kafka.retries` or an "
        "older broker rule it out.",
        kinds.BOOLEAN,
        "producer.enable_idempotence",
    ),
    used(
        "retries",
        "How many times a batch is sent again after an error that may pass. `kafka.delivery.timeout.ms` ends the "
        "retries too.",
        _NON_NEGATIVE,
        "producer.retries",
    ),
    used(
        "delivery.timeout.ms",
        "Milliseconds that the delivery of a batch may take with all its retries. Then the task fails. At least "
        "`kafka.linger.ms` plus `kafka.request.timeout.ms`.",
        _NON_NEGATIVE,
        "producer.delivery_timeout_ms",
    ),
    used(
        "max.in.flight.requests.per.connection",
        "The most requests to one broker that wait for their response. Above 1 without idempotence, a retry may "
        "change the order of records.",
        kinds.POSITIVE,
        "producer.max_in_flight",
    ),
    used(
        "max.block.ms",
        "Milliseconds that a task waits for metadata, or for room in `kafka.buffer.memory`. Then it fails.",
        _NON_NEGATIVE_LONG,
        "producer.max_block_ms",
    ),
    used(
        "metadata.max.idle.ms",
        "Milliseconds for which a worker process remembers a topic that it does not write. At least 5000.",
        kinds.integer(5000, kinds.LONG_MAX),
        "producer.metadata_max_idle_ms",
    ),
)

_BATCHES = (
    used(
        "batch.size",
        "Bytes of records that one batch of a partition collects before compression. Java's producer collects 16384. "
        "Spark passes thousands of rows at a time, so a large batch fills without waiting. If a topic's "
        "max.message.bytes is lower, the batches of that topic are smaller. Kafka 0.7 gets at most 262144.",
        _NON_NEGATIVE,
        "producer.batch_size",
    ),
    used(
        "linger.ms",
        "Milliseconds that a batch waits for more records before it is sent. A task sends what is left at its end.",
        _NON_NEGATIVE_LONG,
        "producer.linger_ms",
    ),
    used(
        "buffer.memory",
        "Bytes of records that a worker process holds until they are acknowledged. The task waits when they are used "
        "up.",
        _NON_NEGATIVE_LONG,
        "producer.buffer_memory",
    ),
    used(
        "max.request.size",
        "The most bytes of one request, and of one record before compression. For Kafka 0.7 also of one message, with "
        "the default 1000000. It must not exceed `max.message.size` of the brokers there.",
        _NON_NEGATIVE,
        "producer.max_request_size",
    ),
    used(
        "compression.type",
        "Codec of the batches: `none`, `gzip`, `snappy`, `lz4` (0.8.2 and later) or `zstd` (2.1 and later).",
        kinds.COMPRESSION,
        "producer.compression",
    ),
    used(
        "compression.gzip.level",
        "Level of gzip: 1 to 9, or -1 for the default.",
        kinds.GZIP_LEVEL,
        default_text="`-1`",
    ),
    used("compression.lz4.level", "Level of lz4: 1 to 17.", kinds.LZ4_LEVEL, default_text="`9`"),
    used("compression.zstd.level", "Level of zstd: -131072 to 22.", kinds.ZSTD_LEVEL, default_text="`3`"),
)

_PARTITIONS = (
    used(
        "partitioner.class",
        "Java class of the partitioner, in place of the option `partitioner`. "
        "`org.apache.kafka.clients.producer.RoundRobinPartitioner` is `round_robin`, and "
        "`org.apache.kafka.clients.producer.internals.DefaultPartitioner` is `sticky`. "
        "`kafka.producer.DefaultPartitioner` is `hashcode`, and `kafka.producer.ByteArrayPartitioner` is "
        "`hashcode_bytes`. Another class fails the query.",
        kinds.PARTITIONER_CLASS,
        default_text="none",
    ),
    used(
        "partitioner.ignore.keys",
        "Whether the partitioner treats every record as one without a key.",
        kinds.BOOLEAN,
        "producer.ignore_keys",
    ),
    used(
        "partitioner.adaptive.partitioning.enable",
        "Whether the partitioner `default` prefers partitions for which few batches wait (KIP-794).",
        kinds.BOOLEAN,
        "producer.adaptive_partitioning",
    ),
)

_REFUSED = (
    refused("key.serializer", BYTES_ALREADY),
    refused("value.serializer", BYTES_ALREADY),
    refused(
        "transactional.id",
        "format('streamgroup') cannot write in transactions, because Spark may run a task twice. Use "
        "foreachBatch(streamgroup.exactly_once(...)), and set kafka.transactional.id at the source",
    ),
)

_IGNORED = (
    *ignored("partitioner.availability.timeout.ms", "a partition counts as available while it has a leader"),
    *ignored("transaction.timeout.ms transaction.two.phase.commit.enable", "a write uses no transactions"),
)

_OF_PRODUCERS = (
    *(dataclasses.replace(row, scope=Scope.WRITE) for row in (*CLIENT, *_DELIVERY, *_BATCHES, *_PARTITIONS)),
    *_REFUSED,
    *CLIENT_REFUSED,
    *_IGNORED,
    *CLIENT_IGNORED,
    *OLD_PRODUCERS,
)
_KNOWN = {option.name for option in _OF_PRODUCERS}


def _of_consumers() -> tuple[Option, ...]:
    """Return the rows of the properties that only consumers have.

    The old names of ZooKeeper's options keep their rows: a write has these options too.
    """
    others = (row for row in KAFKA if row.name not in _KNOWN)
    return tuple(
        row
        if row.name.startswith("kafka.zookeeper.connect") or row.name == "kafka.zookeeper.session.timeout.ms"
        else Option(row.name, scope=Scope.NONE, why=FOR_CONSUMERS)
        for row in others
    )


PRODUCER: tuple[Option, ...] = (*_OF_PRODUCERS, *_of_consumers())

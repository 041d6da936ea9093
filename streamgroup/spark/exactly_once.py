"""Writes rows from Kafka to Kafka exactly once: `streamgroup.exactly_once`, a function for `foreachBatch` (R38).

Each batch is one transaction of Kafka: its records and the offsets of its sources become visible together, or not at
all. Tasks write the records under one producer id. A broker accepts the sequence numbers of a partition from one task
only, so the rows are clustered by partition. A task that Spark runs again must not write, because the records of its
first attempt are in the transaction: then the transaction is aborted, and the batch is written again in another one.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from streamgroup.coordinator.control import channel
from streamgroup.coordinator.log_output import log_warnings_to_stderr
from streamgroup.errors import ConfigError, FencedError, StreamGroupError, TransactionAbortedError
from streamgroup.frozen import frozen
from streamgroup.group.commits import PartSize
from streamgroup.kafka.cluster.admin import committed
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.cluster.transactions import TransactionRunner, has_transactions_v2
from streamgroup.kafka.net.requester import requester_of
from streamgroup.kafka.producer.columns import check_columns
from streamgroup.kafka.producer.transaction import (
    Ended,
    GroupMember,
    GroupOffsets,
    Transaction,
    TransactionalId,
    TransactionalProducer,
)
from streamgroup.kafka.wire.messages.produce import ALL_ACKS
from streamgroup.model import CommittedOffset, OffsetRange, TopicPartition, name_some
from streamgroup.options.parse import parse_sink
from streamgroup.options.types import SinkOptions
from streamgroup.spark.channel import ThreadBatch, batch_of_thread, ranges_in
from streamgroup.spark.queries import driver_context, jvm_pid
from streamgroup.spark.tasks import PromptInTasks, exempt_modules
from streamgroup.text import counted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame
    from pyspark.sql.conf import RuntimeConfig

log = logging.getLogger("streamgroup")

_MOST_ATTEMPTS = 4
"""How often a batch is written, as `spark.task.maxFailures` is for a task by default."""
_REPEATED = "streamgroup: a task of a transaction was started again"
"""Marks the error of a task that must not write, in the error that Spark raises in the driver."""
_LOSER_WAITS_S = 30.0
"""With speculation, a second copy of a task waits this long to be ended by Spark, because the first one is done."""
_POLL_S = 0.1
_CHECKSUMS = (
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
)
_WRITTEN = StructType([StructField("task", IntegerType()), StructField("written", StringType())])


def exactly_once(topic: str | None = None, *, clustered: bool = False, **options: object) -> ExactlyOnceSink:
    """Return a function for `foreachBatch` that writes each row to Kafka once.

        orders = spark.readStream.format("streamgroup").option("offsets.store", "transaction")...
        sink = streamgroup.exactly_once("shipments", **{"kafka.bootstrap.servers": "broker:9092"})
        rows.writeStream.foreachBatch(sink).option("checkpointLocation", ...).start()

    Rows have the columns of a write with `format("streamgroup")`, and `options` are its options. Without `topic` each
    row has its topic in the column `topic`. All sources of the query have `offsets.store=transaction`, are members of
    their groups, and read from the cluster that is written to. Consumers with `isolation.level=read_committed` see the
    records of a batch together.

    Rows are shuffled, so that one task writes all records of a partition. With `clustered` they are not: each partition
    must have its rows in one task already, as a copy with the same partitions has.

    Raises ConfigError for invalid options. The function raises ConfigError, FencedError if another run or member has
    taken over, TransportError, BrokerError, and Spark's error of a failed task; nothing of the batch is visible then.
    """
    given = {name: str(value) for name, value in options.items()}
    if topic is not None:
        given["topic"] = topic
    return ExactlyOnceSink(parse_sink(given), clustered=clustered)


@frozen
class _Part:
    """The ranges of one source in a batch, and the offsets that the transaction commits for its group."""

    run: str
    sequence: int
    group: str
    transactional_id: TransactionalId
    ranges: tuple[OffsetRange, ...]
    after: Mapping[TopicPartition, CommittedOffset]


class ExactlyOnceSink:
    """The function that `foreachBatch` calls with each batch of a stream."""

    def __init__(self, options: SinkOptions, *, clustered: bool = False) -> None:
        producer = options.producer
        if producer.acks != ALL_ACKS or producer.enable_idempotence is False or not producer.retries:
            raise ConfigError(
                "cannot write in a transaction: it needs kafka.acks=all, retries and idempotence. Leave kafka.acks, "
                "kafka.retries and kafka.enable.idempotence out"
            )
        if not options.client.bootstrap_servers:
            raise ConfigError("cannot write in a transaction: set kafka.bootstrap.servers. Kafka 0.7 has none")
        self._options = options
        self._clustered = clustered
        self._writers: dict[str, _TransactionWriter] = {}
        """By transactional id: one for the newest start of each query that uses this function."""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch. Raises as `exactly_once` describes."""
        context = driver_context("exactly_once")
        found = batch_of_thread("exactly_once")
        columns = [(field.name, field.dataType.simpleString()) for field in batch.schema.fields]
        check_columns(columns, self._options.topic, include_timestamp=self._options.include_timestamp)
        parts = _parts(found, requester_of(self._options.client))
        if not parts:  # Spark runs batch 0 of a query also before a source has planned
            if batch.isEmpty():
                return
            raise ConfigError(
                f"cannot write the batch of query {found.query_id}: no source of format('streamgroup') has planned it, "
                "so no transaction can commit its offsets. Nothing was written. Give the query such a source alone"
            )
        if found.is_stored_here:
            raise ConfigError(
                f"cannot write the batch of query {found.query_id}: an earlier call for the same batch has committed "
                "its offsets. Write all rows of a batch in one call; the column topic gives each row its topic"
            )
        moving = [part for part in parts if any(map(len, part.ranges))]
        first = min(parts, key=lambda part: part.group)
        writer = self._writers.get(first.transactional_id.name)
        if writer is None or writer.run != first.run:  # a new run has raised the epoch: the old one would be fenced
            if writer is not None:
                writer.close()
            speculates = context.getConf().get("spark.speculation", "false") == "true"
            writer = _TransactionWriter(self._options, first, jvm_pid(context), speculates=speculates)
            self._writers[first.transactional_id.name] = writer
        # If the sources have read no records, there are no offsets to commit.
        writer.write(context, batch, batch_id, moving, clustered=self._clustered)
        if moving:
            found.mark_stored()


def _parts(found: ThreadBatch, requester: Any) -> list[_Part]:
    """Return what each source has read. Raises ConfigError for a source whose offsets no transaction may commit."""
    found.check_complete("write", "written")
    parts = []
    for row in found.parts:
        if "transaction" not in row:
            named = f"the source of group {row['group']!r}" if row["group"] else "a source without a group"
            raise ConfigError(
                f"cannot write the batch in a transaction with the offsets of {named}. Set its options "
                "offsets.store=transaction and kafka.group.id, and leave out group.mode"
            )
        ranges, known = ranges_in(row), row["transaction"]
        after = {
            one.partition: CommittedOffset(one.until, metadata, epoch)
            for one, (epoch, metadata) in zip(ranges, known["after"], strict=True)
        }
        transactional_id = TransactionalId(known["id"], known["timeout_ms"], requester)
        parts.append(_Part(row["run"], row["sequence"], row["group"], transactional_id, ranges, after))
    if len({part.group for part in parts}) < len(parts):
        raise ConfigError(
            "cannot commit the offsets of two sources in one group: a transaction commits them for one member. Give "
            "each source its own group"
        )
    return parts


class _TransactionWriter:
    """Writes the batches of one start of a query, each in a transaction. `first` is its source that names the id."""

    def __init__(self, options: SinkOptions, first: _Part, pid: int, *, speculates: bool) -> None:
        self.run = first.run
        self._options = options
        self._pid = pid
        self._speculates = speculates
        self._cluster = KafkaCluster(options.client)
        self._producer = TransactionalProducer(first.transactional_id)
        self._stored: dict[tuple[str, TopicPartition], int] = {}
        """By group: the offsets that the last transaction of this object has committed."""

    def close(self) -> None:
        self._cluster.close()

    def write(
        self, context: SparkContext, batch: DataFrame, batch_id: int, parts: Sequence[_Part], *, clustered: bool
    ) -> None:
        if parts and self._is_stored(parts):
            log.info("batch %d: its records and offsets are in Kafka already", batch_id)
            return
        for attempt in range(1, _MOST_ATTEMPTS + 1):
            try:
                self._write_once(context, batch, batch_id, parts, clustered=clustered)
            except TransactionAbortedError as error:
                if attempt == _MOST_ATTEMPTS:
                    raise
                log.warning("%s. The batch is written again, attempt %d", error, attempt + 1)
            else:
                return

    def _write_once(
        self, context: SparkContext, batch: DataFrame, batch_id: int, parts: Sequence[_Part], *, clustered: bool
    ) -> None:
        times = [time.monotonic()]
        transaction = self._begin()
        times.append(time.monotonic())
        try:
            records = self._write_records(context, batch, transaction, clustered=clustered)
            times.append(time.monotonic())
            if records or parts:
                self._commit(parts)
        except BaseException as error:
            fenced = self._abort()
            if fenced is not None and isinstance(error, TransactionAbortedError):
                raise fenced from error  # another attempt would abort the transaction of the run that has taken over
            raise
        times.append(time.monotonic())
        self._stored = {(part.group, tp): offset.offset for part in parts for tp, offset in part.after.items()}
        log.debug(
            "batch %d: %s in a transaction of %r: begun in %.1f ms, written in %.1f ms, committed in %.1f ms",
            batch_id,
            counted(records, "record"),
            self._producer.id.name,
            *((end - start) * 1000 for start, end in pairwise(times)),
        )

    # -- the transaction ----------------------------------------------------------------------------------------------

    def _begin(self) -> Transaction:
        deadline = self._cluster.deadline()
        beginning = self._producer.begin(is_v2=has_transactions_v2(self._cluster, deadline))
        return TransactionRunner(self._cluster).run(beginning, self._of("producer id"), deadline)

    def _abort(self) -> FencedError | None:
        """Abort the transaction, if the brokers answer. Else the next run aborts it, or its timeout does.

        Returns the error if another run has taken over, or if a commit without an answer was carried out.
        """
        deadline = self._cluster.deadline(self._options.client.request_timeout_ms)
        try:
            TransactionRunner(self._cluster).run(self._producer.abort(), self._of("abort"), deadline)
        except FencedError as error:
            return error
        except StreamGroupError as error:
            log.warning("cannot abort the transaction: %s", error)
        return None

    def _commit(self, parts: Sequence[_Part]) -> None:
        deadline = self._cluster.deadline()
        of_group = {part.group: part for part in parts}
        runner = TransactionRunner(self._cluster, lambda group: self._member(of_group[group], deadline))
        offsets = [
            GroupOffsets(group, few)
            for group, part in sorted(of_group.items())
            for few in PartSize(group).split(part.after)
        ]
        ended = runner.run(self._producer.commit(offsets), self._of("end of the transaction"), deadline)
        if ended is Ended.UNKNOWN and not (parts and self._is_stored(parts)):
            raise TransactionAbortedError(f"transactional id {self._producer.id.name!r}: the transaction was aborted")

    def _member(self, part: _Part, deadline: float) -> GroupMember:
        """Return the member that commits the batch. Waits while the coordinator process waits for an assignment."""
        while True:
            row = channel.ask(self._pid, part.run, "ranges")
            known = row.get("transaction")
            is_same = row["sequence"] == part.sequence and ranges_in(row) == part.ranges
            if known is not None and is_same and known["is_held"]:
                return GroupMember(known["member"], known["generation"], known["instance"])
            if self._cluster.clock() >= deadline:
                raise FencedError(
                    f"group {part.group}: cannot commit the batch with {name_some(part.after)}: the member got no "
                    "assignment in time. Nothing of the batch is visible. Start the query again: it writes what no "
                    "other member has written"
                )
            if known is None or not is_same or known["is_held"] is False:
                raise FencedError(
                    f"group {part.group}: cannot commit the batch with {name_some(part.after)}: this member does not "
                    "hold these partitions any more. Nothing of the batch is visible, and their new member reads the "
                    "records. Start the query again: it leaves them out"
                )
            time.sleep(_POLL_S)

    def _is_stored(self, parts: Sequence[_Part]) -> bool:
        """Return whether the group has the ends of all ranges. Raises FencedError if it has neither ends nor starts.

        The group coordinator answers when no transaction with these offsets is open.
        """
        moving = [(part.group, one) for part in parts for one in part.ranges if len(one)]
        if all(self._stored.get((group, one.partition)) == one.start for group, one in moving):
            self._stored = {}  # if the outcome of this transaction is unknown, the group is asked
            return False
        deadline = self._cluster.deadline(self._producer.id.timeout_ms)
        wanted = {name: [one.partition for group, one in moving if group == name] for name, _ in moving}
        found = {
            group: committed(self._cluster, group, deadline, in_zookeeper=False, partitions=partitions)
            for group, partitions in wanted.items()
        }
        at = {(group, one.partition): found[group].get(one.partition) for group, one in moving}
        offsets = {key: -1 if offset is None else offset.offset for key, offset in at.items()}
        if all(offsets[group, one.partition] == one.until for group, one in moving):
            return True
        elsewhere = [(group, one) for group, one in moving if offsets[group, one.partition] > one.start]
        if elsewhere:
            group, one = elsewhere[0]
            raise FencedError(
                f"group {group}: cannot write the batch with {one}: the group has offset "
                f"{offsets[group, one.partition]} for this partition, not the start of the range. Another run has "
                "written these records, or the group was reset. Nothing was written. Start the query again: it "
                "continues at the group's offsets"
            )
        return False

    def _of(self, what: str) -> str:
        return f"{what} for transactional id {self._producer.id.name!r}"

    # -- the records --------------------------------------------------------------------------------------------------

    def _write_records(
        self, context: SparkContext, batch: DataFrame, transaction: Transaction, *, clustered: bool
    ) -> int:
        """Write all rows, and return their number. Raises TransactionAbortedError if Spark has run a task again."""
        rows, options, packed = batch, self._options, frozenset[str]()
        partitions = 1 if clustered else _partitions_of(rows)
        if partitions > 1:
            from streamgroup.executor.write.sink_writer import PACKED  # noqa: PLC0415  (loads pyarrow)

            # Spark converts each row several times on its way through a shuffle, so many of them travel as one.
            packed = frozenset({"value", "timestamp", *({"key", "headers"} & set(batch.columns))})
            tasks = min(partitions, context.defaultParallelism)
            rows = rows.mapInArrow(Pack(options, packed, tasks), from_arrow_schema(PACKED)).repartitionById(
                tasks, "task"
            )
            options = replace(options, include_timestamp=True)
        is_kept = _has_shuffle(rows)
        if is_kept:
            # If Spark loses the output of a shuffle it runs the stage after it again, with attempt number 0, so a task
            # could not refuse to write. A stage that reads a local checkpoint is not run again. If it loses a part of
            # the shuffle before, tasks that pack again may choose other partitions: Spark notices by its checksums
            # and runs all of both stages again.
            require_checksums(batch.sparkSession.conf)
            rows = rows.localCheckpoint()
        try:
            writing = Write(options, transaction, packed, speculates=self._speculates)
            found = rows.mapInArrow(writing, _WRITTEN).collect()
        except Exception as error:
            if _REPEATED in str(error):
                raise TransactionAbortedError(
                    f"transactional id {transaction.id.name!r}: a task has failed or was slow (see its log), and Spark "
                    "has run it again. The transaction was aborted"
                ) from error
            raise
        finally:
            if is_kept:
                _unpersist(context, rows)
        return _checked(found)


def require_checksums(conf: RuntimeConfig) -> None:
    """Raise ConfigError if Spark would not notice that a task before a shuffle gives other rows when it runs again.

    Both options are on by default.
    """
    option = " and ".join(name for name in _CHECKSUMS if str(conf.get(name, "true")).lower() == "false")
    if option:
        raise ConfigError(
            f"cannot write a batch with a shuffle in a transaction while {option} is false: if Spark lost a "
            "part of the shuffle and ran its tasks again, records could be lost or repeated. Leave the option out"
        )


def _checked(found: Sequence[Any]) -> int:
    """Return the number of records. Raises ConfigError if two tasks have written to one partition."""
    task_of: dict[tuple[str, int], int] = {}
    count = 0
    for row in found:
        for topic, partition, records in json.loads(row["written"]):
            if task_of.setdefault((topic, partition), row["task"]) != row["task"]:
                raise ConfigError(
                    f"cannot write {topic}-{partition} in a transaction from two tasks. Nothing of the batch is "
                    "visible. Leave clustered out: then the rows of a partition are brought into one task"
                )
            count += records
    return count


def _partitions_of(rows: Any) -> int:
    return int(rows._jdf.queryExecution().toRdd().getNumPartitions())


def _has_shuffle(rows: Any) -> bool:
    return "Shuffle" in str(rows._jdf.queryExecution().toRdd().toDebugString())


def _unpersist(context: Any, rows: Any) -> None:
    """Free the rows that a local checkpoint has stored. Spark would do so when the driver collects garbage.

    `unpersist` of the RDD does the same, and logs a warning that the rows are gone.
    """
    context._jsc.sc().unpersistRDD(rows._jdf.queryExecution().logical().rdd().id(), False)


class Pack(PromptInTasks):
    """The function of the tasks that choose the partition of each row, and pack the rows of each partition."""

    def __init__(self, options: SinkOptions, names: frozenset[str], tasks: int) -> None:
        self._options, self._names, self._tasks = options, names, tasks

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from streamgroup.executor.write.sink_writer import pack_rows  # noqa: PLC0415  (the driver does not write)

        log_warnings_to_stderr()
        yield from pack_rows(batches, self._options, self._names, self._tasks)
        exempt_modules()


class Write(PromptInTasks):
    """The function of the tasks that write a batch: it takes their rows and returns one row with the result.

    `packed` has the columns of records that `Pack` has packed, none if the rows come as they are.
    """

    def __init__(
        self, options: SinkOptions, transaction: Transaction, packed: frozenset[str], *, speculates: bool
    ) -> None:
        self._options, self._transaction, self._packed, self._speculates = options, transaction, packed, speculates

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415

        from streamgroup.executor.write.sink_writer import unpack_rows, write  # noqa: PLC0415

        log_warnings_to_stderr()
        context = TaskContext.get()
        assert context is not None, "outside of a task"
        if context.attemptNumber():
            if self._speculates:
                time.sleep(_LOSER_WAITS_S)
            raise TransactionAbortedError(_REPEATED)
        rows = unpack_rows(batches, self._packed) if self._packed else batches
        totals = write(rows, self._options, self._transaction)
        written = [(tp.topic, tp.partition, part.records) for tp, part in totals.partitions.items()]
        exempt_modules()
        yield pa.RecordBatch.from_pydict(
            {"task": [context.partitionId()], "written": [json.dumps(written)]},
            pa.schema([("task", pa.int32()), ("written", pa.string())]),
        )

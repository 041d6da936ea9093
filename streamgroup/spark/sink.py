"""The writers of `format("streamgroup")`, which Spark calls in the driver and in tasks to write rows to Kafka.

Delivery is at least once: Spark may run a task again whose records are already written, and a stopped query may repeat
its last batch. Within a task the producer is idempotent, so retries of a request repeat nothing.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from streamgroup.coordinator.log_output import NOTES, log_to_stderr, log_warnings_to_stderr
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.executor.write.written import WriteTotals
from streamgroup.frozen import frozen
from streamgroup.kafka.producer.columns import check_columns
from streamgroup.kafka.producer.kafka07 import Kafka07Target
from streamgroup.options.types import SinkOptions
from streamgroup.spark.tasks import PromptInTasks, exempt_modules
from streamgroup.text import counted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("streamgroup")


@dataclass(frozen=True)
class RecordsWritten(WriterCommitMessage):
    """What one task reports: the records that it has written. All brokers except Kafka 0.7 have acknowledged them."""

    written: WriteTotals


@frozen
class TaskOptions:
    """What each task needs to write: the options, and for Kafka 0.7 the brokers and topics."""

    options: SinkOptions
    kafka07: Kafka07Target | None = None


def check_write(schema: StructType, options: SinkOptions) -> None:
    """Check the columns of a query that is to be written. Raises ConfigError."""
    columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    check_columns(columns, options.topic, include_timestamp=options.include_timestamp)
    exempt_modules()


def planned(options: SinkOptions) -> TaskOptions:
    """Find the brokers of a write, in ZooKeeper if the options name it. Return the options for the tasks.

    Raises ConfigError for options that the cluster does not support, TransportError if no broker is found.
    """
    from streamgroup.coordinator.write_plan import plan_write  # noqa: PLC0415  (tasks do not plan)

    return TaskOptions(*plan_write(options))


def refuse_overwrite() -> NoReturn:
    """Raise ConfigError: a batch write cannot replace a topic."""
    raise ConfigError(
        "cannot overwrite a topic: records are only ever appended. Use mode('append'); to begin with an empty topic, "
        "delete it and create it again before"
    )


def _write(batches: Iterator[pa.RecordBatch], task: TaskOptions) -> RecordsWritten:
    log_warnings_to_stderr()
    if task.kafka07 is not None:
        from streamgroup.executor.write.sink_writer07 import write07  # noqa: PLC0415  (the driver does not write)

        written = write07(batches, task.options, task.kafka07)
    else:
        from streamgroup.executor.write.sink_writer import write  # noqa: PLC0415

        written = write(batches, task.options)
    exempt_modules()
    return RecordsWritten(written)


def _total(messages: Sequence[WriterCommitMessage | None]) -> WriteTotals:
    total = WriteTotals()
    for message in messages:
        if isinstance(message, RecordsWritten):
            total.merge(message.written)
    return total


def _report(messages: Sequence[WriterCommitMessage | None], level: int) -> None:
    exempt_modules()
    total = _total(messages)
    _say(total.notes)
    records, partitions = counted(total.records, "record"), counted(len(total.partitions), "partition")
    log.log(level, "wrote %s (%d bytes) to %s", records, total.bytes, partitions)
    _show_details(total, "wrote")


def _show_details(total: WriteTotals, words: str) -> None:
    """Log at DEBUG a line for each partition. Without DEBUG no line is made: there may be thousands."""
    if log.isEnabledFor(logging.DEBUG):
        for sentence in total.details():
            log.debug("%s %s", words, sentence)


def _say(notes: Iterable[str]) -> None:
    """Log each sentence once in this process, which serves all batches of a stream."""
    log_to_stderr()
    NOTES.log(sorted(notes))


class GroupBatchWriter(PromptInTasks, DataSourceArrowWriter):
    """The writer of `df.write`. Spark pickles it into the tasks."""

    def __init__(self, options: SinkOptions) -> None:
        _say(options.notes)
        self._task = planned(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task. Returns when all are delivered. Raises ProduceError and its kinds."""
        return _write(iterator, self._task)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log what was written. The records are in Kafka already."""
        _report(messages, logging.INFO)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Warn of the records that were written before the write failed: writing again repeats them."""
        _warn_of_abort(messages)


class WriteNotPlanned(pickle.PickleError):
    """The brokers of a stream's batch were not found. PySpark hides the messages of other errors raised in pickling."""


class GroupStreamWriter(PromptInTasks, DataSourceStreamArrowWriter):
    """The writer of `df.writeStream`. Spark's planner makes one for each batch, and pickles it into the tasks.

    The process that commits batches makes writers too. It never pickles them, so it does not read ZooKeeper.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._task: TaskOptions | None = None if options.client.zookeeper else planned(options)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for the tasks, with the brokers that are registered now. Raises WriteNotPlanned."""
        _say(self._options.notes)
        if self._task is None:
            try:
                self._task = planned(self._options)
            except StreamGroupError as error:
                raise WriteNotPlanned(str(error)) from error
        return {"_options": self._task.options, "_task": self._task}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task. Returns when all are delivered. Raises ProduceError and its kinds."""
        assert self._task is not None
        return _write(iterator, self._task)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Log what was written, at the level DEBUG. The records are in Kafka already."""
        _report(messages, logging.DEBUG)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Warn of the records that were written before the batch failed: the next run repeats them."""
        _warn_of_abort(messages)


def _warn_of_abort(messages: Sequence[WriterCommitMessage | None]) -> None:
    log_to_stderr()
    total = _total(messages)
    if total.records:
        log.warning(
            "the write has failed after %d records were written, which stay in Kafka: writing again repeats them",
            total.records,
        )
        _show_details(total, "the failed write wrote")

"""The writers of `format("streamgroup")`: what Spark calls in the driver and in tasks to write a query's rows to Kafka.

Delivery is at least once: Spark may run a task again whose records are already written, and a stopped query may repeat
its last batch. Within a task the producer is idempotent, so retries of a request repeat nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from streamgroup.errors import ConfigError
from streamgroup.executor.written import Written
from streamgroup.options.types import SinkOptions
from streamgroup.producer.columns import check_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("streamgroup")


@dataclass(frozen=True)
class RecordsWritten(WriterCommitMessage):
    """What one task has written: its records are acknowledged."""

    written: Written


def check_write(schema: StructType, options: SinkOptions) -> None:
    """Check the columns of a query that is to be written, and what it asks for. Raises ConfigError."""
    if options.client.zookeeper is not None:
        raise ConfigError(
            "cannot write with zookeeper.connect: a write finds its brokers by kafka.bootstrap.servers. Name brokers "
            "of Kafka 0.8 or later there. Kafka 0.7, which has no such list, cannot be written from Spark"
        )
    if options.verify:
        raise ConfigError(
            "cannot write with verify=true: it is for Kafka 0.7, which cannot be written from Spark. Leave it out: "
            "later brokers acknowledge what they have written"
        )
    columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    check_columns(columns, options.topic, include_timestamp=options.include_timestamp)
    for note in options.notes:
        log.info("%s", note)


def refuse_overwrite() -> NoReturn:
    """Raise ConfigError: a batch write cannot replace a topic."""
    raise ConfigError(
        "cannot overwrite a topic: records are only ever appended. Use mode('append'); to begin with an empty topic, "
        "delete it and create it again before"
    )


def _write(batches: Iterator[pa.RecordBatch], options: SinkOptions) -> RecordsWritten:
    from streamgroup.executor.sink_writer import write  # noqa: PLC0415  (the driver does not write)

    return RecordsWritten(write(batches, options))


def _total(messages: Sequence[WriterCommitMessage | None]) -> Written:
    total = Written()
    for message in messages:
        if isinstance(message, RecordsWritten):
            total.merge(message.written)
    return total


def _report(messages: Sequence[WriterCommitMessage | None]) -> None:
    total = _total(messages)
    log.info("wrote %d records (%d bytes) to %d partitions", total.records, total.bytes, len(total.partitions))


class GroupBatchWriter(DataSourceArrowWriter):
    """The writer of `df.write`. Spark pickles it into the tasks."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task. Returns when all are acknowledged. Raises ProduceError and its kinds."""
        return _write(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log what was written. The records are in Kafka already."""
        _report(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log what was written before the write failed. Kafka keeps those: writing again repeats them."""
        _warn_of_abort(messages)


class GroupStreamWriter(DataSourceStreamArrowWriter):
    """The writer of `df.writeStream`. Spark pickles it into the tasks."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task. Returns when all are acknowledged. Raises ProduceError and its kinds."""
        return _write(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Log what was written. The records are in Kafka already."""
        _report(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log what was written before the batch failed. Kafka keeps those; the next run repeats the batch."""
        _warn_of_abort(messages)


def _warn_of_abort(messages: Sequence[WriterCommitMessage | None]) -> None:
    total = _total(messages)
    if total.records:
        log.warning(
            "the write has failed after %d records were written, which stay in Kafka: writing again repeats them",
            total.records,
        )

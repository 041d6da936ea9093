"""Writes the rows of a Spark task to Kafka: divides Arrow batches into records for each partition."""

from __future__ import annotations

import time
import weakref
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from streamgroup.errors import UnknownPartition
from streamgroup.executor.write.producer import PRODUCERS, TRANSACTIONAL_PRODUCERS, Placed, RecordSlices, TaskProducer
from streamgroup.executor.write.written import WriteTotals
from streamgroup.kafka.producer.columns import SinkColumns, read_columns
from streamgroup.kafka.producer.partitioners import Partitioner, ProducerTopic
from streamgroup.kafka.producer.routing import Routes, RowSpan, route
from streamgroup.kafka.producer.transaction import Transaction
from streamgroup.kafka.records.encode import RecordColumns
from streamgroup.kafka.records.fields import Longs
from streamgroup.model import TopicInfo, TopicPartition
from streamgroup.options.types import SinkOptions


def write(
    batches: Iterable[pa.RecordBatch], options: SinkOptions, transaction: Transaction | None = None
) -> WriteTotals:
    """Write all rows of `batches`, wait until they are acknowledged, and return the totals by partition.

    The records belong to `transaction`, if there is one. Reads all of `batches` unless an error is raised: ProduceError
    if a broker refuses records, EncodeError for a row that cannot be written, TransportError if no broker answers,
    FencedError or TransactionAbortedError if the transaction has ended.
    """
    pool = PRODUCERS if transaction is None else TRANSACTIONAL_PRODUCERS
    with pool.lend((options.client, options.producer)) as producer:
        if transaction is not None:
            producer.begin(transaction)
        writer = SinkWriter(producer, options)
        for batch in batches:
            writer.write(batch)
        producer.flush()
        return producer.written


RECORDS: Mapping[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "timestamp": pa.timestamp("us", "UTC"),
}
"""The columns of the records that `pack_rows` may yield, with their types."""
PACKED = pa.schema([("task", pa.int32()), ("topic", pa.string()), ("partition", pa.int32()), ("records", pa.binary())])
"""The columns that `pack_rows` yields."""
_PACK_BYTES = 4 << 20
_UNPACK_BYTES = 1 << 20


def pack_rows(
    batches: Iterable[pa.RecordBatch], options: SinkOptions, names: Collection[str], tasks: int
) -> Iterator[pa.RecordBatch]:
    """Choose the partitions of all rows, and yield few large rows: many records of one partition in each.

    `records` is an Arrow IPC message with the columns `names` of RECORDS, of some 4 MB at most unless a record is
    larger. The records of a partition keep their order. `task` is which of `tasks` is to write the partition, from 0
    on. Nothing is written. Raises as `write` does.
    """
    schema = _schema_of(names)
    with PRODUCERS.lend((options.client, options.producer)) as producer:
        writer = SinkWriter(producer, options)
        for batch in _gathered(batches, _PACK_BYTES):
            for tp, records in writer.pack(batch, schema):
                task = (zlib.crc32(tp.topic.encode()) + tp.partition) % tasks
                columns = [pa.array([value], kind) for value, kind in zip((task, *tp), PACKED.types, strict=False)]
                yield pa.RecordBatch.from_arrays([*columns, _binary(records)], schema=PACKED)


def unpack_rows(batches: Iterable[pa.RecordBatch], names: Collection[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that `pack_rows` has packed, with their topic and partition.

    They are copied, so that a few of them do not keep a whole batch of Spark in memory. Small pieces of several
    partitions are yielded together.
    """
    schema = _schema_of(names)

    def unpacked() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for _, topic, partition, records in zip(*batch.columns, strict=True):
                rows = pa.ipc.read_record_batch(records.as_buffer(), schema)
                places = [pa.repeat(topic, len(rows)), pa.repeat(partition, len(rows))]
                yield pa.RecordBatch.from_arrays([*places, *rows.columns], ["topic", "partition", *schema.names])

    yield from _gathered(unpacked(), _UNPACK_BYTES)


def _binary(data: pa.Buffer) -> pa.Array:
    """Return an array of `data` alone, without a copy."""
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(np.array([0, data.size], np.int32)), data])


def _schema_of(names: Collection[str]) -> pa.Schema:
    return pa.schema([(name, kind) for name, kind in RECORDS.items() if name in names])


def _gathered(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `batches` in copies of at least `size` bytes each, but for the last one."""
    few: list[pa.RecordBatch] = []
    gathered = 0
    for batch in batches:
        few.append(batch)
        gathered += batch.nbytes
        if gathered >= size:
            yield pa.concat_batches(few)
            few, gathered = [], 0
    if few:
        yield pa.concat_batches(few)


class SinkWriter:
    """Writes the rows of one task with a `TaskProducer`."""

    def __init__(
        self,
        producer: TaskProducer,
        options: SinkOptions,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._producer = producer
        producer.router = self._route_again
        self._rows = RowReader(options, clock)
        self._held = BatchMemory()
        self._most_held = options.producer.buffer_memory // 2
        """The most bytes of batches that slices may keep in memory. Above it, records are copied out of their batch."""
        self._batch_size = options.producer.batch_size
        self._is_adaptive = options.producer.partitioner == "default" and options.producer.adaptive_partitioning
        self._partitioner = Partitioner(
            options.producer.partitioner,
            batch_size=self._batch_size,
            rng=np.random.default_rng(),
            ignore_keys=options.producer.ignore_keys,
            adaptive=options.producer.adaptive_partitioning,
        )

    def write(self, batch: pa.RecordBatch) -> None:
        """Pass the rows of `batch` to the producer, in their order within each partition.

        Waits while `buffer.memory` is full.
        """
        columns, records = self._rows.read(batch)
        if len(columns):
            self._producer.append(list(self._payloads(columns, records)))

    def pack(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[tuple[TopicPartition, pa.Buffer]]:
        """Yield the records of `batch`, packed, in pieces of one partition. See `pack_rows` of the module."""
        columns, records = self._rows.read(batch)
        if not len(columns):
            return
        sizes = self._producer.encoder.sizes(records)
        routes = self._route(columns, sizes)
        if routes.order is not None:
            records, sizes = records.take(routes.order), sizes[routes.order]
        columns_of = {
            "key": records.key,
            "value": records.value,
            "headers": records.headers,
            "timestamp": pa.array(records.timestamp_ms * 1000, pa.timestamp("us", "UTC")),
        }
        arrays = [columns_of[name] for name in schema.names]
        filled = [pa.nulls(len(records)) if array is None else array for array in arrays]
        rows = pa.RecordBatch.from_arrays(
            [array.cast(kind) for array, kind in zip(filled, schema.types, strict=True)], schema=schema
        )
        ends = np.cumsum(sizes)
        for span in routes.spans:
            for start, stop, _ in _cut(span, ends, _PACK_BYTES):
                yield span.partition, rows.slice(start, stop - start).serialize()

    def _route_again(self, topic: str, records: RecordSlices) -> list[Placed]:
        """Choose partitions for records again, because the topic no longer has the first ones."""
        rows = records.columns()
        columns = SinkColumns(rows.key, rows.value, rows.timestamp_ms, rows.headers, topic, None, 0)
        return list(self._payloads(columns, rows))

    def _payloads(self, columns: SinkColumns, records: RecordColumns) -> Iterator[Placed]:
        sizes = self._producer.encoder.sizes(records)
        routes = self._route(columns, sizes)
        if routes.order is not None:
            records, sizes = records.take(routes.order), sizes[routes.order]
        ends = np.cumsum(sizes)
        named = columns.partition is not None and columns.partition.null_count < len(columns)
        is_crowded = self._held.bytes > self._most_held
        if not is_crowded:
            self._held.hold(records)
        for span in routes.spans:
            for start, stop, size in _cut(span, ends, self._producer.batch_size(span.partition.topic)):
                part, first = records, start
                if is_crowded and stop - start < len(records):
                    part, first = records.copy(start, stop - start), 0
                yield (
                    span.partition,
                    RecordSlices.of(part, first, first + stop - start, size, names_partition=named),
                )

    def _route(self, columns: SinkColumns, sizes: Longs) -> Routes:
        topics = {name: self._topic(self._producer.topic(name)) for name, _ in columns.rows_by_topic()}
        try:
            return route(columns, topics, self._partitioner, sizes)
        except UnknownPartition as error:  # the topic may have more partitions now
            topics[error.topic] = self._topic(self._producer.topic(error.topic, again=True))
            return route(columns, topics, self._partitioner, sizes)

    def _topic(self, info: TopicInfo) -> ProducerTopic:
        if not self._is_adaptive:
            return ProducerTopic.of(info)
        queued = self._producer.queued_bytes
        in_bytes = {p.partition: queued(TopicPartition(info.name, p.partition)) for p in info.partitions}
        waiting = {partition: -(-size // self._batch_size) for partition, size in in_bytes.items()}
        return ProducerTopic.of(info, waiting)


def _cut(span: RowSpan, ends: Longs, batch_size: int) -> Iterator[tuple[int, int, int]]:
    """Cut the rows of a partition into pieces of at most `batch_size` bytes. A larger record is a piece of its own.

    Yields start, stop and bytes of each piece. `ends` has the bytes up to the end of each row.
    """
    start = span.start
    while start < span.stop:
        before = int(ends[start - 1]) if start else 0
        fitting = int(np.searchsorted(ends, before + batch_size, "right"))
        stop = min(max(fitting, start + 1), span.stop)
        yield start, stop, int(ends[stop - 1]) - before
        start = stop


class BatchMemory:
    """Counts the bytes of Spark's batches that are still in memory. One thread uses it."""

    def __init__(self) -> None:
        self.bytes = 0
        """The bytes of the batches of which at least one record is not acknowledged."""

    def hold(self, records: RecordColumns) -> None:
        """Count `records` until their last slice is garbage-collected."""
        size = sum(array.nbytes for array in (records.key, records.value, records.headers) if array is not None)
        self.bytes += size
        weakref.finalize(records, self._release, size).atexit = False

    def _release(self, size: int) -> None:
        self.bytes -= size


class RowReader:
    """Converts the Arrow batches of one task to columns, and counts the rows, for errors that contain a row number."""

    def __init__(self, options: SinkOptions, clock: Callable[[], float] = time.time) -> None:
        self._options = options
        self._clock = clock
        self._rows = 0

    def read(self, batch: pa.RecordBatch) -> tuple[SinkColumns, RecordColumns]:
        """Return the columns of the next batch, and its records (without a copy). Raises as `read_columns` does."""
        columns = read_columns(
            batch,
            topic=self._options.topic,
            now_ms=int(self._clock() * 1000),
            include_timestamp=self._options.include_timestamp,
            first_row=self._rows,
        )
        self._rows += len(columns)
        return columns, RecordColumns(columns.key, columns.value, columns.timestamp_ms, columns.headers)

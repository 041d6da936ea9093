"""Writes the rows of a Spark task to Kafka 0.7."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamgroup.executor.pools import ProducerPool
from streamgroup.executor.write.producer07 import Kafka07TaskProducer
from streamgroup.executor.write.sink_writer import RowReader
from streamgroup.executor.write.written import WriteTotals
from streamgroup.kafka.producer.columns import SinkColumns
from streamgroup.kafka.producer.kafka07 import Kafka07Config, Kafka07Target
from streamgroup.kafka.producer.partitioners import Partitioner, ProducerTopic
from streamgroup.kafka.producer.routing import route
from streamgroup.kafka.records.encode import Encoder, RecordColumns, RecordFormat
from streamgroup.model import ClusterSnapshot, Dialect, TopicPartition
from streamgroup.options.types import ClientOptions, SinkOptions

_SIZES = Encoder(RecordFormat.V07_1)


def _open(key: tuple[ClientOptions, Kafka07Config]) -> Kafka07TaskProducer:
    """Return a producer without brokers: each task gives it those of its plan."""
    client, config = key
    return Kafka07TaskProducer(ClusterSnapshot({}, {}, dialect=Dialect.KAFKA07), config, client)


PRODUCERS07 = ProducerPool(_open)
"""The producers of this process for Kafka 0.7."""


def write07(batches: Iterable[pa.RecordBatch], options: SinkOptions, target: Kafka07Target) -> WriteTotals:
    """Write all rows of `batches` to the Kafka 0.7 cluster `target`, and return the totals by partition.

    Kafka 0.7 acknowledges nothing: see `producer07.py` for what a delivered record is. Raises as `sink_writer.write`.
    """
    with PRODUCERS07.lend((options.client, target.config)) as producer:
        producer.update(target.snapshot)
        writer = SinkWriter07(producer, options)
        for batch in batches:
            writer.write(batch)
        producer.flush()
        return producer.written


class SinkWriter07:
    """Writes the rows of one task with a `Kafka07TaskProducer`."""

    def __init__(self, producer: Kafka07TaskProducer, options: SinkOptions) -> None:
        self._producer = producer
        self._rows = RowReader(options)
        name = options.producer.partitioner
        self._partitioner = Partitioner(
            "hashcode" if name == "default" else name,  # as the producer of 0.7 does
            batch_size=options.producer.batch_size,
            rng=np.random.default_rng(),
            ignore_keys=options.producer.ignore_keys,
        )

    def write(self, batch: pa.RecordBatch) -> None:
        """Pass the rows of `batch` to the producer, in their order within each partition.

        Waits while the producer's buffer is full. Raises UnknownTopicError for a partition that cannot be written to.
        """
        columns, records = self._rows.read(batch)
        for partition, part, movable in self._parts(columns, records):
            self._producer.write(partition, part, movable=movable)

    def _parts(
        self, columns: SinkColumns, records: RecordColumns
    ) -> Iterator[tuple[TopicPartition, RecordColumns, bool]]:
        """Yield the rows of each partition, and whether sets without keys may go to another one."""
        topics = {name: self._topic(columns, name, rows) for name, rows in columns.rows_by_topic()}
        routes = route(columns, topics, self._partitioner, _SIZES.sizes(records))
        if routes.order is not None:
            records = records.take(routes.order)
        movable = columns.partition is None or columns.partition.null_count == len(columns)
        for span in routes.spans:
            yield span.partition, records.slice(span.start, span.stop - span.start), movable

    def _topic(self, columns: SinkColumns, name: str, rows: npt.NDArray[np.int64] | None) -> ProducerTopic:
        """Return a topic. Rows may also name broker-partitions that brokers have not made yet."""
        topic = ProducerTopic.of(self._producer.topic(name))
        if columns.partition is None:
            return topic
        column = columns.partition if rows is None else columns.partition.take(pa.array(rows))
        named = pc.unique(column.drop_null()).to_numpy()
        for number in named:
            self._producer.require(TopicPartition(name, int(number)))
        return replace(topic, nameable=np.union1d(topic.numbers, named))

"""Writes record batches to the cluster of a command line, with the producer for its version."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Self

import pyarrow as pa

from streamgroup.coordinator.write_plan import plan_registered, plan_write
from streamgroup.executor.write.producer import TaskProducer
from streamgroup.executor.write.producer07 import Kafka07TaskProducer
from streamgroup.executor.write.sink_writer import SinkWriter
from streamgroup.executor.write.sink_writer07 import SinkWriter07
from streamgroup.executor.write.written import WriteTotals
from streamgroup.kafka.cluster.interface import open_cluster
from streamgroup.kafka.cluster.registered import ClusterFromZooKeeper
from streamgroup.kafka.producer.kafka07 import Kafka07Target
from streamgroup.logformat import KAFKA07_LOG, KAFKA_LOG, LogFormat
from streamgroup.model import ClusterSnapshot
from streamgroup.options.types import SinkOptions


class RecordWriter:
    """Writes record batches with the columns of a write. Only one thread may use it and close it.

    For Kafka 0.7 it watches brokers and topics in ZooKeeper, so it soon writes to all partitions of a new topic.
    """

    def __init__(self, options: SinkOptions) -> None:
        """Find the brokers. Raises ConfigError, and TransportError if ZooKeeper has no brokers."""
        self.rows = 0
        """The rows of all batches so far, including rejected batches."""
        self._changed = threading.Event()
        self._closing = ExitStack()
        with ExitStack() as unfinished:
            self._open(options, unfinished)
            self._closing = unfinished.pop_all()

    def _open(self, options: SinkOptions, closing: ExitStack) -> None:
        self._refreshed: ClusterFromZooKeeper | None = None
        target: Kafka07Target | None
        if options.client.zookeeper is None:
            self.options, target = plan_write(options)
        else:
            cluster = open_cluster(options.client, self._changed.set)
            closing.callback(cluster.close)
            assert isinstance(cluster, ClusterFromZooKeeper)
            self._refreshed = cluster
            self.options, target = plan_registered(options, cluster)
        self._producer: TaskProducer | Kafka07TaskProducer
        if target is None:
            self._refreshed = None
            producer = TaskProducer(self.options.client, self.options.producer)
            self._producer, self._writer = producer, SinkWriter(producer, self.options).write
        else:
            producer07 = Kafka07TaskProducer(
                target.snapshot, target.config, self.options.client, refresh=self._registered
            )
            self._producer, self._writer = producer07, SinkWriter07(producer07, self.options).write
        closing.callback(self._producer.close)
        self.log_format: LogFormat = KAFKA_LOG if target is None else KAFKA07_LOG

    @property
    def written(self) -> WriteTotals:
        """The records that are delivered so far."""
        return self._producer.written

    def write(self, batch: pa.RecordBatch) -> None:
        """Pass a batch to the producer. Raises EncodeError, and ProduceError, possibly of an earlier batch."""
        if self._refreshed is not None and self._changed.is_set():
            self._changed.clear()
            assert isinstance(self._producer, Kafka07TaskProducer)
            self._producer.update(self._registered())
        self.rows += batch.num_rows
        self._writer(batch)

    def flush(self) -> None:
        """Wait until all records are delivered. Raises ProduceError."""
        self._producer.flush()

    def close(self) -> None:
        """Close all connections, and discard undelivered records."""
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _registered(self) -> ClusterSnapshot:
        assert self._refreshed is not None
        topics = None if self.options.topic is None else [self.options.topic]
        return self._refreshed.snapshot(topics, self._refreshed.deadline(), refresh=True)

"""A driver and a task that write transactions, without Spark."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as AssignedPartition

from streamgroup.executor.write.sink_writer import write
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.cluster.transactions import TransactionRunner, has_transactions_v2
from streamgroup.kafka.producer.transaction import Ended, Transaction, TransactionalId, TransactionalProducer
from streamgroup.kafka.wire.messages.produce import (
    ALL_ACKS,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from streamgroup.model import TopicPartition
from streamgroup.options.parse import parse_sink
from streamgroup.testing import KafkaServer
from tests.unit.kafka.records.encoder import Record, encode_batch
from tests.waiting import soon

_BEFORE_V2 = 8
"""A version of Produce with which the producer adds the partitions to its transaction."""


class Transactions:
    """The transactions of one id that write to `topic`."""

    def __init__(self, server: KafkaServer, topic: str, *, timeout_ms: int = 60_000) -> None:
        self.options = parse_sink({"kafka.bootstrap.servers": server.bootstrap_servers, "topic": topic})
        self.cluster = KafkaCluster(self.options.client)
        self.runner = TransactionRunner(self.cluster)
        self.producer = TransactionalProducer(TransactionalId(f"{topic}-copy", timeout_ms))

    def begin(self) -> Transaction:
        deadline = self.cluster.deadline()
        is_v2 = has_transactions_v2(self.cluster, deadline)
        return self.runner.run(self.producer.begin(is_v2=is_v2), "producer id", deadline)

    def write(self, transaction: Transaction, values: Sequence[str]) -> None:
        """Write as one task does."""
        rows = pa.record_batch({"value": pa.array([value.encode() for value in values])})
        assert write([rows], self.options, transaction).records == len(values)

    def hang(self, partition: int) -> None:
        """Write a record of no transaction, as a late request does. The brokers must not verify transactions."""
        deadline = self.cluster.deadline()
        identity, topic = self.producer.identity, self.options.topic
        assert topic is not None
        assert identity.epoch == 0
        record = Record(0, int(time.time() * 1000), value=b"late")
        records = encode_batch([record], transactional=True, producer_id=identity.producer_id)
        rows = (PartitionProduceData(index=partition, records=records),)
        request = ProduceRequest(
            transactional_id=self.producer.id.name,
            acks=ALL_ACKS,
            timeout_ms=30_000,
            topic_data=(TopicProduceData(name=topic, partition_data=rows),),
        )
        leader = self.cluster.snapshot({topic}, deadline).leader(TopicPartition(topic, partition))
        assert leader is not None
        response = self.cluster.call(request, leader, deadline, ceiling=_BEFORE_V2)
        assert response.responses[0].partition_responses[0].error_code == 0

    def commit(self) -> None:
        assert self.runner.run(self.producer.commit([]), "end", self.cluster.deadline()) is Ended.COMMITTED

    def abort(self) -> None:
        self.runner.run(self.producer.abort(), "abort", self.cluster.deadline())


def read_committed(server: KafkaServer, topic: str) -> list[str]:
    """Return the values that a consumer with `isolation.level=read_committed` reads, by partition in their order."""
    settings = {"enable.partition.eof": True, "isolation.level": "read_committed", "group.id": "unused"}
    consumer = Consumer({"bootstrap.servers": server.direct_servers, "log_level": 0, **settings})
    found: list[str] = []
    with closing(consumer):
        left = set(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
        consumer.assign([AssignedPartition(topic, partition, 0) for partition in left])
        deadline = soon(30)
        while left:
            assert soon(0) < deadline, f"the ends of partitions {left} are not reached"
            for message in consumer.consume(1_000, 0.2):
                if message.error() is None:
                    found.append(message.value().decode())
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF
                    left.discard(message.partition())
    return found

"""The common parts of the Spark tests: load, queries, and checks of Kafka and of the sinks."""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow.parquet as pq
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamgroup.kafka.cluster.admin import committed as committed_offsets
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.options.parse import parse_client
from streamgroup.testing import KafkaServer
from tests.waiting import repeatedly, wait_until

Rows = list[tuple[Any, ...]]

SHORT_SESSION = {
    "kafka.session.timeout.ms": "6000",
    "kafka.heartbeat.interval.ms": "300",
    "kafka.metadata.max.age.ms": "1000",
}
"""Sessions that end within a test's timeout."""


@dataclass
class Load:
    """Records with values `topic-partition-sequence`, each of them once."""

    server: KafkaServer
    topic: str
    partitions: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)

    def send(self, count: int, **record: Any) -> list[str]:
        """Produce `count` records round robin over the partitions; their values."""
        producer = Producer(
            {
                "bootstrap.servers": self.server.direct_servers,
                "linger.ms": 5,
                "enable.idempotence": True,
                **self.settings,
            }
        )
        failed: list[str] = []
        first = len(self.sent)
        values = [f"{self.topic}-{n % self.partitions}-{n}" for n in range(first, first + count)]
        for n, value in enumerate(values, first):
            while True:
                try:
                    producer.produce(
                        self.topic,
                        value.encode(),
                        partition=n % self.partitions,
                        on_delivery=lambda error, _: failed.append(str(error)) if error else None,
                        **record,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(30) == 0
        assert not failed
        self.sent += values
        return values


@contextmanager
def under_load(load: Load, count: int = 35) -> Iterator[None]:
    """`count` records every 0.2 s while the block lasts; fails where one did not arrive."""
    with repeatedly(lambda: load.send(count), 0.2):
        yield


class Streams:
    """The queries of one test."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.spark = spark
        self.home = home
        self._numbers = itertools.count()
        self._members = itertools.count()
        self._queries: list[StreamingQuery] = []

    def read(self, server: KafkaServer, topic: str, group: str, *, named: bool = True, **options: Any) -> DataFrame:
        """A stream of `topic` as a member of `group`; `__` in an option's name is a dot.

        Unless `named` is off, each has a `group.member` name of its own: all queries here are one application's (R28).
        """
        if named:
            options = {"group__member": f"m{next(self._members)}", **options}
        return (
            self.spark.readStream.format("streamgroup")
            .option("kafka.bootstrap.servers", server.bootstrap_servers)
            .option("kafka.group.id", group)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .options(**SHORT_SESSION)
            .options(**{name.replace("__", "."): str(value) for name, value in options.items()})
            .load()
        )

    def to_parquet(self, frame: DataFrame, name: str = "", **trigger: Any) -> Sunk:
        """Start a query into Parquet with a checkpoint and a directory of its own; the same name goes on there."""
        name = name or f"q{next(self._numbers)}"
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(self.home / f"{name}-checkpoint"))
        if trigger:
            writer = writer.trigger(**trigger)
        query = writer.start(str(self.home / f"{name}-out"))
        self._queries.append(query)
        return Sunk(query, self.home / f"{name}-out")

    def add(self, query: StreamingQuery) -> None:
        """Stop this query at the end, too."""
        self._queries.append(query)

    def stop_all(self) -> None:
        """Stop what still runs."""
        for query in self._queries:
            query.stop()


@dataclass
class Sunk:
    """A query into Parquet, and what it wrote."""

    query: StreamingQuery | None
    path: Path

    def rows(self, *columns: str) -> Rows:
        """The records that a reader of the directory sees now."""
        return rows_of(self.path, *columns)

    def values(self) -> list[str]:
        """The values, decoded."""
        return [bytes(value).decode() for (value,) in self.rows("value")]

    def finish(self, timeout: float = 60.0) -> None:
        """Wait for the end of an AvailableNow or Once query."""
        assert self.query.awaitTermination(timeout), "the query has not ended"


def rows_of(path: Path, *columns: str) -> Rows:
    """The records in a file sink's directory now: the files that its own log lists, without a Spark job."""
    return [row for file in _listed(path / "_spark_metadata") for row in _rows_of_file(file, columns)]


@functools.lru_cache(maxsize=1_000)
def _rows_of_file(file: Path, columns: Sequence[str]) -> Rows:
    """The records in one file of a sink, which never changes. Tests that wait for records ask for them often."""
    # Without the machinery for data sets of several files, which takes most of the time for a small file.
    table = pq.ParquetFile(file).read(columns=list(columns))
    return list(zip(*(table.column(name).to_pylist() for name in columns), strict=True))


def _listed(log: Path) -> list[Path]:
    batches = {int(p.name.removesuffix(".compact")): p for p in log.glob("[0-9]*")} if log.exists() else {}
    compacted = max((n for n, p in batches.items() if p.suffix == ".compact"), default=0)
    entries = [
        json.loads(line) for n, p in batches.items() if n >= compacted for line in p.read_text().splitlines()[1:]
    ]
    return [Path(urlparse(entry["path"]).path) for entry in entries if entry["action"] == "add"]


def assigned(query: StreamingQuery) -> list[int]:
    """The partitions that the newest document of a query holds (of one topic)."""
    progress = query.lastProgress
    if progress is None:
        return []
    offset = progress["sources"][0]["endOffset"]
    value = json.loads(offset) if isinstance(offset, str) else offset
    positions = value.get("positions", {}) if value else {}
    return sorted(int(p) for topic in positions.values() for p in topic)


def committed(server: KafkaServer, group: str, topic: str) -> dict[int, int]:
    """Return the group's committed offsets; a coordinator that still loads is waited for.

    librdkafka ends the process where it lists offsets while the coordinator loads, so it is not asked.
    """
    client, _ = parse_client({"kafka.bootstrap.servers": server.direct_servers})
    with closing(KafkaCluster(client)) as cluster:
        found = committed_offsets(cluster, group, cluster.deadline(20_000))
    return {tp.partition: commit.offset for tp, commit in found.items() if tp.topic == topic}


def log_ends(server: KafkaServer, topic: str, partitions: int) -> dict[int, int]:
    """The ends of a topic's logs, as another client sees them."""
    wanted = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(partitions)}
    admin = _admin(server)
    return {tp.partition: future.result(20).offset for tp, future in admin.list_offsets(wanted).items()}


def reset_offsets(server: KafkaServer, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Reset a group without members, as an operator does; one whose last member is just leaving is waited for."""
    admin = _admin(server)
    wanted = [TopicPartition(topic, p, offset) for p, offset in offsets.items()]

    def is_done() -> bool:
        altered = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])[group].result(20)
        return all(tp.error is None for tp in altered.topic_partitions)

    wait_until(is_done, f"group {group} is empty and its offsets are set")


def delete_records(server: KafkaServer, topic: str, before: Mapping[int, int]) -> None:
    """Delete the records of each partition below an offset."""
    admin = _admin(server)
    wanted = [TopicPartition(topic, p, offset) for p, offset in before.items()]
    for deleted in admin.delete_records(wanted).values():
        deleted.result(20)


def repeated(values: Iterable[str]) -> dict[str, int]:
    """The values that occur more than once."""
    return {value: count for value, count in Counter(values).items() if count > 1}


def _admin(server: KafkaServer) -> AdminClient:
    """To be kept in a variable: what a client still waits for ends with it."""
    return AdminClient({"bootstrap.servers": server.direct_servers, "log_level": 3})


def damage(server: KafkaServer, topic: str, offset: int) -> None:
    """Flip a bit of the last byte of the batch at `offset`, while the broker is down; no flag tells it to look."""
    (broker,) = server.brokers
    broker.stop()  # in good order, else the broker checks the log when it starts, and cuts it
    (segment,) = Path(server.data_dir).glob(f"*/data/{topic}-0/{0:020d}.log")
    content = bytearray(segment.read_bytes())
    position = 0
    while int.from_bytes(content[position : position + 8], "big") != offset:
        position += 12 + int.from_bytes(content[position + 8 : position + 12], "big")
    end = position + 12 + int.from_bytes(content[position + 8 : position + 12], "big")
    content[end - 3] ^= 1
    segment.write_bytes(content)
    broker.restart()

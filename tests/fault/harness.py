"""A stream as Spark runs it, without Spark: the real coordinator and the real fetcher in one thread of the test.

What Spark does around them is little: it keeps a log of planned and one of finished batches, asks for the next batch
with the end of the last one, replays what was planned and not finished, and calls a sink. So a member costs no JVM, and
three of them run in one test within seconds.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer

from streamgroup.coordinator.coordinator import Coordinator
from streamgroup.coordinator.planning.document import from_value, to_value
from streamgroup.executor.read.fetcher import read
from streamgroup.kafka.cluster import admin
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.model import INITIAL_DOCUMENT, LATEST, CommittedOffset, OffsetRange, TopicPartition
from streamgroup.options.parse import parse_source
from streamgroup.options.types import Isolation
from streamgroup.testing import KafkaServer
from tests.waiting import TIMEOUT_S, repeatedly, wait_until

T = TypeVar("T")

QUICK = {
    "kafka.session.timeout.ms": "6000",
    "kafka.heartbeat.interval.ms": "200",
    "kafka.request.timeout.ms": "1500",
    "kafka.metadata.max.age.ms": "1000",
    "maxOffsetsPerTrigger": "200",
}
"""Faults that show within seconds, and batches so small that one is always near its boundary."""


QUICK_GROUPS = {
    "group.consumer.min.session.timeout.ms": 6000,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.migration.policy": "bidirectional",
}
"""The same for a broker: sessions and heartbeats of the consumer protocol."""


class Row(NamedTuple):
    """One record in a sink."""

    partition: TopicPartition
    offset: int
    value: str


class Stream:
    """One stream: its logs and its sink outlive its runs. The sink keeps a batch by its number, once."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        self.name = name
        self.options = parse_source(dict(options), streaming=True)
        self.offsets: list[str] = []
        """The offset log: the text of the end document of batch 0, 1, ..."""
        self.finished = 0
        """The commit log: how many of those batches are in the sink."""
        self.sunk: dict[int, list[Row]] = {}
        self.slowest_s = 0.0
        """The longest call of `latest_offset`."""
        self.error: BaseException | None = None
        self._coordinator: Coordinator | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<query {self.name}: {self.finished} of {len(self.offsets)} batches, {self.status or self.error}>"

    @property
    def rows(self) -> list[Row]:
        """The records that a reader of the sink sees, in the order in which they were written."""
        sunk = dict(self.sunk)
        return list(itertools.chain.from_iterable(sunk[batch] for batch in sorted(sunk)))

    @property
    def status(self) -> dict[str, Any]:
        """The status of its coordinator process; empty while it does not run."""
        return {} if self._coordinator is None else self._coordinator.status()

    @property
    def held(self) -> set[str]:
        """The partitions that it holds."""
        return set(self.status.get("positions", ()))

    @property
    def runs(self) -> bool:
        """Whether it runs, which it does until it is stopped or fails."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def ranges(self) -> list[tuple[OffsetRange, ...]]:
        """The ranges of every batch planned."""
        return [from_value(json.loads(text)).ranges for text in self.offsets]

    def start(self) -> Self:
        """Begin, or go on from the logs."""
        assert not self.runs, f"{self.name} runs already"
        self.error = None
        self._stopping.clear()
        self._coordinator = Coordinator(self.options)
        self._thread = threading.Thread(target=self._run, args=[self._coordinator], name=f"query-{self.name}")
        self._thread.start()
        return self

    def stop(self) -> None:
        """As `query.stop()`: the batch in flight is finished, the member commits what is proven and leaves."""
        self._stopping.set()
        if self._coordinator is not None:
            self._coordinator.stop()
        if self._thread is not None:
            self._thread.join(TIMEOUT_S)
            assert not self._thread.is_alive(), f"{self.name} does not end"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, coordinator: Coordinator) -> None:
        try:
            if self.finished < len(self.offsets):
                self._execute(coordinator)
            while not self._stopping.is_set():
                start = self._document(len(self.offsets))
                began = time.monotonic()
                end = coordinator.latest_offset(start, limits=self.options.limits)
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                if end == start:
                    self._stopping.wait(0.01)  # as Spark polls
                    continue
                self.offsets.append(json.dumps(end))
                self._execute(coordinator)
        except BaseException as error:
            self.error = None if self._stopping.is_set() else error
        finally:
            coordinator.stop()

    def _document(self, count: int) -> dict[str, Any]:
        """The end of the first `count` batches."""
        document: dict[str, Any] = json.loads(self.offsets[count - 1]) if count else to_value(INITIAL_DOCUMENT)
        return document

    def _execute(self, coordinator: Coordinator) -> None:
        batch = self.finished
        rows: list[Row] = []
        for task in coordinator.partitions(self._document(batch), self._document(batch + 1)):
            options = self.options
            for records in read(
                task, options.client, options.fetch, fail_on_data_loss=options.fail_on_data_loss, group="in process"
            ):
                columns = (records.column(name).to_pylist() for name in ("topic", "partition", "offset", "value"))
                rows += [Row(TopicPartition(t, p), o, v.decode()) for t, p, o, v in zip(*columns, strict=True)]
        self.sunk[batch] = rows
        self.finished = batch + 1


@dataclass(frozen=True)
class Streams:
    """Queries of one group on one topic."""

    server: KafkaServer
    topic: str
    group: str

    def query(self, name: str, kind: type[Stream] = Stream, **options: Any) -> Stream:
        """A query that is not started; `__` in an option's name is a dot."""
        return kind(
            name,
            {
                "kafka.bootstrap.servers": self.server.bootstrap_servers,
                "kafka.group.id": self.group,
                "subscribe": self.topic,
                "startingOffsets": "earliest",
                **QUICK,
                **{key.replace("__", "."): str(value) for key, value in options.items()},
            },
        )

    @contextmanager
    def running(self, *names: str, **options: Any) -> Iterator[list[Stream]]:
        """Queries that run, each with a part of the partitions once all have joined; they have ended with the block."""
        queries = [self.query(name, **options) for name in names]
        try:
            for query in queries:
                query.start()
            wait_until(lambda: _all_hold(queries), "every member holds partitions", 2 * TIMEOUT_S)
            yield queries
            for query in queries:
                raise_error(query)
        except AssertionError as error:
            error.add_note(f"The queries: {queries}")
            raise
        finally:
            for query in queries:
                query.stop()

    def committed(self) -> dict[TopicPartition, CommittedOffset]:
        """The offsets that the group has committed for the topic."""
        found = self.ask(lambda cluster: admin.committed(cluster, self.group, cluster.deadline()))
        return {tp: offset for tp, offset in found.items() if tp.topic == self.topic}

    def ends(self) -> dict[TopicPartition, int]:
        """The high watermarks."""

        def look(cluster: KafkaCluster) -> dict[TopicPartition, int]:
            topic = cluster.snapshot([self.topic], cluster.deadline(), refresh=True).topics[self.topic]
            partitions = [TopicPartition(self.topic, p.partition) for p in topic.partitions]
            wanted = dict.fromkeys(partitions, LATEST)
            listed = cluster.list_offsets(wanted, Isolation.READ_UNCOMMITTED, cluster.deadline())
            return {tp: each.offset for tp, each in listed.items()}

        return self.ask(look)

    def generation(self, queries: Sequence[Stream]) -> int:
        """The generation that all members are in; waits until they agree."""
        return wait_until(
            lambda: _common(query.status.get("generation", 0) for query in queries), "one generation of all"
        )

    def ask(self, question: Callable[[KafkaCluster], T]) -> T:
        """Ask the cluster past its proxies."""
        options = parse_source(
            {"kafka.bootstrap.servers": self.server.direct_servers, "subscribe": self.topic}, streaming=False
        )
        with closing(KafkaCluster(options.client)) as cluster:
            return question(cluster)


class Peer:
    """A librdkafka consumer that runs in its own thread and commits the records that it has read."""

    def __init__(self, streams: Streams, protocol: str) -> None:
        self.name = f"librdkafka ({protocol})"
        self.held: set[str] = set()
        self.values: list[str] = []
        self.error = ""
        self._topic = streams.topic
        self._stopping = threading.Event()
        settings: dict[str, Any] = {
            "group.id": streams.group,
            "auto.offset.reset": "earliest",
            "group.protocol": protocol,
        }
        if protocol == "classic":
            settings |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
        settings |= {"bootstrap.servers": streams.server.bootstrap_servers, "enable.auto.commit": False, "log_level": 0}
        settings["auto.offset.reset"] = "earliest"
        self._consumer = Consumer(settings)
        self._thread = threading.Thread(target=self._run, name="peer")

    def __enter__(self) -> Peer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(TIMEOUT_S)

    def _run(self) -> None:
        with closing(self._consumer) as consumer:
            consumer.subscribe([self._topic])
            while not self._stopping.is_set() and not self.error:
                messages = consumer.consume(100, 0.1)
                self.held = {f"{tp.topic}-{tp.partition}" for tp in consumer.assignment()}
                errors = [str(message.error()) for message in messages if message.error()]
                self.error = errors[0] if errors else ""
                self.values += [message.value().decode() for message in messages if not message.error()]
                if messages and not errors:
                    self._commit(consumer)

    def _commit(self, consumer: Consumer) -> None:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:  # of another epoch: its partitions are another's, or it commits the next time
            if error.args[0].fatal():
                self.error = str(error)


class Writer:
    """Records with values `topic-partition-number`, each of them once, written past the proxies."""

    def __init__(self, server: KafkaServer, topic: str, partitions: int) -> None:
        self.server, self.topic = server, topic
        self.begun: list[str] = []
        """The values given to the producer. A query may read one before the producer hears that it was written."""
        self.sent: list[str] = []
        """The values that the brokers have acknowledged."""
        self._failed: list[str] = []
        self._numbers = itertools.count()
        self.grow(partitions)

    def grow(self, partitions: int) -> None:
        """Write to so many partitions; a producer that begins knows of them all."""
        self.partitions = partitions
        self._producer = Producer(
            {
                "bootstrap.servers": self.server.direct_servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 60_000,
                "log_level": 0,
            }
        )

    def send(self, count: int, partitions: Sequence[int] | None = None, size: int = 0) -> list[str]:
        """Write `count` records round robin, padded to `size` bytes, and wait until they are there; their values."""
        values = []
        for number in itertools.islice(self._numbers, count):
            partition = (partitions or range(self.partitions))[number % len(partitions or range(self.partitions))]
            value = f"{self.topic}/{partition}/{number}/".ljust(size, ".")
            self.begun.append(value)
            self._producer.produce(self.topic, value, partition=partition, on_delivery=self._delivered)
            values.append(value)
        assert self._producer.flush(TIMEOUT_S) == 0, "records that the brokers did not take"
        assert not self._failed, self._failed
        self.sent += values
        return values

    @contextmanager
    def writing(self, count: int = 40, every_s: float = 0.1, size: int = 0) -> Iterator[None]:
        """Keep writing from a thread that ends with the block."""
        with repeatedly(lambda: self.send(count, size=size), every_s):
            yield

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self._failed.append(str(error))


def raise_error(query: Stream) -> None:
    """Fail with what ended `query`."""
    if query.error is not None:
        raise AssertionError(f"query {query.name} has failed: {query.error}") from query.error


def goes_on(queries: Sequence[Stream], count: int = 1, timeout: float = TIMEOUT_S) -> None:
    """Each of `queries` sinks `count` rows more."""
    wanted = {query.name: len(query.rows) + count for query in queries}

    def done() -> bool:
        for query in queries:
            raise_error(query)
        return all(len(query.rows) >= wanted[query.name] for query in queries)

    wait_until(done, f"{count} rows more of each of {sorted(wanted)}", timeout)


def check_everything(streams: Streams, writer: Writer, queries: Sequence[Stream], repeats: int | None = None) -> None:
    """All that was written arrives, in its place, and is committed (C1); at most `repeats` rows of it twice."""

    def arrived() -> bool:
        for query in queries:
            raise_error(query)
        return {row.value for query in queries for row in query.rows} >= set(writer.sent)

    wait_until(arrived, "everything written is in the sinks")
    wait_until(
        lambda: {tp: c.offset for tp, c in streams.committed().items()} == streams.ends(), "everything is committed"
    )
    rows = [row for query in queries for row in query.rows]
    assert {row.value for row in rows} <= set(writer.begun), "rows that nobody wrote"
    strangers = [row for row in rows if row.value.split("/")[:2] != [row.partition.topic, str(row.partition.partition)]]
    assert not strangers, "rows of another partition"
    for query in queries:
        check_order(query)
    twice = sum(count - 1 for count in Counter(row.value for row in rows).values())
    assert repeats is None or twice <= repeats, f"{twice} rows are there twice"


def check_order(query: Stream) -> None:
    """Within a batch a partition's offsets ascend, each of them once."""
    for batch, rows in dict(query.sunk).items():
        offsets: dict[TopicPartition, list[int]] = {}
        for row in rows:
            offsets.setdefault(row.partition, []).append(row.offset)
        for tp, found in offsets.items():
            assert found == sorted(set(found)), f"batch {batch} of {query.name}: the offsets of {tp}"


def _all_hold(queries: Iterable[Stream]) -> bool:
    for query in queries:
        raise_error(query)
    return all(query.held for query in queries)


def _common(values: Iterable[T]) -> T | None:
    found = set(values)
    return found.pop() if len(found) == 1 else None

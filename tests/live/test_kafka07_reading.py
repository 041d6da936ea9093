"""Reading Kafka 0.7: two emulated brokers with three partitions each, their ZooKeeper a real one."""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from streamgroup.coordinator.batch_read import plan_batch, tasks_of
from streamgroup.coordinator.coordinator import Coordinator
from streamgroup.coordinator.planning.batch import next_document
from streamgroup.coordinator.planning.document import to_value
from streamgroup.coordinator.threads.boundaries import BoundaryScans
from streamgroup.coordinator.threads.log_watcher import LogWatcher
from streamgroup.errors import ConfigError, DataLossError, DecodeError, TransportError
from streamgroup.executor.read.fetcher import read
from streamgroup.kafka.cluster.interface import kafka07_of, open_cluster
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.cluster.kafka07 import Kafka07Cluster
from streamgroup.kafka.net.connection import Connection
from streamgroup.logformat import broker_partition, partition_number
from streamgroup.model import (
    EARLIEST,
    INITIAL_DOCUMENT,
    LATEST,
    Dialect,
    FetchTask,
    OffsetRange,
    Position,
    TopicPartition,
)
from streamgroup.options.parse import parse_source
from streamgroup.options.types import ClientOptions, Isolation, LimitOptions, SourceOptions, ZooKeeperOptions
from streamgroup.testing import KafkaServer, ZooKeeperServer
from streamgroup.testing.kafka07 import Compressed, Kafka07Server, Producer07
from streamgroup.testing.kafka07.producer import Payload
from tests.servers import address_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

SEGMENT = 20_000
CONFIG = {"num.partitions": 3, "log.file.size": SEGMENT, "log.flush.interval": 1}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka07Server]:
    with Kafka07Server(brokers=2, config=CONFIG) as server:
        yield server


@pytest.fixture
def topic() -> str:
    return f"t{next(_numbers)}"


def tp(topic: str, broker: int, partition: int) -> TopicPartition:
    return TopicPartition(topic, partition_number(broker, partition))


def everywhere(topic: str) -> list[TopicPartition]:
    return [tp(topic, broker, partition) for broker in (0, 1) for partition in range(3)]


def batch_options(kafka: Kafka07Server, topic: str, **others: str) -> SourceOptions:
    given = {"zookeeper.connect": kafka.zookeeper_connect, "subscribe": topic, **others}
    return parse_source(given, streaming=False)


def stream_options(kafka: Kafka07Server, topic: str, **others: str) -> SourceOptions:
    given = {"zookeeper.connect": kafka.zookeeper_connect, "subscribe": topic, "kafka.group.id": "g", **others}
    return parse_source(given, streaming=True)


def fill(kafka: Kafka07Server, topic: str, make: Callable[[int], Payload], count: int = 20) -> None:
    """The same many message sets in each partition, of a few messages each."""
    rng = random.Random(topic)
    with Producer07(zookeeper=kafka.zookeeper_connect) as producer:
        for where in everywhere(topic):
            broker, partition = broker_partition(where.partition)
            for number in range(count):
                payloads = [make(number * 10 + i) for i in range(rng.randint(1, 3))]
                producer.produce(topic, payloads, partition=partition, broker=broker)
    wait_until(lambda: len(registered(kafka, topic)) == 6, "all partitions are registered")


def registered(kafka: Kafka07Server, topic: str) -> list[int]:
    with closing(open_cluster(batch_options(kafka, topic).client)) as cluster:
        info = cluster.snapshot([topic], cluster.deadline(), refresh=True).topics.get(topic)
        return [] if info is None else [p.partition for p in info.partitions]


def rows(tasks: list[FetchTask], options: SourceOptions, **others: Any) -> dict[int, list[tuple[int, bytes]]]:
    """Offset and value of what the tasks read, by partition."""
    found: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for task in tasks:
        for batch in read(task, options.client, options.fetch, **others):
            for row in batch.select(["partition", "offset", "value"]).to_pylist():
                found[row["partition"]].append((row["offset"], row["value"]))
    return {partition: sorted(each) for partition, each in found.items()}


def plain(number: int) -> Payload:
    return b"%06d" % number * 40


def nested(number: int) -> Payload:
    return Compressed("gzip", [plain(number), Compressed("snappy", [plain(number), b"x"]), b"y"])


def mixed(number: int) -> Payload:
    kinds: list[Callable[[int], Payload]] = [
        plain,
        lambda n: Compressed("gzip", [plain(n)] * 3),
        lambda n: Compressed("snappy", [plain(n)] * 2, magic=0),
        lambda n: Compressed("snappy-raw", [plain(n)]),
        nested,
    ]
    return kinds[number % len(kinds)](number)


def flat(payload: Payload) -> list[bytes]:
    return [payload] if isinstance(payload, bytes) else [leaf for each in payload.payloads for leaf in flat(each)]


# -- a batch read ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [plain, nested, mixed])
def test_all_that_was_written_is_read_over_all_segments(
    make: Callable[[int], Payload], kafka: Kafka07Server, topic: str
) -> None:
    fill(kafka, topic, make, count=60)
    options = batch_options(kafka, topic)
    tasks = plan_batch(options)
    assert {task.dialect for task in tasks} == {Dialect.KAFKA07}
    found = rows(tasks, options)
    rng = random.Random(topic)
    for where in everywhere(topic):
        written = [leaf for n in range(60) for i in range(rng.randint(1, 3)) for leaf in flat(make(n * 10 + i))]
        assert sorted(value for _, value in found[where.partition]) == sorted(written)


def test_tasks_are_divided_at_segments_only_and_read_the_same(kafka: Kafka07Server, topic: str) -> None:
    fill(kafka, topic, plain, count=200)
    whole = batch_options(kafka, topic)
    divided = batch_options(kafka, topic, minPartitions="24")
    tasks = plan_batch(divided)
    assert len(tasks) > 12
    starts = {(r.range.partition, r.range.start) for task in tasks for r in task.ranges}
    with closing(open_cluster(divided.client)) as cluster:
        earliest = cluster.list_offsets(dict.fromkeys(everywhere(topic), EARLIEST), NONE, cluster.deadline())
    assert all(start in earliest[where].segments for where, start in starts)
    assert rows(tasks, divided) == rows(plan_batch(whole), whole)


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_a_position_inside_of_a_message_is_an_error_that_names_it_and_a_boundary(
    option: str, kafka: Kafka07Server, topic: str
) -> None:
    fill(kafka, topic, plain, count=1)
    default = -2 if option == "startingOffsets" else -1
    names = ("{}-{}".format(*broker_partition(where.partition)) for where in everywhere(topic))
    given = json.dumps({topic: {name: 300 if name == "1-1" else default for name in names}})
    with Producer07(zookeeper=kafka.zookeeper_connect) as producer:
        producer.produce(topic, [b"a" * 500], partition=1, broker=1)
    error = rf"invalid {option}: no message begins at position 300 of {topic} 1-1 .*"
    error += "The message before it begins at 250"
    with pytest.raises(ConfigError, match=error):
        plan_batch(batch_options(kafka, topic, **{option: given}))


def test_a_topic_that_does_not_exist(kafka: Kafka07Server) -> None:
    with pytest.raises(ConfigError, match="cannot read topic 'missing': the cluster has no such topic"):
        plan_batch(batch_options(kafka, "missing"))


# -- limits in bytes ---------------------------------------------------------------------------------------------------

NONE = Isolation.READ_UNCOMMITTED


class Plans:
    """A stream's plans one after the other, without a group: positions are where the last plan ended."""

    def __init__(self, watcher: LogWatcher, partitions: list[TopicPartition]) -> None:
        self.watcher = watcher
        self.walks = BoundaryScans(watcher)
        self.positions = {where: Position(0) for where in partitions}
        self.ranges: list[OffsetRange] = []

    def next(self, max_bytes: int) -> tuple[OffsetRange, ...] | None:
        logs = self.watcher.ends(self.positions, 2.0)
        self.walks.ask(self.positions, logs, max_bytes, None, 2.0)
        document = next_document(
            INITIAL_DOCUMENT,
            group="g",
            lineage="l",
            run="r",
            positions=self.positions,
            ends={where: known.latest for where, known in logs.items()},
            max_offsets=max_bytes,
            boundaries=self.walks.known(logs),
        )
        if document is None:
            return None
        self.positions = dict(document.positions)
        self.ranges += document.ranges
        return document.ranges


@pytest.fixture
def watching(kafka: Kafka07Server) -> Iterator[Callable[[SourceOptions, str], LogWatcher]]:
    made: list[LogWatcher] = []

    def make(options: SourceOptions, topic: str) -> LogWatcher:
        watcher = LogWatcher(options, lambda *_: None, lambda error: pytest.fail(str(error)))
        made.append(watcher)
        watcher.start()
        watcher.follow([topic])
        wait_until(lambda: topic in watcher.snapshot.topics, "the topic's metadata", 20)
        return watcher

    yield make
    for each in made:
        each.stop(5)


Watching = Callable[[SourceOptions, str], LogWatcher]


@pytest.mark.parametrize("limit", [1, 997, 12_345, 100_000, 10_000_000])
def test_limits_that_cut_inside_of_segments_end_where_messages_do(
    limit: int, kafka: Kafka07Server, topic: str, watching: Watching
) -> None:
    """All ranges together are the whole log, and each is whole messages by itself."""
    fill(kafka, topic, mixed, count=25)
    options = stream_options(kafka, topic)
    watcher = watching(options, topic)
    plans = Plans(watcher, everywhere(topic))
    largest = 0
    until = time.monotonic() + 60
    while (planned := plans.next(limit)) is not None or not done(plans):
        assert time.monotonic() < until
        largest = max(largest, sum(map(len, planned or ())))
    assert largest <= max(limit, 6 * 4_000), "limits are maxima, but for the first message of each partition"
    whole = batch_options(kafka, topic)
    expected = rows(plan_batch(whole), whole)
    found: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for range_ in plans.ranges:
        for partition, each in rows(tasks_of([range_], watcher.snapshot, options), options).items():
            found[partition] += each
    assert found == expected


def done(plans: Plans) -> bool:
    logs = plans.watcher.ends(plans.positions, 2.0)
    return all(where in logs and logs[where].latest <= p.offset for where, p in plans.positions.items())


def test_a_stream_that_stands_inside_of_a_message_says_where(
    kafka: Kafka07Server, topic: str, watching: Watching
) -> None:
    fill(kafka, topic, plain, count=5)
    plans = Plans(watching(stream_options(kafka, topic), topic), everywhere(topic))
    plans.positions[tp(topic, 1, 2)] = Position(17)
    with pytest.raises(DecodeError, match=r"position 17: .* are byte positions"):
        plans.next(900)


# -- brokers that come and go ------------------------------------------------------------------------------------------


def test_a_broker_that_is_away_is_absent_and_comes_back(topic: str, watching: Watching) -> None:
    with Kafka07Server(brokers=2, config=CONFIG) as kafka:
        fill(kafka, topic, plain, count=3)
        options = stream_options(kafka, topic)
        watcher = watching(options, topic)
        assert len(watcher.snapshot.topics[topic].partitions) == 6
        ends = dict(watcher.ends(everywhere(topic), 5.0))
        assert ends.keys() == set(everywhere(topic))
        kafka.brokers[1].stop()
        wait_until(lambda: len(watcher.snapshot.topics[topic].partitions) == 3, "the watch tells that it has gone", 30)
        assert watcher.snapshot.brokers.keys() == {0}
        kafka.brokers[1].restart()
        wait_until(lambda: len(watcher.snapshot.topics[topic].partitions) == 6, "the watch tells that it is back", 30)
        wait_until(lambda: dict(watcher.ends(everywhere(topic), 1.0)) == ends, "its logs are known again", 20)


def test_while_zookeeper_is_away_reading_goes_on_with_what_it_reported(topic: str) -> None:
    """A frozen ZooKeeper answers nothing, and the brokers' sessions outlive it here."""
    config = {**CONFIG, "zk.sessiontimeout.ms": 60_000}
    with ZooKeeperServer() as keeper, Kafka07Server(2, config, zookeeper=f"{keeper.connect_string}/old") as kafka:
        fill(kafka, topic, plain, count=5)
        whole = batch_options(kafka, topic)
        stream = Stream(stream_options(kafka, topic, **{"group.mode": "off", "startingOffsets": "earliest"}))
        stream.read_until(sum(map(len, rows(plan_batch(whole), whole).values())))
        written = stream.count
        brokers = [server.address for server in kafka.brokers]
        keeper.pause()
        try:
            for number, address in enumerate(brokers * 3):
                with Producer07(address) as producer:
                    producer.produce(topic, [b"%d" % number], partition=number % 3)
                stream.read_until(written + number + 1, seconds=15)
                time.sleep(1.0)
        finally:
            keeper.resume()
        stream.coordinator.stop()
        wait_until(lambda: len(registered(kafka, topic)) == 6, "ZooKeeper answers again", 30)
        assert stream.found == rows(plan_batch(whole), whole)


def test_retention_that_overtakes_a_batch_read_is_data_loss(topic: str) -> None:
    with Kafka07Server(brokers=2, config=CONFIG) as kafka:
        fill(kafka, topic, plain, count=150)
        options = batch_options(kafka, topic)
        tasks = plan_batch(options)
        before = rows(tasks, options)
        for number in (0, 1):
            kafka.brokers[number].stop()
        for directory in (kafka.log_dir(n) for n in (0, 1)):
            for partition in directory.glob(f"{topic}-*"):
                next(iter(sorted(partition.glob("*.kafka")))).unlink()
        for number in (0, 1):
            kafka.brokers[number].restart()
        wait_until(lambda: len(registered(kafka, topic)) == 6, "they are registered again", 30)
        moved = {b.node_id: b for b in open_snapshot(options).brokers.values()}
        assert {(b.host, b.port) for b in moved.values()} == set(tasks[0].brokers), "at the same addresses"
        with pytest.raises(DataLossError, match="retention"):
            rows(tasks, options)
        after = rows(tasks, options, fail_on_data_loss=False)
        assert all(set(after[p]) < set(before[p]) for p in before)


def open_snapshot(options: SourceOptions) -> Any:
    with closing(open_cluster(options.client)) as cluster:
        return cluster.snapshot(None, cluster.deadline())


# -- a stream that reads alone ---------------------------------------------------------------------------------------


class Stream:
    """Batches of a coordinator as Spark asks for them, each read at once."""

    def __init__(self, options: SourceOptions, offset: dict[str, Any] | None = None) -> None:
        self.options = options
        self.coordinator = Coordinator(options)
        self.offset = to_value(INITIAL_DOCUMENT) if offset is None else offset
        self.found: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        self.largest = 0

    def read_until(self, count: int, seconds: float = 40.0) -> None:
        """Read batches until there are `count` rows."""
        until = time.monotonic() + seconds
        while self.count < count:
            assert time.monotonic() < until, f"{self.count} of {count} rows"
            end = self.coordinator.latest_offset(self.offset, limits=self.options.limits)
            tasks = self.coordinator.partitions(self.offset, end) if end != self.offset else []
            for task in tasks:
                for partition, each in rows([task], self.options).items():
                    self.found[partition] += each
            self.largest = max(self.largest, sum(map(len, tasks)))
            self.offset = end

    @property
    def count(self) -> int:
        return sum(map(len, self.found.values()))


def filled_stream(kafka: Kafka07Server, topic: str) -> Stream:
    """A stream without a group that has read all that the topic was filled with."""
    fill(kafka, topic, plain, count=10)
    whole = batch_options(kafka, topic)
    stream = Stream(stream_options(kafka, topic, **{"group.mode": "off", "startingOffsets": "earliest"}))
    stream.read_until(sum(map(len, rows(plan_batch(whole), whole).values())))
    return stream


def test_a_stream_reads_all_within_its_limits_and_goes_on_where_it_was(kafka: Kafka07Server, topic: str) -> None:
    fill(kafka, topic, mixed, count=20)
    whole = batch_options(kafka, topic)
    first = rows(plan_batch(whole), whole)
    options = stream_options(
        kafka, topic, **{"group.mode": "off", "maxOffsetsPerTrigger": "30000", "startingOffsets": "earliest"}
    )
    stream = Stream(options)
    stream.read_until(sum(map(len, first.values())))
    assert stream.found == first
    assert stream.largest <= 30_000
    stream.coordinator.stop()
    fill(kafka, topic, mixed, count=10)
    second = rows(plan_batch(whole), whole)
    again = Stream(options, stream.offset)
    again.read_until(sum(map(len, second.values())) - stream.count)
    again.coordinator.stop()
    assert {p: first[p] + again.found[p] for p in first} == second


def test_a_stream_goes_on_without_a_broker_and_with_it_again(topic: str) -> None:
    with Kafka07Server(brokers=2, config=CONFIG) as kafka:
        stream = filled_stream(kafka, topic)
        kafka.brokers[1].stop()
        with Producer07(zookeeper=kafka.zookeeper_connect) as producer:
            producer.produce(topic, [b"meanwhile"], partition=2, broker=0)
        stream.read_until(stream.count + 1)
        kafka.brokers[1].restart()
        wait_until(lambda: len(registered(kafka, topic)) == 6, "it is registered again", 30)
        with Producer07(zookeeper=kafka.zookeeper_connect) as producer:
            producer.produce(topic, [b"afterwards"], partition=2, broker=1)
        stream.read_until(stream.count + 1)
        stream.coordinator.stop()
        whole = batch_options(kafka, topic)
        assert stream.found == rows(plan_batch(whole), whole), "nothing twice, nothing lost"


def test_a_stream_started_while_a_broker_is_away_goes_on_there_when_it_is_back(topic: str) -> None:
    with Kafka07Server(brokers=2, config=CONFIG) as kafka:
        first = filled_stream(kafka, topic)
        first.coordinator.stop()
        kafka.brokers[1].stop()
        second = Stream(first.options, first.offset)
        for number in range(2):
            with Producer07(zookeeper=kafka.zookeeper_connect) as producer:
                producer.produce(topic, [b"meanwhile"], partition=number, broker=0)
            second.read_until(number + 1)
        kafka.brokers[1].restart()
        wait_until(lambda: len(registered(kafka, topic)) == 6, "it is registered again", 30)
        with Producer07(zookeeper=kafka.zookeeper_connect) as producer:
            producer.produce(topic, [b"afterwards"], partition=2, broker=1)
        second.read_until(3)
        time.sleep(1.0)
        end = second.coordinator.latest_offset(second.offset, limits=LimitOptions())
        second.coordinator.stop()
        assert second.coordinator.partitions(second.offset, end) == [], "nothing is read again"
        assert sorted(v for each in second.found.values() for _, v in each) == [
            b"afterwards",
            b"meanwhile",
            b"meanwhile",
        ]


def read_available(stream: Stream, seconds: float = 40.0) -> None:
    """As a query under AvailableNow: until nothing is new."""
    until = time.monotonic() + seconds
    stream.coordinator.prepare_available_now()
    while (end := stream.coordinator.latest_offset(stream.offset, limits=LimitOptions())) != stream.offset:
        assert time.monotonic() < until, "it does not end"
        for partition, each in rows(stream.coordinator.partitions(stream.offset, end), stream.options).items():
            stream.found[partition] += each
        stream.offset = end


@pytest.mark.parametrize("mode", ["off", "member"])
def test_a_run_that_would_end_without_a_broker_is_no_success(topic: str, mode: str) -> None:
    with Kafka07Server(brokers=2, config=CONFIG) as kafka:
        fill(kafka, topic, plain, count=3)
        options = stream_options(kafka, topic, **{"group.mode": mode, "startingOffsets": "earliest"})
        first = Stream(options)
        read_available(first)
        first.coordinator.stop()
        with Producer07(zookeeper=kafka.zookeeper_connect) as producer:
            for broker in (0, 1):
                producer.produce(topic, [b"from %d" % broker], partition=2, broker=broker)
        kafka.brokers[1].stop()
        wait_until(lambda: len(registered(kafka, topic)) == 3, "it is not registered any more", 30)
        second = Stream(options, first.offset)
        with pytest.raises(DataLossError, match=rf"not read {topic} 1-0, {topic} 1-1, {topic} 1-2: .*Start the broker"):
            read_available(second)
        second.coordinator.stop()
        assert [value for each in second.found.values() for _, value in each] == [b"from 0"], "what is there is read"
        kafka.brokers[1].restart()
        wait_until(lambda: len(registered(kafka, topic)) == 6, "it is registered again", 30)
        third = Stream(options, second.offset)
        read_available(third)
        third.coordinator.stop()
        assert [value for each in third.found.values() for _, value in each] == [b"from 1"]


def test_available_now_does_not_pass_over_a_log_that_was_cut_below_the_position(topic: str) -> None:
    """The broker comes back with less than was read: by a disk that lost data, or another machine under its id."""
    with Kafka07Server(config={**CONFIG, "num.partitions": 1}) as kafka:

        def produce(*payloads: bytes) -> None:
            with Producer07(zookeeper=kafka.zookeeper_connect) as producer:
                for payload in payloads:
                    producer.produce(topic, [payload], partition=0, broker=0)

        produce(*(plain(number) for number in range(10)))
        wait_until(lambda: registered(kafka, topic) == [0], "it is registered")
        read = {}
        for mode in ("off", "member"):
            given = {"group.mode": mode, "startingOffsets": "earliest"}
            first = Stream(stream_options(kafka, topic, **given))
            read_available(first)
            first.coordinator.stop()
            assert first.count == 10
            read[mode] = given, first.offset
        kafka.brokers[0].stop()
        (segment,) = (kafka.log_dir(0) / f"{topic}-0").glob("*.kafka")
        os.truncate(segment, segment.stat().st_size // 2)
        kafka.brokers[0].restart()
        produce(b"new")
        wait_until(lambda: registered(kafka, topic) == [0], "it is registered again", 30)
        for mode, (given, offset) in read.items():
            strict = Stream(stream_options(kafka, topic, **given), offset)
            with pytest.raises(DataLossError, match=r"lost from position \d+ on: the log ends below the position"):
                read_available(strict)
            strict.coordinator.stop()
            lenient = Stream(stream_options(kafka, topic, **given, failOnDataLoss="false"), offset)
            read_available(lenient)
            lenient.coordinator.stop()
            assert b"new" in [value for each in lenient.found.values() for _, value in each], mode


# -- which cluster -----------------------------------------------------------------------------------------------------


def through(connect: str, **others: Any) -> ClientOptions:
    servers, slash, chroot = connect.partition("/")
    addresses = tuple((host, int(port)) for host, _, port in (each.rpartition(":") for each in servers.split(",")))
    return ClientOptions((), zookeeper=ZooKeeperOptions(addresses, slash + chroot), **others)


def test_the_dialect_is_read_off_the_registry(kafka: Kafka07Server, kafka11: KafkaServer) -> None:
    with closing(open_cluster(through(kafka.zookeeper_connect))) as cluster:
        assert isinstance(kafka07_of(cluster, cluster.deadline()), Kafka07Cluster)
    with closing(open_cluster(through(kafka11.zookeeper_connect))) as cluster:
        snapshot = cluster.snapshot(None, cluster.deadline())
        assert snapshot.dialect is Dialect.KAFKA
        assert snapshot.brokers
        with pytest.raises(ConfigError, match=r"the brokers are Kafka 0\.8 or later"):
            kafka07_of(cluster, cluster.deadline())


def test_tasks_of_a_later_kafka_behind_zookeeper_know_its_brokers(
    kafka11: KafkaServer, make_topic: Callable[..., str]
) -> None:
    name = make_topic(kafka11, 2)
    options = parse_source({"zookeeper.connect": kafka11.zookeeper_connect, "subscribe": name}, streaming=False)
    with closing(open_cluster(options.client)) as cluster:
        snapshot = cluster.snapshot([name], cluster.deadline())
        listed = cluster.list_offsets({TopicPartition(name, 0): LATEST}, NONE, cluster.deadline())
    (task,) = tasks_of([OffsetRange(TopicPartition(name, 0), 0, 5)], snapshot, options)
    assert task.brokers
    assert task.dialect is Dialect.KAFKA
    assert listed[TopicPartition(name, 0)].offset == 0


def test_a_zookeeper_without_brokers(kafka: Kafka07Server) -> None:
    with (
        closing(open_cluster(through(kafka.zookeeper_connect.split("/")[0] + "/zookeeper"))) as cluster,
        pytest.raises(ConfigError, match=r"no brokers in .*: node /brokers/ids does not exist. Check that"),
    ):
        cluster.snapshot(None, cluster.deadline(5_000))


def test_a_later_kafka_where_07_is_expected(kafka4: KafkaServer) -> None:
    from streamgroup.kafka.wire.kafka07 import OffsetsRequest07  # noqa: PLC0415

    connection = Connection(*address_of(kafka4), ClientOptions(()), dialect=Dialect.KAFKA07)
    connection.connect(time.monotonic() + 10)
    connection.send(OffsetsRequest07("events", 0, LATEST, 1))
    with pytest.raises((TransportError, DecodeError), match=r"Kafka 0\.8 or later|this is a broker of Kafka 0\.7"):
        connection.receive(time.monotonic() + 10)


def test_07_where_a_later_kafka_is_expected(kafka: Kafka07Server) -> None:
    """Named as bootstrap servers its brokers hang up on every request."""
    with (
        closing(KafkaCluster(ClientOptions((address_of(kafka),)))) as cluster,
        pytest.raises(TransportError, match=r"0\.7"),
    ):
        cluster.snapshot(None, cluster.deadline(2_000))

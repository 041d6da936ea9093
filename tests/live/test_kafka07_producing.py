"""Writing to Kafka 0.7: two emulated brokers with three partitions each, their ZooKeeper a real one."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streamgroup.executor.write.producer07 import Kafka07TaskProducer
from streamgroup.kafka.cluster.interface import Cluster, open_cluster
from streamgroup.kafka.producer.kafka07 import Kafka07Config
from streamgroup.kafka.producer.kafka07_parts import MessageSet
from streamgroup.kafka.producer.partitioners import Partitioner, ProducerTopic
from streamgroup.kafka.records.encode import RecordColumns
from streamgroup.kafka.wire.kafka07 import message_set07
from streamgroup.logformat import KAFKA07_LOG, broker_partition, partition_number
from streamgroup.model import LATEST, ClusterSnapshot, TopicPartition
from streamgroup.options.types import ClientOptions, Isolation, ZooKeeperOptions
from streamgroup.testing.kafka07 import Kafka07Server, Producer07
from tests.peers.consumer07 import Config
from tests.peers.process07 import Consumer07Process
from tests.read_back import read_by_the_source
from tests.waiting import soon, wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

RECORDS = 2_000
CODECS = ("none", "gzip", "snappy")
SESSION_MS = 1_000
CONFIG = {
    "num.partitions": 3,
    "log.file.size": 20_000,
    "log.flush.interval": 50,
    "log.default.flush.interval.ms": 100,
    "log.default.flush.scheduler.interval.ms": 100,
    "zk.sessiontimeout.ms": SESSION_MS,
}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka07Server]:
    with Kafka07Server(brokers=2, config=CONFIG) as server:
        yield server


@pytest.fixture
def topic() -> str:
    return f"written{next(_numbers)}"


@pytest.fixture
def changed() -> threading.Event:
    """Is set when a watch in ZooKeeper fires."""
    return threading.Event()


@pytest.fixture
def cluster(kafka: Kafka07Server, changed: threading.Event) -> Iterator[Cluster]:
    """The brokers that the driver, or the command line, reads in ZooKeeper."""
    with closing(open_cluster(options(kafka), changed.set)) as opened:
        yield opened


def options(kafka: Kafka07Server) -> ClientOptions:
    host, _, port = kafka.zookeeper_connect.partition("/")[0].rpartition(":")
    chroot = kafka.zookeeper_connect.partition("/")[2]
    zookeeper = ZooKeeperOptions(((host, int(port)),), chroot=f"/{chroot}" if chroot else "")
    return ClientOptions((), zookeeper=zookeeper)


def planned(cluster: Cluster, topic: str) -> ClusterSnapshot:
    return cluster.snapshot([topic], soon(), refresh=True)


def open_producer(kafka: Kafka07Server, where: ClusterSnapshot, **config: object) -> Kafka07TaskProducer:
    settings = Kafka07Config(**{"verify_wait_ms": 2_000, **config})
    return Kafka07TaskProducer(where, settings, options(kafka), chance=random.Random(1))


def a_set(topic: str, partition: int, values: Sequence[bytes], movable: bool = False) -> MessageSet:
    return MessageSet(TopicPartition(topic, partition), message_set07(values), len(values), movable)


def values_of(kafka: Kafka07Server, topic: str) -> dict[int, list[bytes]]:
    """The records that the source reads, by partition."""
    found = read_by_the_source(topic, zookeeper__connect=kafka.zookeeper_connect)
    return {partition: [value for _, value in rows if value is not None] for partition, rows in found.items()}


def create(kafka: Kafka07Server, cluster: Cluster, topic: str) -> ClusterSnapshot:
    """Have both brokers create the topic, and return it."""
    with Producer07(zookeeper=kafka.zookeeper_connect) as producer:
        for broker in (0, 1):
            producer.produce(topic, [], partition=0, broker=broker)

    def registered() -> int:
        found = planned(cluster, topic).topics.get(topic)  # none before the first has registered
        return 0 if found is None else len(found.partitions)

    wait_until(lambda: registered() == 6, "both brokers have registered it")
    return planned(cluster, topic)


@pytest.mark.parametrize("verify", [False, True], ids=["unverified", "verified"])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [RECORDS, pytest.param(20_000, marks=pytest.mark.long)])
def test_what_is_written_is_read_back_by_the_source(
    kafka: Kafka07Server, topic: str, count: int, codec: str, verify: bool
) -> None:
    with closing(open_cluster(options(kafka))) as cluster:
        where = create(kafka, cluster, topic)
    keys = [f"key-{i}" for i in range(count)]
    partitioner = Partitioner("hashcode", batch_size=1, rng=np.random.default_rng(1))
    with open_producer(kafka, where, verify=verify, codec=codec, batch_size=1_000) as producer:
        chosen = partitioner.partitions(
            ProducerTopic.of(producer.topic(topic)), pa.array(keys), np.ones(count, np.int64)
        ).tolist()
        expected: dict[int, list[bytes]] = defaultdict(list)
        for partition, key in zip(chosen, keys, strict=True):
            expected[partition].append(key.encode())
        for start in range(0, count, 100):
            for partition, values in expected.items():
                part = pa.array(values[start : start + 100], pa.binary())
                columns = RecordColumns(part, part, np.zeros(len(part), np.int64))
                producer.write(TopicPartition(topic, partition), columns)
        producer.flush()
        assert producer.written.records == count
    assert len(expected) == 6
    wait_until(lambda: sum(map(len, values_of(kafka, topic).values())) == count, "all is flushed")
    assert values_of(kafka, topic) == expected


def test_an_imitated_consumer_of_07_reads_every_codec_with_the_offsets_at_which_the_log_ends(
    kafka: Kafka07Server, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """Its codecs are not those of the code that writes."""
    where = create(kafka, cluster, topic)
    names = {info.partition: KAFKA07_LOG.partition_name(info.partition) for info in where.topics[topic].partitions}
    expected: dict[str, list[bytes]] = defaultdict(list)
    for codec in CODECS:
        with open_producer(kafka, where, verify=True, codec=codec, batch_size=1_000) as producer:
            for partition, name in names.items():
                values = [b"%s %s %d" % (codec.encode(), name.encode(), n) for n in range(100)]
                columns = RecordColumns(None, pa.array(values, pa.binary()), np.zeros(len(values), np.int64))
                producer.write(TopicPartition(topic, partition), columns)
                expected[name] += values
            producer.flush()
    config = Config(kafka.zookeeper_connect, "readers", {topic: 1}, zk_sessiontimeout_ms=SESSION_MS)
    with Consumer07Process(tmp_path / "consumer.log", config) as consumer:
        wait_until(lambda: len(consumer.messages()) >= sum(map(len, expected.values())), "all is read", every=0.2)
        read = consumer.messages()
    found: dict[str, list[bytes]] = defaultdict(list)
    for message in read:
        found[message.partition].append(message.value)
    assert found == expected
    ends = cluster.list_offsets(
        {TopicPartition(topic, partition): LATEST for partition in names}, Isolation.READ_UNCOMMITTED, soon()
    )
    last = {message.partition: message.offset for message in read}
    assert last == {names[tp.partition]: listed.offset for tp, listed in ends.items()}


def test_a_new_topic_begins_at_partition_0_of_each_broker_and_spreads_when_the_watch_fires(
    kafka: Kafka07Server, cluster: Cluster, topic: str, changed: threading.Event
) -> None:
    with open_producer(kafka, planned(cluster, topic), verify=True) as producer:
        first = [info.partition for info in producer.topic(topic).partitions]
        assert [KAFKA07_LOG.partition_name(p) for p in first] == ["0-0", "1-0"]
        changed.clear()
        producer.append([a_set(topic, partition, [b"first"]) for partition in first])
        producer.flush()

        def spread() -> bool:
            if changed.wait(0.1):
                changed.clear()
                producer.update(planned(cluster, topic))
            return len(producer.topic(topic).partitions) == 6

        wait_until(spread, "the registrations of both brokers")
        every = [info.partition for info in producer.topic(topic).partitions]
        producer.append([a_set(topic, partition, [b"second"]) for partition in every])
        producer.flush()
    found = values_of(kafka, topic)
    assert {p: v for p, v in found.items() if p in first} == {p: [b"first", b"second"] for p in first}
    assert sum(map(len, found.values())) == 8


def test_a_killed_broker_that_comes_back_has_every_record_once_and_in_order_with_verify(
    kafka: Kafka07Server, cluster: Cluster, topic: str
) -> None:
    where = create(kafka, cluster, topic)
    partition = partition_number(0, 1)
    values = [b"%d" % i for i in range(RECORDS)]
    with open_producer(kafka, where, verify=True, max_request_size=1_000, buffer_memory=4_000) as producer:
        for start in range(0, RECORDS, 20):
            if start == RECORDS // 2:
                kafka.brokers[0].kill()
                restart = threading.Thread(target=kafka.brokers[0].restart)
                restart.start()
            producer.append([a_set(topic, partition, values[start : start + 20])])
        producer.flush()
        restart.join()
    assert values_of(kafka, topic)[partition] == values


def test_records_without_a_key_go_to_the_other_broker_while_one_is_down(
    kafka: Kafka07Server, cluster: Cluster, topic: str
) -> None:
    where = create(kafka, cluster, topic)
    kafka.brokers[1].kill()
    numbers = itertools.cycle(info.partition for info in where.topics[topic].partitions)
    try:
        with open_producer(kafka, where, verify=True) as producer:
            for i in range(0, RECORDS, 20):
                values = [b"%d" % n for n in range(i, i + 20)]
                producer.append([a_set(topic, next(numbers), values, movable=True)])
            producer.flush()
    finally:
        kafka.brokers[1].restart()
    found = values_of(kafka, topic)
    assert {broker_partition(p)[0] for p, theirs in found.items() if theirs} == {0}
    assert Counter(itertools.chain(*found.values())) == Counter(b"%d" % n for n in range(RECORDS))

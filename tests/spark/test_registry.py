"""A group in ZooKeeper on a real Kafka 0.8.2.2: two queries and that version's own console consumer share a topic."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from streamgroup.kafka.cluster import admin
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.options.parse import parse_source
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.spark.console_consumer import JavaConsumer, java_consumer_08
from tests.spark.support import Load, Streams, Sunk, repeated
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(240)]

PARTITIONS = 7
GROUP = "migrating"
TIMEOUT_S = 60.0
OF_0_8 = {"enable.idempotence": False, "api.version.request": False, "broker.version.fallback": "0.8.2.2"}


class Registry:
    """The nodes of the group in ZooKeeper."""

    def __init__(self, client: KazooClient, topic: str) -> None:
        self._client = client
        self._topic = topic

    def _read(self, path: str) -> dict[str, str]:
        found = {}
        try:
            for name in self._client.get_children(path):
                found[name] = self._client.get(f"{path}/{name}")[0].decode()
        except NoNodeError:
            pass
        return found

    @property
    def consumers(self) -> list[str]:
        return sorted(self._read(f"/consumers/{GROUP}/ids"))

    @property
    def ours(self) -> set[str]:
        """Those that tell of themselves as our members do."""
        return set(self._read(f"/consumers/{GROUP}/streamgroup-members"))

    def owned(self) -> list[list[int]]:
        """By consumer, in the order in which Java hands partitions out."""
        owners = self._read(f"/consumers/{GROUP}/owners/{self._topic}")
        return [sorted(int(p) for p, thread in owners.items() if thread == f"{c}-0") for c in self.consumers]

    def offsets(self) -> dict[int, int]:
        return {int(p): int(o) for p, o in self._read(f"/consumers/{GROUP}/offsets/{self._topic}").items()}

    def shared_by(self, *chunks: list[int]) -> None:
        wait_until(lambda: self.owned() == list(chunks), f"shared as {chunks}", TIMEOUT_S)


@pytest.fixture
def registry(kafka08: KafkaServer, make_topic: MakeTopic) -> Iterator[tuple[Registry, Load]]:
    topic = make_topic(kafka08, PARTITIONS)
    client = KazooClient(kafka08.zookeeper_connect)
    client.start()
    if client.exists(f"/consumers/{GROUP}"):
        client.delete(f"/consumers/{GROUP}", recursive=True)
    yield Registry(client, topic), Load(kafka08, topic, PARTITIONS, OF_0_8)
    client.stop()
    client.close()


def query(streams: Streams, load: Load, name: str, **options: str) -> Sunk:
    frame = (
        streams.spark.readStream.format("streamgroup")
        .option("zookeeper.connect", load.server.zookeeper_connect)
        .option("zookeeper.session.timeout.ms", "4000")
        .option("kafka.group.id", GROUP)
        .option("group.member", name)
        .option("subscribe", load.topic)
        .option("startingOffsets", "earliest")
        .option("kafka.metadata.max.age.ms", "1000")
        .options(**{key.replace("__", "."): value for key, value in options.items()})
        .load()
    )
    return streams.to_parquet(frame, name)


def stop(*queries: Sunk) -> None:
    for each in queries:
        assert each.query is not None
        each.query.stop()


@pytest.mark.parametrize("count", [350, pytest.param(20_000, marks=pytest.mark.long)])
def test_two_queries_and_a_java_consumer_share_a_topic_and_take_over_from_each_other(
    streams: Streams, registry: tuple[Registry, Load], count: int
) -> None:
    nodes, load = registry
    load.send(count)
    a, b = query(streams, load, "a"), query(streams, load, "b")
    nodes.shared_by([0, 1, 2, 3], [4, 5, 6])

    def read(*others: JavaConsumer) -> list[str]:
        return [*a.values(), *b.values(), *(value for java in others for value in java.values())]

    wait_until(lambda: set(read()) >= set(load.sent), "the queries read all there is", TIMEOUT_S)
    wait_until(lambda: sum(nodes.offsets().values()) == count, "and commit it where Java looks", TIMEOUT_S)
    with java_consumer_08(streams.home, load, GROUP) as java:
        nodes.shared_by([0, 1, 2], [3, 4], [5, 6])
        sent = load.send(count)
        wait_until(lambda: set(read(java)) >= set(load.sent), "the three read all", TIMEOUT_S)
        mine = set(java.values())
        assert mine <= set(sent), "nothing from before it came"
        (its_id,) = set(nodes.consumers) - nodes.ours
        share = [[0, 1, 2], [3, 4], [5, 6]][nodes.consumers.index(its_id)]
        assert {int(value.split("-")[-2]) for value in mine} == set(share), "its own share, all of it"

        theirs = Counter(int(value.split("-")[-2]) for value in load.sent)
        for partition in share:
            del theirs[partition]
        wait_until(lambda: theirs.items() <= nodes.offsets().items(), "the queries commit their part", TIMEOUT_S)
        stop(a, b)
        nodes.shared_by([0, 1, 2, 3, 4, 5, 6])
        load.send(count)
        wait_until(lambda: set(read(java)) >= set(load.sent), "the Java consumer goes on alone", TIMEOUT_S)
    wait_until(lambda: not nodes.consumers, "it has left")
    assert sum(nodes.offsets().values()) == 3 * count

    load.send(count)
    a, b = query(streams, load, "a"), query(streams, load, "b")
    wait_until(lambda: set(read(java)) >= set(load.sent), "the queries go on after it", TIMEOUT_S)
    wait_until(lambda: sum(nodes.offsets().values()) == 4 * count, "and commit", TIMEOUT_S)
    # Java's consumer was once seen to print one record twice, one line after the other. A record that it repeats later,
    # or a second one, is none of its doing alone.
    by_java = [value for value, _ in itertools.groupby(java.values())]
    assert len(java.values()) - len(by_java) <= 1, "Java's consumer repeats one record at most"
    assert repeated([*read(), *by_java]) == {}, "nothing twice: all of them were idle when the group changed"


def in_kafka(load: Load) -> int:
    """How many records lie before the offsets that the brokers keep for the group."""
    options = parse_source(
        {"kafka.bootstrap.servers": load.server.bootstrap_servers, "subscribe": load.topic}, streaming=False
    )
    with closing(KafkaCluster(options.client)) as cluster:
        found = admin.committed(cluster, GROUP, cluster.deadline(), in_zookeeper=False)
    return sum(commit.offset for tp, commit in found.items() if tp.topic == load.topic)


@pytest.mark.parametrize("dual", [pytest.param("true", marks=pytest.mark.long), "false"])
def test_a_group_migrates_its_offsets_to_kafka(streams: Streams, registry: tuple[Registry, Load], dual: str) -> None:
    """`offsets.storage`: a Java consumer with one, our query with the other, and with both."""
    nodes, load = registry
    storage = {"offsets.storage": "kafka", "dual.commit.enabled": dual}
    load.send(140)
    with java_consumer_08(streams.home, load, GROUP, first=True, storage=storage) as java:
        wait_until(lambda: len(java.values()) == 140, "the Java consumer reads all", TIMEOUT_S)
    in_zookeeper = sum(nodes.offsets().values())
    assert in_zookeeper == (140 if dual == "true" else 0)
    load.send(140)
    a = query(streams, load, "a", **{f"kafka.{name}": value for name, value in storage.items()})
    wait_until(lambda: len(a.values()) >= 140, "the query goes on", TIMEOUT_S)
    assert sorted([*java.values(), *a.values()]) == sorted(load.sent), "where the consumer was"
    wait_until(lambda: in_kafka(load) == 280, "and commits", TIMEOUT_S)
    assert sum(nodes.offsets().values()) == (280 if dual == "true" else 0), "to both"
    stop(a)
    load.send(140)
    with java_consumer_08(streams.home, load, GROUP, storage=storage) as after:
        wait_until(lambda: len(after.values()) >= 140, "the Java consumer goes on after it", TIMEOUT_S)
    assert sorted([*java.values(), *a.values(), *after.values()]) == sorted(load.sent)
    assert sum(nodes.offsets().values()) == (420 if dual == "true" else 0)

"""Records of Java producers of 0.8.2 to 1.1, through the stream into Parquet; commits as their own tools see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.old_kafka import (
    CODECS,
    Record,
    Stored,
    committed_by_tool,
    java_produce,
    offsets_at_brokers,
    offsets_in_zookeeper,
    stored,
)
from tests.spark.support import Streams, Sunk
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live]

PARTITIONS = 2
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Broker:
    """A version: its server, how it keeps messages, and what its timestamps are."""

    fixture: str
    magic: int
    timestamp_type: int


BROKERS = {
    "0.8.2.2": Broker("kafka08", 0, -1),
    "0.9.0.1": Broker("kafka09", 0, -1),
    "0.10.2.2": Broker("kafka010", 1, 0),
    "1.1.1": Broker("kafka11", 2, 0),
}

BOOTSTRAP_SERVERS = "kafka.bootstrap.servers"
ZOOKEEPER_CONNECT = "zookeeper.connect"

THROUGH_BROKERS = frozenset({BOOTSTRAP_SERVERS})
THROUGH_ZOOKEEPER = frozenset({ZOOKEEPER_CONNECT})

AT_BROKERS = frozenset({"brokers"})
ZOOKEEPER = frozenset({"zookeeper"})


@dataclass(frozen=True)
class Way:
    """How a query stands to its group in a version."""

    version: str
    reaches: frozenset[str]
    """The options that name the cluster."""
    options: Mapping[str, str] = field(default_factory=dict)
    offsets: frozenset[str] = AT_BROKERS
    """Where the group's commits lie."""

    @property
    def by_zookeeper(self) -> bool:
        """Whether the group's members are in ZooKeeper."""
        return ZOOKEEPER_CONNECT in self.reaches

    def address(self, server: KafkaServer) -> dict[str, str]:
        """These options' values."""
        of = {BOOTSTRAP_SERVERS: server.bootstrap_servers, ZOOKEEPER_CONNECT: server.zookeeper_connect}
        return {option: of[option] for option in self.reaches}


WAYS = {
    "0.8.2.2, commits only": Way("0.8.2.2", THROUGH_BROKERS, {"group.mode": "commit"}),
    "0.8.2.2, member": Way("0.8.2.2", THROUGH_ZOOKEEPER, offsets=ZOOKEEPER),
    "0.8.2.2, member, storage kafka": Way(
        "0.8.2.2", THROUGH_ZOOKEEPER, {"kafka.offsets.storage": "kafka", "kafka.dual.commit.enabled": "false"}
    ),
    "0.8.2.2, member, storage both": Way(
        "0.8.2.2", THROUGH_ZOOKEEPER, {"kafka.offsets.storage": "kafka"}, offsets=AT_BROKERS | ZOOKEEPER
    ),
    # Brokers by the one, the group by the other.
    "0.8.2.2, member, both options": Way("0.8.2.2", THROUGH_BROKERS | THROUGH_ZOOKEEPER, offsets=ZOOKEEPER),
    "0.9.0.1, member": Way("0.9.0.1", THROUGH_BROKERS),
    # Old consumers may well sit on a later broker.
    "0.9.0.1, member by ZooKeeper": Way("0.9.0.1", THROUGH_ZOOKEEPER, offsets=ZOOKEEPER),
    "0.10.2.2, member": Way("0.10.2.2", THROUGH_BROKERS),
    "0.10.2.2, member by ZooKeeper": Way("0.10.2.2", THROUGH_ZOOKEEPER, offsets=ZOOKEEPER),
    "1.1.1, member": Way("1.1.1", THROUGH_BROKERS),
    "1.1.1, member by ZooKeeper": Way("1.1.1", THROUGH_ZOOKEEPER, offsets=ZOOKEEPER),
}


def some_records(codec: str, count: int) -> list[Record]:
    """Every other one without a key; short and long ones, so that wrappers have several sizes, and an empty one."""
    return [
        (None if n % 2 else f"{codec}-key-{n % 97}", f"{codec} {n} é€ {'long ' * (n % 50)}" if n else "")
        for n in range(count)
    ]


def written(server: KafkaServer, make_topic: MakeTopic, codecs: Sequence[str], count: int) -> dict[str, list[Record]]:
    """A topic of `count` records per codec, by the version's own producer, and kept by the broker as that codec."""
    by_topic = {}
    for codec in codecs:
        topic = make_topic(server, PARTITIONS)
        by_topic[topic] = java_produce(server, topic, some_records(codec, count), codec)
        first = {stored(server, topic, p) for p in range(PARTITIONS)}
        assert first == {Stored(broker_of(server).magic, CODECS[codec])}
    return by_topic


def broker_of(server: KafkaServer) -> Broker:
    return BROKERS[server.version]


def started(streams: Streams, server: KafkaServer, way: Way, *, topics: Sequence[str], group: str, limit: int) -> Sunk:
    frame = (
        streams.spark.readStream.format("streamgroup")
        .options(**way.address(server), **way.options)
        .option("kafka.group.id", group)
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(limit))
        .load()
    )
    return streams.to_parquet(frame, "q")


def through_the_stream(
    streams: Streams, server: KafkaServer, way: Way, by_topic: Mapping[str, Sequence[Record]], group: str
) -> None:
    """All into Parquet, with a restart of the query in the middle; then the commits where the version's tools look."""
    expected = Counter((topic, *record) for topic, records in by_topic.items() for record in records)
    total = expected.total()
    topics = sorted(by_topic)

    first = started(streams, server, way, topics=topics, group=group, limit=total // 6)
    wait_for_rows(first, total // 4)
    first.query.stop()
    assert len(first.rows("offset")) < total, "the restart was to be in the middle"

    again = started(streams, server, way, topics=topics, group=group, limit=total // 6)
    wait_for_rows(again, total)
    found = Counter(
        (topic, None if key is None else bytes(key).decode(), bytes(value).decode())
        for topic, key, value in again.rows("topic", "key", "value")
    )
    assert found == expected
    assert {kind for (kind,) in again.rows("timestampType")} == {broker_of(server).timestamp_type}

    ends = log_ends_of(again)
    assert set(ends) == {(topic, p) for topic in topics for p in range(PARTITIONS)}
    wait_until(
        lambda: committed_by_tool(server, group, topics, by_zookeeper=way.by_zookeeper) == ends,
        "its own tool tells of all offsets",
        TIMEOUT_S,
    )
    assert offsets_in_zookeeper(server, group) == (ends if "zookeeper" in way.offsets else {})
    assert offsets_at_brokers(server, group, topics) == (ends if "brokers" in way.offsets else {})


def wait_for_rows(sunk: Sunk, count: int) -> None:
    """Fails at once where the query has."""

    def are_there() -> bool:
        assert sunk.query.isActive, sunk.query.exception()
        return len(sunk.rows("offset")) >= count

    wait_until(are_there, f"{count} rows", TIMEOUT_S, every=0.1)


def log_ends_of(sunk: Sunk) -> dict[tuple[str, int], int]:
    """One after the last offset of each partition, all of which are there from 0 on."""
    offsets: dict[tuple[str, int], list[int]] = {}
    for topic, partition, offset in sunk.rows("topic", "partition", "offset"):
        offsets.setdefault((topic, partition), []).append(offset)
    assert all(sorted(found) == list(range(len(found))) for found in offsets.values())
    return {place: len(found) for place, found in offsets.items()}


@pytest.fixture
def way(request: pytest.FixtureRequest) -> Way:
    """That which the test's parameter names."""
    return WAYS[request.param]


@pytest.fixture
def server(request: pytest.FixtureRequest, way: Way) -> KafkaServer:
    """Of that way's version."""
    found: KafkaServer = request.getfixturevalue(BROKERS[way.version].fixture)
    return found


@pytest.mark.parametrize(
    ("way", "codec"),
    [
        ("0.8.2.2, member, both options", "snappy"),
        pytest.param("0.9.0.1, member", "lz4", marks=pytest.mark.long),
        pytest.param("0.10.2.2, member", "gzip", marks=pytest.mark.long),
        pytest.param("1.1.1, member", "lz4", marks=pytest.mark.long),
    ],
    indirect=["way"],
)
def test_what_an_old_producer_wrote_is_all_there_across_a_restart(
    streams: Streams, server: KafkaServer, way: Way, make_topic: MakeTopic, codec: str
) -> None:
    by_topic = written(server, make_topic, [codec], 2_000)
    through_the_stream(streams, server, way, by_topic, f"one-codec-{server.version}")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_every_codec_that_an_old_producer_knows(
    streams: Streams, server: KafkaServer, way: Way, make_topic: MakeTopic
) -> None:
    by_topic = written(server, make_topic, list(CODECS), 20_000)
    through_the_stream(streams, server, way, by_topic, f"all-codecs-{list(WAYS.values()).index(way)}")

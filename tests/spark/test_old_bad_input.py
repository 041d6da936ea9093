"""Input that cannot work on Kafka 0.7, as the user sees it: an error says so, and a query goes on after it.

The emulated broker is registered below a chroot of the test's own, in nodes that the test writes, wrong ones too. Each
query has read and committed something before it meets what is amiss, unless that keeps it from its start.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest
from kazoo.client import KazooClient
from pyspark.errors import StreamingQueryException

from streamgroup.testing import KafkaServer
from streamgroup.testing.kafka07 import Compressed, Kafka07Server, Producer07
from tests.spark.support import Streams, Sunk
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live]

GROUP = "drain"
_numbers = itertools.count()
IMPATIENT = {
    "kafka.default.api.timeout.ms": "2000",
    "kafka.request.timeout.ms": "1000",
    "group.joinTimeout": "4000",
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka07Server]:
    with Kafka07Server(config={"num.partitions": 2}) as server:
        yield server


class Place:
    """A topic of two partitions, and a query of it."""

    def __init__(self, kafka: Kafka07Server, client: KazooClient, topic: str, streams: Streams) -> None:
        self.kafka = kafka
        self.client = client
        self.topic = topic
        self.streams = streams
        self.sent: list[str] = []
        self.nodes = {"brokers/ids/0": f"x:{kafka.bootstrap_servers}", f"brokers/topics/{topic}/0": "2"}
        for path, text in self.nodes.items():
            self.write(path, text)

    # -- what stands in ZooKeeper -------------------------------------------------------------------------------------

    def path(self, below: str) -> str:
        return f"/{self.topic}/{below}"

    def write(self, below: str, text: str) -> None:
        self.client.ensure_path(self.path(below))
        self.client.set(self.path(below), text.encode())

    def remove(self, below: str) -> None:
        self.client.delete(self.path(below), recursive=True)

    def mend(self) -> None:
        for path, text in self.nodes.items():
            self.write(path, text)

    @property
    def offset_node(self) -> str:
        """Of the first partition."""
        return f"consumers/{GROUP}/offsets/{self.topic}/0-0"

    def committed(self) -> dict[str, str]:
        """The group's offsets."""
        parent = self.path(f"consumers/{GROUP}/offsets/{self.topic}")
        if not self.client.exists(parent):
            return {}
        return {name: self.client.get(f"{parent}/{name}")[0].decode() for name in self.client.get_children(parent)}

    # -- messages and queries -----------------------------------------------------------------------------------------

    def send(self, count: int = 5) -> None:
        """So many to each partition."""
        with Producer07(self.kafka.bootstrap_servers) as producer:
            for partition in range(2):
                values = [f"{partition}-{len(self.sent) + n:04d}" for n in range(count)]
                producer.produce(self.topic, [value.encode() for value in values], partition=partition)
                self.sent += values

    def run(self, cluster: Mapping[str, str] | None = None, **options: str) -> Sunk:
        """Read the rest of the topic in a query that continues at each run, until its member has left the group.

        The member commits for the last time after the query has ended. Raises StreamingQueryException.
        """
        address = {"zookeeper.connect": f"{self.kafka.zookeeper_connect}/{self.topic}"} if cluster is None else cluster
        frame = (
            self.streams.spark.readStream.format("streamgroup")
            .options(**address, **IMPATIENT)
            .option("kafka.group.id", GROUP)
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            .options(**{name.replace("__", "."): value for name, value in options.items()})
            .load()
        )
        sunk = self.streams.to_parquet(frame, "q", availableNow=True)
        try:
            sunk.finish()
        finally:
            wait_until(lambda: not self.members(), "the query has left its group")
        return sunk

    def members(self) -> list[str]:
        ids = self.path(f"consumers/{GROUP}/ids")
        return self.client.get_children(ids) if self.client.exists(ids) else []

    def refused(self, cluster: Mapping[str, str] | None = None, only: str = "", **options: str) -> str:
        """The user's error, in one line; fails where the query does not, or has moved the group's offsets.

        `only`: the partition that cannot be read. A slow check of its position lets the query read the others.
        """
        before = self.committed()
        with pytest.raises(StreamingQueryException) as raised:
            self.run(cluster, **options)
        after = self.committed()
        assert {n: o for n, o in after.items() if only in n} == {n: o for n, o in before.items() if only in n}
        return " ".join(str(raised.value).split())

    def begins(self) -> None:
        """A part of the topic is read and committed, and more is there."""
        self.send()
        assert sorted(self.run().values()) == sorted(self.sent)
        assert set(self.committed()) == {"0-0", "0-1"}
        self.send()

    def ends(self) -> dict[str, str]:
        """Of the logs, which have one segment each."""
        logs = self.kafka.log_dir(0)
        return {f"0-{p}": str((logs / f"{self.topic}-{p}" / f"{0:020d}.kafka").stat().st_size) for p in range(2)}

    def goes_on(self, **options: str) -> None:
        """Everything sent arrives, each once, and is committed."""
        sunk = self.run(**options)
        assert sorted(sunk.values()) == sorted(self.sent)
        assert self.committed() == self.ends()


@pytest.fixture
def place(kafka: Kafka07Server, streams: Streams) -> Iterator[Place]:
    client = KazooClient(kafka.zookeeper_connect)
    client.start()
    with closing(client):
        yield Place(kafka, client, f"t{next(_numbers)}", streams)
        client.stop()


# -- which cluster -----------------------------------------------------------------------------------------------------


@pytest.mark.long  # waits out a deadline; live/test_kafka07_reading.py has the same without Spark
def test_a_0_7_where_a_later_kafka_is_expected(place: Place) -> None:
    place.send()
    text = place.refused({"kafka.bootstrap.servers": place.kafka.bootstrap_servers})
    assert place.kafka.bootstrap_servers in text
    assert "0.7" in text
    assert "zookeeper.connect" in text
    place.goes_on()


@pytest.mark.long  # waits out a deadline; live/test_kafka07_reading.py has the same without Spark
def test_a_later_kafka_where_a_0_7_is_registered(place: Place, kafka4: KafkaServer) -> None:
    place.begins()
    later = kafka4.bootstrap_servers.split(",")[0]
    place.write("brokers/ids/0", f"x:{later}")
    text = place.refused()
    assert later in text
    assert "Kafka 0.8 or later" in text
    place.mend()
    place.goes_on()


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("brokers", "node /brokers/ids does not exist"),
        pytest.param("brokers/ids/0", "no broker", marks=pytest.mark.long),
    ],
)
def test_a_zookeeper_without_brokers(place: Place, missing: str, words: str) -> None:
    place.begins()
    place.remove(missing)
    text = place.refused()
    assert f"{place.kafka.zookeeper_connect}/{place.topic}" in text
    assert words in text
    place.mend()
    place.goes_on()


# -- garbage in ZooKeeper ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", [pytest.param("the broker", marks=pytest.mark.long), "how many partitions"])
def test_garbage_in_the_only_node_of_its_kind(place: Place, node: str) -> None:
    place.begins()
    path, words = {
        "the broker": ("brokers/ids/0", "no broker"),
        "how many partitions": (
            f"brokers/topics/{place.topic}/0",
            f"this query has not read {place.topic} 0-0, {place.topic} 0-1",
        ),
    }[node]
    place.write(path, "\x00 garbage")
    assert words in place.refused()
    place.mend()
    place.goes_on()


def test_garbage_in_an_offset_node_is_not_read_past(place: Place) -> None:
    place.begins()
    before = place.committed()
    place.write(place.offset_node, "garbage")
    text = place.refused()
    assert f"/{place.offset_node}" in text
    assert "garbage" in text
    place.write(place.offset_node, before["0-0"])
    place.goes_on()


# -- positions and bytes -----------------------------------------------------------------------------------------------


def test_a_start_inside_of_a_message(place: Place) -> None:
    """It is the group's by then (R6): its offsets are what is to be mended."""
    place.send()
    with pytest.raises(StreamingQueryException) as raised:
        place.run(startingOffsets=json.dumps({place.topic: {"0-0": 7, "0-1": -2}}))
    says_where(str(raised.value), place, 7)
    # A slow check of the position lets the query read the other partition.
    assert place.committed()["0-0"] == "7", "not past it"
    place.write(place.offset_node, "0")
    place.goes_on()


def test_a_commit_inside_of_a_message(place: Place) -> None:
    place.begins()
    before = place.committed()["0-0"]
    inside = int(before) + 7
    place.write(place.offset_node, str(inside))
    says_where(place.refused(only="0-0"), place, inside)
    place.write(place.offset_node, before)
    place.goes_on()


def says_where(text: str, place: Place, position: int) -> None:
    assert f"{place.topic} 0-0" in text
    assert f"position {position}: " in text
    assert "Offsets of Kafka 0.7 are byte positions" in text
    assert f"/consumers/{GROUP}/offsets/" in text


def test_a_wrapper_that_would_fill_the_memory(place: Place) -> None:
    place.begins()
    value = "0" * 3_000_000
    where = place.committed()["0-1"]
    with Producer07(place.kafka.bootstrap_servers) as producer:
        producer.produce(place.topic, [Compressed("gzip", [value.encode()])], partition=1)
    place.sent.append(value)
    text = place.refused(group__maxDecompressedBytes="1000000")
    assert "group.maxDecompressedBytes is 1000000" in text
    assert f"{place.topic} 0-1" in text
    assert int(place.committed()["0-1"]) == int(where), "the batch as a whole"
    place.goes_on()

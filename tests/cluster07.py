"""A cluster of two emulated 0.7 brokers with its ZooKeeper, as tests of groups look at it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from streamgroup.testing.kafka07 import Compressed, Kafka07Server, Producer07
from streamgroup.testing.kafka07.producer import Payload
from tests.waiting import repeatedly, wait_until

CODECS = (None, "gzip", "snappy", "snappy-raw")
BROKERS, PARTITIONS = 2, 3
_numbers = itertools.count()


def name_of(number: int) -> str:
    """`1-2` of 10002."""
    return "{}-{}".format(*divmod(number, 10_000))


class Cluster:
    """Two brokers with 3 partitions of one topic, and what a group has in their ZooKeeper."""

    def __init__(self, kafka: Kafka07Server, client: KazooClient, group: str) -> None:
        self.kafka = kafka
        self.client = client
        self.group = group
        self.topic = f"events{next(_numbers)}"
        self.sent: list[str] = []
        self.loaded = set(range(BROKERS))

    # -- load ---------------------------------------------------------------------------------------------------------

    def send(
        self, count: int = 20, brokers: Sequence[int] = range(BROKERS), codecs: Sequence[str | None] = CODECS
    ) -> None:
        """`count` messages to each partition, in sets of five, by all codecs in turn; one of them wraps another."""
        with Producer07(zookeeper=self.kafka.zookeeper_connect) as producer:
            for broker, partition in itertools.product(brokers, range(PARTITIONS)):
                values = [f"{self.topic}/{broker}-{partition}/{next(_numbers)}" for _ in range(count)]
                for n in range(0, count, 5):
                    codec = codecs[n // 5 % len(codecs)]
                    payloads: list[Payload] = [value.encode() for value in values[n : n + 5]]
                    if codec == "snappy":
                        payloads = [Compressed("gzip", payloads[:2]), *payloads[2:]]
                    producer.produce(self.topic, payloads, codec=codec, broker=broker, partition=partition)
                self.sent += values

    def send_past_zookeeper(self) -> None:
        """A message to each partition."""
        for broker, address in enumerate(self.kafka.bootstrap_servers.split(",")):
            with Producer07(address) as producer:
                for partition in range(PARTITIONS):
                    value = f"{self.topic}/{broker}-{partition}/{next(_numbers)}"
                    producer.produce(self.topic, [value.encode()], partition=partition)
                    self.sent.append(value)

    @contextmanager
    def load(self) -> Iterator[None]:
        """Messages all the time, to those of `loaded` that have the topic and are there."""

        def some() -> None:
            for broker in self.loaded.intersection(map(int, self.children(f"/brokers/topics/{self.topic}"))):
                with suppress(Exception):  # one that is going: what it took is not known to be there
                    self.send(5, [broker])

        with repeatedly(some, 0.1):
            yield

    # -- what stands in ZooKeeper -------------------------------------------------------------------------------------

    def children(self, path: str) -> list[str]:
        try:
            return sorted(self.client.get_children(path))
        except KazooException:  # no such node, or the session of this test has expired
            return []

    def read(self, kind: str) -> dict[str, str]:
        """The group's `owners` or `offsets` of the topic, by `<broker>-<partition>`."""
        path = f"/consumers/{self.group}/{kind}/{self.topic}"
        found = {}
        for name in self.children(path):
            with suppress(KazooException):
                found[name] = self.client.get(f"{path}/{name}")[0].decode()
        return found

    @property
    def consumers(self) -> list[str]:
        return self.children(f"/consumers/{self.group}/ids")

    def owned(self) -> dict[str, set[str]]:
        """By consumer, in the order in which they are handed partitions."""
        owners = self.read("owners")
        return {
            consumer: {name for name, thread in owners.items() if thread == f"{consumer}-0"}
            for consumer in self.consumers
        }

    def ends(self) -> dict[str, str]:
        """Where the logs end, as they lie on the brokers' disks."""
        ends = {}
        for broker, partition in itertools.product(range(BROKERS), range(PARTITIONS)):
            directory = self.kafka.log_dir(broker) / f"{self.topic}-{partition}"
            if directory.exists():
                last = max(directory.glob("*.kafka"))
                ends[f"{broker}-{partition}"] = str(int(last.stem) + last.stat().st_size)
        return ends

    # -- what queries have read ---------------------------------------------------------------------------------------

    def check(self, rows: Iterable[tuple[int, str]], *, repeats: int) -> None:
        """Of partition numbers and values: nothing is lost or of another partition, at most `repeats` are there twice,
        and everything is committed where consumers of 0.7 look."""
        read = list(rows)
        strangers = [row for row in read if name_of(row[0]) != row[1].split("/")[1]]
        assert not strangers, "rows of another partition"
        counts = Counter(value for _, value in read)
        assert not set(self.sent) - counts.keys(), "lost"
        twice = sum(counts.values()) - len(counts)
        assert twice <= repeats, f"{twice} rows are there twice"
        wait_until(lambda: self.read("offsets") == self.ends(), "everything is committed")

    @contextmanager
    def paused_zookeeper(self) -> Iterator[None]:
        """SIGSTOP; what its sessions become is up to how long that is."""
        zookeeper = self.kafka.zookeeper
        assert zookeeper is not None
        zookeeper.pause()
        try:
            yield
        finally:
            zookeeper.resume()

"""A Kafka 0.7 end to end through Spark: three queries of one group on two emulated brokers, with a real ZooKeeper.

They share the partitions as real consumers do, while one leaves, one is killed, ZooKeeper stops until their sessions
have expired, a broker goes and comes back, and the topic gains a broker: nothing is lost, each partition has one owner,
and a consumer of 0.7 goes on where they were.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

import pyarrow.parquet as pq
import pytest
from kazoo.client import KazooClient
from pyspark.errors import StreamingQueryException

import streamgroup
from streamgroup.testing.kafka07 import Kafka07Server
from tests.cluster07 import CODECS, Cluster, name_of
from tests.peers.consumer07 import Config
from tests.peers.process07 import Consumer07Process
from tests.repeats import Delivered, Faults, Licence
from tests.spark.support import Streams, Sunk
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(300)]

GROUP = "drain"
SESSION_MS = 4_000
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka07Server]:
    with Kafka07Server(brokers=2, config={"num.partitions": 3, "zk.sessiontimeout.ms": 1000}) as server:
        yield server


@pytest.fixture
def cluster(kafka: Kafka07Server) -> Iterator[Cluster]:
    client = KazooClient(kafka.zookeeper_connect)
    client.start()
    if client.exists(f"/consumers/{GROUP}"):
        client.delete(f"/consumers/{GROUP}", recursive=True)
    for broker in kafka.brokers:  # a test that failed may have left one away, or all without a session
        if not broker.alive:
            broker.restart()
    wait_until(lambda: kafka.registered() == {0, 1}, "the brokers are registered")
    yield Cluster(kafka, client, GROUP)
    client.stop()
    client.close()


@dataclass(frozen=True)
class Logs:
    """The batches of a query by its checkpoint and its file sink, over all its runs."""

    home: Path
    name: str

    def _offsets(self) -> dict[int, Path]:
        log = self.home / f"{self.name}-checkpoint" / "offsets"
        return {int(path.name): path for path in log.glob("[0-9]*")}

    @property
    def planned(self) -> int:
        """How many batches."""
        return 1 + max(self._offsets(), default=-1)

    def delivered(self) -> Iterator[Delivered]:
        """The records of each batch in the sink; it is planned when Spark logs its end."""
        log = self.home / f"{self.name}-out" / "_spark_metadata"
        entries = {int(path.name.removesuffix(".compact")): path for path in log.glob("[0-9]*")}
        seen: set[str] = set()
        for number, entry in sorted(entries.items()):
            files = [json.loads(line)["path"] for line in entry.read_text().splitlines()[1:]]
            values: list[str] = []
            for file in files:
                if file not in seen:  # a compacted entry tells those of all batches before it again
                    column = pq.read_table(urlparse(file).path, columns=["value"]).column("value")
                    values += [value.decode() for value in column.to_pylist()]
            seen.update(files)
            yield Delivered(self.name, number, self._offsets()[number].stat().st_mtime_ns / 1e9, tuple(values))


RACE_OF_SPARK = "mutation occurred during iteration"
"""The error of Spark's file sink where a stop aborts its job while a task still commits
(`ManifestFileCommitProtocol.abortJob`)."""


class Group:
    """Queries into Parquet, by name, and what has befallen them."""

    def __init__(self, streams: Streams, cluster: Cluster) -> None:
        self.streams = streams
        self.cluster = cluster
        self.queries: dict[str, Sunk] = {}
        self.faults = Faults()
        self._stopped: set[str] = set()

    def logs(self, name: str) -> Logs:
        """Of a query."""
        return Logs(self.streams.home, name)

    @contextmanager
    def fault(self, what: str, *names: str) -> Iterator[None]:
        """The block brings it over these queries: each may have a batch in flight."""
        with self.faults.fault(what, **{name: self.logs(name) for name in names}):
            yield

    def start(self, *names: str, **options: str) -> None:
        for name in names:
            frame = (
                self.streams.spark.readStream.format("streamgroup")
                .option("zookeeper.connect", self.cluster.kafka.zookeeper_connect)
                .option("zookeeper.session.timeout.ms", str(SESSION_MS))
                .option("kafka.group.id", GROUP)
                .option("group.member", name)
                .option("subscribe", self.cluster.topic)
                .option("startingOffsets", "earliest")
                .option("kafka.metadata.max.age.ms", "1000")
                .option("kafka.request.timeout.ms", "3000")
                .option("includeInnerIndex", "true")
                .options(**options)
                .load()
            )
            self.queries[name] = self.streams.to_parquet(frame, name)
            self._stopped.discard(name)

    @property
    def rows(self) -> list[tuple[int, int, int, str]]:
        """Partition number, offset, inner index and value of all that is in the sinks."""
        columns = ("partition", "offset", "inner", "value")
        return [(p, o, i, bytes(v).decode()) for sunk in self.queries.values() for p, o, i, v in sunk.rows(*columns)]

    def share(self, *sizes: int) -> list[set[str]]:
        """Wait until the owner nodes tell of members with so many partitions each, all different; in their order."""

        def owned() -> list[set[str]] | None:
            self.raise_errors()
            chunks = list(self.cluster.owned().values())
            everyones = sum(map(len, chunks)) == len(set().union(*chunks)) == len(self.cluster.read("owners"))
            return chunks if everyones and [len(chunk) for chunk in chunks] == list(sizes) else None

        found = wait_until(owned, f"partitions shared as {sizes}", TIMEOUT_S)
        assert found is not None
        return found

    def reads_on(self, brokers: tuple[int, ...] = (0, 1)) -> None:
        """Something new of each partition of these brokers arrives."""
        before = len(self.cluster.sent)

        def arrived() -> bool:
            self.raise_errors()
            new = set(self.cluster.sent[before:])
            names = {name_of(p) for p, _, _, value in self.rows if value in new}
            return {f"{broker}-{p}" for broker in brokers for p in range(3)} <= names

        wait_until(arrived, f"new records of all partitions of brokers {brokers}", TIMEOUT_S, every=0.3)

    def catches_up(self) -> None:
        """All that was sent until now arrives."""
        sent = set(self.cluster.sent)

        def arrived() -> bool:
            self.raise_errors()
            return {value for *_, value in self.rows} >= sent

        wait_until(arrived, "everything sent is in the sinks", TIMEOUT_S, every=0.3)

    def everything_arrives(self) -> None:
        """And is in its place, and committed, and twice only where a fault explains it: whoever delivered it first."""
        self.catches_up()
        repeats = self.faults.check(batch for name in self.queries for batch in self.logs(name).delivered())
        self.cluster.check(((p, value) for p, _, _, value in self.rows), repeats=repeats)

    def stop(self, name: str) -> None:
        """Stop a query, which may have a batch in flight."""
        query = self.queries[name].query
        assert query is not None
        self._stopped.add(name)
        query.stop()

    def raise_errors(self) -> None:
        for name, sunk in self.queries.items():
            error = sunk.query.exception() if sunk.query is not None else None
            assert error is None or (name in self._stopped and RACE_OF_SPARK in str(error)), f"{name}: {error}"


def coordinators() -> Mapping[int, float]:
    """The processes that coordinate streams of this machine's Spark under test, and when they started."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            argv = (entry / "cmdline").read_text().split("\0")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            grandparent = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if any("python_streaming_source_runner" in word for word in argv) and grandparent == os.getpid():
            found[int(entry.name)] = entry.stat().st_ctime
    return found


@pytest.mark.long
@pytest.mark.parametrize("count", [80, 4_000])
def test_three_queries_drain_a_cluster_of_0_7_whatever_happens_to_it(
    streams: Streams, cluster: Cluster, tmp_path: Path, count: int
) -> None:
    kafka = cluster.kafka
    cluster.send(count, brokers=[0])
    group = Group(streams, cluster)
    group.start("a", "b", "c")
    group.share(1, 1, 1)
    with cluster.load():
        group.reads_on((0,))

        cluster.send(count, brokers=[1])  # the topic gains a broker
        assert group.share(2, 2, 2) == [{"0-0", "0-1"}, {"0-2", "1-0"}, {"1-1", "1-2"}]
        group.reads_on()

        with group.fault("a stop", "b"):
            group.stop("b")
        assert [sorted(chunk) for chunk in group.share(3, 3)] == [["0-0", "0-1", "0-2"], ["1-0", "1-1", "1-2"]]
        group.reads_on()
        group.start("b")
        group.share(2, 2, 2)

        killed = kill_one(group)
        group.share(3, 3)
        group.reads_on()
        group.start(killed)
        group.share(2, 2, 2)

        every_session_expires(group)
        wait_until(lambda: kafka.registered() == {0, 1}, "the brokers are back")
        group.reads_on()

        cluster.loaded = {0}  # a batch with records of a broker that is away would wait for it
        group.catches_up()
        kafka.brokers[1].kill()
        group.share(1, 1, 1)
        group.reads_on((0,))
        kafka.brokers[1].restart()
        group.share(2, 2, 2)
        cluster.loaded = {0, 1}
        group.reads_on()

        last = group.queries["c"].query
        assert last is not None
        assert streamgroup.drain(last, 30).drained  # repeats nothing
        group.share(3, 3)
        group.reads_on()
    group.everything_arrives()
    for sunk in group.queries.values():
        if sunk.query is not None:
            sunk.query.stop()
    wait_until(lambda: cluster.consumers == [], "all have left", SESSION_MS / 2000)
    a_consumer_of_0_7_goes_on(cluster, tmp_path)


def every_session_expires(group: Group) -> None:
    """ZooKeeper is paused for longer than the sessions, under load; each query comes back as another consumer.

    Whether a session has ended, where its client comes back in that moment, hangs on which of the server's threads
    wakes first: where one has not, it is paused again.
    """
    cluster = group.cluster
    before = set(cluster.consumers)
    assert len(before) == 3
    for _ in range(3):
        with group.fault("a pause of ZooKeeper", *group.queries):
            with cluster.paused_zookeeper():
                time.sleep(1.5 * SESSION_MS / 1000)
            group.share(2, 2, 2)
        if not before & set(cluster.consumers):
            break
    after = set(cluster.consumers)
    assert len(after) == 3
    assert not before & after, "each is another consumer"


def kill_one(group: Group) -> str:
    """SIGKILL to the coordinator of a query, which fails by that; its name."""
    planned = {name: group.logs(name).planned for name in group.queries}
    victim = min(coordinators())
    os.kill(victim, signal.SIGKILL)

    def failed() -> str | None:
        return next((n for n, sunk in group.queries.items() if sunk.query and sunk.query.exception()), None)

    name = wait_until(failed, "a query has failed by it", TIMEOUT_S)
    assert name is not None
    error = group.queries[name].query.exception()  # type: ignore[union-attr]
    assert isinstance(error, StreamingQueryException)
    group.queries[name] = Sunk(None, group.queries[name].path)
    group.faults.licences.append(Licence(name, planned[name] - 1, group.logs(name).planned - 1, "a kill"))
    return name


def a_consumer_of_0_7_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    before = len(cluster.sent)
    cluster.send(5)
    config = Config(cluster.kafka.zookeeper_connect, GROUP, {cluster.topic: 1}, zk_sessiontimeout_ms=SESSION_MS)
    with Consumer07Process(tmp_path / "peer.log", config) as peer:
        wanted = sorted(cluster.sent[before:])
        wait_until(lambda: len(peer.messages()) >= len(wanted), "the consumer goes on")
        assert sorted(m.value.decode() for m in peer.messages()) == wanted, "at the first record that nobody has read"


def test_every_kind_of_message_is_read_as_the_real_consumer_reads_it(
    streams: Streams, cluster: Cluster, tmp_path: Path
) -> None:
    """About 2 000 messages, plain, gzip, snappy of both kinds, nested and mixed, with a restart in the middle."""
    cluster.send(160)
    group = Group(streams, cluster)
    group.start("a", maxOffsetsPerTrigger="9000")
    wait_until(lambda: len(group.rows) > 200, "a part of it is in the sink", TIMEOUT_S, every=0.2)
    query = group.queries["a"].query
    assert query is not None
    with group.fault("a stop", "a"):
        query.stop()
    cluster.send(180)
    group.start("a", maxOffsetsPerTrigger="90000")
    group.everything_arrives()
    rows = set(group.rows)
    assert len({(p, o, i) for p, o, i, _ in rows}) == len(rows) == len(cluster.sent) == 2_040, "inner tells them apart"
    assert len(CODECS) == 4
    config = Config(cluster.kafka.zookeeper_connect, "other", {cluster.topic: 1}, zk_sessiontimeout_ms=SESSION_MS)
    with Consumer07Process(tmp_path / "peer.log", config) as peer:
        wait_until(lambda: len(peer.messages()) >= len(rows), "the consumer reads all")
        theirs = [(m.partition, m.value.decode()) for m in peer.messages()]
    ours = [(name_of(p), value) for p, _, _, value in sorted(rows)]
    for partition in cluster.ends():
        assert [v for p, v in ours if p == partition] == [v for p, v in theirs if p == partition], "in their order, too"


def test_a_batch_read_finds_its_brokers_in_zookeeper(streams: Streams, cluster: Cluster) -> None:
    cluster.send(20)
    frame = (
        streams.spark.read.format("streamgroup")
        .option("zookeeper.connect", cluster.kafka.zookeeper_connect)
        .option("subscribe", cluster.topic)
        .load()
    )
    assert sorted(bytes(row.value).decode() for row in frame.select("value").collect()) == sorted(cluster.sent)


@pytest.mark.parametrize("password", ["canary", "env:ZK_CANARY"])
def test_no_plan_and_no_error_tells_the_password(
    streams: Streams,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    password: str,
) -> None:
    monkeypatch.setenv("ZK_CANARY", "canary")
    cluster.send(5)
    read = (
        streams.spark.read.format("streamgroup")
        .option("zookeeper.connect", cluster.kafka.zookeeper_connect)
        .option("zookeeper.username", "bob")
        .option("zookeeper.password", password)
    )
    frame = read.option("subscribe", cluster.topic).load()
    frame.explain(True)
    assert "canary" not in capsys.readouterr().out
    if password == "canary":  # the JVM under test was started before the variable was set
        assert frame.count() == 30
    with pytest.raises(Exception, match=r"cannot read topic 'none': the cluster has no such topic|ZK_CANARY") as caught:
        read.option("subscribe", "none").load().count()
    assert "canary" not in str(caught.value)

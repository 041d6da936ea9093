"""Members of a group in ZooKeeper, as streams without Spark: two emulated 0.7 brokers, a real ZooKeeper.

What an old cluster can do to them: sessions that expire, a ZooKeeper that stops, brokers that go and come back, topics
that gain a broker, a consumer of 0.7 in the same group.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from streamgroup.coordinator.coordinator import Coordinator
from streamgroup.coordinator.threads.registry_thread import RegistryThread
from streamgroup.errors import ConfigError
from streamgroup.testing import Proxy
from streamgroup.testing.kafka07 import Kafka07Server
from tests.cluster07 import Cluster, name_of
from tests.fault.harness import Stream, goes_on, raise_error
from tests.peers.consumer07 import Config
from tests.peers.process07 import Consumer07Process
from tests.repeats import Delivered, Faults
from tests.waiting import TIMEOUT_S, wait_until

pytestmark = pytest.mark.live

SESSION_MS = 2_000
GROUP = "drain"


class Timed(Stream):
    """A query that knows when it has planned which batch."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        super().__init__(name, options)
        self.planned_at: dict[int, float] = {}

    @property
    def planned(self) -> int:
        """How many batches, in all its runs."""
        return len(self.offsets)

    def delivered(self) -> Iterator[Delivered]:
        """The records of each batch in the sink."""
        for number, rows in dict(self.sunk).items():
            yield Delivered(self.name, number, self.planned_at[number], tuple(row.value for row in rows))

    def _execute(self, coordinator: Coordinator) -> None:
        self.planned_at.setdefault(self.finished, time.monotonic())
        super()._execute(coordinator)


class InProcess(Cluster):
    """Queries in this process, and what has befallen them."""

    def __init__(self, kafka: Kafka07Server, client: KazooClient, group: str) -> None:
        super().__init__(kafka, client, group)
        self.faults = Faults()

    def query(self, name: str, **options: str) -> Timed:
        return Timed(
            name,
            {
                "zookeeper.connect": self.kafka.zookeeper_connect,
                "zookeeper.session.timeout.ms": str(SESSION_MS),
                "kafka.group.id": GROUP,
                "subscribe": self.topic,
                "startingOffsets": "earliest",
                "kafka.metadata.max.age.ms": "500",
                "kafka.request.timeout.ms": "3000",
                "maxOffsetsPerTrigger": "20000",
                **{key.replace("__", "."): value for key, value in options.items()},
            },
        )

    @contextmanager
    def running(self, *names: str, **options: str) -> Iterator[list[Timed]]:
        """They are stopped with the block: each may have a batch in flight then."""
        queries = [self.query(name, **options) for name in names]
        try:
            for query in queries:
                query.start()
            self.shared_by(queries)
            yield queries
            for query in queries:
                raise_error(query)
        finally:
            for query in queries:
                self.stop(query)

    def stop(self, query: Timed) -> None:
        """Undrained."""
        if query.runs:
            with self.faults.fault("a stop", **{query.name: query}):
                query.stop()

    def shared_by(self, queries: Sequence[Timed], partitions: int = 6) -> dict[str, set[str]]:
        """Each partition has one that holds it and owns it, and no query holds two more than another.

        Return who owns what, in the order of the consumers. Before the last query has joined, the others hold all.
        """

        def are_held() -> bool:
            for query in queries:
                raise_error(query)
            held = [query.held for query in queries]
            sizes = [*map(len, held)]
            is_even = max(sizes) - min(sizes) <= 1
            return is_even and sum(sizes) == partitions == len(set().union(*held)) == len(self.read("owners"))

        wait_until(are_held, f"{partitions} partitions among {[query.name for query in queries]}")
        return self.owned()

    def arrives(self, queries: Sequence[Timed]) -> None:
        """Everything sent is in the sinks."""

        def arrived() -> bool:
            for query in queries:
                raise_error(query)
            return {row.value for query in queries for row in query.rows} >= set(self.sent)

        wait_until(arrived, "everything sent is in the sinks")

    def all_read(self, queries: Sequence[Timed]) -> None:
        """Everything sent arrives, is in its place and committed, and twice only where a fault explains it."""
        self.arrives(queries)
        repeats = self.faults.check(batch for query in queries for batch in query.delivered())
        self.check(((row.partition.partition, row.value) for query in queries for row in query.rows), repeats=repeats)


@pytest.fixture(scope="module")
def server() -> Iterator[Kafka07Server]:
    with Kafka07Server(brokers=2, config={"num.partitions": 3, "zk.sessiontimeout.ms": 1000}) as kafka:
        yield kafka


def cluster_of(server: Kafka07Server, client: KazooClient) -> InProcess:
    if client.exists(f"/consumers/{GROUP}"):
        client.delete(f"/consumers/{GROUP}", recursive=True)
    return InProcess(server, client, GROUP)


@pytest.fixture
def cluster(server: Kafka07Server) -> Iterator[InProcess]:
    client = KazooClient(server.zookeeper_connect)
    client.start()
    made = cluster_of(server, client)
    made.send()
    wait_until(lambda: made.children(f"/brokers/topics/{made.topic}") == ["0", "1"], "the topic on both brokers")
    yield made
    client.stop()
    client.close()


def expire(query: Stream, port: int) -> None:
    """Another client takes the session over, and ends it."""
    assert query._coordinator is not None
    thread = query._coordinator._backend.thread
    assert isinstance(thread, RegistryThread)
    session = thread._session._current
    assert session is not None
    end = KazooClient(f"127.0.0.1:{port}", timeout=SESSION_MS / 1000, client_id=session.client.client_id)
    end.start()
    end.stop()
    end.close()


def port_of(server: Kafka07Server) -> int:
    return int(server.zookeeper_connect.rpartition(":")[2])


# -- who reads what ----------------------------------------------------------------------------------------------------


def test_three_members_of_two_brokers_share_as_real_consumers_do_and_one_leaves(
    cluster: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), cluster.running("a", "b", "c") as (a, b, c), cluster.load():
        assert list(cluster.shared_by([a, b, c]).values()) == [{"0-0", "0-1"}, {"0-2", "1-0"}, {"1-1", "1-2"}]
        goes_on([a, b, c])
        cluster.stop(b)
        assert [len(held) for held in cluster.shared_by([a, c]).values()] == [3, 3]
        goes_on([a, c])
    last = cluster.query("d")
    with last:
        cluster.all_read([a, b, c, last])
    assert "joined drain through ZooKeeper, 2 of 6 partitions, 2 other members" in caplog.text
    assert cluster.consumers == [], "who leaves is gone at once"


def test_a_member_that_was_stopped_goes_on_where_it_was_and_a_consumer_of_0_7_after_it(
    cluster: InProcess, tmp_path: Path
) -> None:
    with cluster.running("a") as (a,):
        cluster.all_read([a])
    cluster.send()
    with a:
        cluster.all_read([a])
    before = len(cluster.sent)
    cluster.send(5, codecs=("gzip",))
    config = Config(cluster.kafka.zookeeper_connect, GROUP, {cluster.topic: 1}, zk_sessiontimeout_ms=SESSION_MS)
    with Consumer07Process(tmp_path / "peer.log", config) as peer:
        wanted = sorted(cluster.sent[before:])
        wait_until(lambda: {m.value.decode() for m in peer.messages()} >= set(wanted), "the consumer goes on")
        assert sorted(m.value.decode() for m in peer.messages()) == wanted
    cluster.send(5)
    read = [m.value.decode() for m in peer.messages()]
    with a:
        wait_until(lambda: {row.value for row in a.rows} >= set(cluster.sent) - set(read), "and the query after it")
        assert not {row.value for row in a.rows} & set(read), "its commits count"
        wait_until(lambda: cluster.read("offsets") == cluster.ends(), "everything is committed")


def test_a_consumer_of_0_7_in_the_same_group_gets_its_share(cluster: InProcess, tmp_path: Path) -> None:
    config = Config(
        cluster.kafka.zookeeper_connect,
        GROUP,
        {cluster.topic: 2},
        consumerid="real",
        autocommit_interval_ms=200,
        zk_sessiontimeout_ms=SESSION_MS,
    )
    with cluster.load(), cluster.running("a") as (a,):
        with Consumer07Process(tmp_path / "peer.log", config) as peer:
            wait_until(lambda: len(peer.owned) == 4 and len(a.held) == 2, "two streams of three are the consumer's")
            owners = cluster.read("owners")
            assert sorted(owners) == [name_of(b * 10_000 + p) for b in (0, 1) for p in range(3)]
            assert {owners[name.partition(":")[2]].rpartition("-")[0] for name in peer.owned} == {"drain_real"}
            goes_on([a])
            seen = len(peer.messages())
            wait_until(lambda: len(peer.messages()) > seen, "the consumer reads on")
        cluster.shared_by([a])
    read = {m.value.decode() for m in peer.messages()}
    with a:
        wait_until(lambda: {row.value for row in a.rows} | read >= set(cluster.sent), "nothing is lost")


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_a_session_that_expires_is_followed_by_another_and_nothing_is_lost(cluster: InProcess) -> None:
    with cluster.load(), cluster.running("a", "b", "c") as queries:
        for query in queries:
            before = query.status["member"]
            with cluster.faults.fault("an expiry", **{query.name: query}):
                expire(query, port_of(cluster.kafka))
                wait_until(lambda query=query, before=before: query.status["member"] != before, "a new consumer id")  # type: ignore[misc]
            cluster.shared_by(queries)
            assert len(cluster.consumers) == 3
            goes_on(queries)
    with queries[0]:
        cluster.all_read(queries)


def test_a_zookeeper_that_is_paused_stops_planning_and_nothing_is_lost(
    server: Kafka07Server, cluster: InProcess
) -> None:
    with (
        Proxy(("127.0.0.1", port_of(server))) as proxy,
        cluster.running("a", "b", "c", zookeeper__connect=f"127.0.0.1:{proxy.port}") as queries,
    ):
        cluster.all_read(queries)
        before = {str(query.status["member"]) for query in queries}
        assert len(before) == 3
        assert cluster.consumers == sorted(before)
        pause_until_all_expire(cluster, queries, proxy)
        wait_until(lambda: server.registered() == {0, 1}, "the brokers are back")
        cluster.all_read(queries)
        after = {str(query.status["member"]) for query in queries}
        assert len(after) == 3
        assert not before & after, "each is another consumer"
        assert cluster.consumers == sorted(after)
        cluster.send()
        cluster.all_read(queries)  # nothing twice: all were idle


def pause_until_all_expire(cluster: InProcess, queries: Sequence[Timed], proxy: Proxy) -> None:
    """Pause ZooKeeper for longer than a session.

    The proxy lets no client reconnect before all sessions have expired. A reconnect that already waits when ZooKeeper
    goes on may revive its session, which depends on the server thread that wakes first.
    """
    upstream = proxy.upstream
    with cluster.paused_zookeeper():
        wait_until(lambda: not any(may_plan(query) for query in queries), "nobody plans", 2 * SESSION_MS / 1000)
        planned = [query.planned for query in queries]
        cluster.send_past_zookeeper()  # the brokers go on, but nobody knows any more whose these are
        time.sleep(2 * SESSION_MS / 1000)
        assert [query.planned for query in queries] == planned
        proxy.upstream = None
        proxy.cut()
    wait_until(lambda: has_no_consumer(cluster), "all sessions have expired")
    proxy.upstream = upstream
    wait_until(lambda: all(may_plan(query) for query in queries), "all are there again")
    cluster.shared_by(queries)


def has_no_consumer(cluster: InProcess) -> bool:
    try:
        return not cluster.client.get_children(f"/consumers/{GROUP}/ids")
    except KazooException:  # the session of this test's own client has expired as well
        return False


def may_plan(query: Stream) -> bool:
    assert query._coordinator is not None
    with query._coordinator._inbox._lock:
        return query._coordinator._backend.member.may_plan(time.monotonic())


def test_a_broker_goes_and_comes_back_and_its_partitions_with_it(server: Kafka07Server, cluster: InProcess) -> None:
    with cluster.running("a", "b") as queries:
        with cluster.load():
            goes_on(queries)
        cluster.arrives(queries)  # a batch with records of a broker that is away would wait for it
        server.brokers[1].kill()
        try:
            with cluster.load():
                wait_until(lambda: server.registered() == {0}, "its session ends")
                cluster.shared_by(queries, 3)
                goes_on(queries)
        finally:
            server.brokers[1].restart()
        with cluster.load():
            cluster.shared_by(queries, 6)
            goes_on(queries)
    with queries[0]:
        cluster.all_read(queries)


def test_a_topic_gains_a_broker(server: Kafka07Server, cluster: InProcess) -> None:
    grows = cluster_of(server, cluster.client)
    grows.send(brokers=[0])
    queries = [grows.query(name) for name in "ab"]
    try:
        for query in queries:
            query.start()
        grows.shared_by(queries, 3)
        grows.send(brokers=[1])
        grows.shared_by(queries, 6)
        grows.all_read(queries)
    finally:
        for query in queries:
            query.stop()


# -- alone, and in vain ------------------------------------------------------------------------------------------------


def test_who_reads_alone_commits_where_consumers_of_0_7_look(cluster: InProcess) -> None:
    query = cluster.query("a", group__mode="commit")
    with query:
        cluster.all_read([query])
        assert cluster.consumers == []
        assert cluster.read("owners") == {}


def test_a_query_without_a_group_leaves_nothing_in_zookeeper(cluster: InProcess) -> None:
    query = cluster.query("a", group__mode="off")
    with query:
        wait_until(lambda: {row.value for row in query.rows} == set(cluster.sent), "everything sent")
    assert cluster.read("offsets") == {}


def test_two_members_with_one_checkpoint_are_distinguished(cluster: InProcess) -> None:
    with cluster.running("a") as (a,):
        cluster.all_read([a])
        copy = cluster.query("copy")
        copy.offsets, copy.finished, copy.sunk = list(a.offsets), a.finished, dict(a.sunk)
        with copy:
            wait_until(lambda: copy.error is not None, "the later one is refused", TIMEOUT_S)
        assert isinstance(copy.error, ConfigError)
        assert "another live member uses a copy of this query's checkpoint" in str(copy.error)


def test_a_chroot_that_is_not_the_brokers_is_reported(cluster: InProcess) -> None:
    for connect, said in (
        (f"{cluster.kafka.zookeeper_connect}/kafka", "invalid chroot /kafka"),
        (f"{cluster.kafka.zookeeper_connect}/zookeeper", "no brokers in "),
    ):
        query = cluster.query("a", zookeeper__connect=connect)
        with query:
            wait_until(lambda query=query: query.error is not None, "an error")  # type: ignore[misc]
        assert said in str(query.error)

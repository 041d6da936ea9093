"""Three brokers under members of a group: leaders and coordinators that move, die and freeze, topics that change."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions, NewTopic

from streamgroup.cli._cluster import ClusterAddress
from streamgroup.coordinator.planning.document import from_value
from streamgroup.errors import DataLossError
from streamgroup.executor.pools import POOL
from streamgroup.kafka.cluster.changes import commit_as_admin
from streamgroup.model import TopicPartition
from streamgroup.monitoring.page.history import views
from streamgroup.monitoring.page.server import Board
from streamgroup.testing import End, Fault, KafkaServer
from tests.conftest import MakeTopic
from tests.fault.harness import Stream, Streams, Writer, check_everything, check_order, goes_on, raise_error
from tests.fault.operators import (
    ADMIN_S,
    admin,
    coordinator,
    delete_offsets,
    delete_records,
    elect_preferred,
    leaders,
    look,
    moved,
    offsets,
    reassign,
    recreate,
)
from tests.ui.served import polled
from tests.waiting import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

PARTITIONS = 6
BATCH = 200
REQUEST_TIMEOUT_S = 1.5


@pytest.fixture
def kafka(three_brokers: KafkaServer) -> KafkaServer:
    return three_brokers


@pytest.fixture(autouse=True)
def _all_brokers_serve(kafka: KafkaServer) -> Iterator[None]:
    yield
    POOL.clear()
    for broker, proxy in zip(kafka.brokers, kafka.proxies, strict=True):
        proxy.heal()
        broker.resume() if broker.alive else broker.restart()


@pytest.fixture
def streams(kafka: KafkaServer, make_topic: MakeTopic) -> Streams:
    topic = make_topic(kafka, PARTITIONS, replication=3, config={"retention.ms": "-1"})
    return Streams(kafka, topic, f"group-{topic}")


@pytest.fixture
def writer(streams: Streams) -> Writer:
    return Writer(streams.server, streams.topic, PARTITIONS)


# -- leaders ----------------------------------------------------------------------------------------------------------


def test_leaders_that_move_cost_no_rebalance_and_repeat_nothing(
    streams: Streams, writer: Writer, tmp_path: Path
) -> None:
    with streams.running("a", "b") as queries:
        with writer.writing():
            goes_on(queries, 50)
            generation, before = streams.generation(queries), look(streams)
            epochs = {tp: epoch for query in queries for tp, epoch in known_epochs(query).items()}
            reassign(streams, tmp_path, {tp: [(leader + n) % 3 for n in (1, 2, 3)] for tp, leader in leaders(before)})
            elect_preferred(streams)
            after = wait_until(lambda: moved(streams, before), "every partition has another leader")
            goes_on(queries, 50)
            assert all(after.partition(tp).leader_epoch > epochs[tp] for tp, _ in leaders(before))
        check_everything(streams, writer, queries, repeats=0)
        assert streams.generation(queries) == generation
        newest = {tp: epoch for query in queries for tp, epoch in known_epochs(query).items()}
        assert {tp for tp in epochs if newest[tp] > epochs[tp]} == set(epochs), "positions under the new epochs"


def test_a_broker_that_does_not_answer_holds_up_its_own_partitions_only(
    streams: Streams, writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    silent = (coordinator(streams) + 1) % 3
    theirs = [tp.partition for tp, leader in leaders(look(streams)) if leader == silent]
    others = [number for number in range(PARTITIONS) if number not in theirs]
    with streams.running("a") as [query]:
        writer.send(120)
        check_everything(streams, writer, [query])
        streams.server.proxies[silent].set(Fault(end=End.STALL))
        waiting = writer.send(40, theirs)
        took = []
        for _ in range(5):
            new = writer.send(40, others)
            began = time.monotonic()
            wait_until(lambda new=new: {row.value for row in query.rows} >= set(new), "what the other brokers have")
            took.append(time.monotonic() - began)
        assert min(took) < 2.0, "each batch waits for the silent broker"
        assert "Other partitions are not affected" in caplog.text
        assert not {row.value for row in query.rows} & set(waiting)
        streams.server.proxies[silent].heal()
        check_everything(streams, writer, [query], repeats=0)


def test_on_the_live_page_a_broker_that_does_not_answer_hides_its_own_groups_only(
    streams: Streams, writer: Writer
) -> None:
    writer.send(60)
    silent, names = 2, groups_of_each_broker(streams, 6)
    with polled(ClusterAddress(streams.server.bootstrap_servers)) as board:

        def rows() -> dict[int, list[dict[str, Any]]]:
            text = board.answer("all", views.overview)[1]
            shown = {row["group"]: row for row in json.loads(text or b"{}")["groups"]}
            return {node: [shown[name] for name in mine if name in shown] for node, mine in names.items()}

        def states() -> list[set[str]]:
            return [{row["state"] for row in mine} for _, mine in sorted(rows().items()) if len(mine) == 6]

        wait_until(lambda: states() == [{"Empty"}] * 3, "all groups are read")
        streams.server.proxies[silent].set(Fault(end=End.STALL))
        wait_until(lambda: states() == [{"Empty"}, {"Empty"}, {"Unknown"}], "the other groups are read", 60)
        left = {row["lag"] for node, mine in rows().items() if node != silent for row in mine}
        assert left <= set(range(1, 60)), "without the logs of its leaders"
        with polled(ClusterAddress(streams.server.bootstrap_servers)) as later:  # opened while the broker is silent
            wait_until(lambda: shown_by(later) >= {*names[0], *names[1]}, "the other groups are shown", 60)
        streams.server.proxies[silent].heal()
        wait_until(lambda: states() == [{"Empty"}] * 3, "all groups again", 60)
        wait_until(lambda: {row["lag"] for row in rows()[silent]} == {60}, "their lags", 60)


def shown_by(board: Board) -> set[str]:
    """The groups that a page has read."""
    text = board.answer("all", views.overview)[1]
    return {row["group"] for row in json.loads(text or b"{}")["groups"] if row["state"] == "Empty"}


def groups_of_each_broker(streams: Streams, count: int) -> dict[int, list[str]]:
    """Commit offset 0 of all partitions for groups until each broker coordinates `count`; returns them by broker."""
    found: dict[int, list[str]] = {node: [] for node in range(len(streams.server.brokers))}
    zero = dict.fromkeys((TopicPartition(streams.topic, number) for number in range(PARTITIONS)), 0)
    for number in itertools.count():
        name = f"{streams.group}-{number}"
        node = streams.ask(lambda cluster, name=name: cluster.coordinator(name, cluster.deadline())).node_id
        if len(found[node]) < count:
            found[node].append(name)
            streams.ask(lambda cluster, name=name: commit_as_admin(cluster, name, zero, cluster.deadline()))
        if all(len(names) == count for names in found.values()):
            break
    return found


@pytest.mark.long
@pytest.mark.parametrize("seconds", [2 * REQUEST_TIMEOUT_S, 5.0])
@pytest.mark.parametrize("who", ["the coordinator", "another"])
def test_a_broker_that_freezes_for_a_while(seconds: float, who: str, streams: Streams, writer: Writer) -> None:
    first = coordinator(streams)
    with streams.running("a", "b") as queries:
        with writer.writing():
            goes_on(queries, 50)
            broker = streams.server.brokers[first if who == "the coordinator" else (first + 1) % 3]
            broker.pause()
            time.sleep(seconds)
            broker.resume()
            goes_on(queries, 50)
        check_everything(streams, writer, queries, repeats=2 * BATCH)


# -- the coordinator --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounces", [1, pytest.param(5, marks=pytest.mark.long)])
def test_the_coordinator_dies_and_comes_back(bounces: int, streams: Streams, writer: Writer) -> None:
    with streams.running("a", "b") as queries:
        with writer.writing():
            for _ in range(bounces):
                broker = streams.server.brokers[coordinator(streams)]
                goes_on(queries, 20)
                broker.kill()
                goes_on(queries, 50)
                broker.restart()
                goes_on(queries, 20)
        check_everything(streams, writer, queries, repeats=2 * BATCH * bounces)


@pytest.mark.long
def test_a_roll_of_all_brokers_costs_no_rebalance_and_repeats_nothing(streams: Streams, writer: Writer) -> None:
    with streams.running("a", "b") as queries:
        generation = streams.generation(queries)
        with writer.writing():
            for broker in streams.server.brokers:
                goes_on(queries, 50)
                broker.stop()
                goes_on(queries, 50)
                broker.restart()
        check_everything(streams, writer, queries, repeats=0)
        assert streams.generation(queries) == generation


# -- topics -----------------------------------------------------------------------------------------------------------


def test_partitions_that_a_topic_grows_are_read_from_their_beginning(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka, 3, config={"retention.ms": "-1"})
    streams, writer = Streams(kafka, topic, f"group-{topic}"), Writer(kafka, topic, 3)
    with streams.running("a", "b", startingOffsets="latest") as queries:
        wait_until(lambda: len(streams.committed()) == 3, "positions are committed")
        writer.send(90)
        admin(kafka).create_partitions([NewPartitions(topic, 12)])[topic].result(ADMIN_S)
        writer.grow(12)
        wait_until(lambda: len(look(streams).topics[topic].partitions) == 12, "12 partitions")
        writer.send(240)  # before any member may know of them
        wait_until(lambda: sorted(len(query.held) for query in queries) == [6, 6], "6 partitions each")
        writer.send(120)
        check_everything(streams, writer, queries, repeats=0)


@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.long)])
def test_a_topic_that_is_deleted_and_made_anew_is_read_from_its_beginning(
    times: int, streams: Streams, writer: Writer
) -> None:
    with streams.running("a", "b", failOnDataLoss=False) as queries:
        writer.send(300)
        check_everything(streams, writer, queries, repeats=0)
        for number in range(times):
            recreate(streams)
            # More than there were, and fewer: positions of the old topic must not count in either case.
            writer.send(400 if number % 2 == 0 else 100)
            wait_until(
                lambda: {row.value for q in queries for row in q.rows} >= set(writer.sent), "the new topic's records"
            )
        wait_until(lambda: offsets(streams) == streams.ends(), "everything is committed")
        for query in queries:
            check_order(query)


def test_a_topic_that_is_made_anew_is_an_error_where_loss_is_one(streams: Streams, writer: Writer) -> None:
    with streams.running("a") as [query]:
        writer.send(300)
        check_everything(streams, writer, [query], repeats=0)
        recreate(streams)
        writer.send(400)
        assert f"{streams.topic}" in failure(query)
        query.error = None


# -- records and offsets that go --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lenient", [False, True], ids=["strict", "lenient"])
def test_records_deleted_ahead_of_the_group(lenient: bool, streams: Streams, writer: Writer) -> None:
    query = streams.query("a", failOnDataLoss=not lenient)
    writer.send(60)
    query.start()
    wait_until(lambda: offsets(streams) == streams.ends(), "everything is committed")
    query.stop()
    lost, left = writer.send(120), TopicPartition(streams.topic, 0)
    delete_records(streams, {left: streams.ends()[left]})
    kept = [value for value in lost if not value.startswith(f"{streams.topic}/0/")]
    query.start()
    try:
        if not lenient:
            message = failure(query)
            assert str(left) in message
            assert streams.group in message
            return
        kept += writer.send(60)
        wait_until(lambda: {row.value for row in query.rows} >= set(kept), "what is left")
        wait_until(lambda: offsets(streams) == streams.ends(), "everything is committed")
        raise_error(query)
        check_order(query)
    finally:
        query.stop()


@pytest.mark.long
def test_retention_overtakes_a_slow_group(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    config = {"retention.ms": "1000", "segment.ms": "300", "file.delete.delay.ms": "0"}
    topic = make_topic(kafka, PARTITIONS, config=config)
    streams, writer = Streams(kafka, topic, f"group-{topic}"), Writer(kafka, topic, PARTITIONS)
    with (
        writer.writing(count=200, every_s=0.1),
        streams.running("a", "b", failOnDataLoss=False, maxOffsetsPerTrigger=6) as queries,  # a twentieth of it
    ):
        wait_until(lambda: all(skips(query) for query in queries), "records were gone unread, and stepped over", 60)
        goes_on(queries, 5)
        for query in queries:
            check_order(query)


def test_a_partition_whose_offset_is_deleted_begins_at_its_beginning(streams: Streams, writer: Writer) -> None:
    whole, cut = (TopicPartition(streams.topic, partition) for partition in (0, 1))
    writer.send(60)
    with streams.query("first") as first:
        check_everything(streams, writer, [first], repeats=0)
    delete_offsets(streams, whole, cut)
    delete_records(streams, {cut: 5})
    assert set(offsets(streams)) == set(streams.ends()) - {whole, cut}
    # It is not the founding generation (R7): `latest` would lose what nobody may have read.
    with streams.query("strict", startingOffsets="latest") as strict:
        assert f"{cut}: the group has no committed offset" in failure(strict)
        assert "log starts at offset 5, so the query may have missed the records below" in str(strict.error)
    with streams.query("lenient", startingOffsets="latest", failOnDataLoss=False) as lenient:
        wait_until(lambda: offsets(streams) == streams.ends(), "everything is committed")
        raise_error(lenient)
        assert sorted((row.partition, row.offset) for row in lenient.rows) == [
            *((whole, offset) for offset in range(10)),
            *((cut, offset) for offset in range(5, 10)),
        ]


@pytest.mark.long
def test_a_partition_whose_offset_is_deleted_goes_on_from_the_checkpoint_where_there_is_one(
    streams: Streams, writer: Writer
) -> None:
    query = streams.query("first")
    for _ in range(2):
        writer.send(60)
        with query:
            check_everything(streams, writer, [query], repeats=0)
        delete_offsets(streams, TopicPartition(streams.topic, 0))


@pytest.mark.long
def test_offsets_that_expire_leave_the_checkpoint_and_else_found_the_group_anew() -> None:
    config = {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 1000}
    with KafkaServer(config=config) as server:
        topic = "expiring"
        new = NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"})
        admin(server).create_topics([new], operation_timeout=ADMIN_S)[topic].result(ADMIN_S)
        streams, writer = Streams(server, topic, "expired"), Writer(server, topic, PARTITIONS)
        with streams.query("first") as first:
            writer.send(60)
            check_everything(streams, writer, [first], repeats=0)
        wait_until(lambda: not offsets(streams), "the offsets of the empty group have expired", 120)
        writer.send(60)
        with first:
            check_everything(streams, writer, [first], repeats=0)
            other = streams.query("second", startingOffsets="latest")
            with other:
                wait_until(lambda: first.held and other.held, "both hold partitions")
                writer.send(60)
                check_everything(streams, writer, [first, other], repeats=0)


# -- what is seen of a query -------------------------------------------------------------------------------------------


def failure(query: Stream) -> str:
    """The error that ends `query`: a DataLossError."""
    wait_until(lambda: query.error is not None, "the query ends with an error")
    assert isinstance(query.error, DataLossError), query.error
    return str(query.error)


def skips(query: Stream) -> int:
    """How often a batch of `query` began behind the end of the one before."""
    at: dict[TopicPartition, int] = {}
    count = 0
    for each in itertools.chain.from_iterable(query.ranges):
        count += at.get(each.partition, each.start) < each.start
        at[each.partition] = each.until
    return count


def known_epochs(query: Stream) -> dict[TopicPartition, int]:
    """The leader epochs in the newest document."""
    return {tp: p.leader_epoch for tp, p in from_value(json.loads(query.offsets[-1])).positions.items()}

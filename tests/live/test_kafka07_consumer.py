"""The imitated 0.7 consumer does what was seen of the real one; others are held against it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from streamgroup.testing.kafka07 import Compressed, Kafka07Server, Producer07, message_set
from tests.peers.consumer07 import Config
from tests.peers.process07 import Consumed, Consumer07Process
from tests.waiting import wait_until

pytestmark = pytest.mark.live

SESSION_MS = 1_000
GROUP = "grp1"


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka07Server]:
    with Kafka07Server(brokers=2, config={"num.partitions": 3, "zk.sessiontimeout.ms": SESSION_MS}) as server:
        yield server


@pytest.fixture
def nodes(kafka: Kafka07Server) -> Iterator[KazooClient]:
    client = KazooClient(kafka.zookeeper_connect)
    client.start()
    if client.exists("/consumers"):
        client.delete("/consumers", recursive=True)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def topic(kafka: Kafka07Server, nodes: KazooClient, request: pytest.FixtureRequest) -> str:
    """On both brokers, with 3 partitions each, all empty."""
    name = re.sub(r"\W", "-", request.node.name.removeprefix("test_"))[-60:]
    with Producer07(zookeeper=kafka.zookeeper_connect) as producer:
        for broker in (0, 1):
            producer.produce(name, [], broker=broker, partition=0)
    wait_until(
        lambda: nodes.exists(f"/brokers/topics/{name}") and len(nodes.get_children(f"/brokers/topics/{name}")) == 2,
        name,
    )
    return str(name)


def config(kafka: Kafka07Server, topics: dict[str, int] | None = None, **changes: object) -> Config:
    given = {
        "topics": topics or {},
        "autocommit_interval_ms": 60_000,
        "rebalance_backoff_ms": 300,
        "rebalance_retries_max": 50,
        "backoff_increment_ms": 50,
        "zk_sessiontimeout_ms": SESSION_MS,
        **changes,
    }
    return Config(kafka.zookeeper_connect, GROUP, **given)  # type: ignore[arg-type]


def produce(kafka: Kafka07Server, topic: str, payloads: list[bytes | Compressed], where: str = "0-0") -> None:
    broker, _, partition = where.partition("-")
    with Producer07(zookeeper=kafka.zookeeper_connect) as producer:
        producer.produce(topic, payloads, broker=int(broker), partition=int(partition))


def offsets(nodes: KazooClient, topic: str) -> dict[str, bytes]:
    path = f"/consumers/{GROUP}/offsets/{topic}"
    return {name: nodes.get(f"{path}/{name}")[0] for name in nodes.get_children(path)} if nodes.exists(path) else {}


def owners(nodes: KazooClient, topic: str) -> dict[str, str]:
    path = f"/consumers/{GROUP}/owners/{topic}"
    found = {}
    for name in nodes.get_children(path):
        with suppress(NoNodeError):  # released since
            found[name] = nodes.get(f"{path}/{name}")[0].decode()
    return found


def await_messages(peer: Consumer07Process, count: int) -> list[Consumed]:
    wait_until(lambda: len(peer.messages()) >= count, f"{count} messages, not {len(peer.messages())}")
    return peer.messages()


def test_offsets_after_each_message_are_those_that_the_scala_consumer_has(
    kafka: Kafka07Server, topic: str, nodes: KazooClient, tmp_path: Path
) -> None:
    produce(kafka, topic, [b"a", Compressed("gzip", [b"b", b"c"])])
    produce(kafka, topic, [b"d"], "0-0")
    produce(
        kafka, topic, [Compressed("snappy", [b"e", b"f"]), Compressed("gzip", [Compressed("gzip", [b"g", b"h"]), b"i"])]
    )
    wrapper = 11 + len(message_set([Compressed("gzip", [b"b", b"c"])]))
    snappy = wrapper + 11 + len(message_set([Compressed("snappy", [b"e", b"f"])]))
    with Consumer07Process(tmp_path / "c.log", config(kafka, {topic: 1}, consumerid="c1")) as peer:
        found = await_messages(peer, 9)
    end = snappy + len(message_set([Compressed("gzip", [Compressed("gzip", [b"g", b"h"]), b"i"])]))
    assert [(row.value, row.offset) for row in found] == [
        (b"a", 11),
        (b"b", 11),
        (b"c", wrapper),
        (b"d", wrapper + 11),
        (b"e", wrapper + 11),
        (b"f", snappy),
        (b"g", snappy),
        (b"h", snappy),
        (b"i", end),
    ]
    # At its shutdown it has committed all that it owned, and its nodes have gone.
    everything = dict.fromkeys(["0-0", "0-1", "0-2", "1-0", "1-1", "1-2"], b"0")
    assert offsets(nodes, topic) == {**everything, "0-0": str(end).encode()}
    assert nodes.get_children(f"/consumers/{GROUP}/ids") == []
    assert owners(nodes, topic) == {}


def test_three_streams_of_two_consumers_share_six_partitions(
    kafka: Kafka07Server, topic: str, nodes: KazooClient, tmp_path: Path
) -> None:
    with (
        Consumer07Process(tmp_path / "1.log", config(kafka, {topic: 1}, consumerid="c1")) as one,
        Consumer07Process(tmp_path / "2.log", config(kafka, {topic: 2})) as two,
    ):
        assert re.fullmatch(rf"{GROUP}_.+-\d{{13}}-[0-9a-f]{{8}}", two.consumer)
        first, second, third = f"{GROUP}_c1-0", f"{two.consumer}-0", f"{two.consumer}-1"
        expected = {"0-0": first, "0-1": first, "0-2": second, "1-0": second, "1-1": third, "1-2": third}
        wait_until(lambda: owners(nodes, topic) == expected, "one owner each")
        data, stat = nodes.get(f"/consumers/{GROUP}/ids/{two.consumer}")
        assert data == f'{{ "{topic}": 2 }}'.encode()
        assert stat.ephemeralOwner
        wait_until(lambda: one.owned == [f"{topic}:0-0", f"{topic}:0-1"], "the report of the first")


def test_one_takes_over_from_another_that_leaves_where_that_has_committed(
    kafka: Kafka07Server, topic: str, nodes: KazooClient, tmp_path: Path
) -> None:
    with Consumer07Process(tmp_path / "2.log", config(kafka, {topic: 1}, consumerid="c2")) as two:
        with Consumer07Process(tmp_path / "1.log", config(kafka, {topic: 1}, consumerid="c1")) as one:
            wait_until(lambda: (len(one.owned), len(two.owned)) == (3, 3), "halves")
            produce(kafka, topic, [b"first"], "0-0")
            assert await_messages(one, 1) == [Consumed(topic, "0-0", b"first", 15, f"{GROUP}_c1-0")]
        wait_until(lambda: len(two.owned) == 6, "all")
        produce(kafka, topic, [b"second"], "0-0")
        assert await_messages(two, 1) == [Consumed(topic, "0-0", b"second", 31, f"{GROUP}_c2-0")]


def test_one_takes_over_from_another_that_was_killed_and_repeats_what_was_not_committed(
    kafka: Kafka07Server, topic: str, tmp_path: Path
) -> None:
    with Consumer07Process(tmp_path / "2.log", config(kafka, {topic: 1}, consumerid="c2")) as two:
        one = Consumer07Process(tmp_path / "1.log", config(kafka, {topic: 1}, consumerid="c1")).start()
        wait_until(lambda: (len(one.owned), len(two.owned)) == (3, 3), "halves")
        produce(kafka, topic, [b"first"], "0-0")
        await_messages(one, 1)
        one.kill()
        assert [row.value for row in await_messages(two, 1)] == [b"first"]


def test_a_consumer_that_cannot_have_its_partitions_gives_up_after_four_tries(
    kafka: Kafka07Server, topic: str, nodes: KazooClient, tmp_path: Path
) -> None:
    nodes.create(f"/consumers/{GROUP}/owners/{topic}/0-0", b"somebody-0", makepath=True)
    changes = {"rebalance_backoff_ms": 50, "rebalance_retries_max": 4}
    peer = Consumer07Process(tmp_path / "c.log", config(kafka, {topic: 1}, consumerid="c1", **changes))
    with pytest.raises(Exception, match="can't rebalance after 4 retries"):
        peer.start()
    assert [event["event"] for event in peer.events()].count("waits for an owner") == 4
    assert owners(nodes, topic) == {"0-0": "somebody-0"}


def test_a_consumer_waits_for_its_partitions_within_its_tries(
    kafka: Kafka07Server, topic: str, nodes: KazooClient, tmp_path: Path
) -> None:
    nodes.create(f"/consumers/{GROUP}/owners/{topic}/0-0", b"somebody-0", makepath=True)
    peer = Consumer07Process(tmp_path / "c.log", config(kafka, {topic: 1}, rebalance_backoff_ms=1000))
    peer.process.launch()
    wait_until(lambda: any(event["event"] == "waits for an owner" for event in peer.events()), "the first try")
    nodes.delete(f"/consumers/{GROUP}/owners/{topic}/0-0")
    peer.process.await_ready()
    assert len(peer.owned) == 6
    peer.stop()


def test_a_rebalance_that_fails_leaves_it_with_nothing_until_the_next_change(
    kafka: Kafka07Server, topic: str, nodes: KazooClient, tmp_path: Path
) -> None:
    changes = {"rebalance_backoff_ms": 50, "rebalance_retries_max": 4}
    with Consumer07Process(tmp_path / "c.log", config(kafka, {topic: 1}, consumerid="c1", **changes)) as peer:
        # Another one comes, takes its half, and goes without giving it up.
        other = f"/consumers/{GROUP}/ids/{GROUP}_z"
        nodes.create(other, f'{{ "{topic}": 1 }}'.encode())
        wait_until(lambda: len(peer.owned) == 3, "half of it")
        for partition in range(3):
            nodes.create(f"/consumers/{GROUP}/owners/{topic}/1-{partition}", f"{GROUP}_z-0".encode())
        nodes.delete(other)
        wait_until(lambda: peer.events()[-1]["event"] == "rebalance failed", "the end of its tries")
        assert owners(nodes, topic) == {f"1-{partition}": f"{GROUP}_z-0" for partition in range(3)}
        for partition in range(3):
            nodes.delete(f"/consumers/{GROUP}/owners/{topic}/1-{partition}")
        produce(kafka, topic, [b"unread"])
        assert peer.owned == peer.messages() == []
        nodes.create(other, f'{{ "{topic}": 1 }}'.encode())
        nodes.delete(other)
        wait_until(lambda: len(peer.owned) == 6, "all of it after the next change")
        assert [row.value for row in await_messages(peer, 1)] == [b"unread"]


@pytest.mark.parametrize(("reset", "expected"), [("smallest", [b"old", b"new"]), ("largest", [b"new"])])
def test_without_an_offset_it_begins_at_an_end_of_the_log(
    kafka: Kafka07Server, topic: str, tmp_path: Path, reset: str, expected: list[bytes]
) -> None:
    produce(kafka, topic, [b"old"], "1-1")
    with Consumer07Process(tmp_path / "c.log", config(kafka, {topic: 1}, autooffset_reset=reset)) as peer:
        produce(kafka, topic, [b"new"], "1-1")
        found = await_messages(peer, len(expected))
    assert [row.value for row in found] == expected


def test_an_offset_out_of_range_is_reset_and_written_at_once(
    kafka: Kafka07Server, topic: str, nodes: KazooClient, tmp_path: Path
) -> None:
    produce(kafka, topic, [b"there"])
    nodes.create(f"/consumers/{GROUP}/offsets/{topic}/0-0", b"999", makepath=True)
    with Consumer07Process(tmp_path / "c.log", config(kafka, {topic: 1})) as peer:
        assert [row.value for row in await_messages(peer, 1)] == [b"there"]
        assert offsets(nodes, topic)["0-0"] == b"0"
        assert {"event": "reset", "partition": f"{topic}:0-0", "offset": 0} in peer.events()


def test_an_offset_off_a_boundary_reaches_the_application_as_an_error(
    kafka: Kafka07Server, topic: str, nodes: KazooClient, tmp_path: Path
) -> None:
    produce(kafka, topic, [b"x" * 40, b"y" * 40])
    nodes.create(f"/consumers/{GROUP}/offsets/{topic}/0-0", b"7", makepath=True)
    peer = Consumer07Process(tmp_path / "c.log", config(kafka, {topic: 1})).start()
    wait_until(lambda: not peer.process.alive, "its end")
    assert any(event["event"] == "stream failed" for event in peer.events())
    assert peer.messages() == []


def test_it_commits_every_interval(kafka: Kafka07Server, topic: str, nodes: KazooClient, tmp_path: Path) -> None:
    with Consumer07Process(tmp_path / "c.log", config(kafka, {topic: 1}, autocommit_interval_ms=50)) as peer:
        produce(kafka, topic, [b"x"], "1-2")
        await_messages(peer, 1)
        wait_until(lambda: offsets(nodes, topic).get("1-2") == b"11", "the commit")
        assert nodes.get(f"/consumers/{GROUP}/offsets/{topic}/1-2")[1].ephemeralOwner == 0


def test_a_pattern_counts_streams_of_every_topic_it_matches(
    kafka: Kafka07Server, topic: str, nodes: KazooClient, tmp_path: Path
) -> None:
    with (
        Consumer07Process(tmp_path / "1.log", config(kafka, pattern=f"*2*{topic[:40]}.*", consumerid="c1")) as one,
        Consumer07Process(tmp_path / "2.log", config(kafka, {topic: 1}, consumerid="c2")) as two,
    ):
        assert nodes.get(f"/consumers/{GROUP}/ids/{GROUP}_c1")[0] == f"*2*{topic[:40]}.*".encode()
        wait_until(lambda: (len(one.owned), len(two.owned)) == (4, 2), "two streams and one")


def test_after_its_session_has_expired_it_registers_and_goes_on(
    kafka: Kafka07Server, topic: str, nodes: KazooClient, tmp_path: Path
) -> None:
    with Consumer07Process(tmp_path / "c.log", config(kafka, {topic: 1}, consumerid="c1")) as peer:
        peer.pause()
        wait_until(lambda: nodes.get_children(f"/consumers/{GROUP}/ids") == [], "the end of its session")
        peer.resume()
        wait_until(lambda: len(owners(nodes, topic)) == 6, "its owner nodes in a new session")
        produce(kafka, topic, [b"after"], "1-0")
        assert await_messages(peer, 1)[-1].value == b"after"
        assert any(event["event"] == "new session" for event in peer.events())


def test_a_broker_that_joins_a_topic_is_shared_out(kafka: Kafka07Server, nodes: KazooClient, tmp_path: Path) -> None:
    produce(kafka, "grows", [b"x"], "0-0")
    wait_until(lambda: nodes.exists("/brokers/topics/grows/0"), "the topic")
    with Consumer07Process(tmp_path / "c.log", config(kafka, {"grows": 1})) as peer:
        assert peer.owned == ["grows:0-0", "grows:0-1", "grows:0-2"]
        produce(kafka, "grows", [b"y"], "1-2")
        wait_until(lambda: len(peer.owned) == 6, "the other broker's")
        assert [row.value for row in await_messages(peer, 2)] == [b"x", b"y"]

"""The live page's application over a real broker: what it shows of a group that reads, rebalances and falls behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from starlette.testclient import TestClient

from streamgroup.cli._cluster import ClusterAddress
from streamgroup.monitoring.page.access import Access
from streamgroup.monitoring.page.history import history, views
from streamgroup.monitoring.page.server import Board, application
from streamgroup.testing import KafkaServer
from streamgroup.testing.zookeeper_mode import zookeeper_client
from tests.conftest import MakeTopic
from tests.live.test_old_cli import produce
from tests.live.transacting import Transactions
from tests.old_kafka import librdkafka
from tests.peers.librdkafka import commit
from tests.servers import each_of
from tests.ui.served import polled
from tests.waiting import wait_until

pytestmark = pytest.mark.live

kafka = each_of("kafka4", long=("kafka39", "kafka11", "kafka010", "kafka09"))


def test_the_page_follows_a_group_through_a_rebalance(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka, 4)
    group = f"g-{topic}"
    settings = {
        **librdkafka(kafka),
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
    }
    with ExitStack() as stack:
        board = stack.enter_context(polled(ClusterAddress(kafka.bootstrap_servers), group))
        page = TestClient(application(board, Access("127.0.0.1"), 0.2), base_url="http://127.0.0.1")
        producer = Producer(librdkafka(kafka))
        for number in range(40):
            producer.produce(topic, b"value", partition=number % 4)
        assert producer.flush(30) == 0

        def shown() -> dict[str, Any]:
            answer = page.get("/api/group", params={"name": group})
            found: dict[str, Any] = answer.json()
            return found

        consumers = [stack.enter_context(closing(Consumer({**settings, "client.id": "first"})))]
        consumers[0].subscribe([topic])

        def reads(condition: Callable[[], bool]) -> Callable[[], bool]:
            def look() -> bool:
                for consumer in consumers:
                    consumer.poll(0.05)
                return condition()

            return look

        wait_until(reads(lambda: len(shown().get("partitions", [])) == 4), "one member holds four partitions")
        wait_until(reads(lambda: {row["owner"] for row in shown()["partitions"]} == {0}), "the first member holds all")
        offsets = [consumers[0].position(consumers[0].assignment())]
        wait_until(reads(lambda: all(p.offset == 10 for p in consumers[0].position(consumers[0].assignment()))), "read")
        commit(consumers[0], consumers[0].position(offsets[0]))
        wait_until(reads(lambda: shown()["lag"] == 0), "the commit shows")
        for _ in range(7):
            producer.produce(topic, b"value", partition=3)
        assert producer.flush(30) == 0
        wait_until(reads(lambda: shown()["lag"] == 7), "the lag of what was written since")

        consumers.append(stack.enter_context(closing(Consumer({**settings, "client.id": "second"}))))
        consumers[1].subscribe([topic])
        wait_until(reads(lambda: {row["owner"] for row in shown()["partitions"]} == {0, 1}), "both hold partitions")
        found = shown()
        kinds = [mark["kind"] for mark in found["marks"]]
        assert {"join", "rebalance"} <= set(kinds)
        assert any("second joined" in mark["text"] for mark in found["marks"])
        assert {member["client"] for member in found["members_list"]} == {"first", "second"}
        assert {len({owner for _, _, owner in spans}) for spans in found["spans"]} == {1, 2}

        listed = page.get("/api/overview").json()["groups"]
        assert [(row["group"], row["members"], row["topics"]) for row in listed] == [(group, 2, [topic])]
        rows = page.get("/api/topic", params={"name": topic}).json()["rows"]
        assert [(row["end"], row["lags"][group]) for row in rows] == [(10, 0), (10, 0), (10, 0), (17, 7)]
        assert page.get("/api/cluster").json()["brokers"][0]["leads"] > 0


def test_the_page_marks_a_partition_that_an_open_transaction_holds_up(
    kafka4: KafkaServer, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "HELD_UP_S", 1.0)
    topic = make_topic(kafka4, 1)
    transactions = Transactions(kafka4, topic)
    transactions.write(transactions.begin(), ["a", "b"])
    with polled(ClusterAddress(kafka4.bootstrap_servers)) as board:

        def held() -> Any:
            _, body = board.answer(("topic", topic), lambda found: views.topic_view(found, topic))
            return None if body is None else json.loads(body)["rows"][0]["held_up"]

        wait_until(lambda: held() is not None, "the partition is marked")
        assert held()["offset"] == 0
        transactions.commit()
        wait_until(lambda: held() is None, "the mark has gone")


@pytest.mark.long
def test_the_page_has_the_groups_of_zookeeper_with_their_lag(kafka08: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka08, 2)
    group = f"g-{topic}"
    produce(kafka08, topic, partition=1, count=4)
    in_zookeeper(kafka08, group, topic)
    for brokers in (kafka08.bootstrap_servers, None):
        with polled(ClusterAddress(brokers, kafka08.zookeeper_connect)) as board:
            wait_until(lambda board=board: overview(board).get(group, {}).get("lag") == 3, "its lag")  # type: ignore[misc]


@pytest.mark.long
def test_the_page_has_the_groups_of_brokers_and_of_zookeeper(kafka11: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka11, 2)
    old, new = f"old-{topic}", f"new-{topic}"
    produce(kafka11, topic, partition=1, count=4)
    in_zookeeper(kafka11, old, topic)
    with closing(Consumer({**librdkafka(kafka11), "group.id": new})) as consumer:
        commit(consumer, [TopicPartition(topic, 1, 2)])
    with polled(ClusterAddress(kafka11.bootstrap_servers, kafka11.zookeeper_connect)) as board:
        wait_until(lambda: {old, new} <= overview(board).keys(), "both groups")
        wait_until(lambda: [overview(board)[name]["lag"] for name in (old, new)] == [3, 2], "their lags")


def in_zookeeper(kafka: KafkaServer, group: str, topic: str) -> None:
    """Write what a consumer of a group in ZooKeeper has committed: offset 1 of partition 1."""
    with zookeeper_client(kafka.zookeeper_connect) as client:
        client.create(f"/consumers/{group}/offsets/{topic}/1", b"1", makepath=True)


def overview(board: Board) -> dict[str, dict[str, Any]]:
    """The groups that the page shows, by name."""
    text = board.answer("overview", views.overview)[1]
    return {row["group"]: row for row in json.loads(text or b"{}")["groups"]}

"""The commands against Kafka 0.7 to 1.1: topics, groups, doctor."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer, TopicPartition
from kazoo.client import KazooClient
from kazoo.security import CREATOR_ALL_ACL

from streamgroup.cli.main import main
from streamgroup.testing import KafkaServer
from streamgroup.testing.kafka07 import Kafka07Server, Producer07
from streamgroup.testing.zookeeper_mode import zookeeper_client
from streamgroup.text import counted
from tests.conftest import MakeTopic
from tests.old_kafka import librdkafka
from tests.peers.librdkafka import commit
from tests.waiting import wait_until

pytestmark = pytest.mark.live

CONSUMER = "g_host-1795200126907-19be2887"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--timeout", "20000"])


def rows(*arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def kafka07() -> Iterator[Kafka07Server]:
    """Two brokers with three partitions each; in every partition of `orders` are two messages, 30 bytes."""
    with Kafka07Server(brokers=2, config={"num.partitions": 3}) as kafka:
        with Producer07(zookeeper=kafka.zookeeper_connect) as producer:
            for broker in (0, 1):
                for partition in range(3):
                    producer.produce("orders", [b"hello", b"world"], broker=broker, partition=partition)
        with zookeeper_client(kafka.zookeeper_connect) as client:
            wait_until(lambda: len(_registered(client)) == 2, "both brokers have registered the topic")
        yield kafka


def commit_at_brokers(server: KafkaServer, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """As a consumer whose offsets Kafka keeps."""
    with closing(Consumer({**librdkafka(server), "group.id": group})) as consumer:
        commit(consumer, [TopicPartition(*tp, offset) for tp, offset in offsets.items()])


def produce(server: KafkaServer, topic: str, *, partition: int, count: int) -> None:
    producer = Producer(librdkafka(server))
    for _ in range(count):
        producer.produce(topic, b"value", partition=partition)
    assert producer.flush(30) == 0


def _registered(client: Any) -> list[str]:
    path = "/brokers/topics/orders"
    return client.get_children(path) if client.exists(path) else []


def test_topics_of_kafka_07_have_their_partitions_with_the_ends_of_their_logs(kafka07: Kafka07Server) -> None:
    assert run("topics", "-z", kafka07.zookeeper_connect, "--list").stdout == "orders\n"
    described = rows("topics", "-z", kafka07.zookeeper_connect, "--describe", "--topic", "orders")
    assert [(row["partition"], row["leader"], row["log_start_offset"], row["log_end_offset"]) for row in described] == [
        (f"{broker}-{partition}", broker, 0, 30) for broker in (0, 1) for partition in range(3)
    ]


def test_a_group_of_kafka_07_is_described_as_any_other(kafka07: Kafka07Server) -> None:
    with zookeeper_client(kafka07.zookeeper_connect) as client:
        client.create(f"/consumers/g/ids/{CONSUMER}", b'{ "orders": 1 }', ephemeral=True, makepath=True)
        for broker in (0, 1):
            for partition in range(3):
                client.create(
                    f"/consumers/g/owners/orders/{broker}-{partition}",
                    f"{CONSUMER}-0".encode(),
                    ephemeral=True,
                    makepath=True,
                )
        client.create("/consumers/g/offsets/orders/1-2", b"15", makepath=True)
        described = rows("groups", "-z", kafka07.zookeeper_connect, "--describe", "--group", "g")
        members = run("groups", "-z", kafka07.zookeeper_connect, "--describe", "--group", "g", "--members", "--verbose")
        states = rows("groups", "-z", kafka07.zookeeper_connect, "--list", "--state")
    assert described[-1] == {
        "group": "g",
        "topic": "orders",
        "partition": "1-2",
        "leader_epoch": None,
        "current_offset": 15,
        "log_end_offset": 30,
        "lag": 15,
        "beyond_end": None,
        "consumer_id": CONSUMER,
        "next_consumer_id": None,
        "host": "/host",
        "client_id": None,
    }
    assert "orders(0-0,0-1,0-2,1-0,1-1,1-2)" in members.stdout
    assert states == [{"group": "g", "state": "Stable"}]


def test_lag_of_a_group_of_kafka_07_is_in_bytes(kafka07: Kafka07Server) -> None:
    with zookeeper_client(kafka07.zookeeper_connect) as client:
        client.create("/consumers/behind/offsets/orders/1-2", b"15", makepath=True)
        client.create("/consumers/behind/offsets/orders/0-1", b"30", makepath=True)
    shown = run("lag", "-z", kafka07.zookeeper_connect, "--group", "behind").stdout
    assert [line.split()[:6] for line in shown.splitlines()[1:3]] == [
        ["behind", "orders", "1-2", "15", "30", "15"],
        ["behind", "orders", "0-1", "30", "30", "0"],
    ]
    assert "behind: lag 15 in 2 partitions" in shown


def test_doctor_tells_what_brokers_of_kafka_07_speak(kafka07: Kafka07Server) -> None:
    told = rows("doctor", "-z", kafka07.zookeeper_connect)
    brokers = [row for row in told["findings"] if row["check"].startswith("broker")]
    assert [row["verdict"] for row in brokers] == ["ok", "ok"]
    assert all("runs Kafka 0.7" in row["found"] for row in brokers)


def test_brokers_of_kafka_07_given_as_bootstrap_servers_are_reported(kafka07: Kafka07Server) -> None:
    result = CliRunner().invoke(main, ["doctor", "-b", kafka07.bootstrap_servers, "--timeout", "3000"])
    assert result.exit_code == 1
    assert "Kafka 0.7 (then set 'zookeeper.connect'" in result.stdout


def test_topics_and_groups_of_kafka_082_are_found_through_its_zookeeper(
    kafka08: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka08, 2)
    where = ("-z", kafka08.zookeeper_connect)
    described = rows("topics", *where, "--describe", "--topic", topic)
    assert [(row["partition"], row["replicas"], row["log_end_offset"]) for row in described] == [
        (partition, str(kafka08.brokers[0].node_id), 0) for partition in range(2)
    ]
    group = f"g-{topic}"
    with zookeeper_client(kafka08.zookeeper_connect) as client:
        client.create(f"/consumers/{group}/offsets/{topic}/1", b"0", makepath=True)
    (row,) = rows("groups", *where, "--describe", "--group", group)
    assert (row["partition"], row["current_offset"], row["lag"]) == (1, 0, 0)
    produce(kafka08, topic, partition=1, count=4)
    watched = run("lag", *where, "--group", group, "--watch", "--count", "2", "--interval", "0.2", "--json")
    looks = [json.loads(line)["partitions"] for line in watched.stdout.splitlines()]
    assert [(look["partition"], look["lag"]) for (look,) in looks] == [(1, 4), (1, 4)]
    assert looks[1][0]["committed_per_second"] == 0


def test_offsets_that_a_group_of_082_keeps_in_kafka_are_its_offsets(
    kafka08: KafkaServer, make_topic: MakeTopic
) -> None:
    """`offsets.storage=kafka`: what stands in ZooKeeper is from before its migration, or ahead while it lasts."""
    topic = make_topic(kafka08, 2)
    group = f"g-{topic}"
    for partition in (0, 1):
        produce(kafka08, topic, partition=partition, count=5)
    commit_at_brokers(kafka08, group, {(topic, 0): 5, (topic, 1): 2})
    with zookeeper_client(kafka08.zookeeper_connect) as client:
        client.create(f"/consumers/{group}/offsets/{topic}/0", b"1", makepath=True)
        client.create(f"/consumers/{group}/offsets/{topic}/1", b"3", makepath=True)
    result = run("groups", "-z", kafka08.zookeeper_connect, "--describe", "--group", group, "--json")
    described = {row["partition"]: (row["current_offset"], row["lag"]) for row in json.loads(result.stdout)}
    assert described == {0: (5, 0), 1: (3, 2)}
    assert "Warning" not in result.stderr


@pytest.fixture
def of_eve(kafka08: KafkaServer) -> Iterator[str]:
    """A chroot where the broker is registered and a group has committed, which nobody but eve may read."""
    client = KazooClient(kafka08.zookeeper_connect, auth_data=[("digest", "eve:canary")])
    client.start()
    try:
        ids = "/brokers/ids"
        for name in client.get_children(ids):
            client.create(f"/eves{ids}/{name}", client.get(f"{ids}/{name}")[0], CREATOR_ALL_ACL, makepath=True)
        client.create("/eves/consumers/hers/offsets/orders/0", b"7", CREATOR_ALL_ACL, makepath=True)
        yield f"{kafka08.zookeeper_connect}/eves"
        client.delete("/eves", recursive=True)
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize(
    ("command", "seen"),
    [
        (("topics", "--list"), ""),
        (("groups", "--list"), "hers"),
        (("doctor", "--group", "hers"), "Empty, 0 members, commits of 1 partition"),
    ],
)
def test_nodes_of_a_user_are_read_with_his_credentials_and_not_without(
    of_eve: str,
    kafka08: KafkaServer,
    make_topic: MakeTopic,
    monkeypatch: pytest.MonkeyPatch,
    *,
    command: tuple[str, ...],
    seen: str,
) -> None:
    monkeypatch.setenv("EVES_PASSWORD", "canary")
    seen = seen or make_topic(kafka08)
    as_eve = ("--zookeeper-username", "eve", "--zookeeper-password")
    allowed = run(*command, "-z", of_eve, *as_eve, "env:EVES_PASSWORD")
    assert (allowed.exit_code, seen in allowed.stdout) == (0, True), allowed.output
    assert "canary" not in allowed.output
    for refused in (run(*command, "-z", of_eve), run(*command, "-z", of_eve, *as_eve, "Canary")):
        assert refused.exit_code == 1
        assert seen not in refused.stdout
        assert "the node's access control list forbids the operation" in refused.output
        assert "zookeeper.username" in refused.output
        assert "canary" not in refused.output.lower()


def test_doctor_names_the_release_of_a_broker_that_knows_no_apiversions(
    kafka08: KafkaServer, make_topic: MakeTopic
) -> None:
    make_topic(kafka08)  # the controller of 0.8 sends the brokers' addresses with the first topic, not before
    findings = {row["check"]: row for row in rows("doctor", "-b", kafka08.bootstrap_servers)["findings"]}
    broker = findings[f"broker {kafka08.brokers[0].node_id}"]
    assert broker["verdict"] == "warn"
    assert "runs Kafka 0.8.2, which has no group protocol" in broker["found"]


def test_a_new_cluster_of_082_is_healthy_before_it_has_topics() -> None:
    with KafkaServer("0.8.2.2") as new:
        for where in (("-z", new.zookeeper_connect), ("-b", new.bootstrap_servers)):
            result = CliRunner().invoke(main, ["doctor", *where, "--timeout", "2000", "--json"])
            assert result.exit_code == 0, result.output
            cluster, broker = json.loads(result.stdout)["findings"][-2:]
            assert (cluster["verdict"], "first topic: create a topic" in cluster["found"]) == ("warn", True)
            assert f"{new.bootstrap_servers} runs Kafka 0.8.2" in broker["found"]


def test_groups_of_an_082_broker_itself_are_an_error_that_names_zookeeper(kafka08: KafkaServer) -> None:
    result = run("groups", "-b", kafka08.bootstrap_servers, "--list")
    assert result.exit_code == 1
    assert "--zookeeper" in result.stderr


# -- every release, by either way --------------------------------------------------------------------------------------

SPEAKS = {
    "kafka08": "Kafka 0.8.2: ZooKeeper stores its groups",
    "kafka09": "Kafka 0.9: it coordinates groups",
    "kafka010": "Kafka 0.10.1 or later (Fetch v3): it coordinates groups",
    "kafka11": "Kafka 1.1 or later (Fetch v7): it coordinates groups",
}
WAYS = [(name, way) for name in SPEAKS for way in ("-z", "-b") if (name, way) != ("kafka08", "-b")]


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_every_release_is_shown_with_its_topics_and_a_group_that_has_committed(
    name: str, way: str, make_topic: MakeTopic, request: pytest.FixtureRequest
) -> None:
    """Of one group id are offsets in both places: by `-z` both are meant, by `-b` Kafka's."""
    server: KafkaServer = request.getfixturevalue(name)
    where = (way, server.zookeeper_connect if way == "-z" else server.bootstrap_servers)
    topic = make_topic(server, 2)
    group = f"g-{topic}"
    produce(server, topic, partition=0, count=3)
    commit_at_brokers(server, group, {(topic, 0): 2})
    with zookeeper_client(server.zookeeper_connect) as client:
        client.create(f"/consumers/{group}/offsets/{topic}/1", b"0", makepath=True)
    commits = {0: (2, 3, 1)} | ({1: (0, 0, 0)} if way == "-z" else {})

    assert topic in run("topics", *where, "--list").stdout.splitlines()
    partitions = rows("topics", *where, "--describe", "--topic", topic)
    assert [(row["partition"], row["leader"], row["log_end_offset"]) for row in partitions] == [(0, 0, 3), (1, 0, 0)]

    listed = run("groups", *where, "--list").stdout.splitlines()
    assert (group in listed) is ((name, way) != ("kafka09", "-b")), "0.9 lists none that has no members"
    described = rows("groups", *where, "--describe", "--group", group)
    assert {r["partition"]: (r["current_offset"], r["log_end_offset"], r["lag"]) for r in described} == commits

    findings = {row["check"]: row for row in rows("doctor", *where, "--group", group)["findings"]}
    assert findings["broker 0"]["found"].endswith(f" runs {SPEAKS[name]}")
    assert findings[f"group {group}"]["verdict"] == "ok"
    found = f"Empty, 0 members, commits of {counted(len(commits), 'partition')}, lag 1"
    assert found in findings[f"group {group}"]["found"]

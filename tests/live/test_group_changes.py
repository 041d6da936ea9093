"""`streamgroup groups` changes groups at real brokers and in ZooKeeper, as Kafka's own tool does."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer, TopicPartition

from streamgroup.cli.main import main
from streamgroup.kafka.cluster import admin
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.options.parse import parse_client
from streamgroup.testing import KafkaServer
from streamgroup.testing.kafka07 import Kafka07Server, Producer07
from streamgroup.testing.zookeeper_mode import zookeeper_client
from tests.conftest import MakeTopic
from tests.fault.harness import Stream
from tests.old_kafka import librdkafka, run_tool
from tests.peers.librdkafka import commit
from tests.waiting import wait_until

pytestmark = pytest.mark.live

GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
HOUR_MS = 3_600_000


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["groups", *arguments, "--timeout", "20000"])


def done(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def fill(server: KafkaServer, topic: str, *, partitions: int, timestamp: int = 0) -> None:
    """Ten records in each partition, an hour apart from `timestamp` on if that is given."""
    producer = Producer(librdkafka(server))
    failed: list[str] = []
    for partition in range(partitions):
        for n in range(10):
            at = {"timestamp": timestamp + n * HOUR_MS} if timestamp else {}
            told = lambda error, _: failed.append(str(error)) if error else None  # noqa: E731
            producer.produce(topic, b"value", partition=partition, on_delivery=told, **at)
    assert producer.flush(30) == 0
    assert not failed


def new_offsets(*arguments: str) -> dict[int | str, int]:
    return {row["partition"]: row["new_offset"] for row in json.loads(done("--reset-offsets", *arguments, "--json"))}


def committed(server: KafkaServer, group: str) -> dict[tuple[str, int], tuple[int, str]]:
    """Return the offsets of the group and their metadata. librdkafka would read on behind the end of the metadata."""
    with closing(KafkaCluster(parse_client({"kafka.bootstrap.servers": server.bootstrap_servers})[0])) as cluster:
        found = admin.committed(cluster, group, cluster.deadline())
    return {(tp.topic, tp.partition): (kept.offset, kept.metadata) for tp, kept in found.items()}


@contextmanager
def member(server: KafkaServer, group: str, topic: str, protocol: str = "classic") -> Iterator[None]:
    """A member of the group that holds partitions."""
    settings = {"group.id": group, "enable.auto.commit": "false", "group.protocol": protocol}
    with closing(Consumer({**librdkafka(server), **settings})) as consumer:
        consumer.subscribe([topic])

        def holds() -> bool:
            consumer.poll(0.1)
            return bool(consumer.assignment())

        wait_until(holds, "the member holds its partitions")
        yield


# -- at brokers --------------------------------------------------------------------------------------------------------


def test_every_way_sets_the_offsets_of_a_group(kafka4: KafkaServer, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = make_topic(kafka4, 2)
    began = int(time.time() * 1000) - 10 * HOUR_MS - HOUR_MS // 2
    fill(kafka4, topic, partitions=2, timestamp=began)
    group = f"g-{topic}"
    reset = ("-b", kafka4.bootstrap_servers, "--group", group, "--topic", topic)
    assert new_offsets(*reset, "--to-latest") == {0: 10, 1: 10}
    assert committed(kafka4, group) == {}, "a dry run"

    assert new_offsets(*reset, "--to-offset", "4", "--execute") == {0: 4, 1: 4}
    assert committed(kafka4, group) == {(topic, 0): (4, ""), (topic, 1): (4, "")}, "as no member commits"
    assert new_offsets(*reset, "--shift-by", "-3", "--execute") == {0: 1, 1: 1}
    assert new_offsets(*reset, "--shift-by", "500") == {0: 10, 1: 10}
    assert new_offsets(*reset, "--to-current") == {0: 1, 1: 1}
    assert new_offsets(*reset, "--to-earliest") == {0: 0, 1: 0}
    assert new_offsets(*reset, "--by-duration", "PT2H") == {0: 9, 1: 9}
    third = datetime.fromtimestamp((began + 3 * HOUR_MS) / 1000, UTC).isoformat(timespec="milliseconds")
    assert new_offsets(*reset, "--to-datetime", third) == {0: 3, 1: 3}
    assert new_offsets(*reset, "--to-datetime", "2100-01-01T00:00:00.000") == {0: 10, 1: 10}

    file = tmp_path / "offsets.csv"
    file.write_text(f"{topic},1,7\n")
    from_file = ("-b", kafka4.bootstrap_servers, "--group", group, "--from-file", str(file))
    assert new_offsets(*from_file, "--execute") == {1: 7}
    assert done("-b", kafka4.bootstrap_servers, "--export", "--group", group) == f"{topic},0,1\n{topic},1,7\n"
    exported = done("-b", kafka4.bootstrap_servers, "--export", "--group", group, "--format", "spark")
    assert json.loads(exported) == {topic: {"0": 1, "1": 7}}


def test_a_query_follows_a_reset_at_its_next_start(kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka4)
    fill(kafka4, topic, partitions=1)
    options = {
        "kafka.bootstrap.servers": kafka4.bootstrap_servers,
        "kafka.group.id": f"g-{topic}",
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    query = Stream("query", options)
    reset = ("-b", kafka4.bootstrap_servers, "--reset-offsets", "--group", f"g-{topic}", "--all-topics")
    with query:
        wait_until(lambda: query.error or len(query.rows) == 10, "the query has read everything")
        refused = run(*reset, "--to-earliest", "--execute")
        assert refused.exit_code == 1
        assert "it is Stable, with 1 member(s)" in refused.output
        wait_until(lambda: committed(kafka4, f"g-{topic}").get((topic, 0), (0, ""))[0] == 10, "the query has committed")
    wait_until(lambda: run(*reset, "--shift-by", "-4", "--execute").exit_code == 0, "the member has left")
    again = Stream("again", options)
    with again:
        wait_until(lambda: again.error or len(again.rows) == 4, "the query reads from the reset on")
    assert [row.offset for row in again.rows] == [6, 7, 8, 9]


def test_offsets_and_groups_are_deleted_but_not_those_of_members(kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka4, 2)
    fill(kafka4, topic, partitions=2)
    group = f"g-{topic}"
    where = ("-b", kafka4.bootstrap_servers, "--group", group)
    done(*where, "--reset-offsets", "--topic", topic, "--to-latest", "--execute")
    with member(kafka4, group, topic):
        refused = run(*where, "--delete")
        assert "cannot change group" in refused.output
        subscribed = run(*where, "--delete-offsets", "--topic", topic)
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in subscribed.stdout
        assert (refused.exit_code, subscribed.exit_code) == (1, 1)
    assert "Successful" in done(*where, "--delete-offsets", "--topic", f"{topic}:1")
    assert committed(kafka4, group) == {(topic, 0): (10, "")}
    assert done(*where, "--delete") == f"Deletion of requested consumer groups ('{group}') was successful.\n"
    assert group not in done("-b", kafka4.bootstrap_servers, "--list").splitlines()
    assert "it does not exist" in run(*where, "--delete").output


def test_a_commit_cannot_overwrite_what_a_member_that_comes_meanwhile_commits(
    kafka4: KafkaServer, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look at the group says that it has no members; the coordinator knows better by then."""
    from streamgroup.cli.groups import GroupChanges  # noqa: PLC0415

    topic = make_topic(kafka4)
    monkeypatch.setattr(GroupChanges, "_require_no_members", lambda *_: None)
    with member(kafka4, f"g-{topic}", topic):
        result = run(
            *("-b", kafka4.bootstrap_servers, "--reset-offsets", "--group", f"g-{topic}"),
            *("--topic", topic, "--to-latest", "--execute"),
        )
    assert result.exit_code == 1
    assert "which has members" in result.output
    assert committed(kafka4, f"g-{topic}") == {}


@pytest.mark.long
def test_a_group_of_kip_848_is_refused_while_it_has_members(kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    """DescribeGroups calls it Dead."""
    topic = make_topic(kafka4)
    reset = ("-b", kafka4.bootstrap_servers, "--reset-offsets", "--group", f"g-{topic}", "--topic", topic)
    with member(kafka4, f"g-{topic}", topic, protocol="consumer"):
        refused = run(*reset, "--to-latest", "--execute")
        assert refused.exit_code == 1
        assert "it is Stable, with 1 member(s)" in refused.output
    wait_until(lambda: run(*reset, "--to-latest", "--execute").exit_code == 0, "the member has left")
    assert committed(kafka4, f"g-{topic}") == {(topic, 0): (0, "")}


@pytest.mark.long
def test_a_group_of_kip_848_is_shown_with_its_members(kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka4)
    fill(kafka4, topic, partitions=1)
    group = ("-b", kafka4.bootstrap_servers, "--group", f"g-{topic}")
    done(*group, "--reset-offsets", "--topic", topic, "--to-offset", "4", "--execute")
    with member(kafka4, f"g-{topic}", topic, protocol="consumer"):
        lag = CliRunner().invoke(main, ["lag", *group])
        assert lag.exit_code == 0, lag.output
        assert lag.stdout.splitlines()[1].split()[1:6] == [topic, "0", "4", "10", "6"]
        assert lag.stderr == ""
        strategy, state, epoch, members = done(*group, "--describe", "--state").split()[-4:]
        assert (strategy, state, members) == ("uniform", "Stable", "1")
        (row,) = json.loads(done(*group, "--describe", "--members", "--json"))
        assert (row["partitions"], row["host"]) == (1, "/127.0.0.1")
        assert (row["epoch"], row["target_partitions"]) == (int(epoch), 1)
        (offset,) = json.loads(done(*group, "--describe", "--json"))
        assert offset["consumer_id"] == row["consumer_id"]
        found = CliRunner().invoke(main, ["doctor", *group]).stdout
        assert f"Stable, 1 member, consumer protocol in epoch {epoch}, commits of 1 partition, lag 6" in found
    absent = CliRunner().invoke(main, ["lag", "-b", kafka4.bootstrap_servers, "--group", "absent"])
    assert "consumer group 'absent' does not exist" in absent.output


def rows_of(text: str) -> list[list[str]]:
    return [row for row in csv.reader(text.splitlines()) if len(row) == 4]


@pytest.mark.long
def test_kafkas_own_tool_shows_and_reads_the_same(kafka4: KafkaServer, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = make_topic(kafka4, 3)
    fill(kafka4, topic, partitions=3, timestamp=int(time.time() * 1000) - 10 * HOUR_MS)
    groups = [f"{name}-{topic}" for name in "ab"]
    both = [word for group in groups for word in ("--group", group)]

    def theirs(*arguments: str) -> str:
        server = ("--bootstrap-server", kafka4.bootstrap_servers, "--timeout", "30000")
        return run_tool(kafka4, GROUP_COMMAND, *server, *arguments)

    done("-b", kafka4.bootstrap_servers, *both, "--reset-offsets", "--topic", topic, "--to-offset", "5", "--execute")
    for way in (
        ("--to-earliest",),
        ("--to-latest",),
        ("--to-current",),
        ("--to-offset", "700"),
        ("--shift-by", "-2"),
        ("--to-datetime", datetime.now(UTC).strftime("%Y-%m-%dT%H:00:00.000")),
    ):
        asked = ("--reset-offsets", *both, "--topic", f"{topic}:0,2", *way, "--export")
        ours = done("-b", kafka4.bootstrap_servers, *asked)
        printed = theirs(*asked, "--dry-run")
        # It writes long names in quotes.
        assert sorted(rows_of(printed)) == rows_of(ours), (way, printed)
        assert len(rows_of(ours)) == 4
    file = tmp_path / "offsets.csv"
    file.write_text(ours)
    theirs("--reset-offsets", *both, "--from-file", str(file), "--execute")
    assert done("-b", kafka4.bootstrap_servers, *both, "--export", "--topic", f"{topic}:0,2") == ours


# -- old brokers and ZooKeeper -----------------------------------------------------------------------------------------


def offset_node(server: Any, group: str, topic: str, name: object) -> bytes | None:
    with zookeeper_client(server.zookeeper_connect) as client:
        path = f"/consumers/{group}/offsets/{topic}/{name}"
        return bytes(client.get(path)[0]) if client.exists(path) else None


def test_a_group_of_082_is_reset_in_zookeeper_and_in_kafka_where_both_keep_offsets(
    kafka08: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka08, 2)
    fill(kafka08, topic, partitions=2)
    group = f"g-{topic}"
    where = ("-z", kafka08.zookeeper_connect, "--group", group)
    with closing(Consumer({**librdkafka(kafka08), "group.id": group})) as consumer:
        commit(consumer, [TopicPartition(topic, 0, 9)])
    with zookeeper_client(kafka08.zookeeper_connect) as client:
        client.create(f"/consumers/{group}/offsets/{topic}/0", b"8", makepath=True)
    assert new_offsets(*where, "--topic", topic, "--to-offset", "3", "--execute") == {0: 3, 1: 3}
    assert [offset_node(kafka08, group, topic, number) for number in (0, 1)] == [b"3", b"3"]
    described = json.loads(done(*where, "--describe", "--json"))
    assert [row["current_offset"] for row in described] == [3, 3], "the larger of both places counts"

    with zookeeper_client(kafka08.zookeeper_connect) as client:
        registered = f"/consumers/{group}/ids/{group}_host-1-a"
        subscription = json.dumps({"version": 1, "subscription": {topic: 1}, "pattern": "static", "timestamp": "1"})
        client.create(registered, subscription.encode(), ephemeral=True, makepath=True)
        refused = run(*where, "--reset-offsets", "--topic", topic, "--to-latest", "--execute")
        assert refused.exit_code == 1
        assert offset_node(kafka08, group, topic, 0) == b"3"
        client.delete(registered)

    deleted = run(*where, "--delete-offsets", "--topic", f"{topic}:1")
    assert deleted.exit_code == 0, deleted.output
    assert offset_node(kafka08, group, topic, 1) is None
    result = run(*where, "--delete")
    assert result.exit_code == 0, result.output
    assert "the brokers still keep offsets of group" in result.stderr
    with zookeeper_client(kafka08.zookeeper_connect) as client:
        assert not client.exists(f"/consumers/{group}")


def test_a_group_of_kafka_07_is_reset_to_where_messages_begin() -> None:
    with Kafka07Server(config={"num.partitions": 2}) as kafka:
        with Producer07(zookeeper=kafka.zookeeper_connect) as producer:
            for partition in range(2):
                producer.produce("orders", [b"hello", b"world"], broker=0, partition=partition)
        where = ("-z", kafka.zookeeper_connect, "--group", "g")
        wait_until(lambda: "0-1" in run(*where, "--reset-offsets", "--topic", "orders", "--to-latest").stdout, "topic")
        assert new_offsets(*where, "--topic", "orders", "--to-latest", "--execute") == {"0-0": 30, "0-1": 30}
        assert new_offsets(*where, "--topic", "orders:0-1", "--to-offset", "15", "--execute") == {"0-1": 15}
        assert (offset_node(kafka, "g", "orders", "0-0"), offset_node(kafka, "g", "orders", "0-1")) == (b"30", b"15")
        refused = run(*where, "--reset-offsets", "--topic", "orders:0-1", "--to-offset", "16", "--execute")
        assert "no message begins there" in refused.output
        assert done(*where, "--delete").endswith("was successful.\n")


@pytest.mark.long
@pytest.mark.parametrize("name", ["kafka09", "kafka010", "kafka11"])
def test_old_brokers_reset_and_say_what_they_cannot_delete(
    name: str, make_topic: MakeTopic, request: pytest.FixtureRequest
) -> None:
    server: KafkaServer = request.getfixturevalue(name)
    topic = make_topic(server, 2)
    fill(server, topic, partitions=2)
    group = f"g-{topic}"
    where = ("-b", server.bootstrap_servers, "--group", group)
    assert new_offsets(*where, "--topic", topic, "--to-offset", "7", "--execute") == {0: 7, 1: 7}
    described: list[Mapping[str, Any]] = json.loads(done(*where, "--describe", "--json"))
    assert [(row["current_offset"], row["lag"]) for row in described] == [(7, 3), (7, 3)]
    offsets = run(*where, "--delete-offsets", "--topic", topic)
    assert offsets.exit_code == 1
    assert "Kafka 2.4 and later delete single offsets" in offsets.output
    deleted = run(*where, "--delete")
    if name == "kafka11":
        assert deleted.exit_code == 0, deleted.output
        assert "does not exist" in run(*where, "--describe").output
    else:
        assert deleted.exit_code == 1
        assert "Kafka 1.1 and later delete groups" in deleted.output

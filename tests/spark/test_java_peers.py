"""Beside Kafka's own consumer in one group, and under the eyes of Kafka's own tool."""

from __future__ import annotations

import subprocess

import pytest
from click.testing import CliRunner

from streamgroup.cli.main import main
from streamgroup.testing import KafkaServer, java_tool
from tests.conftest import MakeTopic
from tests.spark.console_consumer import java_consumer
from tests.spark.support import Load, Streams, assigned, committed, log_ends, repeated
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(180)]

PARTITIONS = 5
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


COOPERATIVE = {"kafka.partition.assignment.strategy": "cooperative-sticky"}


@pytest.mark.parametrize(
    ("assignor", "options", "first"),
    [
        pytest.param("RangeAssignor", {}, "spark", marks=pytest.mark.long),
        pytest.param("RoundRobinAssignor", {}, "java", marks=pytest.mark.long),
        pytest.param("CooperativeStickyAssignor", COOPERATIVE, "spark", marks=pytest.mark.long),
        ("CooperativeStickyAssignor", COOPERATIVE, "java"),
    ],
    ids=[
        "range, after the query",
        "roundrobin, before the query",
        "cooperative-sticky, after the query",
        "cooperative-sticky, before the query",
    ],
)
def test_a_java_consumer_and_a_query_share_a_topic(
    *, streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic, assignor: str, options: dict[str, str], first: str
) -> None:
    load = Load(kafka4, make_topic(kafka4, PARTITIONS), PARTITIONS)
    group = f"peers-{assignor}-{first}"
    load.send(100)
    frame = streams.read(kafka4, load.topic, group, **options)
    if first == "spark":
        sunk = streams.to_parquet(frame)
        wait_until(lambda: len(sunk.rows("offset")) == 100, "the query has all partitions")
    with java_consumer(streams.home, load, group, assignor) as java:
        if first == "java":
            wait_until(lambda: len(java.values()) == 100, "the Java consumer has all partitions")
            sunk = streams.to_parquet(frame)

        def shared() -> bool:
            before = len(java.values())
            load.send(PARTITIONS)
            wait_until(lambda: len(java.values()) + len(sunk.rows("offset")) >= len(load.sent), "all records read")
            ours, theirs = set(assigned(sunk.query)), java.partitions(before)
            return {len(ours), len(theirs)} == {2, 3} and ours | theirs == set(range(PARTITIONS))

        wait_until(shared, "shares of 3 and 2")
        load.send(200)
        wait_until(lambda: set(java.values()) | set(sunk.values()) == set(load.sent), "together every record")
    load.send(100)
    wait_until(lambda: set(java.values()) | set(sunk.values()) == set(load.sent), "the query has taken over")
    wait_until(lambda: assigned(sunk.query) == list(range(PARTITIONS)), "the query holds all partitions")
    # Both commit what they have handed on before they let go of it; but Java's cooperative consumer, which commits
    # by itself before it joins, hands on what it reads between that and its giving up.
    assert repeated(sunk.values()) == {}
    assert len(repeated(java.values() + sunk.values())) <= (PARTITIONS if options else 0)
    ends = log_ends(kafka4, load.topic, PARTITIONS)
    wait_until(lambda: committed(kafka4, group, load.topic) == ends, "all committed")


def by_kafka(server: KafkaServer, *arguments: str) -> list[list[str]]:
    argv = java_tool(server.version, GROUP_COMMAND, "--bootstrap-server", server.bootstrap_servers, *arguments)
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=40, check=True)
    return words(ran.stdout)


def by_us(server: KafkaServer, *arguments: str) -> list[list[str]]:
    ran = CliRunner().invoke(main, ["groups", "--bootstrap-server", server.bootstrap_servers, *arguments])
    assert ran.exit_code == 0, ran.output
    return words(ran.stdout)


def words(text: str) -> list[list[str]]:
    """The cells of a table: the titles, then the rows in one order."""
    titles, *rows = (line.split() for line in text.splitlines() if line.strip())
    return [titles, *sorted(rows)]


def test_kafkas_own_tool_and_ours_tell_the_same_of_a_query(
    streams: Streams, kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    load = Load(kafka4, make_topic(kafka4, PARTITIONS), PARTITIONS)
    load.send(103)
    frame = streams.read(kafka4, load.topic, "described", kafka__client__id="the-query")
    sunk = streams.to_parquet(frame)
    ends = log_ends(kafka4, load.topic, PARTITIONS)
    wait_until(lambda: committed(kafka4, "described", load.topic) == ends, "all committed")
    of_group = ("--describe", "--group", "described")

    offsets = by_kafka(kafka4, *of_group, "--offsets")
    assert [row[:6] for row in offsets[1:]] == [
        ["described", load.topic, str(p), str(end), str(end), "0"] for p, end in sorted(ends.items())
    ]
    assert all(row[8] == "the-query" for row in offsets[1:])
    assert by_us(kafka4, *of_group, "--offsets") == offsets

    members = by_kafka(kafka4, *of_group, "--members")
    assert len(members) == 2
    assert members[1][-1] == str(PARTITIONS)
    ours = by_us(kafka4, *of_group, "--members")
    assert [row for row in ours if row[0] in {"GROUP", "described"}] == members
    # Below Kafka's table the counters of the members whose coordinators run here.
    assert [row[:3] for row in ours if row[0] == members[1][1]] == [[members[1][1], "1", "0"]]

    state = by_kafka(kafka4, *of_group, "--state")
    assert state[1][-3:] == ["streamgroup-range", "Stable", "1"]
    assert by_us(kafka4, *of_group, "--state") == state
    assert sunk.query.isActive

"""The three modes and the three subscriptions on a real broker, each query in a thread of the test."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer

from streamgroup.cluster import admin
from streamgroup.errors import ConfigError
from streamgroup.model import TopicPartition
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.fault.harness import Query, Streams, Writer
from tests.waiting import wait_until

pytestmark = pytest.mark.live

QUICK = {"kafka.metadata.max.age.ms": "300"}


def query(server: KafkaServer, name: str, **options: Any) -> Query:
    """A query with these options alone; `__` in a name is a dot."""
    given = {key.replace("__", "."): str(value) for key, value in options.items()}
    return Query(name, {"kafka.bootstrap.servers": server.bootstrap_servers, **QUICK, **given})


@contextmanager
def running(*queries: Query) -> Iterator[None]:
    try:
        for each in queries:
            each.start()
        yield
    finally:
        for each in queries:
            each.stop()
    assert [each.error for each in queries if each.error is not None] == []


def values(*queries: Query) -> list[str]:
    return sorted(row.value for each in queries for row in each.rows)


def read_by(reads: Query, wanted: list[str]) -> None:
    wait_until(lambda: values(reads) == sorted(wanted), f"query {reads.name} has read everything once")


def committed(server: KafkaServer, group: str, topic: str) -> dict[int, int]:
    found = Streams(server, topic, group).committed()
    return {tp.partition: offset.offset for tp, offset in sorted(found.items())}


def groups(server: KafkaServer, topic: str) -> set[str]:
    listed = Streams(server, topic, "").ask(lambda cluster: admin.list_groups(cluster, cluster.deadline()))
    return set(listed)


def subscription(kind: str, topic: str) -> dict[str, str]:
    return {
        "subscribe": {"subscribe": topic},
        "assign": {"assign": json.dumps({topic: [0, 2]})},
        "pattern": {"subscribePattern": f"{topic[:-1]}[{topic[-1]}]"},
    }[kind]


@pytest.mark.parametrize("kind", ["subscribe", "assign", "pattern"])
@pytest.mark.parametrize("mode", ["off", "commit", "member"])
def test_everything_subscribed_is_read_once_over_a_restart(
    kafka41: KafkaServer, make_topic: MakeTopic, mode: str, kind: str
) -> None:
    if (mode, kind) == ("member", "assign"):
        with pytest.raises(ConfigError, match=r"cannot use assign with group\.mode=member"):
            query(kafka41, "q", assign='{"t": [0]}', kafka__group__id="g", group__mode=mode)
        return
    topic = make_topic(kafka41, 3)
    group = f"once-{topic}"
    writer = Writer(kafka41, topic, 3)
    options = {**subscription(kind, topic), "startingOffsets": "earliest"}
    if mode != "off":
        options |= {"kafka.group.id": group, "group.mode": mode}
    reads = query(kafka41, "q", **options)
    wanted: list[str] = []
    for _ in range(3):
        wanted += [v for v in writer.send(30) if kind != "assign" or v.split("/")[1] != "1"]
        with running(reads):
            read_by(reads, wanted)
    ends = {p: 30 for p in range(3) if kind != "assign" or p != 1}
    assert committed(kafka41, group, topic) == ({} if mode == "off" else ends)
    assert (group in groups(kafka41, topic)) == (mode != "off")


def test_two_queries_without_a_group_both_read_everything_from_where_they_started(
    kafka41: KafkaServer, make_topic: MakeTopic
) -> None:
    """`latest` is the default; it stands in the checkpoint before anything has come (R6)."""
    topic = make_topic(kafka41, 2)
    writer = Writer(kafka41, topic, 2)
    writer.send(20)
    before = groups(kafka41, topic)
    one, two = query(kafka41, "one", subscribe=topic), query(kafka41, "two", subscribe=topic)
    with running(one, two):
        wait_until(lambda: one.finished and two.finished, "their start is documented")
    new = writer.send(10)
    with running(one, two):
        new += writer.send(10)
        wait_until(lambda: values(one) == values(two) == sorted(new), "both have read all")
    assert groups(kafka41, topic) == before


def test_a_checkpoint_goes_from_mode_to_mode_and_nothing_is_repeated(
    kafka41: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka41, 2)
    writer = Writer(kafka41, topic, 2)
    sent: list[str] = []
    last: Query | None = None
    for mode in ("off", "member", "commit", "member", "off"):
        group = {} if mode == "off" else {"kafka__group__id": f"modes-{topic}", "group__mode": mode}
        reads = query(kafka41, mode, subscribe=topic, startingOffsets="earliest", **group)
        if last is not None:
            reads.offsets, reads.finished, reads.sunk = last.offsets, last.finished, last.sunk
        sent += writer.send(20)
        with running(reads):
            read_by(reads, sent)
        last = reads
    assert last is not None
    assert values(last) == sorted(sent)


def test_while_a_consumer_is_a_member_no_commit_is_taken_and_nothing_is_read(
    kafka41: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka41, 1)
    group = f"taken-{topic}"
    sent = Writer(kafka41, topic, 1).send(10)
    options = {"subscribe": topic, "startingOffsets": "earliest", "kafka.group.id": group, "group.mode": "commit"}
    impatient = query(kafka41, "impatient", **options, group__joinTimeout="1s")
    patient = query(kafka41, "patient", **options, group__joinTimeout="30s")
    consumer = Consumer({"bootstrap.servers": kafka41.bootstrap_servers, "group.id": group, "log_level": 3})
    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) is None and consumer.assignment(), "the consumer is a member")
        impatient.start()
        wait_until(lambda: not impatient.runs, "it gives up")
        assert isinstance(impatient.error, ConfigError)
        assert f"group {group}: it has members" in str(impatient.error)
        assert impatient.rows == []
        impatient.stop()
        patient.start()
    finally:
        consumer.close()
    with running():
        wait_until(lambda: values(patient) == sorted(sent), "it goes on when the consumer has left")
        wait_until(lambda: committed(kafka41, group, topic) == {0: 10}, "and commits")
    patient.stop()


def test_an_operators_reset_is_followed_without_joining(kafka41: KafkaServer, make_topic: MakeTopic) -> None:
    from tests.spark.support import reset_offsets  # noqa: PLC0415  (it imports Spark)

    topic = make_topic(kafka41, 1)
    group = f"reset-{topic}"
    sent = Writer(kafka41, topic, 1).send(20)
    reads = query(
        kafka41, "q", subscribe=topic, startingOffsets="earliest", kafka__group__id=group, group__mode="commit"
    )
    with running(reads):
        wait_until(lambda: values(reads) == sorted(sent), "all is read")
    reset_offsets(kafka41, group, topic, {0: 15})
    with running(reads):
        wait_until(lambda: len(reads.rows) == 25, "what lies behind the reset is read again")
    assert Counter(values(reads)) == Counter(sent) + Counter(sent[15:])


def test_a_topic_that_appears_under_the_pattern_of_two_members_is_shared_from_its_beginning(
    kafka41: KafkaServer, make_topic: MakeTopic
) -> None:
    stem = make_topic(kafka41, 1)
    options = {
        "subscribePattern": f"{stem}-t[0-9]",
        "kafka.group.id": f"pattern-{stem}",
        "startingOffsets": "latest",
        "kafka.session.timeout.ms": "6000",
        "kafka.heartbeat.interval.ms": "200",
    }
    one, two = query(kafka41, "one", **options), query(kafka41, "two", **options)
    sent: list[str] = []
    with running(one, two):
        wait_until(lambda: one.status.get("state") == two.status.get("state") == "stable", "both have joined")
        for number in (1, 2):
            topic = make_topic(kafka41, 2, name=f"{stem}-t{number}")
            sent += Writer(kafka41, topic, 2).send(30)
            wait_until(
                lambda sent=tuple(sent): values(one, two) == sorted(sent), f"all of {number} topics is read, once"
            )
            wait_until(lambda: one.held and two.held and not one.held & two.held, "both have a share")
        every = {str(TopicPartition(f"{stem}-t{number}", p)) for number in (1, 2) for p in (0, 1)}
        wait_until(lambda: one.held | two.held == every, "all is held")

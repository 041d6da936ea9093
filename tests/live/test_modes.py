"""The three modes and the three subscriptions on a real broker, each query in a thread of the test."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer

from streamgroup.cli.main import main
from streamgroup.errors import ConfigError
from streamgroup.group.assignors import ASSIGNORS
from streamgroup.kafka.cluster import admin
from streamgroup.model import TopicPartition
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.fault.harness import Peer, Stream, Streams, Writer
from tests.waiting import wait_until

pytestmark = pytest.mark.live

QUICK = {"kafka.metadata.max.age.ms": "300"}
MODES = ("commit", "member")
"""The modes that use a group."""


def query(server: KafkaServer, name: str, **options: Any) -> Stream:
    """A query with these options alone; `__` in a name is a dot."""
    given = {key.replace("__", "."): str(value) for key, value in options.items()}
    return Stream(name, {"kafka.bootstrap.servers": server.bootstrap_servers, **QUICK, **given})


@contextmanager
def running(*queries: Stream) -> Iterator[None]:
    try:
        for each in queries:
            each.start()
        yield
    finally:
        for each in queries:
            each.stop()
    assert [each.error for each in queries if each.error is not None] == []


def values(*queries: Stream) -> list[str]:
    return sorted(row.value for each in queries for row in each.rows)


def read_by(reads: Stream, wanted: list[str]) -> None:
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
    kafka4: KafkaServer, make_topic: MakeTopic, mode: str, kind: str
) -> None:
    if (mode, kind) == ("member", "assign"):
        with pytest.raises(ConfigError, match=r"cannot use assign with group\.mode=member"):
            query(kafka4, "q", assign='{"t": [0]}', kafka__group__id="g", group__mode=mode)
        return
    topic = make_topic(kafka4, 3)
    group = f"once-{topic}"
    writer = Writer(kafka4, topic, 3)
    options = {**subscription(kind, topic), "startingOffsets": "earliest"}
    if mode != "off":
        options |= {"kafka.group.id": group, "group.mode": mode}
    reads = query(kafka4, "q", **options)
    wanted: list[str] = []
    for _ in range(3):
        wanted += [v for v in writer.send(30) if kind != "assign" or v.split("/")[1] != "1"]
        with running(reads):
            read_by(reads, wanted)
    ends = {p: 30 for p in range(3) if kind != "assign" or p != 1}
    assert committed(kafka4, group, topic) == ({} if mode == "off" else ends)
    assert (group in groups(kafka4, topic)) == (mode != "off")


def test_two_queries_without_a_group_both_read_everything_from_where_they_started(
    kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    """`latest` is the default; it stands in the checkpoint before anything has come (R6)."""
    topic = make_topic(kafka4, 2)
    writer = Writer(kafka4, topic, 2)
    writer.send(20)
    before = groups(kafka4, topic)
    one, two = query(kafka4, "one", subscribe=topic), query(kafka4, "two", subscribe=topic)
    with running(one, two):
        wait_until(lambda: one.finished and two.finished, "their start is documented")
    new = writer.send(10)
    with running(one, two):
        new += writer.send(10)
        wait_until(lambda: values(one) == values(two) == sorted(new), "both have read all")
    assert groups(kafka4, topic) == before


def test_a_checkpoint_goes_from_mode_to_mode_and_nothing_is_repeated(
    kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka4, 2)
    writer = Writer(kafka4, topic, 2)
    sent: list[str] = []
    last: Stream | None = None
    for mode in ("off", "member", "commit", "member", "off"):
        group = {} if mode == "off" else {"kafka__group__id": f"modes-{topic}", "group__mode": mode}
        reads = query(kafka4, mode, subscribe=topic, startingOffsets="earliest", **group)
        if last is not None:
            reads.offsets, reads.finished, reads.sunk = last.offsets, last.finished, last.sunk
        sent += writer.send(20)
        with running(reads):
            read_by(reads, sent)
        last = reads
    assert last is not None
    assert values(last) == sorted(sent)


def test_while_a_consumer_is_a_member_no_commit_is_taken_and_nothing_is_read(
    kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka4, 1)
    group = f"taken-{topic}"
    sent = Writer(kafka4, topic, 1).send(10)
    options = {"subscribe": topic, "startingOffsets": "earliest", "kafka.group.id": group, "group.mode": "commit"}
    impatient = query(kafka4, "impatient", **options, group__joinTimeout="1s")
    patient = query(kafka4, "patient", **options, group__joinTimeout="30s")
    consumer = Consumer({"bootstrap.servers": kafka4.bootstrap_servers, "group.id": group, "log_level": 3})
    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) is None and consumer.assignment(), "the consumer is a member")
        impatient.start()
        wait_until(lambda: not impatient.runs, "it gives up")
        assert isinstance(impatient.error, ConfigError)
        assert f"cannot commit to group {group}: the group has members" in str(impatient.error)
        assert impatient.rows == []
        impatient.stop()
        patient.start()
    finally:
        consumer.close()
    with running():
        wait_until(lambda: values(patient) == sorted(sent), "it goes on when the consumer has left")
        wait_until(lambda: committed(kafka4, group, topic) == {0: 10}, "and commits")
    patient.stop()


def test_an_operators_reset_is_followed_without_joining(kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    from tests.spark.support import reset_offsets  # noqa: PLC0415  (it imports Spark)

    topic = make_topic(kafka4, 1)
    group = f"reset-{topic}"
    sent = Writer(kafka4, topic, 1).send(20)
    reads = query(
        kafka4, "q", subscribe=topic, startingOffsets="earliest", kafka__group__id=group, group__mode="commit"
    )
    with running(reads):
        wait_until(lambda: values(reads) == sorted(sent), "all is read")
    reset_offsets(kafka4, group, topic, {0: 15})
    with running(reads):
        wait_until(lambda: len(reads.rows) == 25, "what lies behind the reset is read again")
    assert Counter(values(reads)) == Counter(sent) + Counter(sent[15:])


def test_a_topic_that_appears_under_the_pattern_of_two_members_is_shared_from_its_beginning(
    kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    stem = make_topic(kafka4, 1)
    options = {
        "subscribePattern": f"{stem}-t[0-9]",
        "kafka.group.id": f"pattern-{stem}",
        "startingOffsets": "latest",
        "kafka.session.timeout.ms": "6000",
        "kafka.heartbeat.interval.ms": "200",
    }
    one, two = query(kafka4, "one", **options), query(kafka4, "two", **options)
    sent: list[str] = []
    with running(one, two):
        wait_until(lambda: one.status.get("state") == two.status.get("state") == "stable", "both have joined")
        for number in (1, 2):
            topic = make_topic(kafka4, 2, name=f"{stem}-t{number}")
            sent += Writer(kafka4, topic, 2).send(30)
            wait_until(
                lambda sent=tuple(sent): values(one, two) == sorted(sent), f"all of {number} topics is read, once"
            )
            wait_until(lambda: one.held and two.held and not one.held & two.held, "both have a share")
        every = {str(TopicPartition(f"{stem}-t{number}", p)) for number in (1, 2) for p in (0, 1)}
        wait_until(lambda: one.held | two.held == every, "all is held")


@pytest.mark.long
def test_a_group_that_gets_no_coordinator_is_reported_with_the_usual_cause(
    make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    with KafkaServer(config={"offsets.topic.replication.factor": "3"}) as server:
        topic = make_topic(server, 1)
        modes = {mode: query(server, mode, subscribe=topic, kafka__group__id=mode, group__mode=mode) for mode in MODES}

        def warned(mode: str) -> bool:
            texts = [record.message for record in caplog.records if record.levelname == "WARNING"]
            return any(f"group {mode}: " in text and "offsets.topic.replication.factor" in text for text in texts)

        with running(*modes.values()):
            wait_until(lambda: all(map(warned, modes)), "both warn")
        printed = CliRunner().invoke(main, ["doctor", "-b", server.bootstrap_servers]).stdout
        assert "offsets.topic.replication.factor is 3, and the cluster has 1 broker" in printed


# -- groups that have a consumer of KIP-848 ---------------------------------------------------------------------------

EACH_MEMBER = {"startingOffsets": "earliest", "kafka.session.timeout.ms": "6000", "kafka.heartbeat.interval.ms": "200"}


@pytest.mark.long
def test_a_member_reads_its_share_of_a_group_that_a_consumer_of_kip_848_leads(
    kafka4: KafkaServer, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker returns no user data in such a group, so a classic member is not checked for a copied checkpoint."""
    topic = make_topic(kafka4, 4)
    group = f"new-{topic}"
    member = query(kafka4, "q", subscribe=topic, kafka__group__id=group, **EACH_MEMBER)
    writer = Writer(kafka4, topic, 4)
    with Peer(Streams(kafka4, topic, group), "consumer") as consumer:
        wait_until(lambda: len(consumer.held) == 4, "the consumer has all partitions")
        with running(member):
            wait_until(lambda: len(consumer.held) == len(member.held) == 2, "they share the partitions")
            sent = writer.send(200)
            wait_until(lambda: sorted(values(member) + consumer.values) == sorted(sent), "both read their share")
            assert "cannot check for a second query" not in caplog.text, "the consumer is not a query"
            consumer.__exit__()
            wait_until(lambda: len(member.held) == 4, "the member takes over")
            more = writer.send(200)
            wait_until(lambda: set(values(member)) >= set(more), "and reads all")


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {"partition.assignment.strategy": "range", "session.timeout.ms": 6000, "heartbeat.interval.ms": 200},
            "the group uses range",
        ),
        ({"group.protocol": "consumer"}, "another member uses the consumer protocol"),
    ],
    ids=["classic", "consumer"],
)
def test_members_share_by_their_weights_until_a_consumer_of_another_client_joins(
    kafka4: KafkaServer, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture, settings: dict[str, Any], why: str
) -> None:
    topic = make_topic(kafka4, 18)
    group = f"weighted-{topic}"
    options = {**EACH_MEMBER, "subscribe": topic, "kafka.group.id": group}
    members = [query(kafka4, f"w{n}", **options, **{"group.member.weight": n}) for n in (1, 2, 3)]

    def sizes() -> list[int]:
        return [len(each.held) for each in members]

    with running(*members):
        wait_until(lambda: sizes() == [3, 6, 9], "they share by weight")
        common = {"bootstrap.servers": kafka4.bootstrap_servers, "group.id": group, "log_level": 0}
        with closing(Consumer({**common, **settings})) as consumer:
            consumer.subscribe([topic])

            def shared() -> bool:
                consumer.poll(0.1)
                return sorted([*sizes(), len(consumer.assignment())]) == [4, 4, 5, 5]

            wait_until(shared, "all have equal shares beside it")
            assert f"group.member.weight=3 has no effect: {why}" in caplog.text
            assert "group.member.weight=1 " not in caplog.text
        wait_until(lambda: sizes() == [3, 6, 9], "they share by weight again")


@pytest.mark.long
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("strategy", ASSIGNORS)
def test_a_consumer_of_kip_848_can_join_members_under_every_strategy(
    kafka4: KafkaServer, make_topic: MakeTopic, strategy: str, static: bool
) -> None:
    """The broker refuses it where an assignment has user data."""
    topic = make_topic(kafka4, 4)
    options = {
        **EACH_MEMBER,
        "subscribe": topic,
        "kafka.group.id": f"new-{topic}",
        "kafka.partition.assignment.strategy": strategy,
    }
    one, two = (
        query(kafka4, name, **options, **({"kafka.group.instance.id": name} if static else {}))
        for name in ("one", "two")
    )
    writer = Writer(kafka4, topic, 4)
    with running(one, two):
        wait_until(lambda: len(one.held) == len(two.held) == 2, "the members share the partitions")
        sent = writer.send(100)
        wait_until(lambda: values(one, two) == sorted(sent), "all is read")
        with Peer(Streams(kafka4, topic, f"new-{topic}"), "consumer") as consumer:
            wait_until(lambda: consumer.held or consumer.error, "the consumer has joined")
            assert consumer.error == ""
            sent += writer.send(100)
            wait_until(lambda: set(values(one, two) + consumer.values) == set(sent), "the three read all")
        wait_until(lambda: len(one.held) == len(two.held) == 2, "the members have all partitions again")
        sent += writer.send(100)
        wait_until(lambda: set(values(one, two) + consumer.values) == set(sent), "they read all")

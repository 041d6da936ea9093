"""`streamgroup lag` and the changes of `streamgroup topics`, against a real broker."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer, TopicPartition

from streamgroup.cli.main import main
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.old_kafka import librdkafka
from tests.peers.librdkafka import commit
from tests.waiting import repeatedly

pytestmark = pytest.mark.live


def run(server: KafkaServer, command: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, [command, "-b", server.bootstrap_servers, "--timeout", "20000", *arguments])


def done(server: KafkaServer, command: str, *arguments: str) -> str:
    result = run(server, command, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


# -- lag ---------------------------------------------------------------------------------------------------------------


class Reader:
    """A consumer of partition 0 of two, which is 5 records behind, and goes on with the log when it is moved."""

    def __init__(self, server: KafkaServer, topic: str, consumer: Consumer) -> None:
        self.topic, self.group = topic, f"g-{topic}"
        self._consumer = consumer
        self._producer = Producer(librdkafka(server))
        self._numbers = itertools.count(1)
        self.write(5)

    def write(self, count: int = 1) -> None:
        for _ in range(count):
            self._producer.produce(self.topic, b"value", partition=0)
        assert self._producer.flush(30) == 0

    def commit(self, offset: int) -> None:
        commit(self._consumer, [TopicPartition(self.topic, 0, offset)])

    def move(self) -> None:
        """Write one record, and commit the next one."""
        self.write()
        self.commit(next(self._numbers))


@pytest.fixture
def reader(kafka4: KafkaServer, make_topic: MakeTopic) -> Iterator[Reader]:
    topic = make_topic(kafka4, 2)
    with closing(Consumer({**librdkafka(kafka4), "group.id": f"g-{topic}"})) as consumer:
        yield Reader(kafka4, topic, consumer)


def test_lag_shows_the_records_that_a_group_has_not_committed(kafka4: KafkaServer, reader: Reader) -> None:
    reader.commit(3)
    shown = done(kafka4, "lag", "--group", reader.group)
    assert [" ".join(line.split()) for line in shown.splitlines()] == [
        "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG COMMITTED/S WRITTEN/S CAUGHT-UP-IN CONSUMER-ID",
        f"{reader.group} {reader.topic} 0 3 5 2 - - - -",
        "",
        f"{reader.group}: lag 2 in 1 partition",
    ]
    assert reader.group in {row["group"] for row in json.loads(done(kafka4, "lag", "--json"))}


def test_a_watch_of_lag_shows_how_fast_the_group_commits_and_its_topic_grows(
    kafka4: KafkaServer, reader: Reader
) -> None:
    reader.move()
    with repeatedly(reader.move, 0.05):
        words = ("--group", reader.group, "--watch", "--count", "2", "--interval", "1", "--json")
        looks: list[Any] = [json.loads(line) for line in done(kafka4, "lag", *words).splitlines()]
    (first,), (second,) = (look["partitions"] for look in looks)
    assert looks[0]["time_ms"] + 500 < looks[1]["time_ms"]
    assert (first["committed_per_second"], first["written_per_second"]) == (None, None)
    assert second["committed_per_second"] > 0
    assert second["written_per_second"] > 0
    assert second["current_offset"] > first["current_offset"]


def test_lag_of_a_group_that_does_not_exist_is_an_error(kafka4: KafkaServer) -> None:
    result = run(kafka4, "lag", "--group", "nobody's")
    assert (result.exit_code, result.stderr) == (1, 'Error: consumer group "nobody\'s" does not exist\n')


# -- topics ------------------------------------------------------------------------------------------------------------


def test_topics_are_created_grown_and_deleted(kafka4: KafkaServer) -> None:
    one, two = "changed-one", "changed-two"
    names = ("--topic", one, "--topic", two)
    create = ("--create", *names, "--partitions", "2", "--config", "retention.ms=3600000")
    assert done(kafka4, "topics", *create) == f"Created topic {one}.\nCreated topic {two}.\n"
    refused = run(kafka4, "topics", *create)
    assert (refused.exit_code, f"topic '{one}' exists already" in refused.stderr) == (1, True)
    assert done(kafka4, "topics", *create, "--if-not-exists") == f"There is a topic {one}.\nThere is a topic {two}.\n"

    assert done(kafka4, "topics", "--alter", "--topic", one, "--partitions", "3") == f"Topic {one} has 3 partitions.\n"
    rows = json.loads(done(kafka4, "topics", "--describe", *names, "--json"))
    assert [(row["topic"], row["partition"], row["log_end_offset"]) for row in rows] == [
        *((one, partition, 0) for partition in range(3)),
        *((two, partition, 0) for partition in range(2)),
    ]

    assert done(kafka4, "topics", "--delete", *names) == f"Deleted topic {one}.\nDeleted topic {two}.\n"
    assert not {one, two} & set(done(kafka4, "topics", "--list").splitlines())
    gone = run(kafka4, "topics", "--delete", "--topic", one)
    assert (gone.exit_code, one in gone.stderr) == (1, True)

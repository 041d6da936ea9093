"""The releases that only long tests start: this project's client at each, beside librdkafka and Kafka's own tools."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from streamgroup.cli.doctor import release_of
from streamgroup.executor.write.sink_writer import write
from streamgroup.options.parse import parse_sink
from streamgroup.testing import KafkaServer
from tests.bring_jars import LONG_RELEASES
from tests.conftest import MakeTopic
from tests.fault.harness import Streams, Writer, check_everything
from tests.live.transacting import Transactions, read_committed
from tests.live.wire_conversation import converse, require_understood
from tests.old_kafka import committed_by_tool, java_consume, offsets_at_brokers
from tests.read_back import read_back, read_by_the_source
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.live,
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("fresh_process"),
]

SHOWN = {"2.8.2": "2.7", "3.6.2": "3.5", "4.0.1": "4.0", "4.1.1": "4.1", "4.2.1": "4.2"}
"""The release that `streamgroup doctor` takes each broker for, or a later one."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module", params=LONG_RELEASES)
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
    with KafkaServer(request.param) as server:
        yield server


def test_every_version_is_understood_by_the_broker_and_by_us(kafka: KafkaServer) -> None:
    talk = converse(kafka)
    require_understood(talk)
    assert release_of(talk.versions).startswith(f"Kafka {SHOWN[kafka.version]} or later (")


def test_records_of_every_codec_are_read_by_the_source_and_librdkafka_and_the_versions_own_consumer(
    kafka: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka)
    values = []
    for codec in CODECS:
        mine = [f"{codec} {number}" for number in range(200)]
        batch = pa.record_batch({"value": pa.array([value.encode() for value in mine])})
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.compression.type": codec}
        assert write([batch], parse_sink({**options, "topic": topic})).records == len(mine)
        values += mine
    (found,) = read_back(kafka, topic, len(values))
    assert [message.value().decode() for message in found] == values
    by_the_source = read_by_the_source(topic, kafka__bootstrap__servers=kafka.bootstrap_servers)
    assert [value for _, value in by_the_source[0]] == [value.encode() for value in values]
    assert java_consume(kafka, topic, len(values)) == values


def test_records_of_a_committed_transaction_are_visible_and_those_of_an_aborted_one_are_not(
    kafka: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka)
    transactions = Transactions(kafka, topic)
    for values, is_committed in ((["a", "b"], True), (["c"], False), (["d"], True)):
        transactions.write(transactions.begin(), values)
        if is_committed:
            transactions.commit()
        else:
            transactions.abort()
    assert read_committed(kafka, topic) == ["a", "b", "d"]


def test_two_members_share_a_group_whose_offsets_other_clients_read(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka, 4)
    streams, writer = Streams(kafka, topic, "members"), Writer(kafka, topic, 4)
    with streams.running("a", "b") as queries:
        writer.send(200)
        check_everything(streams, writer, queries, repeats=0)
        assert [len(query.held) for query in queries] == [2, 2]
    ends = {(tp.topic, tp.partition): offset for tp, offset in streams.ends().items()}
    assert offsets_at_brokers(kafka, "members", [topic]) == ends
    assert committed_by_tool(kafka, "members", [topic]) == ends


@pytest.mark.parametrize("version", ["2.8.2", "4.2.1"])
def test_a_group_continues_at_three_brokers_while_each_restarts(version: str, make_topic: MakeTopic) -> None:
    config = {"min.insync.replicas": 2}
    with KafkaServer(version, brokers=3, config=config) as server:
        topic = make_topic(server, 3, replication=3)
        streams, writer = Streams(server, topic, "members"), Writer(server, topic, 3)
        with streams.running("a", "b") as queries:
            for broker in server.brokers:
                writer.send(60)
                broker.kill()
                writer.send(60)
                broker.restart()
                wait_until(lambda: len(streams.ends()) == 3, "all partitions have leaders")
            check_everything(streams, writer, queries)

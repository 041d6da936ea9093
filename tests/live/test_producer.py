"""The producer of a task against real brokers: librdkafka, this project's source and Java read back what it writes."""

from __future__ import annotations

import time
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaException, Message
from confluent_kafka.admin import AdminClient, NewTopic

from streamgroup.coordinator.write_plan import plan_write
from streamgroup.errors import (
    ConfigError,
    DeliveryTimeoutError,
    EncodeError,
    NoBrokerError,
    RecordTooLargeError,
    UnknownTopicError,
)
from streamgroup.executor.write.sink_writer import write
from streamgroup.model import TopicPartition
from streamgroup.options.parse import parse_sink
from streamgroup.options.types import SinkOptions
from streamgroup.testing import KafkaServer, Proxy
from streamgroup.testing.releases import NEWEST
from tests.conftest import MakeTopic
from tests.old_kafka import java_consume, librdkafka, number, stored
from tests.read_back import read_back, read_by_the_source
from tests.servers import OLD, address_of, each_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(240), pytest.mark.usefixtures("fresh_process")]

RECORDS = 2_000
CODECS = {"none": (0, 8), "gzip": (0, 8), "snappy": (0, 8), "lz4": (0, 8, 2), "zstd": (2, 1)}
"""The codecs and the first Kafka that has each."""
PARTITIONS = 2
NOON_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


old_kafka = each_of(*OLD)
kafka = each_of(*OLD, "kafka39", "kafka4")


def options_for(server: KafkaServer, topic: str, **options: str) -> SinkOptions:
    kafka = {f"kafka.{name.replace('_', '.')}": value for name, value in options.items()}
    return parse_sink({"kafka.bootstrap.servers": server.bootstrap_servers, "topic": topic, **kafka})


def rows(count: int, first: int = 0) -> pa.RecordBatch:
    """Records whose key is null for each third one and whose value is null for each seventh."""
    numbers = range(first, first + count)
    return pa.record_batch(
        {
            "key": pa.array([None if n % 3 == 0 else b"key %d" % (n % 50) for n in numbers], pa.binary()),
            "value": pa.array([None if n % 7 == 0 else b"value %d" % n for n in numbers], pa.binary()),
            "partition": pa.array([n % PARTITIONS for n in numbers], pa.int32()),
        }
    )


def contents(messages: list[Message]) -> list[tuple[bytes | None, bytes | None]]:
    return [(message.key(), message.value()) for message in messages]


def expected(batch: pa.RecordBatch, partition: int) -> list[tuple[bytes | None, bytes | None]]:
    found = zip(batch["key"].to_pylist(), batch["value"].to_pylist(), batch["partition"].to_pylist(), strict=True)
    return [(key, value) for key, value, where in found if where == partition]


@pytest.mark.parametrize("count", [RECORDS, pytest.param(10 * RECORDS, marks=pytest.mark.long)])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_what_is_written_is_read_back_by_librdkafka_and_by_the_source(
    kafka: KafkaServer, make_topic: MakeTopic, codec: str, acks: str, count: int
) -> None:
    topic, batch = make_topic(kafka, PARTITIONS), rows(count)
    options = options_for(kafka, topic, compression_type=codec, acks=acks, batch_size="16384")
    if number(kafka) < CODECS[codec]:
        with pytest.raises(ConfigError, match=r"zstd: its broker is older than Kafka 2.1"):
            write([batch], options)
        return
    # A broker that has just announced itself as the leader may still refuse a request, and with acks=0 nobody hears it.
    first = rows(PARTITIONS)
    write([first], options_for(kafka, topic, compression_type=codec))
    written = write([batch.slice(0, 700), batch.slice(700)], options)
    assert written.records == count
    found = read_back(kafka, topic, len(first) + count)
    by_the_source = read_by_the_source(topic, kafka__bootstrap__servers=kafka.bootstrap_servers)
    for partition in range(PARTITIONS):
        assert contents(found[partition]) == expected(first, partition) + expected(batch, partition)
        assert by_the_source[partition] == contents(found[partition])
        if acks != "0":
            where = written.partitions[next(tp for tp in written.partitions if tp.partition == partition)]
            assert (where.first_offset, where.last_offset) == (1, count // PARTITIONS)
    magic = 0 if number(kafka) < (0, 10) else 1 if number(kafka) < (0, 11) else 2
    assert (stored(kafka, topic).magic, stored(kafka, topic).codec) == (magic, list(CODECS).index(codec))


@pytest.mark.parametrize("count", [RECORDS // 5, pytest.param(10 * RECORDS, marks=pytest.mark.long)])
def test_the_versions_own_console_consumer_reads_what_is_written(
    kafka: KafkaServer, make_topic: MakeTopic, count: int
) -> None:
    """It prints what it can: keys, since 0.10 timestamps, since 2.7 headers and partitions."""
    has_timestamps, has_headers = number(kafka) >= (0, 10), number(kafka) >= (2, 7)
    codecs = [codec for codec, since in CODECS.items() if number(kafka) >= since]
    kinds = [(codec, acks) for codec in codecs for acks in ("all", "1", "0")]
    topic = make_topic(kafka)
    for codec, acks in kinds:
        columns = {
            "key": pa.array([None if n % 3 == 0 else f"k{n}" for n in range(count)]),
            "value": pa.array([f"{codec} {acks} {n}" for n in range(count)]),
            "timestamp": pa.array([(NOON_MS + n) * 1000 for n in range(count)], pa.timestamp("us", "UTC")),
            "headers": pa.array([[{"key": "n", "value": b"%d" % n}] for n in range(count)], HEADERS),
        }
        left_out = {"timestamp": has_timestamps, "headers": has_headers}
        batch = pa.record_batch({name: column for name, column in columns.items() if left_out.get(name, True)})
        options = options_for(kafka, topic, compression_type=codec, acks=acks)
        write([batch], replace(options, include_timestamp=has_timestamps))
    printed = ("timestamp",) * has_timestamps + ("partition", "headers") * has_headers
    found = java_consume(kafka, topic, len(kinds) * count, *printed, "key")
    for codec, acks in kinds:
        written = f"{codec} {acks} "
        lines = [line for line in found if line.rpartition("\t")[2].startswith(written)]
        for n, line in enumerate(lines):
            fields = [f"CreateTime:{NOON_MS + n}"] * has_timestamps + ["Partition:0", f"n:{n}"] * has_headers
            assert line.split("\t") == [*fields, "null" if n % 3 == 0 else f"k{n}", f"{written}{n}"]
        assert len(lines) == count, written


def test_a_topic_may_replace_the_timestamps_by_those_of_its_broker(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    if number(kafka) < (0, 10):
        return  # its messages have no timestamps
    topic = make_topic(kafka, config={"message.timestamp.type": "LogAppendTime"})
    began_ms = time.time_ns() // 1_000_000
    times = pa.array([NOON_MS * 1000] * 5, pa.timestamp("us", "UTC"))
    batch = pa.record_batch({"value": pa.array([b"%d" % n for n in range(5)]), "timestamp": times})
    written = write([batch], replace(options_for(kafka, topic), include_timestamp=True))
    (found,) = read_back(kafka, topic, 5)
    assert [message.value() for message in found] == [b"%d" % n for n in range(5)]
    ended_ms = time.time_ns() // 1_000_000
    kinds, stamps = zip(*(message.timestamp() for message in found), strict=True)
    assert set(kinds) == {TIMESTAMP_LOG_APPEND_TIME}
    assert all(began_ms <= stamp <= ended_ms for stamp in stamps)
    assert max(stamps) == written.partitions[TopicPartition(topic, 0)].log_append_time_ms


def test_timestamps_and_headers_arrive(kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka4)
    headers = pa.array(
        [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, []],
        HEADERS,
    )
    times = pa.array([1_700_000_000_123_456, None, 5_000], pa.timestamp("us", "UTC"))
    batch = pa.record_batch({"value": pa.array([b"1", b"2", b"3"]), "headers": headers, "timestamp": times})
    plain = {"kafka.bootstrap.servers": kafka4.bootstrap_servers, "topic": topic, "includeTimestamp": "true"}
    write([batch], parse_sink(plain))
    ((first, second, third),) = read_back(kafka4, topic)
    assert (first.headers(), second.headers(), third.headers()) == ([("a", b"1"), ("a", None)], None, None)
    assert (first.timestamp(), third.timestamp()) == (
        (TIMESTAMP_CREATE_TIME, 1_700_000_000_123),
        (TIMESTAMP_CREATE_TIME, 5),
    )
    assert second.timestamp()[1] > 1_700_000_000_000


def test_a_worker_keeps_its_producer_from_task_to_task(kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka4)
    with Proxy(address_of(kafka4)) as proxy:  # the brokers' own address is used behind the bootstrap
        options = parse_sink({"kafka.bootstrap.servers": f"127.0.0.1:{proxy.port}", "topic": topic})
        for first in range(0, 500, 100):
            batch = pa.record_batch({"value": pa.array([b"%d" % n for n in range(first, first + 100)])})
            written = write([batch], options)
            assert [(w.first_offset, w.last_offset) for w in written.partitions.values()] == [(first, first + 99)]
        assert proxy.accepted == 1


def test_brokers_are_found_in_zookeeper(old_kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic, batch = make_topic(old_kafka, PARTITIONS), rows(200)
    options, target = plan_write(parse_sink({"zookeeper.connect": old_kafka.zookeeper_connect, "topic": topic}))
    assert target is None
    assert options.client.bootstrap_servers == (address_of(old_kafka),)
    write([batch], options)
    found = [contents(messages) for messages in read_back(old_kafka, topic)]
    assert found == [expected(batch, partition) for partition in range(PARTITIONS)]


@pytest.mark.parametrize("version", ["0.8.2.2", NEWEST])
def test_a_topic_that_the_broker_creates_is_waited_for(version: str) -> None:
    batch = pa.record_batch({"value": pa.array([b"%d" % n for n in range(100)])})
    with KafkaServer(version, config={"auto.create.topics.enable": True, "num.partitions": 3}) as server:
        written = write([batch], options_for(server, "unheard-of"))
        found = read_back(server, "unheard-of")
    assert written.records == 100
    assert len(found) == 3
    assert sorted(int(message.value()) for log in found for message in log) == list(range(100))


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_a_topic_that_does_not_appear_is_an_error_within_max_block_ms(kafka4: KafkaServer) -> None:
    options = options_for(kafka4, "nobody-made-it", max_block_ms="3000")
    with pytest.raises(UnknownTopicError, match=r"topic nobody-made-it did not appear .* max.block.ms=3000. Create it"):
        write([pa.record_batch({"value": pa.array([b"x"])})], options)


def test_a_partition_that_the_topic_does_not_have_is_an_error(kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka4, 2)
    batch = pa.record_batch({"value": pa.array([b"x", b"y"]), "partition": pa.array([1, 7], pa.int32())})
    with pytest.raises(EncodeError, match=r"row 1 of the task to partition 7 of topic .* has 2 partitions"):
        write([batch], options_for(kafka4, topic))


def test_a_record_above_the_brokers_limit_is_an_error_that_names_the_limit(
    kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka4, config={"max.message.bytes": "2000"})
    batch = pa.record_batch({"value": pa.array([b"x" * 3000])})
    with pytest.raises(RecordTooLargeError, match=r"MESSAGE_TOO_LARGE .*max.message.bytes"):
        write([batch], options_for(kafka4, topic))
    with pytest.raises(RecordTooLargeError, match=r"larger than max.request.size=2500"):
        write([batch], options_for(kafka4, topic, max_request_size="2500"))


def test_a_batch_above_the_brokers_limit_is_split(kafka4: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(kafka4, config={"max.message.bytes": "2000"})
    batch = pa.record_batch({"value": pa.array([b"%05d" % n + b"x" * 95 for n in range(500)])})
    write([batch], options_for(kafka4, topic))
    assert [message.value() for message in read_back(kafka4, topic)[0]] == batch["value"].to_pylist()


def test_without_acknowledgements_no_batch_above_the_limit_of_the_topic_is_sent(
    kafka4: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(kafka4, config={"max.message.bytes": "2000"})
    batch = pa.record_batch({"value": pa.array([b"%05d" % n + b"x" * 95 for n in range(500)])})
    assert not write([batch], options_for(kafka4, topic, acks="0")).notes
    (found,) = read_back(kafka4, topic, len(batch))
    assert [message.value() for message in found] == batch["value"].to_pylist()


def test_no_broker_is_an_error_within_max_block_ms() -> None:
    options = parse_sink({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "kafka.max.block.ms": "700"})
    with pytest.raises(NoBrokerError, match=r"no broker has answered .*cannot connect to broker 127.0.0.1:1"):
        write([pa.record_batch({"value": pa.array([b"x"])})], options)


def test_too_few_replicas_are_an_error_at_the_end_of_the_delivery_timeout(
    kafka11: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(
        kafka11, config={"min.insync.replicas": "2"}
    )  # later brokers count at most the replicas there are
    options = options_for(kafka11, topic, delivery_timeout_ms="4000", request_timeout_ms="4000", linger_ms="0")
    with pytest.raises(DeliveryTimeoutError, match=r"NOT_ENOUGH_REPLICAS"):
        write([pa.record_batch({"value": pa.array([b"x"])})], options)


@pytest.mark.parametrize("server", ["kafka11", "kafka39", "kafka4"])
def test_a_topic_that_is_created_anew_between_two_tasks_gets_every_record(
    server: str, make_topic: MakeTopic, request: pytest.FixtureRequest
) -> None:
    """The producer of the first task still knows the topic as it was, and is ready to have several requests in flight.

    The new log would take any batch as the first one of this producer.
    """
    kafka: KafkaServer = request.getfixturevalue(server)
    topic, batch = make_topic(kafka, PARTITIONS), rows(RECORDS)
    options = options_for(kafka, topic, batch_size="1000")
    write([batch], options)
    for _ in range(3):
        recreate(kafka, topic)
        assert write([batch.slice(n, 100) for n in range(0, RECORDS, 100)], options).records == RECORDS
        found = read_back(kafka, topic)
        for partition in range(PARTITIONS):
            assert contents(found[partition]) == expected(batch, partition)


@pytest.mark.parametrize("server", ["kafka11", "kafka39", "kafka4"])
def test_a_topic_that_is_created_anew_with_fewer_partitions_gets_every_row_once(
    server: str, make_topic: MakeTopic, request: pytest.FixtureRequest
) -> None:
    kafka: KafkaServer = request.getfixturevalue(server)
    topic = make_topic(kafka, 2 * PARTITIONS)
    values = [b"%d" % number for number in range(RECORDS)]
    batch = pa.record_batch({"key": pa.array(values), "value": pa.array(values)})
    options = options_for(kafka, topic, max_block_ms="3000")  # before 2.8 the producer waits so long for the partition
    write([batch], options)
    recreate(kafka, topic)
    assert write([batch], options).records == RECORDS
    assert sorted(message.value() for partition in read_back(kafka, topic) for message in partition) == sorted(values)


def recreate(kafka: KafkaServer, topic: str) -> None:
    """Delete the topic, and create it with `PARTITIONS` partitions when its name is free."""
    admin = AdminClient(librdkafka(kafka))
    admin.delete_topics([topic], operation_timeout=20)[topic].result(20)

    def is_created() -> bool:
        try:
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)], operation_timeout=20)[topic].result(20)
        except KafkaException:
            return False
        return True

    wait_until(is_created, "the name is free again", 30)

    def has_leaders() -> bool:
        partitions = admin.list_topics(topic, timeout=20).topics[topic].partitions.values()
        return len(partitions) == PARTITIONS and all(partition.leader >= 0 for partition in partitions)

    wait_until(has_leaders, "the topic has leaders", 30)

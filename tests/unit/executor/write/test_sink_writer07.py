"""From Arrow batches to the logs of emulated brokers of Kafka 0.7."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from streamgroup.errors import EncodeError, ProduceError, RecordTooLargeError, StreamGroupError, UnknownTopicError
from streamgroup.executor.write.sink_writer07 import PRODUCERS07, write07
from streamgroup.executor.write.written import WriteTotals
from streamgroup.kafka.producer.kafka07 import Kafka07Config, Kafka07Target
from streamgroup.kafka.producer.partitioners import KeyBytes, java_string_hash
from streamgroup.kafka.records.decode import DecodeOptions
from streamgroup.kafka.records.messages07 import Frames07, decode07
from streamgroup.model import ClusterSnapshot, Dialect, PartitionInfo, TopicInfo, TopicPartition
from streamgroup.options.types import ClientOptions, ProducerOptions, SinkOptions
from tests.fakes.broker07 import TOPIC, OldBroker, tp

Start = Callable[..., OldBroker]
CLIENT = ClientOptions((), connection_setup_timeout_ms=2_000)
QUICK = {"request_timeout_ms": 2_000, "delivery_timeout_ms": 4_000, "retry_backoff_ms": 20, "verify_wait_ms": 500}


def target(*brokers: OldBroker, topics: tuple[str, ...] = (TOPIC,), **config: Any) -> Kafka07Target:
    """The plan for brokers that have two partitions of each topic."""
    infos = tuple(PartitionInfo(tp(b.node, p).partition, b.node) for b in brokers for p in range(2))
    found = {topic: TopicInfo(topic, infos) for topic in topics}
    snapshot = ClusterSnapshot({b.node: b.broker for b in brokers}, found, dialect=Dialect.KAFKA07)
    return Kafka07Target(snapshot, Kafka07Config(**{**QUICK, **config}))


def write(where: Kafka07Target, *batches: pa.RecordBatch, topic: str | None = TOPIC, **options: Any) -> WriteTotals:
    return write07(batches, SinkOptions(CLIENT, ProducerOptions(**options), topic), where)


def rows(values: list[bytes | None], **others: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary()), **others})


def numbers(*given: int | None) -> pa.Array:
    return pa.array(given, pa.int32())


def payloads(broker: OldBroker, partition: int, topic: str = TOPIC) -> list[bytes]:
    log = broker.logs.find(topic, partition)
    data = b"" if log is None else bytes(log.read(0, 1 << 24))
    return decode07(Frames07(memoryview(data), 0, len(data)), 0, DecodeOptions()).value.to_pylist()


@pytest.mark.parametrize("verify", [False, True], ids=["unverified", "verified"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_rows_lie_in_the_broker_partitions_that_they_name(start: Start, codec: str, verify: bool) -> None:
    brokers = start(0), start(3)
    batches = [
        rows([b"a", b"b", b"c"], partition=numbers(30001, 0, 30001)),
        rows([]),
        rows([b"d"], partition=numbers(1)),
    ]
    written = write(target(*brokers, codec=codec, verify=verify), *batches)
    assert [payloads(b, p) for b in brokers for p in range(2)] == [[b"b"], [b"d"], [], [b"a", b"c"]]
    assert written.records == 4
    assert written.partitions[TopicPartition(TOPIC, 30001)].records == 2
    assert written.partitions[TopicPartition(TOPIC, 30001)].first_offset == -1, "nobody tells the offset"


def test_a_key_goes_where_the_producer_of_07_sends_it(start: Start) -> None:
    broker = start()
    keys = pa.array([b"key-%d" % n for n in range(100)], pa.binary())
    write(target(broker), rows(keys.to_pylist(), key=keys))
    chosen = abs(java_string_hash(KeyBytes.of(keys)).view("i4")) % 2
    for partition in range(2):
        assert payloads(broker, partition) == [
            k for k, c in zip(keys.to_pylist(), chosen, strict=True) if c == partition
        ]


def test_another_partitioner_is_the_users_choice(start: Start) -> None:
    broker = start()
    write(target(broker), rows([b"a", b"b", b"c", b"d"]), partitioner="round_robin")
    assert [payloads(broker, p) for p in range(2)] == [[b"a", b"c"], [b"b", b"d"]]


def test_rows_lie_in_the_topics_that_they_name(start: Start) -> None:
    broker = start()
    topics = pa.array(["one", "two", "one"])
    where = target(broker, topics=("one", "two"))
    write(where, rows([b"a", b"b", b"c"], topic=topics, partition=numbers(0, 1, 0)), topic=None)
    assert (payloads(broker, 0, "one"), payloads(broker, 1, "two")) == ([b"a", b"c"], [b"b"])


def test_a_new_topic_goes_to_partition_0_of_each_broker_and_to_those_that_rows_name(start: Start) -> None:
    brokers = start(0), start(1)
    free = [b"%d" % n for n in range(50)]
    write(target(*brokers), rows([*free, b"named"], partition=numbers(*[None] * 50, 10001)), topic="new")
    logs = [payloads(broker, 0, "new") for broker in brokers]
    assert all(logs)
    assert sorted(logs[0] + logs[1]) == sorted(free)
    assert payloads(brokers[1], 1, "new") == [b"named"]


def test_the_next_task_uses_the_connection_and_the_brokers_of_its_own_plan(start: Start) -> None:
    first, second = start(0), start(1)
    write(target(first), rows([b"a"], partition=numbers(0)))
    with PRODUCERS07.lend((CLIENT, Kafka07Config(**QUICK))) as kept:
        assert kept.topic(TOPIC).partitions
    assert write(target(first, second), rows([b"b"], partition=numbers(10000))).records == 1
    with PRODUCERS07.lend((CLIENT, Kafka07Config(**QUICK))) as again:
        assert again is kept
    assert (payloads(first, 0), payloads(second, 0)) == ([b"a"], [b"b"])


@pytest.mark.parametrize(
    ("batch", "error", "said"),
    [
        (
            rows([b"a", None], partition=numbers(0, 1)),
            EncodeError,
            r"cannot write to events 0-1: .* no null values. Leave",
        ),
        (rows([b"a"], partition=numbers(20000)), UnknownTopicError, r"events 2-0 .*broker 2 is not registered"),
        (rows([b"a"], partition=numbers(2)), UnknownTopicError, r"events 0-2 .*broker 0 has 2 partitions"),
        (rows([b"a"], partition=numbers(-1)), UnknownTopicError, r"cannot write to events -1-9999 \(partition -1\)"),
        (rows([b"x" * 200], partition=numbers(1)), RecordTooLargeError, r"cannot write to events 0-1: a record is"),
        (rows([b"a"], key=pa.array([b"\xff"], pa.binary())), EncodeError, "Choose the partitioner hashcode_bytes"),
    ],
)
def test_rows_that_cannot_be_written_fail_the_task_and_say_where(
    start: Start, batch: pa.RecordBatch, error: type[StreamGroupError], said: str
) -> None:
    with pytest.raises(error, match=said):
        write(target(start(), max_message_size=100), batch)


def test_headers_cannot_be_written(start: Start) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "h", "value": b"1"}]], kind)
    with pytest.raises(EncodeError, match=r"events 0-0: .* no headers\. Write the records without them"):
        write(target(start()), rows([b"a"], headers=headers, partition=numbers(0)))


def test_a_topic_without_brokers_says_what_to_look_at() -> None:
    with pytest.raises(UnknownTopicError, match=r"no broker of Kafka 0.7 is registered in ZooKeeper"):
        write(target(), rows([b"a"]))


def test_a_failed_task_leaves_no_producer_behind(start: Start) -> None:
    broker = start()
    broker.stop()
    with pytest.raises(ProduceError, match=r"events 0-0"):
        write(target(broker, delivery_timeout_ms=300), rows([b"a"], partition=numbers(0)))
    broker.restart()
    assert write(target(broker), rows([b"b"], partition=numbers(0))).records == 1
    assert payloads(broker, 0) == [b"b"]

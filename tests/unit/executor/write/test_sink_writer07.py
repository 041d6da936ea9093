"""Tasks that write to emulated brokers of Kafka 0.7, on real sockets: from Arrow batches to the logs."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from streamgroup.errors import (
    DeliveryTimeoutError,
    EncodeError,
    ProduceError,
    RecordTooLargeError,
    StreamGroupError,
    TransportError,
    UnknownTopicError,
)
from streamgroup.executor.write.producer07 import Kafka07TaskProducer
from streamgroup.executor.write.sink_writer07 import PRODUCERS07, write07
from streamgroup.executor.write.written import WriteTotals
from streamgroup.kafka.net.poller import ConnectionLost, ConnectionReady, ResponseReceived
from streamgroup.kafka.producer.kafka07 import Kafka07Config, Kafka07Target
from streamgroup.kafka.producer.kafka07_parts import MessageSet
from streamgroup.kafka.producer.partitioners import KeyBytes, java_string_hash
from streamgroup.kafka.records.decode import DecodeOptions
from streamgroup.kafka.records.messages07 import Frames07, decode07, walk07
from streamgroup.kafka.wire.kafka07 import OffsetsResponse07, message_set07
from streamgroup.logformat import broker_partition
from streamgroup.model import Broker, ClusterSnapshot, Dialect, PartitionInfo, TopicInfo, TopicPartition
from streamgroup.options.types import ClientOptions, ProducerOptions, SinkOptions
from streamgroup.testing.proxy import Proxy
from tests.fakes.broker07 import TOPIC, OldBroker, tp, values
from tests.unit.executor.producing import HEADERS, VERSIONS, SkippingClock, StubPoller, columns
from tests.unit.executor.write.test_sink_writer import partitions, rows
from tests.waiting import wait_until

Start = Callable[..., OldBroker]
CLIENT = ClientOptions((), connection_setup_timeout_ms=2_000)
QUICK = {"request_timeout_ms": 2_000, "delivery_timeout_ms": 4_000, "retry_backoff_ms": 20, "verify_wait_ms": 500}


def snapshot(*brokers: OldBroker, topics: tuple[str, ...] = (TOPIC,), partitions: int = 2) -> ClusterSnapshot:
    infos = tuple(PartitionInfo(tp(b.node, p).partition, b.node) for b in brokers for p in range(partitions))
    return ClusterSnapshot(
        {b.node: b.broker for b in brokers},
        {topic: TopicInfo(topic, infos) for topic in topics},
        dialect=Dialect.KAFKA07,
    )


def target(*brokers: OldBroker, topics: tuple[str, ...] = (TOPIC,), **config: Any) -> Kafka07Target:
    """The plan for brokers that have two partitions of each topic."""
    return Kafka07Target(snapshot(*brokers, topics=topics), Kafka07Config(**{**QUICK, **config}))


def write(where: Kafka07Target, *batches: pa.RecordBatch, topic: str | None = TOPIC, **options: Any) -> WriteTotals:
    return write07(batches, SinkOptions(CLIENT, ProducerOptions(**options), topic), where)


def log_of(broker: OldBroker, where: TopicPartition) -> bytes:
    log = broker.logs.find(where.topic, broker_partition(where.partition)[1])
    return b"" if log is None else bytes(log.read(0, 1 << 24))


def payloads(broker: OldBroker, partition: int, topic: str = TOPIC) -> list[bytes]:
    """The payloads of a log, out of their wrappers."""
    data = log_of(broker, tp(broker.node, partition, topic))
    return decode07(Frames07(memoryview(data), 0, len(data)), 0, DecodeOptions()).value.to_pylist()


@pytest.mark.parametrize("verify", [False, True], ids=["unverified", "verified"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_rows_lie_in_the_broker_partitions_that_they_name(start: Start, codec: str, verify: bool) -> None:
    brokers = start(0), start(3)
    batches = [
        rows([b"a", b"b", b"c"], partition=partitions(30001, 0, 30001)),
        rows([]),
        rows([b"d"], partition=partitions(1)),
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
    write(where, rows([b"a", b"b", b"c"], topic=topics, partition=partitions(0, 1, 0)), topic=None)
    assert (payloads(broker, 0, "one"), payloads(broker, 1, "two")) == ([b"a", b"c"], [b"b"])


def test_a_new_topic_goes_to_partition_0_of_each_broker_and_to_those_that_rows_name(start: Start) -> None:
    brokers = start(0), start(1)
    free = [b"%d" % n for n in range(50)]
    write(target(*brokers), rows([*free, b"named"], partition=partitions(*[None] * 50, 10001)), topic="new")
    logs = [payloads(broker, 0, "new") for broker in brokers]
    assert all(logs)
    assert sorted(logs[0] + logs[1]) == sorted(free)
    assert payloads(brokers[1], 1, "new") == [b"named"]


def test_the_next_task_uses_the_connection_and_the_brokers_of_its_own_plan(start: Start) -> None:
    first, second = start(0), start(1)
    write(target(first), rows([b"a"], partition=partitions(0)))
    with PRODUCERS07.lend((CLIENT, Kafka07Config(**QUICK))) as kept:
        assert kept.topic(TOPIC).partitions
    assert write(target(first, second), rows([b"b"], partition=partitions(10000))).records == 1
    with PRODUCERS07.lend((CLIENT, Kafka07Config(**QUICK))) as again:
        assert again is kept
    assert (payloads(first, 0), payloads(second, 0)) == ([b"a"], [b"b"])


@pytest.mark.parametrize(
    ("batch", "error", "said"),
    [
        (rows([b"a", None], partition=partitions(0, 1)), EncodeError, r"to events 0-1: .* no null values. Leave"),
        (
            rows([b"a"], headers=HEADERS, partition=partitions(0)),
            EncodeError,
            r"events 0-0: .* no headers\. Write the r",
        ),
        (rows([b"a"], partition=partitions(20000)), UnknownTopicError, r"events 2-0 .*broker 2 is not registered"),
        (rows([b"a"], partition=partitions(2)), UnknownTopicError, r"events 0-2 .*broker 0 has 2 partitions"),
        (rows([b"a"], partition=partitions(-1)), UnknownTopicError, r"cannot write to events -1-9999 \(partition -1\)"),
        (rows([b"x" * 200], partition=partitions(1)), RecordTooLargeError, r"cannot write to events 0-1: a record is"),
        (rows([b"a"], key=pa.array([b"\xff"], pa.binary())), EncodeError, "Choose the partitioner hashcode_bytes"),
    ],
)
def test_rows_that_cannot_be_written_fail_the_task_and_say_where(
    start: Start, batch: pa.RecordBatch, error: type[StreamGroupError], said: str
) -> None:
    with pytest.raises(error, match=said):
        write(target(start(), max_message_size=100), batch)


def test_a_topic_without_brokers_says_what_to_look_at() -> None:
    with pytest.raises(UnknownTopicError, match=r"no broker of Kafka 0.7 is registered in ZooKeeper"):
        write(target(), rows([b"a"]))


def test_a_failed_task_leaves_no_producer_behind(start: Start) -> None:
    broker = start()
    broker.stop()
    with pytest.raises(ProduceError, match=r"events 0-0"):
        write(target(broker, delivery_timeout_ms=300), rows([b"a"], partition=partitions(0)))
    broker.restart()
    assert write(target(broker), rows([b"b"], partition=partitions(0))).records == 1
    assert payloads(broker, 0) == [b"b"]


STEP_S = 0.001
"""The pause between two calls of a producer, each of which handles what has come by then."""


def a_set(where: TopicPartition, *payloads: bytes, movable: bool = False) -> MessageSet:
    return MessageSet(where, message_set07(payloads), len(payloads), movable)


def deliver(writer: Kafka07TaskProducer, *sets: MessageSet) -> None:
    writer.append(sets)
    writer.flush()


@pytest.fixture
def producer() -> Iterator[Callable[..., Kafka07TaskProducer]]:
    """Open a producer `(snapshot, **config)`."""
    opened: list[Kafka07TaskProducer] = []

    def make(
        where: ClusterSnapshot, refresh: Any = None, clock: Callable[[], float] = time.monotonic, **config: Any
    ) -> Kafka07TaskProducer:
        settings = Kafka07Config(**{**QUICK, **config})
        chance = random.Random(1)
        opened.append(Kafka07TaskProducer(where, settings, CLIENT, refresh=refresh, chance=chance, clock=clock))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


Open = Callable[..., Kafka07TaskProducer]
both = pytest.mark.parametrize("verify", [False, True], ids=["unverified", "verified"])


@pytest.mark.slow
@both
def test_sets_of_two_brokers_lie_in_their_logs_in_their_order(start: Start, producer: Open, verify: bool) -> None:
    brokers = [start(0), start(3)]
    writer = producer(snapshot(*brokers), verify=verify, max_request_size=500)
    sets = [a_set(tp((0, 3)[i % 2], i // 2 % 2), b"%d" % i, b"x" * i) for i in range(200)]
    for each in sets:
        deliver(writer, each)
    for broker in brokers:
        for partition in range(2):
            where = tp(broker.node, partition)
            assert log_of(broker, where) == b"".join(e.messages for e in sets if e.partition == where)
    assert (writer.written.records, writer.written.bytes) == (400, sum(each.size for each in sets))


@both
def test_a_producer_is_used_for_one_task_after_the_other(start: Start, producer: Open, verify: bool) -> None:
    broker = start()
    writer = producer(snapshot(broker), verify=verify)
    for value in (b"a", b"b", b"c"):
        writer.append([a_set(tp(0, 0), value)])
        writer.flush()
        broker.produce(0, b"other")
    other = message_set07([b"other"])
    assert log_of(broker, tp(0, 0)).split(other) == [message_set07([v]) for v in (b"a", b"b", b"c")] + [b""]


@both
def test_rows_may_come_slowly(start: Start, producer: Open, verify: bool) -> None:
    """While the task waits for rows, nobody takes a set's log end, and nobody hears that it was read."""
    broker, clock = start(), SkippingClock()
    writer = producer(snapshot(broker), verify=verify, clock=clock)
    for value in (b"a", b"b", b"c"):
        writer.append([a_set(tp(0, 0), value)])
        clock.skipped += 3_600
    writer.flush()
    assert log_of(broker, tp(0, 0)) == message_set07([b"a", b"b", b"c"])


@both
def test_a_connection_idle_for_too_long_is_not_used_by_the_next_task(
    start: Start, producer: Open, verify: bool
) -> None:
    broker, clock = start(), SkippingClock()
    writer = producer(snapshot(broker), verify=verify, clock=clock)
    deliver(writer, a_set(tp(0, 0), b"a"))
    idle = writer._handles[0]
    clock.skipped += CLIENT.max_idle_s + 1
    writer.begin()
    deliver(writer, a_set(tp(0, 0), b"b"))
    assert log_of(broker, tp(0, 0)) == message_set07([b"a", b"b"])
    assert writer._handles[0] != idle
    wait_until(lambda: broker.connections == 1, "the idle connection is closed")


@both
def test_a_broker_restarted_between_tasks_is_connected_to_again(start: Start, producer: Open, verify: bool) -> None:
    broker = start()
    writer = producer(snapshot(broker), verify=verify)
    deliver(writer, a_set(tp(0, 0), b"a"))
    broker.restart()
    deliver(writer, a_set(tp(0, 0), b"b"))
    assert log_of(broker, tp(0, 0)) == message_set07([b"a", b"b"])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_columns_are_written_as_sets_of_the_batch_size(start: Start, producer: Open, codec: str) -> None:
    broker = start()
    rows = values(1000, size=90)
    writer = producer(snapshot(broker), codec=codec, batch_size=10_000, verify=True)
    writer.write(tp(0, 1), columns(rows))
    writer.flush()
    log = log_of(broker, tp(0, 1))
    assert payloads(broker, 1) == rows
    assert writer.written.records == 1000
    if codec == "none":
        assert log == message_set07(rows)
    else:
        assert len(walk07(memoryview(log), 0, len(log)).starts) == 10


def test_a_higher_level_makes_less_of_the_same_messages(start: Start, producer: Open) -> None:
    sizes = []
    for node, level in enumerate((1, 9)):
        broker = start(node)
        writer = producer(snapshot(broker), codec="gzip", compression_level=level)
        writer.write(tp(node, 0), columns(values(1_000, size=90)))
        writer.flush()
        sizes.append(len(log_of(broker, tp(node, 0))))
    assert sizes[1] < sizes[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "movable", "goes_on"),
    [(None, True, True), ([None], True, True), ([b"k"], True, False), (None, False, False)],
)
def test_only_records_without_a_key_and_without_a_partition_may_go_to_another_broker(
    start: Start, producer: Open, keys: list[bytes | None] | None, movable: bool, goes_on: bool
) -> None:
    up, down = start(0), start(1)
    where = snapshot(up, down)
    down.stop()
    writer = producer(where, delivery_timeout_ms=2_000)
    writer.write(tp(1, 0), columns([b"a"], keys), movable=movable)
    with contextlib.nullcontext() if goes_on else pytest.raises(DeliveryTimeoutError):
        writer.flush()
    assert writer.written.records == goes_on


@pytest.mark.slow
def test_what_is_not_delivered_stays_within_the_buffers_memory(start: Start, producer: Open) -> None:
    broker = start(flush_interval=10, flush_scheduler_ms=50, flush_interval_ms=100)
    writer = producer(snapshot(broker), verify=True, buffer_memory=5_000)
    for i in range(100):
        writer.append([a_set(tp(0, 0), b"%d" % i, b"x" * 480)])
        assert writer.buffered <= 5_000
    writer.flush()
    assert writer.written.records == 200


@pytest.mark.slow
def test_records_without_a_key_leave_a_broker_that_is_down_and_keyed_ones_fail_by_name(
    start: Start, producer: Open
) -> None:
    up, down = start(0), start(1)
    where = snapshot(up, down)
    down.stop()
    writer = producer(where, delivery_timeout_ms=1_000)
    deliver(writer, a_set(tp(1, 0), b"free", movable=True))
    assert message_set07([b"free"]) in (log_of(up, tp(0, 0)), log_of(up, tp(0, 1)))
    with pytest.raises(DeliveryTimeoutError, match=r"to events 1-0: not delivered within .* broker 127\.0\.0\.1:"):
        deliver(writer, a_set(tp(1, 0), b"keyed"))


def test_a_broker_at_a_new_address_is_found_where_brokers_can_be_read_again(start: Start, producer: Open) -> None:
    old, new = start(0), start(1)
    before = snapshot(old)
    after = ClusterSnapshot({0: new.broker}, before.topics, dialect=Dialect.KAFKA07)
    old.stop()
    writer = producer(before, refresh=lambda: after)
    deliver(writer, a_set(tp(0, 0), b"keyed"))
    assert log_of(new, tp(0, 0)) == message_set07([b"keyed"])


def test_a_zookeeper_that_is_away_leaves_the_known_brokers(start: Start, producer: Open) -> None:
    broker = start()
    where = snapshot(broker)
    broker.stop()

    def refresh() -> ClusterSnapshot:
        raise TransportError("no ZooKeeper")

    writer = producer(where, refresh=refresh)
    threading.Timer(0.3, broker.restart).start()
    deliver(writer, a_set(tp(0, 0), b"keyed"))
    assert log_of(broker, tp(0, 0)) == message_set07([b"keyed"])


def test_a_new_topic_is_created_at_partition_0_and_its_others_are_used_once_registered(
    start: Start, producer: Open
) -> None:
    broker = start()
    writer = producer(snapshot(broker, topics=()))
    assert [info.partition for info in writer.topic("new").partitions] == [0]
    deliver(writer, a_set(tp(0, 0, "new"), b"a"))
    assert log_of(broker, tp(0, 0, "new")) == message_set07([b"a"])
    writer.update(snapshot(broker, topics=("new",)))
    assert [info.partition for info in writer.topic("new").partitions] == [0, 1]


def test_an_unknown_broker_partition_is_refused_before_anything_is_sent(start: Start, producer: Open) -> None:
    with pytest.raises(UnknownTopicError, match="broker 7 is not registered"):
        producer(snapshot(start())).append([a_set(tp(7, 0), b"a")])


def test_a_set_that_the_broker_refuses_closes_the_connection_and_fails(start: Start, producer: Open) -> None:
    broker = start()
    writer = producer(snapshot(broker))
    damaged = bytearray(message_set07([b"a"]))
    damaged[-1] ^= 1
    with pytest.raises(ProduceError, match=r"Kafka 0\.7 acknowledges nothing\. The broker may have the records"):
        deliver(writer, MessageSet(tp(0, 0), bytes(damaged), 1))
    deliver(writer, a_set(tp(0, 0), b"b"))
    assert log_of(broker, tp(0, 0)) == message_set07([b"b"])


@pytest.mark.slow
def test_a_message_that_the_broker_drops_is_found_missing(start: Start, producer: Open) -> None:
    broker = start(max_message_size=100)
    writer = producer(snapshot(broker), verify=True)
    missing = r"\(111 bytes\) .*: the log has been read from position 11 to its end 11, and does not contain them"
    with pytest.raises(ProduceError, match=missing):
        deliver(writer, a_set(tp(0, 0), b"a"), a_set(tp(0, 0), b"x" * 101))


# -- connections that break --------------------------------------------------------------------------------------------


def proxied(broker: OldBroker, proxy: Proxy) -> ClusterSnapshot:
    address = Broker(broker.node, "127.0.0.1", proxy.port)
    return dataclasses.replace(snapshot(broker), brokers={broker.node: address})


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_verify_leaves_every_set_once_in_order_under_cut_connections(start: Start, producer: Open, seed: int) -> None:
    """A broker that hangs up again and again before its first answer about a partition does not have that partition. So
    each cut comes after such an answer. And what the broker handles later than `verify_wait_ms` may be there twice. So
    it has handled all that it got when the producer connects again."""
    chance = random.Random(seed)
    broker = start(flush_interval=1)
    partitions = tp(0, 0), tp(0, 1)
    sets = [a_set(partitions[i % 2], b"%d" % i, b"x" * 300) for i in range(300)]
    with Proxy(("127.0.0.1", broker.port)) as proxy:
        patient = {"request_timeout_ms": 30_000, "delivery_timeout_ms": 60_000, "verify_wait_ms": 100}
        writer = producer(proxied(broker, proxy), verify=True, max_request_size=2_000, **patient)

        def delivered() -> list[int]:
            writer.append([])
            return [writer.written.partitions[each].records for each in partitions if each in writer.written.partitions]

        deliver(writer, *sets[:2])
        for first in range(2, 300, 74):
            for each in sets[first : first + 20]:
                writer.append([each])
            time.sleep(chance.uniform(0, 0.01))
            accepted = proxy.accepted
            assert proxy.cut() == 1
            wait_until(lambda: broker.connections == 0, "the broker has handled what it got")
            for each in sets[first + 20 : first + 74]:
                writer.append([each])
            wait_until(
                lambda n=accepted: writer.append([]) or proxy.accepted > n, "the producer connects again", every=STEP_S
            )
            before = delivered()
            wait_until(
                lambda then=before: all(map(operator.gt, delivered(), then)) or not writer.buffered,
                "the broker has answered for both partitions",
                every=STEP_S,
            )
        writer.flush()
    for where in partitions:
        assert log_of(broker, where) == b"".join(each.messages for each in sets if each.partition == where)


def test_without_verify_a_cut_connection_fails_the_task_and_repeats_nothing(start: Start, producer: Open) -> None:
    broker = start()
    failed: list[ProduceError] = []
    with Proxy(("127.0.0.1", broker.port)) as proxy:
        writer = producer(proxied(broker, proxy), max_request_size=2_000)
        sets = [a_set(tp(0, 0), b"%d" % i, b"x" * 300) for i in range(200)]
        for i, each in enumerate(sets):
            try:
                writer.append([each])
                if i % 50 == 49:
                    writer.flush()
            except ProduceError as error:
                failed.append(error)
            if i % 30 == 0:
                proxy.cut()
    log = log_of(broker, tp(0, 0))
    assert failed
    assert all(error.maybe_written for error in failed)
    assert all(log.count(each.messages) <= 1 for each in sets)


@pytest.mark.slow
def test_a_broker_that_is_killed_and_comes_back_has_everything_with_verify(start: Start, producer: Open) -> None:
    broker = start()
    writer = producer(snapshot(broker), verify=True, max_request_size=1_000, delivery_timeout_ms=30_000)
    sets = [a_set(tp(0, 0), b"%d" % i, b"x" * 100) for i in range(200)]
    for i, each in enumerate(sets):
        writer.append([each])
        if i == 100:
            broker.restart()
    writer.flush()
    wait_until(lambda: writer.written.records == 400, "all records")
    assert log_of(broker, tp(0, 0)) == b"".join(each.messages for each in sets)


def test_a_request_for_a_connection_whose_end_is_known_by_then_counts_as_unsent(
    start: Start, producer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    poller = StubPoller()
    monkeypatch.setattr("streamgroup.executor.write.producer07.Poller", lambda *_: poller)
    writer = producer(snapshot(start()), max_in_flight=1, max_request_size=1, retry_backoff_ms=1)
    first, second = a_set(tp(0, 0), b"first"), a_set(tp(0, 0), b"second")
    writer.append([first, second])
    handle, answered = poller.handles[0], OffsetsResponse07((0,))
    end = ConnectionLost(handle, TransportError("it has ended"), ())
    # The answer to the first has come with the end of the connection, and the machine continues with the second.
    poller.events = [ConnectionReady(handle, VERSIONS), ResponseReceived(handle, 2, answered), end]
    writer.append([])
    assert writer.written.records == 1
    wait_until(lambda: writer.append([]) or len(poller.sent) == 4, "the second is sent")
    assert [each for each, _ in poller.sent] == [handle, handle, poller.handles[1], poller.handles[1]]
    poller.events = [ConnectionReady(poller.handles[1], VERSIONS), ResponseReceived(poller.handles[1], 4, answered)]
    writer.flush()
    assert writer.written.records == 2

"""From Arrow batches to records in the logs of a scripted cluster."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from streamgroup.errors import EncodeError, ErrorCode, RecordTooLargeError, UnknownPartition, UnknownTopicError
from streamgroup.executor.pools import ProducerPool
from streamgroup.executor.write import sink_writer
from streamgroup.executor.write.producer import RecordSlices, TaskProducer
from streamgroup.executor.write.sink_writer import (
    RECORDS,
    BatchMemory,
    RowReader,
    SinkWriter,
    pack_rows,
    unpack_rows,
    write,
)
from streamgroup.executor.write.written import PartitionWritten, WriteTotals
from streamgroup.kafka.producer.batch import NO_IDENTITY, ProducerIdentity
from streamgroup.kafka.wire.messages.topics import DescribeConfigsRequest
from streamgroup.model import TopicPartition
from streamgroup.options.types import ClientOptions, ProducerOptions, SinkOptions
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.unit.executor.producing import TOPIC, client_of, clock_of_metadata, columns, producer_options
from tests.unit.kafka.records import reference
from tests.waiting import wait_until

Start = Callable[..., ScriptedCluster]
Open = Callable[..., TaskProducer]


HEADER = 61
"""The bytes of a batch before its records, among them the checksum and the sequence number."""


def sink_options(cluster: ScriptedCluster, topic: str | None = TOPIC, **others: Any) -> SinkOptions:
    return SinkOptions(client_of(cluster), producer_options(**others), topic)


def rows(values: list[bytes | None], **others: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary()), **others})


def partitions(*numbers: int) -> pa.Array:
    return pa.array(numbers, pa.int32())


def test_rows_lie_in_the_partitions_that_they_name(cluster: ScriptedCluster) -> None:
    batches = [rows([b"a", b"b", None], partition=partitions(1, 0, 1)), rows([]), rows([b"d"], partition=partitions(1))]
    written = write(batches, sink_options(cluster))
    assert cluster.values(TOPIC, 0) == [b"b"]
    assert cluster.values(TOPIC, 1) == [b"a", None, b"d"]
    assert written.partitions[TopicPartition(TOPIC, 1)].last_offset == 2
    assert written.records == 4


def test_rows_lie_in_the_topics_that_they_name(start_cluster: Start) -> None:
    cluster = start_cluster(2, {"one": 1, "two": 1})
    topics = pa.array(["one", "two", "one"])
    write([rows([b"a", b"b", b"c"], topic=topics)], sink_options(cluster, topic=None))
    assert (cluster.values("one", 0), cluster.values("two", 0)) == ([b"a", b"c"], [b"b"])


def packed(options: SinkOptions, *names: str, batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    """The rows of `pack_rows`, which `unpack_rows` and `write` have written."""
    found = list(pack_rows(batches, options, names, 2))
    assert write(unpack_rows(found, names), replace(options, include_timestamp=True)).records
    return [row for batch in found for row in batch.to_pylist()]


def test_packed_rows_are_written_as_they_would_have_been(start_cluster: Start) -> None:
    cluster = start_cluster(2, {"one": 3, "two": 1})
    topics = pa.array(["one", "two", "one", "one"])
    headers = pa.array([[{"key": "h", "value": b"1"}], None, [], [{"key": "h", "value": None}]], RECORDS["headers"])
    keys = pa.array([b"k", None, b"", b"l"], pa.binary())
    times = pa.array([1_000_000, 2_000_000, 3_000_000, 4_000_000], pa.timestamp("us", "UTC"))
    batch = rows(
        [b"a", b"b", None, b"d"],
        topic=topics,
        key=keys,
        headers=headers,
        timestamp=times,
        partition=partitions(2, 0, 0, 2),
    )
    options = sink_options(cluster, topic=None)
    plain = replace(options, include_timestamp=True)
    assert len(packed(plain, *RECORDS, batches=[batch])) == 3
    write([batch], plain)
    for topic, partition in ("one", 0), ("one", 2), ("two", 0):
        ours, other = ([*reference.split(appended.data)] for appended in cluster.log(topic, partition))
        assert [data[HEADER:] for _, data in ours] == [data[HEADER:] for _, data in other]


def test_many_rows_are_packed_into_few_and_keep_their_order(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [b"%d" % n for n in range(1000)]
    batches = [rows(values[i : i + 10], partition=partitions(*(n % 2 for n in range(10)))) for i in range(0, 1000, 10)]
    found = packed(sink_options(cluster), "value", "timestamp", batches=batches)
    assert [(row["topic"], row["partition"]) for row in found] == [(TOPIC, 0), (TOPIC, 1)]
    assert sorted(row["task"] for row in found) == [0, 1]
    assert cluster.values(TOPIC, 0) == values[::2]
    assert cluster.values(TOPIC, 1) == values[1::2]
    monkeypatch.setattr(sink_writer, "_PACK_BYTES", 2000)
    assert len(packed(sink_options(cluster), "value", "timestamp", batches=batches)) > 10
    assert cluster.values(TOPIC, 0) == values[::2] * 2


def test_small_pieces_of_many_partitions_are_written_together(cluster: ScriptedCluster) -> None:
    batch = rows([b"a", b"b", b"c"], partition=partitions(0, 1, 0))
    (unpacked,) = unpack_rows(pack_rows([batch], sink_options(cluster), ["value"], 2), ["value"])
    assert unpacked.to_pydict() == {"topic": [TOPIC] * 3, "partition": [0, 0, 1], "value": [b"a", b"c", b"b"]}


def test_gathering_takes_no_longer_for_each_batch_the_more_there_are() -> None:
    few, many = ([rows([b"a"])] * n for n in (100, 3000))
    started = time.process_time()
    assert [len(batch) for batch in sink_writer._gathered(many, 1 << 30)] == [3000]
    assert time.process_time() - started < 2
    assert [len(batch) for batch in sink_writer._gathered(few, few[0].nbytes * 40)] == [40, 40, 20]


def test_no_rows_are_packed_into_none(cluster: ScriptedCluster) -> None:
    assert [len(batch) for batch in pack_rows([rows([])], sink_options(cluster), ["value", "timestamp"], 2)] == []
    assert list(pack_rows([], sink_options(cluster), ["value", "timestamp"], 2)) == []
    assert list(unpack_rows([], ["value", "timestamp"])) == []


def test_a_row_that_cannot_be_written_is_not_packed(cluster: ScriptedCluster) -> None:
    with pytest.raises(UnknownPartition):
        list(pack_rows([rows([b"a"], partition=partitions(7))], sink_options(cluster), ["value", "timestamp"], 2))


def test_a_task_without_rows_writes_nothing(cluster: ScriptedCluster) -> None:
    assert write([rows([])], sink_options(cluster)).partitions == {}
    assert cluster.requests == []


def test_rows_without_a_timestamp_get_the_time_of_the_write(cluster: ScriptedCluster, producer: TaskProducer) -> None:
    SinkWriter(producer, sink_options(cluster), clock=lambda: 1_700_000_000.5).write(
        rows([b"a"], partition=partitions(0))
    )
    producer.flush()
    ((header, _),) = reference.split(cluster.log(TOPIC, 0)[0].data)
    assert header.max_time == 1_700_000_000_500


def test_equal_keys_lie_in_one_partition(start_cluster: Start) -> None:
    cluster = start_cluster(topics={TOPIC: 8})
    keys = pa.array([b"%d" % (n % 20) for n in range(400)], pa.binary())
    values = [b"%d" % (n % 20) for n in range(400)]
    write([rows(values, key=keys)], sink_options(cluster, batch_size=200))
    found = [set(cluster.values(TOPIC, n)) for n in range(8)]
    assert sum(map(len, found)) == 20
    assert sum(len(cluster.values(TOPIC, n)) for n in range(8)) == 400


@pytest.mark.parametrize("adaptive", [True, False])
def test_rows_without_a_key_are_spread(start_cluster: Start, adaptive: bool) -> None:
    cluster = start_cluster(topics={TOPIC: 4})
    values = [b"%d" % n * 20 for n in range(1_000)]
    write([rows(values)], sink_options(cluster, batch_size=500, adaptive_partitioning=adaptive))
    logs = [cluster.values(TOPIC, n) for n in range(4)]
    assert all(logs)
    assert sorted(value for log in logs for value in log) == sorted(values)


def test_a_batch_has_at_most_batch_size_bytes(start_cluster: Start) -> None:
    cluster = start_cluster(topics={TOPIC: 1})
    values = [b"x" * 90 for _ in range(50)] + [b"y" * 3_000] + [b"z"]
    write([rows(values)], sink_options(cluster, batch_size=1_000))
    assert cluster.values(TOPIC, 0) == values
    assert all(len(each.values) == 1 or len(each.data) < 1_000 + 61 for each in cluster.log(TOPIC, 0))
    assert len(cluster.log(TOPIC, 0)) <= 10


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_without_acknowledgements_the_limit_of_the_topic_cuts_batches(start_cluster: Start, compression: str) -> None:
    cluster = start_cluster(topics={TOPIC: 1}, max_message_bytes=5_000)
    values = [random.Random(n).randbytes(50) for n in range(2_000)]
    written = write([rows(values)], sink_options(cluster, acks=0, compression=compression))
    wait_until(lambda: len(cluster.values(TOPIC, 0)) == len(values), "every record arrived")
    assert cluster.values(TOPIC, 0) == values
    assert not written.notes
    assert len(cluster.log(TOPIC, 0)) < 40, "the batches are about as large as the topic takes"


def test_without_acknowledgements_a_record_above_the_limit_of_the_topic_is_an_error(start_cluster: Start) -> None:
    cluster = start_cluster(topics={TOPIC: 1}, max_message_bytes=5_000)
    with pytest.raises(RecordTooLargeError, match=r"larger than max.message.bytes=5000 of the topic. Raise"):
        write([rows([b"a", b"x" * 6_000])], sink_options(cluster, acks=0))


@pytest.mark.parametrize(
    ("versions", "code", "reason"),
    [
        ({}, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed the operation DescribeConfigs on topic 'orders'"),
        ({DescribeConfigsRequest: (0, -1)}, 0, "DescribeConfigs"),
    ],
)
def test_without_acknowledgements_a_limit_that_is_not_known_is_worth_a_warning(
    start_cluster: Start, versions: Any, code: int, reason: str
) -> None:
    cluster = start_cluster(topics={TOPIC: 1}, versions=versions)
    cluster.refuse_configs(code, times=3)
    (note,) = write([rows([b"a"])], sink_options(cluster, acks=0)).notes
    assert note.startswith("with kafka.acks=0 a broker drops batches above max.message.bytes of topic orders")
    assert reason in note
    wait_until(lambda: cluster.values(TOPIC, 0) == [b"a"], "the record arrived")


def test_a_broker_that_does_not_know_a_new_topic_yet_is_asked_for_its_limit_again(start_cluster: Start) -> None:
    cluster = start_cluster(1, {TOPIC: 1})
    cluster.refuse_configs(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, times=2)
    assert not write([rows([b"a"])], sink_options(cluster, acks=0)).notes
    assert len(cluster.brokers[0].asked("DescribeConfigs")) == 3


def test_a_partition_that_was_added_meanwhile_is_found(start_cluster: Start) -> None:
    cluster = start_cluster(topics={TOPIC: 1})
    options = sink_options(cluster)
    write([rows([b"a"])], options)
    cluster.create(TOPIC, 3)
    write([rows([b"b"], partition=partitions(2))], options)
    assert cluster.values(TOPIC, 2) == [b"b"]
    assert len(cluster.brokers[0].asked("Metadata")) == 2


@pytest.mark.parametrize("with_keys", [True, False])
def test_rows_of_a_topic_that_has_fewer_partitions_now_are_routed_again(start_cluster: Start, with_keys: bool) -> None:
    cluster = start_cluster(topics={TOPIC: 4})
    options = sink_options(cluster, batch_size=100)
    values = [b"%d" % n for n in range(200)]
    batch = rows(values, **({"key": pa.array(values, pa.binary())} if with_keys else {}))
    write([batch], options)
    cluster.create(TOPIC, 2)
    written = write([batch], options)
    found = [cluster.values(TOPIC, 0), cluster.values(TOPIC, 1)]
    assert sorted(found[0] + found[1]) == sorted(values)
    assert written.records == 200
    assert written.partitions.keys() == {TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)}
    if with_keys:
        cluster.create(TOPIC, 2)
        write([batch], options)
        assert [set(cluster.values(TOPIC, n)) for n in range(2)] == [set(each) for each in found]


def test_a_row_that_names_a_partition_which_the_new_topic_lacks_fails_at_once(start_cluster: Start) -> None:
    cluster = start_cluster(topics={TOPIC: 4})
    options = sink_options(cluster)
    batch = rows([b"a", b"b"], partition=partitions(0, 3))
    write([batch], options)
    cluster.create(TOPIC, 2)
    with pytest.raises(UnknownTopicError, match="created again with 2 partitions, without partition 3") as raised:
        write([batch], options)
    assert not raised.value.maybe_written


def test_a_partition_that_does_not_exist_fails_after_one_refresh(cluster: ScriptedCluster) -> None:
    with pytest.raises(UnknownPartition):
        write([rows([b"a"], partition=partitions(7))], sink_options(cluster))
    assert len(cluster.brokers[0].asked("Metadata")) == 2
    assert cluster.requests == []


def test_after_a_missing_topic_the_next_task_goes_on(start_cluster: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = start_cluster(topics={})
    clock = clock_of_metadata(cluster, seconds=10)
    producers: ProducerPool[Any, TaskProducer] = ProducerPool(lambda key: TaskProducer(*key, clock))
    monkeypatch.setattr(sink_writer, "PRODUCERS", producers)
    options = sink_options(cluster, max_block_ms=45_000)
    with pytest.raises(UnknownTopicError):
        write([rows([b"a"])], options)
    assert len(cluster.brokers[0].asked("Metadata")) <= 8, "it waited for longer than max.block.ms"
    cluster.create(TOPIC, 1)
    assert write([rows([b"a"])], options).records == 1
    producers.clear()


def test_what_the_rows_iterator_raises_ends_the_task(cluster: ScriptedCluster) -> None:

    def broken() -> Any:
        yield rows([b"a"], partition=partitions(0))
        raise RuntimeError("the query has failed")

    options = sink_options(cluster)
    with pytest.raises(RuntimeError, match="the query has failed"):
        write(broken(), options)
    write([rows([b"b"], partition=partitions(0))], options)
    assert len(cluster.producer_ids) == 2


def test_a_batch_counts_until_its_last_slice_is_gone() -> None:
    held, batch = BatchMemory(), columns([b"x" * 1000] * 10)
    held.hold(batch)
    size = held.bytes
    assert 10_000 <= size < 10_200
    slices = [RecordSlices.of(batch, n, n + 1, 1000) for n in range(10)]
    del batch
    del slices[1:]
    assert held.bytes == size
    slices.clear()
    assert held.bytes == 0


def test_copied_records_do_not_hold_their_batch() -> None:
    held, batch = BatchMemory(), columns([b"%d" % n for n in range(10)])
    held.hold(batch)
    copied = batch.copy(3, 2)
    del batch
    assert held.bytes == 0
    assert copied.value is not None
    assert copied.value.to_pylist() == [b"3", b"4"]


def reader(topic: str | None) -> RowReader:
    return RowReader(SinkOptions(ClientOptions(()), ProducerOptions(), topic), clock=lambda: 1_700_000_000.5)


def test_an_error_counts_the_rows_of_the_task_from_its_first_batch() -> None:
    rows = reader(topic=None)
    for _ in range(2):
        rows.read(pa.record_batch({"value": [b"a", b"b", b"c"], "topic": ["t", "t", "t"]}))
    with pytest.raises(EncodeError, match="row 7 of the task: null topic"):
        rows.read(pa.record_batch({"value": [b"a", b"b"], "topic": ["t", None]}))


MIB = 1 << 20
BUFFER = 8 * MIB
BATCH = 4 * MIB
"""Of the Arrow batches that the task gets."""
BATCHES = 16
BROKERS = 8
MOST = BUFFER + BUFFER // 2 + 6 * BATCH
"""Half of `buffer.memory` more, for batches that are held by a few of their records. And a constant: the batch that the
task gives, the Python values it was made of, the batch before, the records by partition, and what is encoded."""

WRITE_AND_MEASURE = """
import sys
import numpy as np
import pyarrow as pa
from streamgroup.executor.write.sink_writer import write
from streamgroup.model import TopicPartition
from streamgroup.options.parse import parse_sink
from streamgroup.kafka.producer.machine import Producer

servers, topic, buffer, size, count, brokers, order, silent = sys.argv[1:]
options = parse_sink({
    "kafka.bootstrap.servers": servers, "topic": topic, "kafka.buffer.memory": buffer, "kafka.batch.size": "65536",
    # The brokers answer as soon as they are told to, however slow the machine is.
    "kafka.request.timeout.ms": "100000", "kafka.delivery.timeout.ms": "200000", "kafka.max.block.ms": "200000",
})
ROWS = 1000
value = int(size) // ROWS
partitions = np.arange(ROWS, dtype=np.int32) % int(brokers)
if order == "sorted":
    partitions.sort()

def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024

def batches(count):
    for number in range(count):
        values = pa.array([b"%d/%d/" % (number, row) + b"x" * (value - 20) for row in range(ROWS)], pa.binary())
        yield pa.record_batch({"value": values, "partition": pa.array(partitions)})
    say_stuck()

said = []
def say_stuck():
    if "warm" in said and "stuck" not in said:
        said.append("stuck")
        print("stuck", flush=True)

has_room = Producer.has_room.fget
def look(producer):
    has = has_room(producer)
    waiting = sum(producer.queued_bytes(TopicPartition(topic, number)) for number in range(int(silent)))
    if not has and producer.buffered_bytes == waiting:
        say_stuck()  # there is no room before a silent broker answers
    return has
Producer.has_room = property(look)

write(batches(2), options)
said.append("warm")
print("warm", flush=True)
sys.stdin.readline()
before = status("VmRSS")
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak begins anew
written = write(batches(int(count)), options)
print(status("VmHWM") - before, written.records, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("order", "silent"), [("mixed", 1), ("sorted", 1), ("mixed", BROKERS)])
def test_a_write_holds_little_more_than_buffer_memory(start_cluster: Start, order: str, silent: int) -> None:
    cluster = start_cluster(BROKERS, {TOPIC: BROKERS}, max_message_bytes=MIB)
    servers = ",".join(f"{host}:{port}" for host, port in cluster.addresses)
    numbers = [str(each) for each in (BUFFER, BATCH, BATCHES, BROKERS)]
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE_AND_MEASURE, servers, TOPIC, *numbers, order, str(silent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Arrays are returned to the system as soon as they are freed: what counts is what the writer holds.
        env=os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_MMAP_THRESHOLD_": "32768"},
    )
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "warm\n"
        released = [cluster.hold(node) for node in range(silent)]
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "stuck\n", "it waits for the silent brokers, or has read all batches"
        for each in released:
            each.set()
        grown, records = map(int, process.stdout.readline().split())
    assert records == BATCHES * 1000
    assert grown < MOST, f"{grown / MIB:.1f} MiB"


HERE, THERE = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_a_batch_without_an_offset_leaves_the_known_ones() -> None:
    written = WriteTotals()
    written.add(HERE, 1, 5, -1)
    assert written.partitions[HERE] == PartitionWritten(1, 5, -1, -1)
    written.add(HERE, 2, 10, 4)
    written.add(HERE, 1, 5, -1)
    assert written.partitions[HERE] == PartitionWritten(4, 20, 4, 5)


def test_tasks_are_merged_by_partition() -> None:
    one, other, unknown = WriteTotals(), WriteTotals(), WriteTotals()
    one.notes.add("seen by one")
    one.add(HERE, 2, 20, 5)
    other.add(HERE, 1, 10, 0)
    other.add(THERE, 1, 7, 3)
    unknown.add(HERE, 1, 10, -1)
    total = WriteTotals()
    for each in (unknown, one, other):
        total.merge(each)
    assert total.partitions == {HERE: PartitionWritten(4, 40, 0, 6), THERE: PartitionWritten(1, 7, 3, 3)}
    assert total.notes == {"seen by one"}
    assert one.partitions == {HERE: PartitionWritten(2, 20, 5, 6)}


def test_the_producers_and_the_latest_append_time_are_kept() -> None:
    one, other = WriteTotals(), WriteTotals()
    one.add(HERE, 1, 5, 0, log_append_time_ms=1_700_000_000_500, producer=ProducerIdentity(4001, 0))
    one.add(HERE, 1, 5, 1, log_append_time_ms=1_700_000_000_123, producer=ProducerIdentity(4001, 1))
    other.add(HERE, 1, 5, 2, log_append_time_ms=-1, producer=NO_IDENTITY)
    other.merge(one)
    assert other.partitions[HERE].log_append_time_ms == 1_700_000_000_500
    assert other.producers == {ProducerIdentity(4001, 0), ProducerIdentity(4001, 1)}


def test_the_details_name_partitions_in_order_offsets_times_and_producers() -> None:
    written = WriteTotals()
    written.add(THERE, 2, 10, 4, log_append_time_ms=1_700_000_000_500, producer=ProducerIdentity(4001, 2))
    written.add(HERE, 1, 5, -1)
    assert list(written.details()) == [
        "orders-0: 1 record (5 bytes)",
        "orders-1: 2 records (10 bytes) at offsets 4 to 5, last appended at 1700000000500 ms (LogAppendTime)",
        "producer ids: 4001 (epoch 2)",
    ]

"""From Arrow batches to records in the logs of a scripted cluster."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from streamgroup.errors import EncodeError, ErrorCode, RecordTooLargeError, UnknownPartition, UnknownTopicError
from streamgroup.executor.pools import ProducerPool
from streamgroup.executor.write import sink_writer
from streamgroup.executor.write.producer import RecordSlices, TaskProducer
from streamgroup.executor.write.sink_writer import BatchMemory, RowReader, SinkWriter, write
from streamgroup.kafka.wire.messages.topics import DescribeConfigsRequest
from streamgroup.model import TopicPartition
from streamgroup.options.types import ClientOptions, ProducerOptions, SinkOptions
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.unit.executor.producing import TOPIC, client_of, clock_of_metadata, columns, producer_options
from tests.unit.kafka.records import reference
from tests.waiting import wait_until

Start = Callable[..., ScriptedCluster]
Open = Callable[..., TaskProducer]


def sink_options(cluster: ScriptedCluster, topic: str | None = TOPIC, **others: Any) -> SinkOptions:
    return SinkOptions(client_of(cluster), producer_options(**others), topic)


def rows(values: list[bytes | None], **others: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary()), **others})


def partitions(*numbers: int) -> pa.Array:
    return pa.array(numbers, pa.int32())


def test_rows_lie_in_the_partitions_that_they_name(start_cluster: Start) -> None:
    cluster = start_cluster()
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


def test_a_task_without_rows_writes_nothing(start_cluster: Start) -> None:
    cluster = start_cluster()
    assert write([rows([])], sink_options(cluster)).partitions == {}
    assert cluster.requests == []


def test_rows_without_a_timestamp_get_the_time_of_the_write(start_cluster: Start, open_producer: Open) -> None:
    cluster = start_cluster()
    producer = open_producer(cluster)
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
def test_without_acknowledgements_batches_are_cut_at_the_limit_of_the_topic(
    start_cluster: Start, compression: str
) -> None:
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
def test_rows_of_a_topic_that_was_created_again_with_fewer_partitions_are_routed_again(
    start_cluster: Start, with_keys: bool
) -> None:
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


def test_a_partition_that_does_not_exist_fails_after_one_refresh(start_cluster: Start) -> None:
    cluster = start_cluster()
    with pytest.raises(UnknownPartition):
        write([rows([b"a"], partition=partitions(7))], sink_options(cluster))
    assert len(cluster.brokers[0].asked("Metadata")) == 2
    assert cluster.requests == []


def test_a_row_without_a_topic_names_itself(start_cluster: Start) -> None:
    cluster = start_cluster()
    with pytest.raises(EncodeError, match="row 1"):
        write([rows([b"a", b"b"], topic=pa.array([TOPIC, None]))], sink_options(cluster, topic=None))


def test_a_missing_topic_fails_in_time_and_the_next_task_goes_on(
    start_cluster: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_what_the_rows_iterator_raises_ends_the_task(start_cluster: Start) -> None:
    cluster = start_cluster()

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


def test_records_have_the_time_of_the_read() -> None:
    columns, records = reader("orders").read(pa.record_batch({"value": pa.array([b"a", None]), "key": [b"k", None]}))
    assert columns.topic == "orders"
    assert (records.value, records.key, records.headers) == (columns.value, columns.key, None)
    assert records.timestamp_ms.tolist() == [1_700_000_000_500] * 2


def test_an_error_counts_the_rows_of_the_task_from_its_first_batch() -> None:
    rows = reader(topic=None)
    for _ in range(2):
        rows.read(pa.record_batch({"value": [b"a", b"b", b"c"], "topic": ["t", "t", "t"]}))
    with pytest.raises(EncodeError, match="row 7 of the task: null topic"):
        rows.read(pa.record_batch({"value": [b"a", b"b"], "topic": ["t", None]}))

"""Broker-partitions, message sets and requests of a producer of Kafka 0.7."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import ConfigError, ProduceError, RecordTooLargeError, UnknownTopicError
from streamgroup.kafka.producer import kafka07
from streamgroup.kafka.producer.kafka07 import Kafka07Config, fits, produce_request, require_partition, topic07
from streamgroup.kafka.producer.partitioners import Partitioner, ProducerTopic
from streamgroup.kafka.wire.kafka07 import MultiProduceRequest07, ProduceRequest07, message_set07
from streamgroup.logformat import KAFKA07_LOG, broker_partition
from streamgroup.model import Broker, ClusterSnapshot, Dialect, PartitionInfo, TopicInfo, TopicPartition
from streamgroup.testing.kafka07 import Compressed, message_set
from tests.fakes.broker07 import tp
from tests.kafka07_samples import samples
from tests.unit.kafka.producer import reference


def snapshot(brokers: tuple[int, ...], **topics: tuple[TopicPartition, ...]) -> ClusterSnapshot:
    infos = {
        topic: TopicInfo(topic, tuple(PartitionInfo(p.partition, broker_partition(p.partition)[0]) for p in partitions))
        for topic, partitions in topics.items()
    }
    return ClusterSnapshot({b: Broker(b, "127.0.0.1", 9092 + b) for b in brokers}, infos, dialect=Dialect.KAFKA07)


def names(info: TopicInfo) -> list[str]:
    return [KAFKA07_LOG.partition_name(p.partition) for p in info.partitions]


# -- broker-partitions -------------------------------------------------------------------------------------------------


def test_broker_partitions_are_sorted_by_broker_id_and_then_by_partition_as_numbers() -> None:
    theirs = tuple(tp(broker, partition) for broker in (10, 2) for partition in (11, 2, 0))
    found = topic07(snapshot((2, 10), events=theirs), "events")
    assert names(found) == ["2-0", "2-2", "2-11", "10-0", "10-2", "10-11"]


def test_a_new_topic_goes_to_partition_0_of_each_live_broker() -> None:
    found = topic07(snapshot((7, 0, 3)), "new")
    assert names(found) == ["0-0", "3-0", "7-0"]


def test_a_topic_whose_brokers_are_all_gone_is_new_to_the_live_ones() -> None:
    found = topic07(snapshot((1,), events=(tp(0, 0), tp(0, 1))), "events")
    assert names(found) == ["1-0"]


def test_only_partitions_of_live_brokers_are_chosen() -> None:
    found = topic07(snapshot((1,), events=(tp(0, 0), tp(1, 0), tp(1, 1))), "events")
    assert names(found) == ["1-0", "1-1"]


def test_without_a_live_broker_the_error_says_what_to_look_at() -> None:
    with pytest.raises(UnknownTopicError, match=r"topic events: no broker of Kafka 0\.7 is registered in ZooKeeper"):
        topic07(snapshot(()), "events")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\x00", "t" * 256])
def test_a_name_at_which_a_broker_hangs_up_is_refused_before_anything_is_sent(name: str) -> None:
    with pytest.raises(ProduceError, match="cannot make a directory of that name"):
        topic07(snapshot((0,)), name)


def test_the_column_partition_may_name_any_registered_partition_or_any_of_a_broker_without_the_topic() -> None:
    require_partition(snapshot((0, 2), events=(tp(2, 17),)), tp(2, 17))
    require_partition(snapshot((0, 2), events=(tp(2, 0),)), tp(0, 5))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (tp(1, 0), r"events 1-0 \(partition 10000\): broker 1 is not registered in ZooKeeper, but 0, 2"),
        (tp(2, 1), r"events 2-1 \(partition 20001\): broker 2 has 1 partition of the topic"),
        (TopicPartition("events", -1), "is not registered"),
    ],
)
def test_a_partition_that_cannot_be_written_to_is_an_error(where: TopicPartition, expected: str) -> None:
    with pytest.raises(UnknownTopicError, match=expected):
        require_partition(snapshot((0, 2), events=(tp(2, 0),)), where)


HASHED = {"": 0, "a": 2, "test": 3, "hello": 2}
"""Scala's `math.abs(key.hashCode) % 5`. The hashes are 0, 97, 3556498 and 99162322."""


def test_a_key_chooses_by_the_absolute_value_of_its_java_hash() -> None:
    info = topic07(snapshot((0, 1), events=(tp(0, 0), tp(0, 1), tp(1, 0), tp(1, 1), tp(1, 2))), "events")
    keys = [*HASHED, *(f"key-{i}" for i in range(100))]
    partitioner = Partitioner("hashcode", batch_size=1, rng=np.random.default_rng(1))
    found = partitioner.partitions(ProducerTopic.of(info), pa.array(keys), np.ones(len(keys), np.int64))
    numbers = [each.partition for each in info.partitions]
    assert found.tolist() == [numbers[reference.kafka08_abs(reference.string_hash(key)) % 5] for key in keys]
    assert [numbers.index(p) for p in found[:4].tolist()] == list(HASHED.values())


def test_a_record_without_a_key_goes_to_any_broker_partition() -> None:
    info = topic07(snapshot((0, 4)), "new")
    partitioner = Partitioner("hashcode", batch_size=1, rng=np.random.default_rng(1))
    found = partitioner.partitions(ProducerTopic.of(info), None, np.ones(100, np.int64))
    assert set(found.tolist()) == {0, 40_000}


# -- message sets ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Encoded:
    """The result of the encoder for the records `[start, stop)`."""

    start: int
    stop: int
    size: int

    @property
    def count(self) -> int:
        return self.stop - self.start


def encoded(payloads: list[bytes], codec: str = "none", **config: int) -> list[Encoded]:
    def encode(start: int, stop: int) -> Encoded:
        part = payloads[start:stop]
        return Encoded(start, stop, len(message_set([Compressed(codec, part)] if codec != "none" else part)))

    sizes = np.array([len(payload) + 10 for payload in payloads], np.int64)
    return list(kafka07.message_sets07(sizes, codec != "none", encode, Kafka07Config(**config)))


def test_a_record_at_the_maximum_is_written_and_one_above_it_is_refused() -> None:
    assert len(encoded([b"x" * 100], max_message_size=100)) == 1
    with pytest.raises(RecordTooLargeError, match=r"a message of 101 bytes, and max\.message\.size is 100"):
        encoded([b"a", b"x" * 101], max_message_size=100)


def test_a_compressed_set_above_the_maximum_is_divided_until_it_fits() -> None:
    rng = np.random.default_rng(7)
    payloads = [rng.bytes(100) for _ in range(40)]
    sets = encoded(payloads, "gzip", max_message_size=1000)
    assert [each.start for each in sets] == [0, *(each.stop for each in sets[:-1])]
    assert sets[-1].stop == 40
    assert len(sets) > 4
    assert all(each.size - 10 <= 1000 for each in sets)


def test_a_record_that_does_not_fit_even_compressed_is_refused() -> None:
    with pytest.raises(RecordTooLargeError, match=r"max\.message\.size at all of them first"):
        encoded([b"a", np.random.default_rng(7).bytes(2000)], "gzip", max_message_size=1000)


def test_a_record_that_fits_once_it_is_compressed_is_written() -> None:
    assert [each.count for each in encoded([b"x" * 5000], "gzip", max_message_size=1000)] == [1]


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(1, 500), st.sampled_from(["none", "gzip", "snappy"]))
def test_every_record_is_in_one_set_in_its_order(lengths: list[int], batch_size: int, codec: str) -> None:
    payloads = [b"%0*d" % (length, 1) for length in lengths]
    sets = encoded(payloads, codec, batch_size=batch_size)
    assert [(each.start, each.stop) for each in sets] == sorted((each.start, each.stop) for each in sets)
    assert [i for each in sets for i in range(each.start, each.stop)] == list(range(len(payloads)))
    for each, after in itertools.pairwise(sets):
        size = sum(lengths[i] + 10 for i in range(each.start, each.stop))
        assert size <= batch_size or each.count == 1
        assert size + lengths[after.start] + 10 > batch_size


def test_codecs_of_later_kafkas_are_refused_and_verify_needs_more_time_than_a_flush_takes() -> None:
    with pytest.raises(ConfigError, match=r"'lz4': Kafka 0\.7 has none, gzip, snappy"):
        Kafka07Config(codec="lz4")
    with pytest.raises(ConfigError, match=r"delivery\.timeout\.ms=20000 is below"):
        Kafka07Config(verify=True, delivery_timeout_ms=20_000)


# -- requests ----------------------------------------------------------------------------------------------------------


def test_one_set_is_a_produce_and_several_are_a_multiproduce() -> None:
    a, b = message_set07([b"a"]), message_set07([b"b"])
    first = ProduceRequest07("events", 17, a)
    assert produce_request([(tp(2, 17), a)]) == first
    many = produce_request([(tp(2, 17), a), (tp(2, 0, "other"), b)])
    assert many == MultiProduceRequest07((first, ProduceRequest07("other", 0, b)))


def test_a_produce_is_written_as_the_one_that_was_captured() -> None:
    sample = next(each for each in samples() if each.name == 'PRODUCE one magic-1 message "hello" to t1/0')
    assert produce_request([(tp(0, 0, "t1"), message_set07([b"hello"]))]).encode() == sample.sent


@given(st.lists(st.integers(0, 400), min_size=1, max_size=30))
def test_a_request_takes_sets_up_to_its_maximum_and_one_at_least(sizes: list[int]) -> None:
    config = Kafka07Config(max_request_size=300)
    count = total = 0
    while count < len(sizes) and fits(count, total, sizes[count], config):
        total += sizes[count]
        count += 1
    assert count >= 1
    assert total <= 300 or count == 1
    assert count == len(sizes) or total + sizes[count] > 300

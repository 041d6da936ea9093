from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.errors import DecodeError, Truncated, UnsupportedVersionError
from streamgroup.kafka.wire import consumer
from streamgroup.kafka.wire.consumer import TopicPartitions, decode_subscription, encode_subscription
from streamgroup.model import TopicPartition
from tests.unit.kafka.wire.declared import instances

FOO = "0003666f6f"
OWNED = (TopicPartitions(topic="foo", partitions=(0, 2)),)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (0, f"0000 00000001 {FOO} ffffffff"),
        (1, f"0001 00000001 {FOO} ffffffff 00000001 {FOO} 00000002 00000000 00000002"),
        (2, f"0002 00000001 {FOO} ffffffff 00000001 {FOO} 00000002 00000000 00000002 00000005"),
        (3, f"0003 00000001 {FOO} ffffffff 00000001 {FOO} 00000002 00000000 00000002 00000005 00027231"),
    ],
)
def test_a_subscription_as_it_is_laid_out(version: int, body: str) -> None:
    full = consumer.ConsumerSubscription(topics=("foo",), owned_partitions=OWNED, generation_id=5, rack_id="r1")
    data = bytes.fromhex(body)
    assert encode_subscription(full, version) == data
    assert encode_subscription(decode_subscription(data), version) == data


def test_an_assignment_as_it_is_laid_out() -> None:
    data = bytes.fromhex(f"0003 00000001 {FOO} 00000002 00000000 00000002 00000002abcd")
    assignment = consumer.ConsumerAssignment(assigned_partitions=OWNED, user_data=b"\xab\xcd")
    assert consumer.encode_assignment(assignment) == data
    assert consumer.decode_assignment(data) == assignment


@settings(max_examples=60, deadline=None)
@given(data=st.data(), version=st.integers(0, consumer.LATEST), more=st.binary(max_size=4))
def test_bytes_behind_the_last_known_field_are_ignored(data: st.DataObject, version: int, more: bytes) -> None:
    subscription = data.draw(instances(consumer.ConsumerSubscription, version))
    assert decode_subscription(encode_subscription(subscription, version) + more) == subscription


@pytest.mark.parametrize("version", [4, 32767])
def test_a_newer_version_is_read_as_the_newest_known(version: int) -> None:
    subscription = consumer.ConsumerSubscription(topics=("foo",), generation_id=5, rack_id="r1")
    data = version.to_bytes(2, "big") + encode_subscription(subscription)[2:] + b"new field"
    assert decode_subscription(data) == subscription
    with pytest.raises(UnsupportedVersionError):
        encode_subscription(subscription, version)


@pytest.mark.parametrize("data", ["", "00", "0000", "0001 00000000 ffffffff"])
def test_a_subscription_that_ends_too_early(data: str) -> None:
    with pytest.raises(Truncated):
        decode_subscription(bytes.fromhex(data))


def test_a_negative_version_is_refused() -> None:
    with pytest.raises(DecodeError, match="version -1"):
        consumer.decode_assignment(b"\xff\xff" + bytes(8))


def test_partitions_are_gathered_by_topic_and_spread_again() -> None:
    partitions = [TopicPartition("b", 1), TopicPartition("a", 10), TopicPartition("a", 9)]
    rows = consumer.by_topic(partitions)
    assert rows == (TopicPartitions(topic="a", partitions=(9, 10)), TopicPartitions(topic="b", partitions=(1,)))
    assert consumer.each_partition(rows) == tuple(sorted(partitions))

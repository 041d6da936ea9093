"""A cluster of brokers before 0.10: what is asked of them, and what their answers mean."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest

from streamgroup.errors import BrokerError, TransportError, error_of
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.cluster.requests import NO_OFFSET, ListedOffset
from streamgroup.kafka.wire.messages.cluster import (
    ApiVersionsRequest,
    MetadataRequest,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from streamgroup.kafka.wire.messages.log import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from streamgroup.model import EARLIEST, LATEST, NO_LEADER, TopicPartition
from streamgroup.options.types import ClientOptions, Isolation
from tests.clock import Clock
from tests.fakes.answers import api_versions, metadata, topic
from tests.fakes.broker import SILENCE, FakeBroker
from tests.fakes.old_broker import old_broker
from tests.unit.kafka.cluster.test_kafka import Two, offsets, script
from tests.waiting import soon

Start = Callable[..., FakeBroker]
Options = Callable[..., ClientOptions]


TP = TopicPartition("orders", 0)
YET_TO_COME = 10**15


def first_then(first: Any, then: Callable[..., Any]) -> Callable[..., Any]:
    """Answers `first` once, then what `then` says."""
    left = [first]
    return lambda *asked: left.pop() if left else then(*asked)


def of_segments(*starts: int) -> Any:
    """A broker before 0.10.1: it knows where segments start, and takes the timestamps asked for as their files' times.

    The last one is the end of the log, which counts as of now.
    """

    def answer(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        assert version == 0
        topics = []
        for each in request.topics:
            rows = []
            for p in each.partitions:
                assert p.max_num_offsets == 1
                older = {LATEST: starts, EARLIEST: starts[:1], YET_TO_COME: starts}.get(
                    p.timestamp, tuple(s for s in starts[:-1] if s <= p.timestamp)
                )
                rows.append(
                    ListOffsetsPartitionResponse(partition_index=p.partition_index, old_style_offsets=older[-1:])
                )
            topics.append(ListOffsetsTopicResponse(name=each.name, partitions=tuple(rows)))
        return ListOffsetsResponse(topics=tuple(topics))

    return answer


@pytest.mark.parametrize(
    ("at", "offset"),
    [(EARLIEST, 100), (LATEST, 350), (250, 200), (200, 200), (199, 100), (99, 100), (349, 300), (YET_TO_COME, 350)],
)
@pytest.mark.parametrize("isolation", Isolation)
def test_offsets_of_a_broker_that_knows_the_times_of_segments_only(
    isolation: Isolation, at: int, offset: int, broker: Start, options: Options
) -> None:
    """Never beyond the first record of that time: the newest segment not written to since, else the earliest."""
    fake = old_broker(
        broker,
        "0.9",
        Metadata=lambda *_: metadata({1: fake.port}, topic("orders", 1)),
        ListOffsets=of_segments(100, 200, 300, 350),
    )
    listed = KafkaCluster(options(fake.port)).list_offsets({TP: at}, isolation, soon())
    assert listed == {TP: ListedOffset(offset)}


def test_a_timestamp_that_no_record_is_as_late_as_has_no_offset(broker: Start, options: Options) -> None:
    two = Two(
        broker,
        first={ListOffsetsRequest: lambda request, _: offsets(request, (0, -1))},
        second={ListOffsetsRequest: lambda request, _: offsets(request, (0, 20))},
    )
    tps = [TopicPartition("orders", partition) for partition in (0, 1)]
    listed = KafkaCluster(options(two.first.port)).list_offsets(
        dict.fromkeys(tps, 1_000), Isolation.READ_UNCOMMITTED, soon()
    )
    assert [listed[tp].offset for tp in tps] == [NO_OFFSET, 20]


@pytest.mark.parametrize("newest", [0, 1, 3])
def test_asking_an_old_broker_for_a_topic_does_not_create_it(newest: int, broker: Start, options: Options) -> None:
    """It is asked for all topics; what is wanted, and what is wrong with it, is taken from those."""
    answer = metadata({1: 1}, topic("orders", 1), topic("else", 1), topic("coming", error=5))
    fake = broker(
        {ApiVersionsRequest: script(api_versions(metadata=(0, newest))), MetadataRequest: script(lambda _: answer)}
    )
    cluster = KafkaCluster(options(fake.port))
    assert set(cluster.snapshot(["orders", "missing"], soon()).topics) == {"orders"}
    assert set(cluster.snapshot((), soon(), refresh=True).topics) == set()
    named, nothing = fake.asked("Metadata")
    assert named.topics == (() if newest == 0 else None)
    assert nothing.topics == ()


def test_the_bootstrap_servers_are_tried_one_after_the_other_until_one_answers(broker: Start, options: Options) -> None:
    """Kafka 0.8: cycle through the list until one can be connected to; what it tells is asked from then on."""
    clock = Clock()
    hangs_up, mute = broker({}), broker({ApiVersionsRequest: clock.before(0.02, SILENCE)})
    answers = old_broker(broker, "0.8.2", Metadata=lambda *_: metadata({1: answers.port}, topic("orders", 1)))
    for order in itertools.permutations([hangs_up.port, mute.port, 1, answers.port]):
        before = hangs_up.connections
        cluster = KafkaCluster(options(*order, connection_setup_timeout_ms=20), clock=clock, sleep=clock.sleep)
        assert cluster.snapshot(["orders"], clock.now + 10).leader(TP) is not None
        assert cluster.call(MetadataRequest(topics=()), 1, clock.now + 10).topics
        cluster.close()
        assert (hangs_up.connections > before) is (order.index(hangs_up.port) < order.index(answers.port))


def test_the_bootstrap_servers_are_tried_in_the_order_of_the_list(options: Options) -> None:
    for order in itertools.permutations([1, 2, 3]):
        cluster = KafkaCluster(options(*order, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000))
        with pytest.raises(TransportError, match=" after 1 attempt ") as caught:
            cluster.snapshot(None, soon(30))
        refused = re.findall(r"cannot connect to broker 127\.0\.0\.1:(\d+)", str(caught.value))
        assert [int(port) for port in refused] == list(order)


def test_an_error_that_the_metadata_has_caused_refreshes_it(broker: Start, options: Options) -> None:
    """Kafka 0.8: the metadata is cached until an answer contradicts it; then it is asked for anew."""
    leaders = [2, 1]
    first = old_broker(
        broker,
        "0.8.2",
        Metadata=lambda *_: metadata({1: first.port, 2: second.port}, topic("orders", leaders.pop(0))),
        ListOffsets=of_segments(0, 7),
    )
    second = old_broker(broker, "0.8.2", ListOffsets=lambda request, _: offsets_v0(request, 6))
    cluster = KafkaCluster(options(first.port))
    cluster.snapshot(["orders"], soon())
    assert cluster.list_offsets({TP: LATEST}, Isolation.READ_UNCOMMITTED, soon()) == {TP: ListedOffset(7)}
    asked = len(first.asked("Metadata"))
    assert cluster.list_offsets({TP: LATEST}, Isolation.READ_UNCOMMITTED, soon()) == {TP: ListedOffset(7)}
    assert len(first.asked("Metadata")) == asked


def offsets_v0(request: ListOffsetsRequest, code: int) -> ListOffsetsResponse:
    """The same error for all."""
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=each.name,
                partitions=tuple(
                    ListOffsetsPartitionResponse(partition_index=p.partition_index, error_code=code)
                    for p in each.partitions
                ),
            )
            for each in request.topics
        )
    )


# -- error codes of the protocol guide of 0.8 and 0.9 ------------------------------------------------------------------


def test_an_unknown_topic_is_absent(broker: Start, options: Options) -> None:
    fake = old_broker(broker, "0.9", Metadata=lambda *_: metadata({1: fake.port}, topic("orders", error=3)))
    assert KafkaCluster(options(fake.port)).snapshot(["orders"], soon()).topics == {}


def test_a_topic_without_leaders_yet_is_asked_for_again(broker: Start, options: Options) -> None:
    coming = first_then(metadata({1: 9}, topic("orders", error=5)), lambda *_: metadata({1: 9}, topic("orders", 1)))
    fake = old_broker(broker, "0.9", Metadata=coming)
    assert KafkaCluster(options(fake.port)).snapshot(["orders"], soon()).leader(TP) is not None


@pytest.mark.parametrize("code", [17, 29])
def test_a_topic_that_cannot_be_asked_for_is_an_error_with_its_name(code: int, broker: Start, options: Options) -> None:
    fake = old_broker(broker, "0.9", Metadata=lambda *_: metadata({1: 9}, topic("orders", error=code)))
    with pytest.raises(BrokerError, match=f"topic 'orders': {error_of(code).name}"):
        KafkaCluster(options(fake.port)).snapshot(["orders"], soon())


@pytest.mark.parametrize(("code", "leader"), [(5, NO_LEADER), (9, 1)])
def test_a_partition_has_a_leader_whatever_its_replicas_are(
    code: int, leader: int, broker: Start, options: Options
) -> None:
    """REPLICA_NOT_AVAILABLE tells of another replica, and can be ignored; without a leader the partition waits."""
    row = MetadataResponsePartition(
        error_code=code, partition_index=0, leader_id=leader, replica_nodes=(1, 2), isr_nodes=(1,)
    )
    answer = MetadataResponseTopic(error_code=0, name="orders", partitions=(row,))
    fake = old_broker(broker, "0.9", Metadata=lambda *_: metadata({1: 9}, answer))
    info = KafkaCluster(options(fake.port)).snapshot(["orders"], soon()).topics["orders"].partitions[0]
    assert (info.leader, info.replicas, info.in_sync) == (leader, (1, 2), (1,))


def test_a_broker_is_its_id_host_and_port(broker: Start, options: Options) -> None:
    fake = old_broker(broker, "0.9", Metadata=lambda *_: metadata({7: fake.port}, topic("orders", 7)))
    leader = KafkaCluster(options(fake.port)).snapshot(["orders"], soon()).leader(TP)
    told = MetadataResponseBroker(node_id=7, host="127.0.0.1", port=fake.port)
    assert leader is not None
    assert (leader.node_id, leader.host, leader.port) == (told.node_id, told.host, told.port)


@pytest.mark.parametrize("code", [3, 6])
def test_offsets_that_the_broker_lacks_are_requested_again_after_new_metadata(
    code: int, broker: Start, options: Options
) -> None:
    answer, codes = of_segments(0, 7), [code]
    fake = old_broker(
        broker,
        "0.9",
        Metadata=lambda *_: metadata({1: fake.port}, topic("orders", 1)),
        ListOffsets=lambda request, version: offsets_v0(request, codes.pop()) if codes else answer(request, version),
    )
    listed = KafkaCluster(options(fake.port)).list_offsets({TP: LATEST}, Isolation.READ_UNCOMMITTED, soon())
    assert listed == {TP: ListedOffset(7)}


def test_an_unknown_error_is_retried_and_reported_with_the_partition(broker: Start, options: Options) -> None:
    fake = old_broker(
        broker,
        "0.9",
        Metadata=lambda *_: metadata({1: fake.port}, topic("orders", 1)),
        ListOffsets=lambda request, _: offsets_v0(request, -1),
    )
    clock = Clock()
    cluster = KafkaCluster(options(fake.port), clock=clock, sleep=clock.sleep)
    with pytest.raises(TransportError, match="orders-0: UNKNOWN_SERVER_ERROR"):
        cluster.list_offsets({TP: LATEST}, Isolation.READ_UNCOMMITTED, clock.now + 0.3)
    assert len(fake.asked("ListOffsets")) > 1

"""Every error code that the protocol guide of 0.8 and 0.9 has for metadata, offsets of logs and what tools ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamgroup.cluster.admin import describe_groups, list_groups
from streamgroup.cluster.kafka import KafkaCluster
from streamgroup.cluster.requests import ListedOffset
from streamgroup.errors import BrokerError, TransportError, error_of
from streamgroup.model import LATEST, NO_LEADER, GroupDescription, GroupListing, TopicPartition
from streamgroup.options.types import ClientOptions, Isolation
from streamgroup.wire.messages.admin import (
    DescribedGroup,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsResponse,
)
from streamgroup.wire.messages.cluster import MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from streamgroup.wire.messages.coordinator import FindCoordinatorResponse
from tests.unit.cluster.test_kafka_old import of_segments, offsets_v0
from tests.unit.net.answers import metadata, topic
from tests.unit.net.fake_broker import FakeBroker
from tests.unit.net.old_broker import old_broker
from tests.waiting import soon

Start = Callable[..., FakeBroker]
Options = Callable[..., ClientOptions]

TP = TopicPartition("orders", 0)


def first_then(first: Any, then: Callable[..., Any]) -> Callable[..., Any]:
    """Answers `first` once, then what `then` says."""
    left = [first]
    return lambda *asked: left.pop() if left else then(*asked)


# -- metadata ----------------------------------------------------------------------------------------------------------


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


# -- offsets of logs ---------------------------------------------------------------------------------------------------


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
    with pytest.raises(TransportError, match="orders-0: UNKNOWN_SERVER_ERROR"):
        KafkaCluster(options(fake.port)).list_offsets({TP: LATEST}, Isolation.READ_UNCOMMITTED, soon(0.3))
    assert len(fake.asked("ListOffsets")) > 1


# -- what tools ask ----------------------------------------------------------------------------------------------------


def keeper(broker: Start, **handlers: Any) -> FakeBroker:
    """A broker of 0.9 that coordinates every group."""
    fake: FakeBroker = old_broker(
        broker,
        "0.9",
        Metadata=lambda *_: metadata({1: fake.port}),
        FindCoordinator=lambda *_: FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=fake.port),
        **handlers,
    )
    return fake


ONE = ListedGroup(group_id="g", protocol_type="consumer")


def test_a_list_of_groups_waits_for_its_coordinators(broker: Start, options: Options) -> None:
    # The first answer is that to the probe of the handshake.
    answers = [ListGroupsResponse(), ListGroupsResponse(error_code=15), ListGroupsResponse(groups=(ONE,))]
    fake = keeper(broker, ListGroups=lambda *_: answers.pop(0) if len(answers) > 1 else answers[0])
    assert list_groups(KafkaCluster(options(fake.port)), soon()) == {"g": GroupListing("g", "consumer")}


def test_a_list_of_groups_that_is_forbidden_is_an_error_with_the_broker(broker: Start, options: Options) -> None:
    fake = keeper(broker, ListGroups=lambda *_: ListGroupsResponse(error_code=29))
    with pytest.raises(BrokerError, match="the groups of broker 1: TOPIC_AUTHORIZATION_FAILED"):
        list_groups(KafkaCluster(options(fake.port)), soon())


STABLE = DescribedGroup(error_code=0, group_id="g", group_state="Stable", protocol_type="consumer")


def described(code: int) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=(DescribedGroup(error_code=code, group_id="g"),))


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_description_waits_for_its_coordinator(code: int, broker: Start, options: Options) -> None:
    answers = first_then(described(code), lambda *_: DescribeGroupsResponse(groups=(STABLE,)))
    fake = keeper(broker, DescribeGroups=answers)
    assert describe_groups(KafkaCluster(options(fake.port)), ["g"], soon()) == {
        "g": GroupDescription("g", "Stable", "consumer")
    }
    assert len(fake.asked("FindCoordinator")) == 2, "it may have moved"


@pytest.mark.parametrize("code", [29, 30])
def test_a_description_that_is_forbidden_is_an_error_with_the_group(code: int, broker: Start, options: Options) -> None:
    fake = keeper(broker, DescribeGroups=lambda *_: described(code))
    with pytest.raises(BrokerError, match=f"cannot describe group 'g': {error_of(code).name}"):
        describe_groups(KafkaCluster(options(fake.port)), ["g"], soon())

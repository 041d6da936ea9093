"""Requests of tools to brokers before 0.10: commits in ZooKeeper and in Kafka, of partitions by name; groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamgroup.errors import BrokerError, UnsupportedVersionError, error_of
from streamgroup.kafka.cluster.admin import committed, describe_groups, list_groups
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.wire.messages.admin import (
    DescribedGroup,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsResponse,
)
from streamgroup.kafka.wire.messages.coordinator import FindCoordinatorResponse
from streamgroup.kafka.wire.messages.offsets import NO_METADATA, OffsetFetchRequest, OffsetFetchResponse
from streamgroup.model import CommittedOffset, GroupDescription, GroupListing, TopicPartition
from streamgroup.options.types import ClientOptions
from tests.fakes.answers import metadata, topic
from tests.fakes.broker import FakeBroker
from tests.fakes.offsets import zookeepers_answer
from tests.fakes.old_broker import old_broker
from tests.unit.kafka.cluster.test_kafka import first_then
from tests.waiting import soon

Start = Callable[..., FakeBroker]
Options = Callable[..., ClientOptions]
TP = TopicPartition("orders", 1)
IN_ZOOKEEPER = {TP: CommittedOffset(5)}
IN_KAFKA = {TP: CommittedOffset(7)}


def holding(broker: Start, release: str) -> FakeBroker:
    """A broker of the topic `orders` with two partitions, and a group's commits: v0 are ZooKeeper's."""

    def offsets(request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        return zookeepers_answer(request, IN_KAFKA if version else IN_ZOOKEEPER)

    found: dict[str, Any] = {
        "Metadata": lambda *_: metadata({1: fake.port}, topic("orders", 1, 1)),
        "OffsetFetch": offsets,
    }
    if release != "0.8.1":
        found["FindCoordinator"] = lambda *_: FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=fake.port)
    fake = old_broker(broker, release, **found)
    return fake


@pytest.mark.parametrize("in_zookeeper", [None, True])
def test_without_coordinators_commits_are_zookeepers(
    in_zookeeper: bool | None, broker: Start, options: Options
) -> None:
    cluster = KafkaCluster(options(holding(broker, "0.8.1").port))
    assert committed(cluster, "g", soon(), in_zookeeper=in_zookeeper) == {TP: CommittedOffset(5, NO_METADATA)}


def test_with_both_offset_stores_the_caller_selects_one(broker: Start, options: Options) -> None:
    cluster = KafkaCluster(options(holding(broker, "0.8.2").port))
    assert committed(cluster, "g", soon(), in_zookeeper=True)[TP].offset == 5


def test_commits_in_kafka_cannot_be_asked_of_brokers_that_keep_none(broker: Start, options: Options) -> None:
    cluster = KafkaCluster(options(holding(broker, "0.8.1").port))
    with pytest.raises(UnsupportedVersionError, match=r"FindCoordinator .*\(Kafka 0\.8\.1\) does not have it"):
        committed(cluster, "g", soon(), in_zookeeper=False)


def test_groups_of_0_8_cannot_be_listed_by_its_brokers(broker: Start, options: Options) -> None:
    cluster = KafkaCluster(options(holding(broker, "0.8.2").port))
    with pytest.raises(UnsupportedVersionError, match=r"ListGroups .*\(Kafka 0\.8\.2\)"):
        list_groups(cluster, soon())
    with pytest.raises(UnsupportedVersionError, match=r"DescribeGroups .*\(Kafka 0\.8\.2\)"):
        describe_groups(cluster, ["g"], soon())


# -- error codes of the protocol guide of 0.8 and 0.9 ------------------------------------------------------------------


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

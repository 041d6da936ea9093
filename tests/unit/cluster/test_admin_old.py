"""What tools ask of brokers before 0.10: commits in ZooKeeper and in Kafka, of partitions by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamgroup.cluster.admin import committed, describe_groups, list_groups
from streamgroup.cluster.kafka import KafkaCluster
from streamgroup.errors import UnsupportedVersionError
from streamgroup.model import CommittedOffset, TopicPartition
from streamgroup.options.types import ClientOptions
from streamgroup.wire.messages.coordinator import FindCoordinatorResponse
from streamgroup.wire.messages.offsets import NO_METADATA, OffsetFetchRequest, OffsetFetchResponse
from tests.fakes.offsets import zookeepers_answer
from tests.unit.net.answers import metadata, topic
from tests.unit.net.fake_broker import FakeBroker
from tests.unit.net.old_broker import old_broker
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

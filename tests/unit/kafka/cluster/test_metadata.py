"""Metadata responses become the cluster that a query plans with, and are kept until they are too old."""

from __future__ import annotations

import pytest

from streamgroup.advice import Requester
from streamgroup.errors import AuthorizationError, BrokerError, ErrorCode
from streamgroup.kafka.cluster.metadata import MetadataCache, snapshot_of, wants_rebootstrap
from streamgroup.kafka.wire.messages.cluster import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from streamgroup.model import NO_LEADER, NO_TOPIC_ID, Broker, ClusterSnapshot, PartitionInfo, TopicInfo, TopicPartition
from tests.fakes.answers import METADATA, metadata, topic

ALICE = Requester("User:alice", "b:9092")
SNAPSHOT = ClusterSnapshot({}, {name: TopicInfo(name, ()) for name in ("orders", "returns")})


# -- requests ----------------------------------------------------------------------------------------------------------


# -- responses ---------------------------------------------------------------------------------------------------------


def test_a_response_becomes_brokers_with_racks_and_topics_with_sorted_partitions() -> None:
    rows = tuple(
        MetadataResponsePartition(
            partition_index=n, leader_id=leader, leader_epoch=3, replica_nodes=(1, 2), isr_nodes=(2,)
        )
        for n, leader in ((1, NO_LEADER), (0, 2))
    )
    response = MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=2, host="h2", port=92, rack="r"),),
        cluster_id="c",
        controller_id=2,
        topics=(MetadataResponseTopic(name="orders", topic_id="an id", is_internal=True, partitions=rows),),
    )
    snapshot, unsettled = snapshot_of(response)
    assert (snapshot.brokers, snapshot.cluster_id, snapshot.controller_id) == ({2: Broker(2, "h2", 92, "r")}, "c", 2)
    orders = snapshot.topics["orders"]
    assert orders.partitions == (PartitionInfo(0, 2, 3), PartitionInfo(1, NO_LEADER, 3))
    assert [(info.replicas, info.in_sync) for info in orders.partitions] == [((1, 2), (2,))] * 2
    assert (orders.topic_id, orders.internal) == ("an id", True)
    assert snapshot.leader(TopicPartition("orders", 1)) is None
    assert unsettled == []


def test_a_topic_of_a_broker_before_2_8_has_no_id() -> None:
    snapshot, _ = snapshot_of(metadata({1: 92}, MetadataResponseTopic(name="orders", topic_id="")))
    assert snapshot.topics["orders"].topic_id == NO_TOPIC_ID


def test_transient_errors_are_told_with_their_topic_and_the_rest_is_read() -> None:
    electing = topic("new", error=ErrorCode.LEADER_NOT_AVAILABLE)
    snapshot, unsettled = snapshot_of(metadata({}, topic("orders", 1), electing))
    assert snapshot.topics.keys() == {"orders"}
    assert unsettled == ["topic 'new': LEADER_NOT_AVAILABLE", "the broker does not know any broker yet"]


def test_a_topic_that_may_not_be_described_is_an_error_with_the_user_and_the_command() -> None:
    refused = metadata({1: 92}, topic("orders", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(AuthorizationError, match=r"cannot describe topic 'orders'.*User:alice.*kafka-acls\.sh"):
        snapshot_of(refused, None, ALICE)


def test_an_invalid_topic_name_is_an_error_with_that_name() -> None:
    with pytest.raises(BrokerError, match=r"cannot describe topic 'a/b': INVALID_TOPIC_EXCEPTION"):
        snapshot_of(metadata({1: 92}, topic("a/b", error=ErrorCode.INVALID_TOPIC_EXCEPTION)))


def test_only_a_request_to_rebootstrap_or_a_transient_refusal_lets_the_client_ask_again() -> None:
    """KIP-1102: a broker whose cluster has moved asks the client to drop all known brokers."""
    brokers = METADATA.brokers
    rebootstrap = MetadataResponse(brokers=brokers, error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    busy = MetadataResponse(brokers=brokers, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert [wants_rebootstrap(each) for each in (rebootstrap, busy, METADATA)] == [True, False, False]
    assert snapshot_of(rebootstrap)[1] == ["REBOOTSTRAP_REQUIRED"]
    assert snapshot_of(busy)[1] == ["COORDINATOR_LOAD_IN_PROGRESS"]
    refused = MetadataResponse(brokers=brokers, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerError, match="cannot read the metadata of the cluster: CLUSTER_AUTHORIZATION_FAILED"):
        snapshot_of(refused)


# -- the cache ---------------------------------------------------------------------------------------------------------


def cached(asked: frozenset[str] | None) -> MetadataCache:
    cache = MetadataCache(250)
    cache.put(SNAPSHOT, asked, 10.0)
    return cache


@pytest.mark.parametrize(
    ("asked", "wanted", "found"),
    [
        (None, None, {"orders", "returns"}),
        (None, {"orders"}, {"orders"}),
        (None, set(), set()),
        ({"orders", "returns"}, {"returns"}, {"returns"}),
        ({"orders"}, {"orders", "returns"}, None),
        ({"orders"}, None, None),
        ({"orders"}, set(), None),
        ({"orders", "gone"}, {"gone"}, set()),
    ],
)
def test_a_snapshot_answers_for_the_topics_that_it_was_read_for(
    asked: set[str] | None, wanted: set[str] | None, found: set[str] | None
) -> None:
    cache = cached(None if asked is None else frozenset(asked))
    snapshot = cache.get(None if wanted is None else frozenset(wanted), 10.0)
    assert (None if snapshot is None else set(snapshot.topics)) == found


def test_a_snapshot_is_used_up_to_its_age_and_its_brokers_stay_known_after_it() -> None:
    cache = cached(None)
    assert cache.get(None, 10.25) is SNAPSHOT
    assert cache.get(None, 10.26) is None
    assert cache.last is SNAPSHOT

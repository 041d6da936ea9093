"""Changes of groups and topics by an operator, at scripted brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamgroup.errors import BrokerAuthorizationError, BrokerError, TransportError, UnsupportedVersionError
from streamgroup.kafka.cluster.changes import (
    GroupHasMembersError,
    commit_as_admin,
    create_topics,
    delete_group,
    delete_offsets,
    delete_topics,
    grow_topics,
)
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.wire.messages.admin import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from streamgroup.kafka.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from streamgroup.kafka.wire.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from streamgroup.model import TopicPartition
from tests.clock import Clock
from tests.fakes.answers import topic
from tests.unit.kafka.cluster.conftest import Make, Options
from tests.waiting import soon

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


def committed(*codes: int) -> OffsetCommitResponse:
    partitions = tuple(OffsetCommitResponsePartition(partition_index=i, error_code=c) for i, c in enumerate(codes))
    return OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="orders", partitions=partitions),))


def deleted(code: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=(DeletableGroupResult(group_id="g", error_code=code),))


def forgotten(*codes: int, group: int = 0) -> OffsetDeleteResponse:
    partitions = tuple(OffsetDeleteResponsePartition(partition_index=i, error_code=c) for i, c in enumerate(codes))
    topics = (OffsetDeleteResponseTopic(name="orders", partitions=partitions),) if codes else ()
    return OffsetDeleteResponse(error_code=group, topics=topics)


def created(code: int, message: str | None = None) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=(CreatableTopicResult(name="new", error_code=code, error_message=message),))


def deleted_topic(code: int) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(responses=(DeletableTopicResult(name="old", error_code=code),))


def grown(code: int, message: str | None = None) -> CreatePartitionsResponse:
    result = CreatePartitionsTopicResult(name="old", error_code=code, error_message=message)
    return CreatePartitionsResponse(results=(result,))


# -- errors -----------------------------------------------------------------------------------------------------------

CHANGES: dict[type, Callable[[KafkaCluster], Any]] = {
    OffsetCommitRequest: lambda cluster: commit_as_admin(cluster, "g", {ZERO: 7}, soon()),
    DeleteGroupsRequest: lambda cluster: delete_group(cluster, "g", soon()),
    OffsetDeleteRequest: lambda cluster: delete_offsets(cluster, "g", [ONE, ZERO], soon()),
    CreateTopicsRequest: lambda cluster: create_topics(cluster, {"new": 1}, soon(), replication_factor=3),
    DeleteTopicsRequest: lambda cluster: delete_topics(cluster, ["old"], soon()),
    CreatePartitionsRequest: lambda cluster: grow_topics(cluster, {"old": 2}, soon()),
}


@pytest.mark.parametrize(
    ("request_class", "answer", "error", "says"),
    [
        *(
            (
                OffsetCommitRequest,
                committed(code),
                GroupHasMembersError,
                "the offset of orders-0 for group 'g', which has",
            )
            for code in (22, 25, 27, 68, 113)
        ),
        (OffsetCommitRequest, committed(29), BrokerAuthorizationError, "--operation Read --topic orders"),
        (OffsetCommitRequest, committed(30), BrokerAuthorizationError, "--operation Read --group g"),
        (DeleteGroupsRequest, deleted(68), GroupHasMembersError, "cannot delete group 'g'"),
        (DeleteGroupsRequest, deleted(69), BrokerError, "cannot delete group 'g'"),
        (DeleteGroupsRequest, deleted(30), BrokerAuthorizationError, "--operation Delete --group g"),
        (OffsetDeleteRequest, forgotten(group=30), BrokerAuthorizationError, "--operation Delete --group g"),
        (OffsetDeleteRequest, forgotten(29, 29), BrokerAuthorizationError, "--operation Read --topic orders"),
        (DeleteTopicsRequest, deleted_topic(3), BrokerError, "cannot delete topic 'old'.*UNKNOWN_TOPIC_OR_PARTITION"),
        (DeleteTopicsRequest, deleted_topic(73), BrokerError, "TOPIC_DELETION_DISABLED"),
        (DeleteTopicsRequest, deleted_topic(29), BrokerAuthorizationError, "--operation Delete --topic old"),
        (CreatePartitionsRequest, grown(37, "Has 3."), BrokerError, r"cannot change topic 'old' \(Has 3\.\)"),
    ],
)
def test_a_refused_change_is_an_error_at_once_with_the_cause_or_the_missing_permission(
    request_class: type, answer: Any, error: type[Exception], says: str, make: Make
) -> None:
    brokers = make()
    brokers.answer(1, request_class, answer)
    with pytest.raises(error, match=says):
        CHANGES[request_class](brokers.cluster)
    assert len(brokers.brokers[1].asked(request_class.NAME)) == 1, "no retry changes that"  # type: ignore[attr-defined]


def test_a_topic_that_is_refused_is_an_error_with_the_brokers_reason(make: Make) -> None:
    brokers = make()
    brokers.answer(1, CreateTopicsRequest, created(38, "3 replicas, 1 broker"))
    with pytest.raises(BrokerError, match=r"cannot create topic 'new' \(3 replicas, 1 broker\)"):
        CHANGES[CreateTopicsRequest](brokers.cluster)


@pytest.mark.parametrize(
    ("request_class", "says"),
    [
        (DeleteGroupsRequest, r"Kafka 1\.1 and later .* offsets\.retention\.minutes"),
        (OffsetDeleteRequest, r"Kafka 2\.4 and later"),
        (CreatePartitionsRequest, "CreatePartitions"),
    ],
)
def test_brokers_without_an_api_are_named_with_what_helps(request_class: type, says: str, make: Make) -> None:
    with pytest.raises(UnsupportedVersionError, match=says):
        CHANGES[request_class](make(without=[request_class]).cluster)


# -- groups -----------------------------------------------------------------------------------------------------------


def test_a_commit_from_outside_is_that_of_kafkas_tools(make: Make) -> None:
    brokers = make()
    brokers.answer(1, OffsetCommitRequest, committed(14, 14), committed(0, 0))
    commit_as_admin(brokers.cluster, "g", {ONE: 9, ZERO: 7}, soon())
    _, request = brokers.brokers[1].asked("OffsetCommit")
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", -1, "")
    assert request.group_instance_id is None
    (topic,) = request.topics
    assert [(p.partition_index, p.committed_offset) for p in topic.partitions] == [(0, 7), (1, 9)]
    assert {(p.committed_metadata, p.committed_leader_epoch) for p in topic.partitions} == {("", -1)}


def test_a_group_is_deleted_by_its_coordinator(make: Make) -> None:
    brokers = make(count=2)
    brokers.coordinator = 2
    brokers.answer(2, DeleteGroupsRequest, deleted(16), deleted(0))
    delete_group(brokers.cluster, "g", soon())
    assert [request.groups_names for request in brokers.brokers[2].asked("DeleteGroups")] == [("g",), ("g",)]


def test_offsets_of_partitions_are_deleted_each_with_its_result(make: Make) -> None:
    brokers = make()
    brokers.answer(1, OffsetDeleteRequest, forgotten(0, 86))
    found = delete_offsets(brokers.cluster, "g", [ONE, ZERO], soon())
    assert found[ZERO] is None
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in str(found[ONE])
    (request,) = brokers.brokers[1].asked("OffsetDelete")
    assert [[p.partition_index for p in topic.partitions] for topic in request.topics] == [[0, 1]]


# -- topics -----------------------------------------------------------------------------------------------------------


def test_topics_are_made_and_their_leaders_waited_for(make: Make) -> None:
    brokers = make()

    def makes() -> CreateTopicsResponse:
        brokers.topics = (topic("new", 1, 1),)
        return created(0)

    brokers.answer(1, CreateTopicsRequest, created(41), makes)
    assert create_topics(brokers.cluster, {"new": 2}, soon(), configs={"new": {"retention.ms": "1"}}) == {"new"}
    (wanted,) = brokers.brokers[1].asked("CreateTopics")[-1].topics
    assert (wanted.num_partitions, wanted.replication_factor) == (2, 1)
    assert [(c.name, c.value) for c in wanted.configs] == [("retention.ms", "1")]


def test_topics_that_exist_are_no_error(make: Make) -> None:
    brokers = make()
    brokers.topics = (topic("new", 1),)
    brokers.answer(1, CreateTopicsRequest, created(36))
    assert create_topics(brokers.cluster, {"new": 1}, soon()) == frozenset()


@pytest.mark.parametrize("versions", [(1, 5), (6, 6)], ids=["by name", "by state"])
def test_a_topic_is_deleted_and_waited_for(versions: tuple[int, int], make: Make) -> None:
    brokers = make(deletetopics=versions)
    brokers.topics = (topic("old", 1),)

    def deletes() -> DeleteTopicsResponse:
        brokers.topics = ()
        return deleted_topic(0)

    brokers.answer(1, DeleteTopicsRequest, deleted_topic(41), deletes)
    delete_topics(brokers.cluster, ["old"], soon())
    asked: Any = brokers.brokers[1].asked("DeleteTopics")[-1]
    assert (asked.topic_names or tuple(state.name for state in asked.topics)) == ("old",)
    assert asked.timeout_ms > 0


def test_a_topic_that_stays_in_the_metadata_is_an_error_at_the_deadline(make: Make, options: Options) -> None:
    clock = Clock()
    brokers = make()
    brokers.topics = (topic("old", 1),)
    brokers.answer(1, DeleteTopicsRequest, deleted_topic(0))
    cluster = KafkaCluster(options(brokers.ports[1]), clock=clock, sleep=clock.sleep)
    with pytest.raises(TransportError):
        delete_topics(cluster, ["old"], clock.now + 0.5)
    assert len(brokers.brokers[1].asked("Metadata")) > 2, "it has looked again"


def test_a_topic_gets_more_partitions_and_their_leaders_are_waited_for(make: Make) -> None:
    brokers = make()
    brokers.topics = (topic("old", 1),)

    def grows() -> CreatePartitionsResponse:
        brokers.topics = (topic("old", 1, 1, 1),)
        return grown(0)

    brokers.answer(1, CreatePartitionsRequest, grows)
    grow_topics(brokers.cluster, {"old": 3}, soon())
    (asked,) = brokers.brokers[1].asked("CreatePartitions")[-1].topics
    assert (asked.name, asked.count, asked.assignments) == ("old", 3, None)

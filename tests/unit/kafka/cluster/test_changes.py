from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamgroup.errors import (
    AuthorizationError,
    BrokerAuthorizationError,
    BrokerError,
    TransportError,
    UnsupportedVersionError,
)
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
from streamgroup.options.types import ClientOptions
from tests.clock import Clock
from tests.fakes.answers import topic
from tests.fakes.broker import FakeBroker
from tests.unit.kafka.cluster.test_admin import Brokers
from tests.unit.kafka.cluster.test_admin import Options as TopicOptions
from tests.unit.kafka.cluster.test_admin import Start as StartBroker
from tests.waiting import soon

Start = Callable[..., FakeBroker]
Options = Callable[..., ClientOptions]
ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
OF_MEMBERS = (22, 25, 27, 68, 113)


def committed(*codes: int) -> OffsetCommitResponse:
    partitions = tuple(OffsetCommitResponsePartition(partition_index=i, error_code=c) for i, c in enumerate(codes))
    return OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="orders", partitions=partitions),))


def test_a_commit_from_outside_is_that_of_kafkas_tools(broker: Start, options: Options) -> None:
    brokers = Brokers(broker, options)
    brokers.answer(1, OffsetCommitRequest, committed(0, 0))
    commit_as_admin(brokers.cluster, "g", {ONE: 9, ZERO: 7}, soon())
    (request,) = brokers.brokers[1].asked("OffsetCommit")
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", -1, "")
    assert request.group_instance_id is None
    (topic,) = request.topics
    assert [(p.partition_index, p.committed_offset) for p in topic.partitions] == [(0, 7), (1, 9)]
    assert {(p.committed_metadata, p.committed_leader_epoch) for p in topic.partitions} == {("", -1)}


@pytest.mark.parametrize("code", OF_MEMBERS)
def test_a_group_that_has_got_members_refuses_a_commit_from_outside(code: int, broker: Start, options: Options) -> None:
    brokers = Brokers(broker, options)
    brokers.answer(1, OffsetCommitRequest, committed(code))
    with pytest.raises(
        GroupHasMembersError, match="cannot set the offset of orders-0 for group 'g', which has members"
    ):
        commit_as_admin(brokers.cluster, "g", {ZERO: 7}, soon())
    assert len(brokers.brokers[1].asked("OffsetCommit")) == 1, "no retry changes that"


def test_a_coordinator_that_loads_is_asked_again(broker: Start, options: Options) -> None:
    brokers = Brokers(broker, options)
    brokers.answer(1, OffsetCommitRequest, committed(14), committed(0))
    commit_as_admin(brokers.cluster, "g", {ZERO: 7}, soon())
    assert len(brokers.brokers[1].asked("OffsetCommit")) == 2


@pytest.mark.parametrize(("code", "right"), [(29, "Read --topic orders"), (30, "Read --group g")])
def test_a_commit_that_is_not_authorized_names_the_right(
    code: int, right: str, broker: Start, options: Options
) -> None:
    brokers = Brokers(broker, options)
    brokers.answer(1, OffsetCommitRequest, committed(code))
    with pytest.raises(BrokerAuthorizationError, match=f"--operation {right}"):
        commit_as_admin(brokers.cluster, "g", {ZERO: 7}, soon())


def deleted(code: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=(DeletableGroupResult(group_id="g", error_code=code),))


def test_a_group_is_deleted_by_its_coordinator(broker: Start, options: Options) -> None:
    brokers = Brokers(broker, options, count=2)
    brokers.coordinator = 2
    brokers.answer(2, DeleteGroupsRequest, deleted(16), deleted(0))
    delete_group(brokers.cluster, "g", soon())
    assert [request.groups_names for request in brokers.brokers[2].asked("DeleteGroups")] == [("g",), ("g",)]


@pytest.mark.parametrize(("code", "error"), [(68, GroupHasMembersError), (69, BrokerError)])
def test_a_group_with_members_or_without_existence_is_not_deleted(
    code: int, error: type[Exception], broker: Start, options: Options
) -> None:
    brokers = Brokers(broker, options)
    brokers.answer(1, DeleteGroupsRequest, deleted(code))
    with pytest.raises(error, match="cannot delete group 'g'"):
        delete_group(brokers.cluster, "g", soon())


def test_a_deletion_that_is_not_authorized_names_delete(broker: Start, options: Options) -> None:
    brokers = Brokers(broker, options)
    brokers.answer(1, DeleteGroupsRequest, deleted(30))
    with pytest.raises(BrokerAuthorizationError, match="--operation Delete --group g"):
        delete_group(brokers.cluster, "g", soon())


def forgotten(*codes: int, group: int = 0) -> OffsetDeleteResponse:
    partitions = tuple(OffsetDeleteResponsePartition(partition_index=i, error_code=c) for i, c in enumerate(codes))
    topics = (OffsetDeleteResponseTopic(name="orders", partitions=partitions),) if codes else ()
    return OffsetDeleteResponse(error_code=group, topics=topics)


def test_offsets_of_partitions_are_deleted_each_with_its_result(broker: Start, options: Options) -> None:
    brokers = Brokers(broker, options)
    brokers.answer(1, OffsetDeleteRequest, forgotten(0, 86))
    found = delete_offsets(brokers.cluster, "g", [ONE, ZERO], soon())
    assert found[ZERO] is None
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in str(found[ONE])
    (request,) = brokers.brokers[1].asked("OffsetDelete")
    assert [[p.partition_index for p in topic.partitions] for topic in request.topics] == [[0, 1]]


@pytest.mark.parametrize(
    ("answer", "right"), [(forgotten(group=30), "Delete --group g"), (forgotten(29, 29), "Read --topic orders")]
)
def test_offsets_that_may_not_be_deleted_name_the_right(
    answer: OffsetDeleteResponse, right: str, broker: Start, options: Options
) -> None:
    brokers = Brokers(broker, options)
    brokers.answer(1, OffsetDeleteRequest, answer)
    with pytest.raises(BrokerAuthorizationError, match=f"--operation {right}"):
        delete_offsets(brokers.cluster, "g", [ONE, ZERO], soon())


def test_brokers_without_these_apis_are_named_with_what_helps(broker: Start, options: Options) -> None:
    brokers = Brokers(broker, options, without=(DeleteGroupsRequest, OffsetDeleteRequest))
    with pytest.raises(UnsupportedVersionError, match=r"Kafka 1\.1 and later .* offsets\.retention\.minutes"):
        delete_group(brokers.cluster, "g", soon())
    with pytest.raises(UnsupportedVersionError, match=r"Kafka 2\.4 and later"):
        delete_offsets(brokers.cluster, "g", [ZERO], soon())


def created(code: int, message: str | None = None) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=(CreatableTopicResult(name="new", error_code=code, error_message=message),))


def test_topics_are_made_and_their_leaders_waited_for(broker: StartBroker, options: TopicOptions) -> None:
    brokers = Brokers(broker, options)

    def makes() -> CreateTopicsResponse:
        brokers.topics = (topic("new", 1, 1),)
        return created(0)

    brokers.answer(1, CreateTopicsRequest, created(41), makes)
    assert create_topics(brokers.cluster, {"new": 2}, soon(), configs={"new": {"retention.ms": "1"}}) == {"new"}
    (wanted,) = brokers.brokers[1].asked("CreateTopics")[-1].topics
    assert (wanted.num_partitions, wanted.replication_factor) == (2, 1)
    assert [(c.name, c.value) for c in wanted.configs] == [("retention.ms", "1")]


def test_topics_that_exist_are_no_error(broker: StartBroker, options: TopicOptions) -> None:
    brokers = Brokers(broker, options)
    brokers.topics = (topic("new", 1),)
    brokers.answer(1, CreateTopicsRequest, created(36))
    assert create_topics(brokers.cluster, {"new": 1}, soon()) == frozenset()


def test_a_topic_that_is_refused_is_an_error_with_the_brokers_reason(
    broker: StartBroker, options: TopicOptions
) -> None:
    brokers = Brokers(broker, options)
    brokers.answer(1, CreateTopicsRequest, created(38, "3 replicas, 1 broker"))
    with pytest.raises(BrokerError, match=r"cannot create topic 'new' \(3 replicas, 1 broker\)"):
        create_topics(brokers.cluster, {"new": 1}, soon(), replication_factor=3)


def deleted_topic(code: int, name: str = "old") -> DeleteTopicsResponse:
    return DeleteTopicsResponse(responses=(DeletableTopicResult(name=name, error_code=code),))


def grown(code: int, message: str | None = None) -> CreatePartitionsResponse:
    result = CreatePartitionsTopicResult(name="old", error_code=code, error_message=message)
    return CreatePartitionsResponse(results=(result,))


@pytest.mark.parametrize("versions", [(1, 5), (6, 6)], ids=["by name", "by state"])
def test_a_topic_is_deleted_and_waited_for(
    versions: tuple[int, int], broker: StartBroker, options: TopicOptions
) -> None:
    brokers = Brokers(broker, options, deletetopics=versions)
    brokers.topics = (topic("old", 1),)

    def deletes() -> DeleteTopicsResponse:
        brokers.topics = ()
        return deleted_topic(0)

    brokers.answer(1, DeleteTopicsRequest, deleted_topic(41), deletes)
    delete_topics(brokers.cluster, ["old"], soon())
    asked: Any = brokers.brokers[1].asked("DeleteTopics")[-1]
    assert (asked.topic_names or tuple(state.name for state in asked.topics)) == ("old",)
    assert asked.timeout_ms > 0


@pytest.mark.parametrize(
    ("code", "said"),
    [(3, "cannot delete topic 'old'.*UNKNOWN_TOPIC_OR_PARTITION"), (73, "TOPIC_DELETION_DISABLED")],
)
def test_a_topic_that_cannot_be_deleted_is_an_error(
    code: int, said: str, broker: StartBroker, options: TopicOptions
) -> None:
    brokers = Brokers(broker, options)
    brokers.answer(1, DeleteTopicsRequest, deleted_topic(code))
    with pytest.raises(BrokerError, match=said):
        delete_topics(brokers.cluster, ["old"], soon())


def test_the_missing_right_to_delete_is_named(broker: StartBroker, options: TopicOptions) -> None:
    brokers = Brokers(broker, options)
    brokers.answer(1, DeleteTopicsRequest, deleted_topic(29))
    with pytest.raises(AuthorizationError, match=r"--operation Delete --topic old"):
        delete_topics(brokers.cluster, ["old"], soon())


def test_a_topic_that_stays_in_the_metadata_is_an_error_at_the_deadline(
    broker: StartBroker, options: TopicOptions
) -> None:
    clock = Clock()
    brokers = Brokers(broker, options)
    brokers.topics = (topic("old", 1),)
    brokers.answer(1, DeleteTopicsRequest, deleted_topic(0))
    cluster = KafkaCluster(options(brokers.ports[1]), clock=clock, sleep=clock.sleep)
    with pytest.raises(TransportError):
        delete_topics(cluster, ["old"], clock.now + 0.5)
    assert len(brokers.brokers[1].asked("Metadata")) > 2, "it has looked again"


def test_a_topic_gets_more_partitions_and_their_leaders_are_waited_for(
    broker: StartBroker, options: TopicOptions
) -> None:
    brokers = Brokers(broker, options)
    brokers.topics = (topic("old", 1),)

    def grows() -> CreatePartitionsResponse:
        brokers.topics = (topic("old", 1, 1, 1),)
        return grown(0)

    brokers.answer(1, CreatePartitionsRequest, grows)
    grow_topics(brokers.cluster, {"old": 3}, soon())
    (asked,) = brokers.brokers[1].asked("CreatePartitions")[-1].topics
    assert (asked.name, asked.count, asked.assignments) == ("old", 3, None)


def test_fewer_partitions_are_refused_with_the_brokers_reason(broker: StartBroker, options: TopicOptions) -> None:
    brokers = Brokers(broker, options)
    brokers.answer(1, CreatePartitionsRequest, grown(37, "Topic already has 3 partitions."))
    with pytest.raises(BrokerError, match=r"cannot change topic 'old' \(Topic already has 3 partitions\.\)"):
        grow_topics(brokers.cluster, {"old": 2}, soon())


def test_brokers_without_the_request_are_named(broker: StartBroker, options: TopicOptions) -> None:
    brokers = Brokers(broker, options, without=[CreatePartitionsRequest])
    with pytest.raises(UnsupportedVersionError, match="CreatePartitions"):
        grow_topics(brokers.cluster, {"old": 2}, soon())

"""New topics, more partitions and deletions, at scripted brokers."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.cluster.kafka import KafkaCluster
from streamgroup.cluster.topic_changes import create_topics, delete_topics, grow_topics
from streamgroup.errors import AuthorizationError, BrokerError, TransportError, UnsupportedVersionError
from streamgroup.wire.messages.admin import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from streamgroup.wire.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.clock import Clock
from tests.fakes.answers import topic
from tests.unit.cluster.test_admin import Brokers, Options, Start
from tests.waiting import soon


def created(code: int, message: str | None = None) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=(CreatableTopicResult(name="new", error_code=code, error_message=message),))


def test_topics_are_made_and_their_leaders_waited_for(broker: Start, options: Options) -> None:
    brokers = Brokers(broker, options)

    def makes() -> CreateTopicsResponse:
        brokers.topics = (topic("new", 1, 1),)
        return created(0)

    brokers.answer(1, CreateTopicsRequest, created(41), makes)
    assert create_topics(brokers.cluster, {"new": 2}, soon(), configs={"new": {"retention.ms": "1"}}) == {"new"}
    (wanted,) = brokers.brokers[1].asked("CreateTopics")[-1].topics
    assert (wanted.num_partitions, wanted.replication_factor) == (2, 1)
    assert [(c.name, c.value) for c in wanted.configs] == [("retention.ms", "1")]


def test_topics_that_exist_are_no_error(broker: Start, options: Options) -> None:
    brokers = Brokers(broker, options)
    brokers.topics = (topic("new", 1),)
    brokers.answer(1, CreateTopicsRequest, created(36))
    assert create_topics(brokers.cluster, {"new": 1}, soon()) == frozenset()


def test_a_topic_that_is_refused_is_an_error_with_the_brokers_reason(broker: Start, options: Options) -> None:
    brokers = Brokers(broker, options)
    brokers.answer(1, CreateTopicsRequest, created(38, "3 replicas, 1 broker"))
    with pytest.raises(BrokerError, match=r"cannot create topic 'new' \(3 replicas, 1 broker\)"):
        create_topics(brokers.cluster, {"new": 1}, soon(), replication_factor=3)


def deleted(code: int, name: str = "old") -> DeleteTopicsResponse:
    return DeleteTopicsResponse(responses=(DeletableTopicResult(name=name, error_code=code),))


def grown(code: int, message: str | None = None) -> CreatePartitionsResponse:
    result = CreatePartitionsTopicResult(name="old", error_code=code, error_message=message)
    return CreatePartitionsResponse(results=(result,))


@pytest.mark.parametrize("versions", [(1, 5), (6, 6)], ids=["by name", "by state"])
def test_a_topic_is_deleted_and_waited_for(versions: tuple[int, int], broker: Start, options: Options) -> None:
    brokers = Brokers(broker, options, deletetopics=versions)
    brokers.topics = (topic("old", 1),)

    def deletes() -> DeleteTopicsResponse:
        brokers.topics = ()
        return deleted(0)

    brokers.answer(1, DeleteTopicsRequest, deleted(41), deletes)
    delete_topics(brokers.cluster, ["old"], soon())
    asked: Any = brokers.brokers[1].asked("DeleteTopics")[-1]
    assert (asked.topic_names or tuple(state.name for state in asked.topics)) == ("old",)
    assert asked.timeout_ms > 0


@pytest.mark.parametrize(
    ("code", "said"),
    [(3, "cannot delete topic 'old'.*UNKNOWN_TOPIC_OR_PARTITION"), (73, "TOPIC_DELETION_DISABLED")],
)
def test_a_topic_that_cannot_be_deleted_is_an_error(code: int, said: str, broker: Start, options: Options) -> None:
    brokers = Brokers(broker, options)
    brokers.answer(1, DeleteTopicsRequest, deleted(code))
    with pytest.raises(BrokerError, match=said):
        delete_topics(brokers.cluster, ["old"], soon())


def test_the_missing_right_to_delete_is_named(broker: Start, options: Options) -> None:
    brokers = Brokers(broker, options)
    brokers.answer(1, DeleteTopicsRequest, deleted(29))
    with pytest.raises(AuthorizationError, match=r"--operation Delete --topic old"):
        delete_topics(brokers.cluster, ["old"], soon())


def test_a_topic_that_stays_in_the_metadata_is_an_error_at_the_deadline(broker: Start, options: Options) -> None:
    clock = Clock()
    brokers = Brokers(broker, options)
    brokers.topics = (topic("old", 1),)
    brokers.answer(1, DeleteTopicsRequest, deleted(0))
    cluster = KafkaCluster(options(brokers.ports[1]), clock=clock, sleep=clock.sleep)
    with pytest.raises(TransportError):
        delete_topics(cluster, ["old"], clock.now + 0.5)
    assert len(brokers.brokers[1].asked("Metadata")) > 2, "it has looked again"


def test_a_topic_gets_more_partitions_and_their_leaders_are_waited_for(broker: Start, options: Options) -> None:
    brokers = Brokers(broker, options)
    brokers.topics = (topic("old", 1),)

    def grows() -> CreatePartitionsResponse:
        brokers.topics = (topic("old", 1, 1, 1),)
        return grown(0)

    brokers.answer(1, CreatePartitionsRequest, grows)
    grow_topics(brokers.cluster, {"old": 3}, soon())
    (asked,) = brokers.brokers[1].asked("CreatePartitions")[-1].topics
    assert (asked.name, asked.count, asked.assignments) == ("old", 3, None)


def test_fewer_partitions_are_refused_with_the_brokers_reason(broker: Start, options: Options) -> None:
    brokers = Brokers(broker, options)
    brokers.answer(1, CreatePartitionsRequest, grown(37, "Topic already has 3 partitions."))
    with pytest.raises(BrokerError, match=r"cannot change topic 'old' \(Topic already has 3 partitions\.\)"):
        grow_topics(brokers.cluster, {"old": 2}, soon())


def test_brokers_without_the_request_are_named(broker: Start, options: Options) -> None:
    brokers = Brokers(broker, options, without=[CreatePartitionsRequest])
    with pytest.raises(UnsupportedVersionError, match="CreatePartitions"):
        grow_topics(brokers.cluster, {"old": 2}, soon())

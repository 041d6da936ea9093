"""Fetches and commits at brokers: requests in each version, verdicts of error codes, topics that a broker lacks."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.errors import ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.offsets.kafka import (
    KafkaOffsetStore,
    UnknownTopicCheck,
    all_topics,
    commit_request,
    commit_verdict,
)
from streamgroup.group.offsets.store import (
    COMMITTED,
    CommitOffsets,
    FetchOffsets,
    NoAnswer,
    OffsetsCommitted,
    OffsetsFetched,
    PartitionVerdict,
    Verdict,
)
from streamgroup.kafka.wire.messages.cluster import MetadataRequest, MetadataResponse, MetadataResponseTopic
from streamgroup.kafka.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from streamgroup.kafka.wire.schema import decode, encode
from streamgroup.model import CommittedOffset, TopicPartition
from tests.fakes.offsets import OFFSETS_VERSION, commit_answer, fetch_answer, zookeepers_answer

A, C = TopicPartition("t", 0), TopicPartition("u", 0)
OFFSETS = {A: CommittedOffset(5, "told", 3), C: CommittedOffset(7)}
FETCH = FetchOffsets(1, "g", frozenset({A, C}), 1_000)
COMMIT = CommitOffsets(2, "g", "m", 3, OFFSETS, 1_000, "node-1")


def test_the_request_tells_each_version_what_it_knows() -> None:
    build = commit_request(COMMIT)
    old, new = build(5), build(8)
    assert (old.group_instance_id, new.group_instance_id) == (None, "node-1")
    assert (new.group_id, new.member_id, new.generation_id_or_member_epoch) == ("g", "m", 3)
    rows = [
        (topic.name, p.partition_index, p.committed_offset, p.committed_leader_epoch, p.committed_metadata)
        for topic in new.topics
        for p in topic.partitions
    ]
    assert rows == [("t", 0, 5, 3, "told"), ("u", 0, 7, -1, "")]
    assert {p.committed_leader_epoch for topic in old.topics for p in topic.partitions} == {-1}


def test_a_fetch_asks_for_all_stable_offsets_of_the_group() -> None:
    store = KafkaOffsetStore()
    (send,) = store.fetch(FETCH, 0.0).actions
    assert (send.token, send.lane, send.api, send.timeout_ms) == (1, ev.Lane.COORDINATOR, OffsetFetchRequest, 1_000)
    request = send.build(OFFSETS_VERSION)
    assert request.require_stable
    assert [(group.group_id, group.topics) for group in request.groups] == [("g", None)]
    assert [topic.name for topic in send.build(1).topics] == ["t", "u"], "before v2 nobody can ask for all"
    answer = ev.RequestAnswered(1, fetch_answer("g", OFFSETS), OFFSETS_VERSION)
    assert store.takes(answer)
    assert store.hear(answer, 0.1).answers == (OffsetsFetched(1, OFFSETS),)
    assert not store.takes(answer), "an answer counts once"


def test_each_partition_of_a_commit_has_its_verdict() -> None:
    store = KafkaOffsetStore()
    (send,) = store.commit(COMMIT, 0.0).actions
    assert (send.token, send.api) == (2, OffsetCommitRequest)
    response = commit_answer(
        send.build(OFFSETS_VERSION), {A: 0, C: int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)}.__getitem__
    )
    (answer,) = store.hear(ev.RequestAnswered(2, response, OFFSETS_VERSION), 0.1).answers
    assert isinstance(answer, OffsetsCommitted)
    assert {tp: (one.verdict, one.code) for tp, one in answer.verdicts.items()} == {
        A: (Verdict.COMMITTED, 0),
        C: (Verdict.REFUSED, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    }


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.NONE, Verdict.COMMITTED),
        (ErrorCode.ILLEGAL_GENERATION, Verdict.FENCED),
        (ErrorCode.UNKNOWN_MEMBER_ID, Verdict.FENCED),
        (ErrorCode.REBALANCE_IN_PROGRESS, Verdict.FENCED),
        (ErrorCode.FENCED_INSTANCE_ID, Verdict.FENCED),
        (ErrorCode.NOT_COORDINATOR, Verdict.MOVED),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Verdict.RETRIABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Verdict.STALE_METADATA),
        (ErrorCode.UNKNOWN_SERVER_ERROR, Verdict.FAILED),
        (ErrorCode.INVALID_COMMIT_OFFSET_SIZE, Verdict.TOO_LARGE),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, Verdict.REFUSED),
    ],
)
def test_the_verdict_of_an_error_code(code: int, verdict: Verdict) -> None:
    told = commit_verdict(code)
    assert (told.verdict, told.code) == (verdict, code)
    assert (told == COMMITTED) is (verdict is Verdict.COMMITTED)


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.NOT_COORDINATOR, Verdict.MOVED),
        (ErrorCode.UNSTABLE_OFFSET_COMMIT, Verdict.RETRIABLE),
        (ErrorCode.GROUP_ID_NOT_FOUND, Verdict.FAILED),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, Verdict.REFUSED),
    ],
)
def test_a_fetch_that_is_refused_tells_why(code: int, verdict: Verdict) -> None:
    store = KafkaOffsetStore()
    store.fetch(FETCH, 0.0)
    (answer,) = store.hear(ev.RequestAnswered(1, fetch_answer("g", {}, code), OFFSETS_VERSION), 0.1).answers
    assert isinstance(answer, OffsetsFetched)
    assert answer.refusal is not None
    assert (answer.refusal.verdict, answer.refusal.code) == (verdict, code)


def test_a_fetch_that_is_refused_for_a_topic_names_the_topic() -> None:
    code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    rows = [
        OffsetFetchResponseTopics(
            name=tp.topic,
            partitions=(
                OffsetFetchResponsePartitions(partition_index=0, committed_offset=-1, metadata="", error_code=refused),
            ),
        )
        for tp, refused in ((A, 0), (C, code))
    ]
    response = OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g", topics=tuple(rows)),))
    store = KafkaOffsetStore()
    store.fetch(FETCH, 0.0)
    (answer,) = store.hear(ev.RequestAnswered(1, response, OFFSETS_VERSION), 0.1).answers
    assert isinstance(answer, OffsetsFetched)
    assert answer.refusal == PartitionVerdict(Verdict.REFUSED, code, "u")


def test_a_request_whose_connection_broke_has_no_answer() -> None:
    store = KafkaOffsetStore()
    store.commit(COMMIT, 0.0)
    assert store.hear(ev.RequestFailed(2, "gone"), 0.1).answers == (NoAnswer(2, "gone"),)
    assert not store.takes(ev.RequestFailed(2, "gone"))


# -- v0: offsets that brokers keep in ZooKeeper ------------------------------------------------------------------------


def asked(store: KafkaOffsetStore, **offsets: Any) -> Any:
    """The outcome of an answer in v0."""
    (send,) = store.fetch(FETCH, 0.0).actions
    assert send.ceiling == 0
    return store.hear(ev.RequestAnswered(1, zookeepers_answer(send.build(0), OFFSETS, **offsets), 0), 0.1)


def topics(*names: str) -> ev.RequestAnswered:
    response = MetadataResponse(topics=tuple(MetadataResponseTopic(name=name, error_code=0) for name in names))
    return ev.RequestAnswered(1, response, 0)


def without_coordinator() -> KafkaOffsetStore:
    store = KafkaOffsetStore()
    store.follow(ev.NoCoordinator())
    return store


def test_a_group_without_a_coordinator_is_asked_in_version_0() -> None:
    store = without_coordinator()
    assert store.commit(COMMIT, 0.0).actions[0].ceiling == 0
    (answer,) = asked(store).answers
    assert {tp: one.offset for tp, one in answer.offsets.items()} == {A: 5, C: 7}


def test_an_unknown_partition_has_no_commit_once_the_broker_knows_its_topic() -> None:
    store = without_coordinator()
    outcome = asked(store, unknown=("u",))
    assert [send.api for send in outcome.actions] == [MetadataRequest]
    (again,) = store.hear(topics("t", "u"), 0.2).actions
    assert again.api is OffsetFetchRequest
    (answer,) = store.hear(ev.RequestAnswered(1, zookeepers_answer(again.build(0), OFFSETS, ("u",)), 0), 0.3).answers
    assert answer.offsets.keys() == {A}


@pytest.mark.parametrize("event", [ev.CoordinatorGone("gone"), None])
def test_a_broker_that_has_just_started_is_asked_later(event: ev.CoordinatorGone | None) -> None:
    store = without_coordinator()
    asked(store, unknown=("u",))
    (again,) = store.hear(topics("t"), 0.2).actions
    if event is not None:
        store.hear(event, 0.2)
    outcome = store.hear(ev.RequestAnswered(1, zookeepers_answer(again.build(0), OFFSETS, ("u",)), 0), 0.3)
    if event is not None:
        assert [send.api for send in outcome.actions] == [MetadataRequest], "another broker may have answered"
        return
    (answer,) = outcome.answers
    assert answer.refusal.verdict is Verdict.RETRIABLE
    assert [send.api for send in asked(store, unknown=("u",)).actions] == [MetadataRequest], "it is asked again"


def told(*names: str, error: int = 0) -> MetadataResponse:
    return MetadataResponse(topics=tuple(MetadataResponseTopic(name=name, error_code=error) for name in names))


def test_nothing_is_believed_before_the_broker_has_reported_its_topics_and_after_the_connection() -> None:
    check = UnknownTopicCheck()
    assert check.knows(()), "nothing is missing"
    assert not check.knows({"t"})
    check.learn(told("t", "u"))
    assert check.knows({"t"})
    assert not check.knows({"t", "v"})
    check.reset()
    assert not check.has_topics
    assert not check.knows({"t"})


def test_a_topic_that_is_only_coming_up_is_not_known() -> None:
    check = UnknownTopicCheck()
    check.learn(told("t", error=5))
    assert check.has_topics
    assert not check.knows({"t"})


@pytest.mark.parametrize("version", [0, 1, 5])
def test_all_topics_are_asked_for_in_every_version(version: int) -> None:
    asked = decode(MetadataRequest, encode(all_topics(version), version), version)
    assert asked.topics == (() if version == 0 else None)

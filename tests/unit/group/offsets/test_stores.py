"""Stores of offsets in Kafka, in Kafka for a group in ZooKeeper, in both, and in memory; which the options choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamgroup.advice import NO_LOCATION, OffsetLocation, StoredIn
from streamgroup.errors import ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.offsets.both import (
    AskKafka,
    DualOffsetStore,
    RegisteredKafkaStore,
    WithdrawFromKafka,
    larger,
    store_at,
)
from streamgroup.group.offsets.kafka import KafkaOffsetStore, all_topics, commit_request, commit_verdict
from streamgroup.group.offsets.store import (
    COMMITTED,
    CommitOffsets,
    FetchOffsets,
    MemoryOffsetStore,
    NoAnswer,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetStore,
    PartitionVerdict,
    Verdict,
)
from streamgroup.group.offsets.zookeeper import ZooKeeperOffsetStore
from streamgroup.group.registry import events as zk
from streamgroup.group.registry.nodes import GroupPaths
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
from streamgroup.model import CommittedOffset, Dialect, TopicPartition
from streamgroup.znodes import Check, Create, Refusal, ZNode
from tests.fakes.offsets import OFFSETS_VERSION, commit_answer, fetch_answer, zookeepers_answer

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
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


def topics(*names: str, error: int = 0) -> ev.RequestAnswered:
    rows = (MetadataResponseTopic(name=name, error_code=error if name == "u" else 0) for name in names)
    return ev.RequestAnswered(1, MetadataResponse(topics=tuple(rows)), 0)


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


@pytest.mark.parametrize("known", [topics("t"), topics("t", "u", error=5)], ids=["unknown", "only coming up"])
def test_a_broker_that_has_just_started_is_asked_later(known: ev.RequestAnswered) -> None:
    store = without_coordinator()
    asked(store, unknown=("u",))
    (again,) = store.hear(known, 0.2).actions
    (answer,) = store.hear(ev.RequestAnswered(1, zookeepers_answer(again.build(0), OFFSETS, ("u",)), 0), 0.3).answers
    assert answer.refusal.verdict is Verdict.RETRIABLE
    assert [send.api for send in asked(store, unknown=("u",)).actions] == [MetadataRequest], "it is asked again"


def test_what_a_broker_knows_counts_for_no_other_broker() -> None:
    store = without_coordinator()
    asked(store, unknown=("u",))
    (again,) = store.hear(topics("t", "u"), 0.2).actions
    store.hear(ev.CoordinatorGone("gone"), 0.2)
    outcome = store.hear(ev.RequestAnswered(1, zookeepers_answer(again.build(0), OFFSETS, ("u",)), 0), 0.3)
    assert [send.api for send in outcome.actions] == [MetadataRequest], "another broker may have answered"


@pytest.mark.parametrize("moved", [False, True])
def test_a_request_to_an_earlier_coordinator_says_nothing_about_the_present_one(moved: bool) -> None:
    store = KafkaOffsetStore()
    store.commit(COMMIT, 0.0)
    outcome = store.hear(ev.RequestFailed(2, "closed", moved=moved), 0.1)
    assert outcome.answers == (NoAnswer(2, "closed", is_elsewhere=moved),)


@pytest.mark.parametrize("version", [0, 1, 5])
def test_all_topics_are_asked_for_in_every_version(version: int) -> None:
    asked = decode(MetadataRequest, encode(all_topics(version), version), version)
    assert asked.topics == (() if version == 0 else None)


# -- a group in ZooKeeper with offsets in Kafka, or in both -----------------------------------------------------------

PATHS = GroupPaths("g", Dialect.KAFKA)
ID = "/consumers/g/ids/m"


def checked() -> tuple[RegisteredKafkaStore, int]:
    """A commit whose member is looked for, and the token of that."""
    store = RegisteredKafkaStore(PATHS)
    (check,) = store.commit(COMMIT, 0.0).actions
    assert check.operations == (Check(ID),)
    return store, check.token


def written() -> tuple[DualOffsetStore, int]:
    """A commit on its way into ZooKeeper, and the token of that."""
    store = DualOffsetStore(PATHS)
    (look,) = store.commit(COMMIT, 0.0).actions
    assert store.wake_at == 1.0
    assert store.takes(zk.SubtreesRead(look.token, {}))
    (write,) = store.hear(zk.SubtreesRead(look.token, {}), 0.1).actions
    assert Create("/consumers/g/offsets/t/0", b"5") in write.operations
    return store, write.token


def fetched(**nodes: bytes) -> DualOffsetStore:
    """A fetch that ZooKeeper has answered, with offset nodes of partitions of t by `p` and their number."""
    store = DualOffsetStore(PATHS)
    (look,) = store.fetch(FETCH, 0.0).actions
    found = {f"/consumers/g/offsets/t/{name[1:]}": ZNode(data, 0, 1, 1, 1) for name, data in nodes.items()}
    outcome = store.hear(zk.SubtreesRead(look.token, found), 0.1)
    assert (outcome.actions, outcome.answers) == ((AskKafka(FETCH),), ())
    return store


# -- offsets in Kafka, or in both --------------------------------------------------------------------------------------

EITHER = pytest.mark.parametrize("begin", [checked, written], ids=["in Kafka", "in both"])
Begin = Callable[[], tuple[OffsetStore, int]]


@EITHER
def test_a_commit_goes_to_the_brokers_once_its_member_was_seen_in_zookeeper(begin: Begin) -> None:
    store, token = begin()
    assert store.takes(zk.Transacted(token)), "the membership machine hears nothing of it"
    outcome = store.hear(zk.Transacted(token), 0.2)
    assert (outcome.actions, outcome.answers) == ((AskKafka(COMMIT),), ()), "the brokers answer"
    answer = OffsetsCommitted(2, dict.fromkeys(OFFSETS, COMMITTED))
    assert store.takes(answer)
    assert store.hear(answer, 0.3).answers == (answer,)


@EITHER
def test_a_commit_that_zookeeper_refuses_never_reaches_kafka(begin: Begin) -> None:
    store, token = begin()
    outcome = store.hear(zk.RequestRefused(token, ID, Refusal.NO_NODE), 0.2)
    fenced = PartitionVerdict(Verdict.FENCED, ErrorCode.UNKNOWN_MEMBER_ID)
    assert (outcome.actions, outcome.answers) == ((), (OffsetsCommitted(2, dict.fromkeys(OFFSETS, fenced)),))


# -- offsets in Kafka --------------------------------------------------------------------------------------------------


def test_a_fetch_is_the_brokers_and_so_is_its_answer() -> None:
    store = RegisteredKafkaStore(PATHS)
    assert store.fetch(FETCH, 0.0).actions == (AskKafka(FETCH),)
    answer = OffsetsFetched(1, {A: CommittedOffset(3)})
    assert store.takes(answer)
    assert store.hear(answer, 0.1).answers == (answer,)


def test_a_check_without_an_answer_leaves_the_commit_without_one() -> None:
    store, token = checked()
    outcome = store.hear(zk.Unanswered(token, "lost"), 0.1)
    assert (outcome.actions, outcome.answers) == ((), (NoAnswer(2, "lost"),))


@pytest.mark.parametrize("action", [ev.Joining("", False), ev.Lost(""), ev.Left()])
def test_what_gives_partitions_up_withdraws_the_commits_of_a_registered_group(action: Any) -> None:
    store, token = checked()
    assert store.follow(action).actions == (WithdrawFromKafka(),)
    assert store.hear(zk.Transacted(token), 0.2).actions == ()


def test_a_stop_withdraws_what_was_to_be_committed_before_the_member_has_left() -> None:
    store, token = checked()
    assert not store.takes(ev.Stop()), "the membership machine hears of it, too"
    assert store.hear(ev.Stop(), 0.1).actions == (WithdrawFromKafka(),)
    assert store.hear(zk.Transacted(token), 0.2).actions == ()


def test_other_actions_of_the_member_withdraw_nothing() -> None:
    store, token = checked()
    assert store.follow(ev.Note(ev.INFO, "")).actions == ()
    assert store.hear(zk.Transacted(token), 0.2).actions == (AskKafka(COMMIT),)


# -- offsets in both ---------------------------------------------------------------------------------------------------


def test_a_fetch_takes_the_larger_offset_of_both() -> None:
    in_kafka = OffsetsFetched(1, {A: CommittedOffset(5, "k"), B: CommittedOffset(7)})
    (answer,) = fetched(p0=b"9", p1=b"3").hear(in_kafka, 0.2).answers
    assert answer == OffsetsFetched(1, {A: CommittedOffset(9), B: CommittedOffset(7)})


def test_a_fetch_that_kafka_answers_while_the_member_rejoins_still_counts_zookeepers_offset() -> None:
    store = fetched(p0=b"500")
    store.follow(ev.Joining("", False))
    in_kafka = OffsetsFetched(1, {A: CommittedOffset(20)})
    assert store.hear(in_kafka, 0.2).answers == (OffsetsFetched(1, {A: CommittedOffset(500)}),)


@pytest.mark.parametrize("action", [ev.Lost(""), ev.Left()])
def test_kafkas_half_of_a_fetch_that_was_given_up_is_not_an_answer(action: Any) -> None:
    store = fetched(p0=b"500")
    store.follow(action)
    assert store.hear(OffsetsFetched(1, {A: CommittedOffset(20)}), 0.2).answers == ()


def test_a_fetch_that_kafka_does_not_answer_has_no_answer() -> None:
    store = fetched()
    assert store.hear(NoAnswer(1, "away"), 0.2).answers == (NoAnswer(1, "away"),)
    assert store._found == {}


@pytest.mark.parametrize("action", [ev.Joining("", False), ev.Lost("")])
def test_what_gives_partitions_up_withdraws_what_was_to_be_committed(action: Any) -> None:
    store, token = written()
    assert WithdrawFromKafka() in store.follow(action).actions
    (note,) = store.hear(zk.RequestRefused(token, PATHS.offset(A), Refusal.BAD_VERSION), 0.2).actions
    assert isinstance(note, ev.Note), "it is neither written once more nor passed on to Kafka"


def test_leaving_forgets_what_zookeeper_will_not_answer_any_more() -> None:
    store = DualOffsetStore(PATHS)
    for token in range(10, 20):
        store.fetch(FetchOffsets(token, "g", frozenset(), 1000), 0.0)
    store.follow(ev.Left())
    assert store._asked == {}
    assert store.wake_at is None


def test_of_two_commits_the_one_that_is_further_counts() -> None:
    kafka = {A: CommittedOffset(5, "k"), B: CommittedOffset(7)}
    zookeeper = {A: CommittedOffset(9), B: CommittedOffset(7, "z")}
    assert larger(kafka, zookeeper) == {A: CommittedOffset(9), B: CommittedOffset(7, "z")}
    assert larger(zookeeper, {}) == zookeeper


# -- which store, and offsets in memory --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "paths", "store"),
    [
        (NO_LOCATION, None, MemoryOffsetStore),
        *((OffsetLocation("g", stored_in), None, KafkaOffsetStore) for stored_in in StoredIn),
        (OffsetLocation("g", StoredIn.ZOOKEEPER), PATHS, ZooKeeperOffsetStore),
        (OffsetLocation("g", StoredIn.KAFKA), PATHS, RegisteredKafkaStore),
        (OffsetLocation("g", StoredIn.BOTH), PATHS, DualOffsetStore),
    ],
)
def test_the_location_chooses_the_store(location: OffsetLocation, paths: GroupPaths | None, store: type) -> None:
    assert type(store_at(location, paths)) is store


def test_what_is_committed_in_memory_is_found_with_its_epoch_and_metadata() -> None:
    store = MemoryOffsetStore()

    def commit(offsets: dict[TopicPartition, CommittedOffset]) -> None:
        (answer,) = store.commit(CommitOffsets(1, "", "", -1, offsets, 1_000), 0.0).answers
        assert answer == OffsetsCommitted(1, dict.fromkeys(offsets, COMMITTED))

    def found(store: MemoryOffsetStore) -> OffsetsFetched:
        (answer,) = store.fetch(FetchOffsets(2, "", frozenset(), 1_000), 0.0).answers
        assert isinstance(answer, OffsetsFetched)
        return answer

    assert found(store) == OffsetsFetched(2, {})
    commit({A: CommittedOffset(5, "told", 3), C: CommittedOffset(7)})
    before = found(store)
    commit({A: CommittedOffset(6, "later", 4)})
    assert found(store) == OffsetsFetched(2, {A: CommittedOffset(6, "later", 4), C: CommittedOffset(7, "", -1)})
    assert before.offsets[A] == CommittedOffset(5, "told", 3), "an answer is not changed by a later commit"
    assert found(MemoryOffsetStore()) == OffsetsFetched(2, {}), "another process knows nothing of it"

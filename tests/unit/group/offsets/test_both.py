"""Offsets in Kafka of a group in ZooKeeper, in both, and in memory; which store the options choose."""

from __future__ import annotations

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
from streamgroup.group.offsets.kafka import KafkaOffsetStore
from streamgroup.group.offsets.store import (
    COMMITTED,
    CommitOffsets,
    FetchOffsets,
    MemoryOffsetStore,
    NoAnswer,
    OffsetsCommitted,
    OffsetsFetched,
    PartitionVerdict,
    Verdict,
)
from streamgroup.group.offsets.zookeeper import ZooKeeperOffsetStore
from streamgroup.group.registry import events as zk
from streamgroup.group.registry.nodes import GroupPaths
from streamgroup.model import CommittedOffset, Dialect, TopicPartition
from streamgroup.znodes import Check, Create, Refusal, ZNode

R0 = TopicPartition("t", 0)
PATHS = GroupPaths("g", Dialect.KAFKA)
ME = "g_host-1-aa"
FETCH = FetchOffsets(5, "g", frozenset(), 1000)
REGISTERED_COMMIT = CommitOffsets(6, "g", ME, 1 << 40, {R0: CommittedOffset(9, "m")}, 1000)


def checked() -> tuple[RegisteredKafkaStore, int]:
    """A commit whose member is looked for, and the token of that."""
    store = RegisteredKafkaStore(PATHS)
    (check,) = store.commit(REGISTERED_COMMIT, 0.0).actions
    assert check.operations == (Check(f"/consumers/g/ids/{ME}"),)
    return store, check.token


def test_a_fetch_is_the_brokers_and_so_is_its_answer() -> None:
    store = RegisteredKafkaStore(PATHS)
    assert store.fetch(FETCH, 0.0).actions == (AskKafka(FETCH),)
    answer = OffsetsFetched(5, {R0: CommittedOffset(3)})
    assert store.takes(answer)
    assert store.hear(answer, 0.1).answers == (answer,)


def test_a_commit_goes_to_the_brokers_once_its_member_was_seen_in_zookeeper() -> None:
    store, token = checked()
    assert store.takes(zk.Transacted(token)), "the membership machine hears nothing of it"
    assert store.hear(zk.Transacted(token), 0.1).actions == (AskKafka(REGISTERED_COMMIT),)
    answer = OffsetsCommitted(6, {R0: COMMITTED})
    assert store.hear(answer, 0.2).answers == (answer,)


def test_a_commit_of_who_is_no_member_any_more_is_fenced() -> None:
    store, token = checked()
    outcome = store.hear(zk.RequestRefused(token, f"/consumers/g/ids/{ME}", Refusal.NO_NODE), 0.1)
    fenced = PartitionVerdict(Verdict.FENCED, ErrorCode.UNKNOWN_MEMBER_ID)
    assert (outcome.actions, outcome.answers) == ((), (OffsetsCommitted(6, {R0: fenced}),))


def test_a_check_without_an_answer_leaves_the_commit_without_one() -> None:
    store, token = checked()
    outcome = store.hear(zk.Unanswered(token, "lost"), 0.1)
    assert (outcome.actions, outcome.answers) == ((), (NoAnswer(6, "lost"),))


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
    assert store.hear(zk.Transacted(token), 0.2).actions == (AskKafka(REGISTERED_COMMIT),)


P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
COMMIT = CommitOffsets(6, "g", ME, 1 << 40, {P0: CommittedOffset(9, "m")}, 1000)


def fetch(token: int = 5) -> FetchOffsets:
    return FetchOffsets(token, "g", frozenset(), 1000)


def written() -> tuple[DualOffsetStore, Any]:
    """A commit on its way into ZooKeeper."""
    store = DualOffsetStore(PATHS)
    (look,) = store.commit(COMMIT, 0.0).actions
    assert store.wake_at == 1.0
    assert store.takes(zk.SubtreesRead(look.token, {}))
    (write,) = store.hear(zk.SubtreesRead(look.token, {}), 0.1).actions
    assert Create("/consumers/g/offsets/t/0", b"9") in write.operations
    return store, write


def test_a_commit_goes_to_kafka_when_zookeeper_has_it() -> None:
    store, write = written()
    outcome = store.hear(zk.Transacted(write.token), 0.2)
    assert (outcome.actions, outcome.answers) == ((AskKafka(COMMIT),), ()), "the brokers answer"
    answer = OffsetsCommitted(6, {P0: COMMITTED})
    assert store.takes(answer)
    assert store.hear(answer, 0.3).answers == (answer,)


def test_a_commit_that_zookeeper_refuses_never_reaches_kafka() -> None:
    store, write = written()
    outcome = store.hear(zk.RequestRefused(write.token, f"/consumers/g/ids/{ME}", Refusal.NO_NODE), 0.2)
    fenced = PartitionVerdict(Verdict.FENCED, ErrorCode.UNKNOWN_MEMBER_ID)
    assert (outcome.actions, outcome.answers) == ((), (OffsetsCommitted(6, {P0: fenced}),))


def test_a_fetch_takes_the_larger_offset_of_both() -> None:
    store = DualOffsetStore(PATHS)
    (look,) = store.fetch(fetch(), 0.0).actions
    nodes = {PATHS.offset(tp): ZNode(data, 0, 1, 1, 1) for tp, data in ((P0, b"9"), (P1, b"3"))}
    outcome = store.hear(zk.SubtreesRead(look.token, nodes), 0.1)
    assert (outcome.actions, outcome.answers) == ((AskKafka(fetch()),), ())
    (answer,) = store.hear(OffsetsFetched(5, {P0: CommittedOffset(5, "k"), P1: CommittedOffset(7)}), 0.2).answers
    assert answer == OffsetsFetched(5, {P0: CommittedOffset(9), P1: CommittedOffset(7)})


def test_a_fetch_that_kafka_answers_while_the_member_rejoins_still_counts_zookeepers_offset() -> None:
    store = DualOffsetStore(PATHS)
    (look,) = store.fetch(fetch(), 0.0).actions
    store.hear(zk.SubtreesRead(look.token, {PATHS.offset(P0): ZNode(b"500", 0, 1, 1, 1)}), 0.1)
    store.follow(ev.Joining("", False))
    kafka = OffsetsFetched(5, {P0: CommittedOffset(20)})
    assert store.hear(kafka, 0.2).answers == (OffsetsFetched(5, {P0: CommittedOffset(500)}),)


@pytest.mark.parametrize("action", [ev.Lost(""), ev.Left()])
def test_kafkas_half_of_a_fetch_that_was_given_up_is_not_an_answer(action: Any) -> None:
    store = DualOffsetStore(PATHS)
    (look,) = store.fetch(fetch(), 0.0).actions
    store.hear(zk.SubtreesRead(look.token, {PATHS.offset(P0): ZNode(b"500", 0, 1, 1, 1)}), 0.1)
    store.follow(action)
    assert store.hear(OffsetsFetched(5, {P0: CommittedOffset(20)}), 0.2).answers == ()


def test_a_fetch_that_kafka_does_not_answer_has_no_answer() -> None:
    store = DualOffsetStore(PATHS)
    (look,) = store.fetch(fetch(), 0.0).actions
    store.hear(zk.SubtreesRead(look.token, {}), 0.1)
    assert store.hear(NoAnswer(5, "away"), 0.2).answers == (NoAnswer(5, "away"),)
    assert store._found == {}


@pytest.mark.parametrize("action", [ev.Joining("", False), ev.Lost("")])
def test_what_gives_partitions_up_withdraws_what_was_to_be_committed(action: Any) -> None:
    store, write = written()
    assert WithdrawFromKafka() in store.follow(action).actions
    assert store.hear(zk.RequestRefused(write.token, PATHS.offset(P0), Refusal.BAD_VERSION), 0.2).actions[1:] == ()


def test_leaving_forgets_what_zookeeper_will_not_answer_any_more() -> None:
    store = DualOffsetStore(PATHS)
    for token in range(10, 20):
        store.fetch(fetch(token), 0.0)
    store.follow(ev.Left())
    assert store._asked == {}
    assert store.wake_at is None


def test_of_two_commits_the_one_that_is_further_counts() -> None:
    kafka = {P0: CommittedOffset(5, "k"), P1: CommittedOffset(7)}
    zookeeper = {P0: CommittedOffset(9), P1: CommittedOffset(7, "z")}
    assert larger(kafka, zookeeper) == {P0: CommittedOffset(9), P1: CommittedOffset(7, "z")}
    assert larger(zookeeper, {}) == zookeeper


def test_without_a_group_the_offsets_are_in_memory() -> None:
    assert isinstance(store_at(NO_LOCATION), MemoryOffsetStore)


@pytest.mark.parametrize("stored_in", StoredIn)
def test_brokers_that_keep_the_members_are_asked_for_the_offsets(stored_in: StoredIn) -> None:
    assert isinstance(store_at(OffsetLocation("g", stored_in)), KafkaOffsetStore)


@pytest.mark.parametrize(
    ("stored_in", "store"),
    [
        (StoredIn.ZOOKEEPER, ZooKeeperOffsetStore),
        (StoredIn.KAFKA, RegisteredKafkaStore),
        (StoredIn.BOTH, DualOffsetStore),
    ],
)
def test_where_zookeeper_keeps_the_members_it_is_asked_first(stored_in: StoredIn, store: type) -> None:
    assert type(store_at(OffsetLocation("g", stored_in), PATHS)) is store


U3 = TopicPartition("u", 3)


def commit_in_memory(store: MemoryOffsetStore, **at: CommittedOffset) -> None:
    offsets = {{"a": R0, "b": U3}[name]: offset for name, offset in at.items()}
    (answer,) = store.commit(CommitOffsets(1, "", "", -1, offsets, 1_000), 0.0).answers
    assert answer == OffsetsCommitted(1, dict.fromkeys(offsets, COMMITTED))


def fetch_from_memory(store: MemoryOffsetStore) -> dict[TopicPartition, CommittedOffset]:
    (answer,) = store.fetch(FetchOffsets(2, "", frozenset(), 1_000), 0.0).answers
    assert isinstance(answer, OffsetsFetched)
    assert (answer.token, answer.refusal) == (2, None)
    return dict(answer.offsets)


def test_what_is_committed_is_found_with_its_epoch_and_metadata() -> None:
    store = MemoryOffsetStore()
    assert fetch_from_memory(store) == {}
    commit_in_memory(store, a=CommittedOffset(5, "told", 3), b=CommittedOffset(7))
    commit_in_memory(store, a=CommittedOffset(6, "later", 4))
    assert fetch_from_memory(store) == {R0: CommittedOffset(6, "later", 4), U3: CommittedOffset(7, "", -1)}
    assert fetch_from_memory(MemoryOffsetStore()) == {}, "another process knows nothing of it"


def test_an_answer_is_not_changed_by_a_later_commit() -> None:
    store = MemoryOffsetStore()
    commit_in_memory(store, a=CommittedOffset(5))
    before = fetch_from_memory(store)
    commit_in_memory(store, a=CommittedOffset(6))
    assert before == {R0: CommittedOffset(5)}

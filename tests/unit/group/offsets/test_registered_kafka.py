"""Offsets in Kafka alone of a group that ZooKeeper keeps: a commit goes out once its member was seen."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.errors import ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.offsets.registered_kafka import AskKafka, RegisteredKafkaStore, WithdrawFromKafka
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
from streamgroup.group.registry import events as zk
from streamgroup.group.registry.formats import GroupPaths
from streamgroup.model import CommittedOffset, Dialect, TopicPartition
from streamgroup.znodes import Check, Refusal

P0 = TopicPartition("t", 0)
PATHS = GroupPaths("g", Dialect.KAFKA)
ME = "g_host-1-aa"
FETCH = FetchOffsets(5, "g", frozenset(), 1000)
COMMIT = CommitOffsets(6, "g", ME, 1 << 40, {P0: CommittedOffset(9, "m")}, 1000)


def checked() -> tuple[RegisteredKafkaStore, int]:
    """A commit whose member is looked for, and the token of that."""
    store = RegisteredKafkaStore(PATHS)
    (check,) = store.commit(COMMIT, 0.0).actions
    assert check.operations == (Check(f"/consumers/g/ids/{ME}"),)
    return store, check.token


def test_a_fetch_is_the_brokers_and_so_is_its_answer() -> None:
    store = RegisteredKafkaStore(PATHS)
    assert store.fetch(FETCH, 0.0).actions == (AskKafka(FETCH),)
    answer = OffsetsFetched(5, {P0: CommittedOffset(3)})
    assert store.takes(answer)
    assert store.hear(answer, 0.1).answers == (answer,)


def test_a_commit_goes_to_the_brokers_once_its_member_was_seen_in_zookeeper() -> None:
    store, token = checked()
    assert store.takes(zk.Transacted(token)), "the membership machine hears nothing of it"
    assert store.hear(zk.Transacted(token), 0.1).actions == (AskKafka(COMMIT),)
    answer = OffsetsCommitted(6, {P0: COMMITTED})
    assert store.hear(answer, 0.2).answers == (answer,)


def test_a_commit_of_who_is_no_member_any_more_is_fenced() -> None:
    store, token = checked()
    outcome = store.hear(zk.RequestRefused(token, f"/consumers/g/ids/{ME}", Refusal.NO_NODE), 0.1)
    fenced = PartitionVerdict(Verdict.FENCED, ErrorCode.UNKNOWN_MEMBER_ID)
    assert (outcome.actions, outcome.answers) == ((), (OffsetsCommitted(6, {P0: fenced}),))


def test_a_check_without_an_answer_leaves_the_commit_without_one() -> None:
    store, token = checked()
    outcome = store.hear(zk.Unanswered(token, "lost"), 0.1)
    assert (outcome.actions, outcome.answers) == ((), (NoAnswer(6, "lost"),))


@pytest.mark.parametrize("action", [ev.Joining("", False), ev.Lost(""), ev.Left()])
def test_what_gives_partitions_up_withdraws_what_was_to_be_committed(action: Any) -> None:
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

"""Offsets in Kafka of a group that ZooKeeper keeps: which store hears of what, and when."""

from __future__ import annotations

from contextlib import closing
from typing import Any, cast

import pytest

from streamgroup.driver.membership.kafka_offsets import (
    COMMIT_VERSION,
    FETCH_VERSION,
    KafkaOffsets,
    TwoStores,
    commit_answer,
    fetch_answer,
    larger,
)
from streamgroup.errors import ErrorCode, StreamGroupError
from streamgroup.group import events as ev
from streamgroup.group.offsets.kafka import commit_request
from streamgroup.group.offsets.store import CommitOffsets
from streamgroup.group.registry import events as zk
from streamgroup.group.registry.formats import GroupPaths
from streamgroup.model import CommittedOffset, Dialect, TopicPartition
from streamgroup.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from streamgroup.wire.offsets import fetched_offsets, offset_fetch_request
from streamgroup.znodes import Check, Create, Refusal
from tests.unit.driver.shells import client

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
PATHS = GroupPaths("g", Dialect.KAFKA)
ME = "g_host-1-aa"


class Brokers:
    def __init__(self) -> None:
        self.taken: list[tuple[ev.Send, ev.Answered | None]] = []
        self.forgotten = 0

    def take(self, send: ev.Send, in_zookeeper: ev.Answered | None) -> None:
        self.taken.append((send, in_zookeeper))

    def forget(self) -> None:
        self.forgotten += 1

    def close(self) -> None:
        pass


def fetch(token: int = 5) -> ev.Send:
    return ev.Send(token, ev.Lane.COORDINATOR, OffsetFetchRequest, lambda v: offset_fetch_request(v, "g", None), 1000)


def commit(token: int = 6) -> ev.Send:
    build = commit_request(CommitOffsets(token, "g", ME, 1 << 40, {P0: CommittedOffset(9, "m")}, 1000))
    return ev.Send(token, ev.Lane.COORDINATOR, OffsetCommitRequest, build, 1000)


def stores(*, dual: bool) -> tuple[TwoStores, Brokers]:
    brokers = Brokers()
    return TwoStores(PATHS, brokers, dual=dual), brokers


def codes(answer: Any) -> list[int]:
    return [p.error_code for topic in answer.response.topics for p in topic.partitions]


class _Cluster:
    """Answers every commit with one code."""

    def __init__(self, code: int) -> None:
        self.code = code

    def coordinator(self, group: str, deadline: float) -> int:
        return 1

    def call_versioned(self, kind: Any, make: Any, *_: Any, **__: Any) -> tuple[int, Any]:
        request = make(COMMIT_VERSION)
        return COMMIT_VERSION, commit_answer(request, {P0: self.code})


@pytest.mark.parametrize(
    ("code", "told"), [(25, "the group has members there"), (69, "the broker has a group of another kind")]
)
def test_a_group_in_kafka_that_takes_no_commits_ends_the_query(code: int, told: str) -> None:
    with closing(KafkaOffsets(client(), "g", print, print)) as offsets:
        assert codes(ev.Answered(1, offsets._commit(cast("Any", _Cluster(28)), commit(), 0.0), COMMIT_VERSION)) == [28]
        with pytest.raises(StreamGroupError, match=told):
            offsets._commit(cast("Any", _Cluster(code)), commit(), 0.0)


# -- in Kafka alone ----------------------------------------------------------------------------------------------------


def test_a_fetch_is_the_brokers() -> None:
    two, brokers = stores(dual=False)
    assert two.carry_out(fetch(), 0.0).actions == ()
    assert [(send.token, answer) for send, answer in brokers.taken] == [(5, None)]


def test_a_commit_goes_to_the_brokers_once_its_member_was_seen_in_zookeeper() -> None:
    two, brokers = stores(dual=False)
    (check,) = two.carry_out(commit(), 0.0).actions
    assert check.operations == (Check(f"/consumers/g/ids/{ME}"),)
    assert brokers.taken == []
    assert two.takes(zk.Transacted(check.token)), "the member hears nothing of it"
    assert two.hear(zk.Transacted(check.token), 0.1).answers == ()
    assert [send.token for send, _ in brokers.taken] == [6]


def test_a_commit_of_who_is_no_member_any_more_is_refused() -> None:
    two, brokers = stores(dual=False)
    (check,) = two.carry_out(commit(), 0.0).actions
    (answer,) = two.hear(zk.Refused(check.token, f"/consumers/g/ids/{ME}", Refusal.NO_NODE), 0.1).answers
    assert isinstance(answer, ev.Answered)
    assert (answer.token, answer.version) == (6, COMMIT_VERSION)
    assert codes(answer) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert brokers.taken == []


def test_a_check_without_an_answer_fails_the_commit_which_is_made_again() -> None:
    two, brokers = stores(dual=False)
    (check,) = two.carry_out(commit(), 0.0).actions
    assert two.hear(zk.Unanswered(check.token, "lost"), 0.1).answers == (ev.Failed(6, "lost"),)
    assert brokers.taken == []


@pytest.mark.parametrize("action", [ev.Joining("", False), ev.Lost(""), ev.Left()])
def test_what_gives_partitions_up_forgets_what_was_to_be_committed(action: Any) -> None:
    two, brokers = stores(dual=False)
    (check,) = two.carry_out(commit(), 0.0).actions
    assert action in two.carry_out(action, 0.1).actions
    assert brokers.forgotten == 1
    two.hear(zk.Transacted(check.token), 0.2)
    assert brokers.taken == []


# -- in both -----------------------------------------------------------------------------------------------------------


def test_a_commit_to_both_goes_to_kafka_when_zookeeper_has_it() -> None:
    two, brokers = stores(dual=True)
    (look,) = two.carry_out(commit(), 0.0).actions
    (write,) = two.hear(zk.Looked(look.token, {}), 0.1).actions
    assert Create("/consumers/g/offsets/t/0", b"9") in write.operations
    assert brokers.taken == []
    assert two.hear(zk.Transacted(write.token), 0.2).answers == (), "the brokers answer"
    ((send, answer),) = brokers.taken
    assert send.token == 6
    assert answer is not None


def test_a_commit_that_zookeeper_refuses_never_reaches_kafka() -> None:
    two, brokers = stores(dual=True)
    (look,) = two.carry_out(commit(), 0.0).actions
    (write,) = two.hear(zk.Looked(look.token, {}), 0.1).actions
    (answer,) = two.hear(zk.Refused(write.token, f"/consumers/g/ids/{ME}", Refusal.NO_NODE), 0.2).answers
    assert codes(answer) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert brokers.taken == []


def test_a_fetch_from_both_takes_what_zookeeper_says_along() -> None:
    two, brokers = stores(dual=True)
    (look,) = two.carry_out(fetch(), 0.0).actions
    assert two.hear(zk.Looked(look.token, {}), 0.1).answers == ()
    ((send, answer),) = brokers.taken
    assert send.token == 5
    assert answer is not None


def test_of_two_commits_the_one_that_is_further_counts() -> None:
    kafka = {P0: CommittedOffset(5, "k"), P1: CommittedOffset(7)}
    zookeeper = {P0: CommittedOffset(9), P1: CommittedOffset(7, "z")}
    assert larger(kafka, zookeeper) == {P0: CommittedOffset(9), P1: CommittedOffset(7, "z")}
    assert larger(zookeeper, {}) == zookeeper
    told = fetched_offsets(fetch_answer(zookeeper), FETCH_VERSION, "g").partitions
    assert {tp: row.committed for tp, row in told.items()} == zookeeper


def test_leaving_forgets_what_zookeeper_will_not_answer_any_more() -> None:
    two, _ = stores(dual=True)
    for token in range(10, 20):
        two.carry_out(fetch(token), 0.0)
    two.carry_out(ev.Left(), 0.1)
    assert two._both == {}

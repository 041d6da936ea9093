"""Commits from due to answered."""

from __future__ import annotations

import pytest

from streamgroup.errors import ErrorCode
from streamgroup.group.commits import RECOMMIT_AFTER_S, Commit, Commits, CommitVerdict, commit_request, refusals
from streamgroup.model import CommittedOffset, OffsetRange, TopicPartition
from streamgroup.wire.messages.offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
OFFSETS = {A: CommittedOffset(5, "told", 3), C: CommittedOffset(7)}
NOW = 1000.0


def due(commits: Commits, now: float = NOW, *, moved: bool = False, everything: bool = False) -> bool:
    return commits.is_due(now, moved=moved, everything=everything)


def test_one_is_due_when_something_has_moved_and_none_while_one_is_awaited() -> None:
    commits = Commits()
    assert not due(commits)
    assert due(commits, moved=True)
    commit = commits.make(NOW, "m", 3, OFFSETS)
    assert (due(commits, moved=True), due(commits, everything=True)) == (False, True)
    assert commits.answered(commit, CommitVerdict.ACCEPTED)
    assert not commits.unfinished


def test_an_idle_one_is_made_anew_hourly() -> None:
    commits = Commits()
    assert not due(commits)
    assert due(commits, NOW + RECOMMIT_AFTER_S)
    commits.answered(commits.make(NOW + RECOMMIT_AFTER_S, "m", 3, OFFSETS), CommitVerdict.ACCEPTED)
    assert not due(commits, NOW + RECOMMIT_AFTER_S + 1)


def test_one_that_is_to_be_made_again_is_due_although_nothing_has_moved_since() -> None:
    commits = Commits()
    assert not commits.answered(commits.make(NOW, "m", 3, OFFSETS), CommitVerdict.RETRY)
    assert (due(commits), commits.unfinished) == (True, True)
    commits.nothing_held()
    assert (due(commits), commits.unfinished) == (False, False)


def test_only_the_answer_to_the_one_awaited_counts() -> None:
    commits = Commits()
    first = commits.make(NOW, "m", 3, OFFSETS)
    second = commits.make(NOW, "m", 3, OFFSETS)
    assert not commits.answered(first, CommitVerdict.ACCEPTED)
    assert commits.unfinished
    assert commits.answered(second, CommitVerdict.ACCEPTED)
    assert not commits.answered(second, CommitVerdict.RETRY)
    assert not commits.unfinished


@pytest.mark.parametrize("kept", [True, False])
def test_an_assignment_between_commit_and_answer(kept: bool) -> None:
    commits = Commits()
    commit = commits.make(NOW, "m", 3, OFFSETS)
    commits.interrupted(kept=kept)
    assert (commits.unfinished, due(commits)) == (kept, kept)
    assert not commits.answered(commit, CommitVerdict.ACCEPTED), "it was of another generation"


def test_the_request_tells_each_version_what_it_knows() -> None:
    build = commit_request("g", "node-1", Commit(1, "m", 3, OFFSETS))
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


def answer(**codes: int) -> OffsetCommitResponse:
    row = OffsetCommitResponsePartition
    topics = tuple(
        OffsetCommitResponseTopic(name=topic, partitions=(row(partition_index=0, error_code=code),))
        for topic, code in codes.items()
    )
    return OffsetCommitResponse(topics=topics)


def test_a_partition_without_an_answer_was_not_committed_and_a_deleted_one_is_no_refusal() -> None:
    commit = Commit(1, "m", 3, OFFSETS)
    assert refusals(commit, answer(t=0, u=0), lambda tp: True) == {}
    assert refusals(commit, answer(t=0), lambda tp: True) == {C: ErrorCode.REQUEST_TIMED_OUT}
    gone = answer(t=0, u=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert refusals(commit, gone, lambda tp: True) == {C: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert refusals(commit, gone, lambda tp: tp != C) == {}


# -- the newest batch that has sunk (R30) -----------------------------------------------------------------------------


def test_a_batch_that_has_sunk_is_outstanding_until_the_group_is_known_to_have_it() -> None:
    commits = Commits()
    commits.sank([OffsetRange(A, 0, 5), OffsetRange(B, 3, 9), OffsetRange(C, 0, 8)])
    assert commits.outstanding == {A, B, C}
    refused = commits.make(NOW, "m", 3, OFFSETS)
    commits.answered(refused, CommitVerdict.RETRY)
    assert commits.outstanding == {A, B, C}
    commits.answered(commits.make(NOW, "m", 3, OFFSETS), CommitVerdict.ACCEPTED)
    assert commits.outstanding == {B, C}, "C is committed at 7 only"
    commits.seen({B: CommittedOffset(20, "another member's"), C: CommittedOffset(7)})
    assert commits.outstanding == {C}
    commits.sank([OffsetRange(A, 5, 6)])
    assert commits.outstanding == {A}, "the newest batch alone"


def test_what_sank_outlives_the_assignment_under_which_it_was_to_be_committed() -> None:
    commits = Commits()
    commits.sank([OffsetRange(A, 0, 5)])
    commit = commits.make(NOW, "m", 3, OFFSETS)
    commits.interrupted(kept=False)
    assert not commits.answered(commit, CommitVerdict.ACCEPTED)
    assert commits.outstanding == {A}

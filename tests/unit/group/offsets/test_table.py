"""The offset store of a group whose offsets are in a database: claims, commits, and what a sink stores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamgroup.errors import FencedError
from streamgroup.group import events as ev
from streamgroup.group.offsets.store import (
    COMMITTED,
    NOTHING,
    CommitOffsets,
    FetchOffsets,
    NoAnswer,
    OffsetsCommitted,
    OffsetsFetched,
    PartitionVerdict,
    Verdict,
)
from streamgroup.group.offsets.table import (
    ClaimRows,
    CommitRows,
    RowsClaimed,
    RowsCommitted,
    TableOffsetStore,
    TableUnanswered,
)
from streamgroup.group.offsets.table_rows import BatchPart, Claimant, StoredOffset
from streamgroup.model import CommittedOffset, OffsetRange, TopicPartition
from tests.fakes.kafka_offsets import KafkaOffsets

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ME = Claimant("checkpoint", "run")
FETCH = FetchOffsets(1, "g", frozenset({A, B}), 1_000)
COMMIT = CommitOffsets(2, "g", "m", 3, {A: CommittedOffset(20, "told", 4)}, 1_000)


def mine(offset: int | None, claim: int = 1) -> StoredOffset:
    return StoredOffset(offset, claim, ME.lineage, ME.member)


def assigned(*partitions: TopicPartition, kept: frozenset[TopicPartition] = frozenset()) -> ev.Assigned:
    return ev.Assigned(3, "m", partitions, kept, "range", True, 1, 1)


def store(**rows: StoredOffset) -> tuple[TableOffsetStore, KafkaOffsets]:
    """A store that has been assigned A and B, and has claimed them if `rows` are given."""
    kafka = KafkaOffsets()
    made = TableOffsetStore(kafka, lambda: ME)
    made.follow(assigned(A, B))
    if rows:
        made.fetch(FETCH, 0.0)
        made.hear(RowsClaimed(1, {{"a": A, "b": B, "c": C}[name]: row for name, row in rows.items()}), 0.0)
    return made, kafka


def test_a_fetch_claims_what_was_gained_and_the_table_counts() -> None:
    made, kafka = store()
    kafka.committed = {A: CommittedOffset(5), C: CommittedOffset(7)}
    outcome = made.fetch(FETCH, 0.0)
    assert outcome.actions == (ClaimRows(1, "g", ME, frozenset({A, B}), kafka.committed),)
    rows = {A: mine(9), B: mine(None), TopicPartition("v", 0): StoredOffset(3, 1, "another", "other")}
    (answer,) = made.hear(RowsClaimed(1, rows), 0.0).answers
    assert answer == OffsetsFetched(
        1,
        {A: CommittedOffset(9), C: CommittedOffset(7), TopicPartition("v", 0): CommittedOffset(3)},
        outdated=frozenset({A}),
    )


def test_a_commit_in_kafka_that_has_passed_the_table_is_warned_of_and_does_not_count() -> None:
    made, kafka = store()
    kafka.committed = {A: CommittedOffset(12), B: CommittedOffset(3)}
    made.fetch(FETCH, 0.0)
    outcome = made.hear(RowsClaimed(1, {A: mine(9), B: mine(3)}), 0.0)
    (note,) = outcome.actions
    assert note.text.startswith("group g: the commits of t-0 in Kafka are beyond")
    found = {A: CommittedOffset(9), B: CommittedOffset(3)}
    assert outcome.answers == (OffsetsFetched(1, found, outdated=frozenset({A})),)


def test_a_fetch_that_kafka_refuses_claims_nothing() -> None:
    made, kafka = store()
    kafka.refusal = PartitionVerdict(Verdict.RETRIABLE, 14)
    assert made.fetch(FETCH, 0.0).answers == (OffsetsFetched(1, refusal=kafka.refusal),)


def test_kept_partitions_keep_their_claims() -> None:
    made, _ = store(a=mine(9, claim=4), b=mine(0))
    made.follow(assigned(A, C, kept=frozenset({A})))
    (action,) = made.fetch(FETCH, 0.0).actions
    assert action.partitions == {C}
    assert planned_claims(made, A) == [4]


def test_a_batch_that_was_stored_since_is_not_undone_by_the_next_commits() -> None:
    """The position is still at the start of the batch: Spark has not asked for the next one."""
    made, _ = store(a=mine(10), b=mine(0))
    made.commit(replace(COMMIT, offsets={A: CommittedOffset(10)}), 0.0)
    made.hear(RowsCommitted(2, {A: mine(20)}), 0.0)  # the row stays
    assert known(made) == 10
    made.follow(assigned(A, C, kept=frozenset({A})))
    made.fetch(FETCH, 0.0)
    made.hear(RowsClaimed(1, {A: mine(20), C: mine(0)}), 0.0)
    assert known(made) == 10


def test_a_replay_keeps_its_claims_when_its_partitions_are_assigned() -> None:
    """Another member may have stored the records of C and given the partition back: claim 2 is refused, 4 is not."""
    made, _ = store()
    made.replayed({C: mine(0, claim=2)})
    made.follow(assigned(A, C))
    made.fetch(FETCH, 0.0)
    made.hear(RowsClaimed(1, {A: mine(9), C: mine(200, claim=4)}), 0.0)
    assert claims_of(made, C, B) == [2, 0]


def test_a_batch_keeps_its_claims_when_its_partitions_are_lost_and_come_back() -> None:
    """The table refuses claim 4 if another run has claimed the partition, even after this member's claim 6."""
    made, _ = store(a=mine(9, claim=4), b=mine(0))
    assert planned_claims(made, A, B) == [4, 1]
    made.follow(ev.Lost("session ended"))
    made.follow(assigned(A))
    (action,) = made.fetch(FETCH, 0.0).actions
    assert action.partitions == {A}
    made.hear(RowsClaimed(1, {A: mine(9, claim=6)}), 0.0)
    assert claims_of(made, A, B) == [4, 1]
    assert planned_claims(made, A) == [6]


def test_a_lost_partition_cannot_be_planned_under_its_claim() -> None:
    made, _ = store(a=mine(9, claim=4), b=mine(0))
    made.follow(assigned(A, kept=frozenset({A})))
    assert planned_claims(made, A, B) == [4, 0]


def test_a_commit_goes_to_the_table_and_then_to_kafka() -> None:
    made, kafka = store(a=mine(10), b=mine(None))
    assert made.commit(COMMIT, 0.0).actions == (CommitRows(2, "g", {A: mine(10)}, COMMIT.offsets),)
    assert not kafka.asked
    assert made.hear(RowsCommitted(2, {A: mine(20)}), 0.0).answers == (OffsetsCommitted(2, {A: COMMITTED}),)
    assert kafka.asked == [COMMIT]
    (action,) = made.commit(COMMIT, 0.0).actions
    assert action.claims == {A: mine(20)}


def test_a_commit_of_an_earlier_claim_ends_the_query_and_never_reaches_kafka() -> None:
    made, kafka = store(a=mine(10), b=mine(None))
    made.commit(COMMIT, 0.0)
    (action,) = made.hear(RowsCommitted(2, {A: None}), 0.0).actions
    assert isinstance(action.error, FencedError)
    assert str(action.error).startswith("group g: cannot commit t-0 to the offset table: another run has claimed")
    assert not kafka.asked


def test_a_partition_that_another_has_claimed_meanwhile_is_not_taken_for_ours() -> None:
    made, _ = store(a=StoredOffset(9, 5, "another", "other"), b=mine(0))
    assert planned_claims(made, A, B) == [0, 1]


@pytest.mark.parametrize("begin", ["fetch", "commit"])
def test_a_request_that_the_database_does_not_answer_has_no_answer(begin: str) -> None:
    made, _ = store(a=mine(10), b=mine(0))
    request: Any = FETCH if begin == "fetch" else COMMIT
    getattr(made, begin)(request, 0.0)
    assert made.hear(TableUnanswered(request.token, "away"), 0.0).answers == (
        NoAnswer(request.token, "away", is_elsewhere=True),
    )
    assert made.hear(TableUnanswered(request.token, "away"), 0.0) == NOTHING


@pytest.mark.parametrize("action", [assigned(A, kept=frozenset({A})), ev.Lost("session ended"), ev.Left()])
def test_an_answer_to_a_request_of_an_earlier_assignment_is_dropped(action: Any) -> None:
    made, kafka = store(a=mine(10), b=mine(0))
    made.fetch(FETCH, 0.0)
    made.commit(COMMIT, 0.0)
    made.follow(action)
    assert made.hear(RowsClaimed(1, {A: mine(10)}), 0.0) == NOTHING
    assert made.hear(RowsCommitted(2, {A: mine(20)}), 0.0) == NOTHING
    assert not kafka.asked


def test_what_a_sink_stores_has_the_claim_of_each_range() -> None:
    made, _ = store(a=mine(10, claim=4), b=mine(0))
    made.planned([OffsetRange(A, 10, 20), OffsetRange(B, 0, 5)])
    ranges = [OffsetRange(A, 10, 20), OffsetRange(B, 0, 5), OffsetRange(C, 0, 1)]
    after = {one.partition: CommittedOffset(one.until) for one in ranges}
    claims = dict(zip((A, B, C), (4, 1, 0), strict=True))
    assert made.parts(ranges, after) == [BatchPart(one, claims[one.partition], after[one.partition]) for one in ranges]


def test_its_events_are_its_own_and_kafkas() -> None:
    made, kafka = store()
    assert made.takes(RowsClaimed(1, {}))
    assert not made.takes(ev.Tick())
    kafka.wake_at = 5.0
    assert (made.wake_at, made.is_the_groups) == (5.0, True)


def known(made: TableOffsetStore) -> int | None:
    """The offset of partition A that a commit would compare the row with."""
    (action,) = made.commit(replace(COMMIT, offsets={A: CommittedOffset(10)}), 0.0).actions
    offset: int | None = action.claims[A].next_offset
    return offset


def planned_claims(made: TableOffsetStore, *partitions: TopicPartition) -> list[int]:
    """The claims of a batch of `partitions` that is planned now."""
    made.planned(OffsetRange(tp, 0, 1) for tp in partitions)
    return claims_of(made, *partitions)


def claims_of(made: TableOffsetStore, *partitions: TopicPartition) -> list[int]:
    """The claims of the batch in flight."""
    after = {tp: CommittedOffset(1) for tp in partitions}
    return [part.claim for part in made.parts([OffsetRange(tp, 0, 1) for tp in partitions], after)]

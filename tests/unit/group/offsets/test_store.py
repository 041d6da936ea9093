"""A member fetches and commits its offsets in one vocabulary, whichever store keeps them."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.errors import error_of
from streamgroup.group import events as ev
from streamgroup.group.offsets.store import (
    COMMITTED,
    NOTHING,
    TIMED_OUT,
    Answer,
    CommitOffsets,
    FetchOffsets,
    MemoryOffsetStore,
    NoAnswer,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetStore,
    Outcome,
    Request,
    Verdict,
)
from streamgroup.model import CommittedOffset, TopicPartition

A = TopicPartition("t", 0)
FETCH = FetchOffsets(1, "g", frozenset({A}), 1_000)
COMMIT = CommitOffsets(2, "g", "m", 3, {A: CommittedOffset(5, "told", 2)}, 1_000)


class Plain(OffsetStore):
    """A store that says no more than it must: it answers both requests at once."""

    is_the_groups = False

    def fetch(self, request: FetchOffsets, now: float) -> Outcome:
        return Outcome(answers=(OffsetsFetched(request.token),))

    def commit(self, request: CommitOffsets, now: float) -> Outcome:
        return Outcome(answers=(OffsetsCommitted(request.token, dict.fromkeys(request.offsets, COMMITTED)),))


@pytest.mark.parametrize(
    "event",
    [ev.Tick(), ev.RequestAnswered(1, None, 0), ev.RequestFailed(1, "connection reset"), NoAnswer(1, "too late")],
)
def test_a_store_that_answers_at_once_takes_no_event_and_does_nothing_about_one(event: Any) -> None:
    """Its membership machine hears all of them."""
    assert not Plain().takes(event)
    assert Plain().hear(event, 5.0) == NOTHING


@pytest.mark.parametrize("action", [ev.Left(), ev.Lost("over"), ev.Joining("start", abandoned=False)])
def test_a_store_that_has_nothing_under_way_follows_an_action_without_a_word(action: Any) -> None:
    assert Plain().follow(action) == Outcome((), ())


def test_a_store_that_keeps_no_deadline_is_never_woken() -> None:
    assert Plain().wake_at is None


def test_a_partition_that_timed_out_may_be_committed_again() -> None:
    assert TIMED_OUT.verdict is Verdict.RETRIABLE
    assert (error_of(TIMED_OUT.code).name, error_of(TIMED_OUT.code).retriable) == ("REQUEST_TIMED_OUT", True)


def test_requests_and_answers_are_told_apart_by_their_kind() -> None:
    answers = (OffsetsFetched(1), OffsetsCommitted(2, {}), NoAnswer(3, "connection reset"))
    assert [isinstance(each, Answer) for each in (*answers, FETCH, COMMIT)] == [True, True, True, False, False]
    assert [isinstance(each, Request) for each in (*answers, FETCH, COMMIT)] == [False, False, False, True, True]


MEMBER, B = TopicPartition("t", 0), TopicPartition("u", 3)


def commit(store: MemoryOffsetStore, **at: CommittedOffset) -> None:
    offsets = {{"a": MEMBER, "b": B}[name]: offset for name, offset in at.items()}
    (answer,) = store.commit(CommitOffsets(1, "", "", -1, offsets, 1_000), 0.0).answers
    assert answer == OffsetsCommitted(1, dict.fromkeys(offsets, COMMITTED))


def fetch(store: MemoryOffsetStore) -> dict[TopicPartition, CommittedOffset]:
    (answer,) = store.fetch(FetchOffsets(2, "", frozenset(), 1_000), 0.0).answers
    assert isinstance(answer, OffsetsFetched)
    assert (answer.token, answer.refusal) == (2, None)
    return dict(answer.offsets)


def test_what_is_committed_is_found_with_its_epoch_and_metadata() -> None:
    store = MemoryOffsetStore()
    assert fetch(store) == {}
    commit(store, a=CommittedOffset(5, "told", 3), b=CommittedOffset(7))
    commit(store, a=CommittedOffset(6, "later", 4))
    assert fetch(store) == {MEMBER: CommittedOffset(6, "later", 4), B: CommittedOffset(7, "", -1)}
    assert fetch(MemoryOffsetStore()) == {}, "another process knows nothing of it"


def test_an_answer_is_not_changed_by_a_later_commit() -> None:
    store = MemoryOffsetStore()
    commit(store, a=CommittedOffset(5))
    before = fetch(store)
    commit(store, a=CommittedOffset(6))
    assert before == {MEMBER: CommittedOffset(5)}

"""The offsets of a query that no group knows of: committed, fetched, gone with the process."""

from __future__ import annotations

from streamgroup.group.offsets.memory import MemoryOffsetStore
from streamgroup.group.offsets.store import COMMITTED, CommitOffsets, FetchOffsets, OffsetsCommitted, OffsetsFetched
from streamgroup.model import CommittedOffset, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("u", 3)


def commit(store: MemoryOffsetStore, **at: CommittedOffset) -> None:
    offsets = {{"a": A, "b": B}[name]: offset for name, offset in at.items()}
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
    assert fetch(store) == {A: CommittedOffset(6, "later", 4), B: CommittedOffset(7, "", -1)}
    assert fetch(MemoryOffsetStore()) == {}, "another process knows nothing of it"


def test_an_answer_is_not_changed_by_a_later_commit() -> None:
    store = MemoryOffsetStore()
    commit(store, a=CommittedOffset(5))
    before = fetch(store)
    commit(store, a=CommittedOffset(6))
    assert before == {A: CommittedOffset(5)}

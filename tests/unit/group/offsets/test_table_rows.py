"""What claims, batches and commits may do with the rows of the offset table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import FencedError, OffsetStoreError
from streamgroup.group.commits import CommitMetadata
from streamgroup.group.offsets.table_rows import (
    BatchPart,
    Claimant,
    Judgement,
    StoredOffset,
    after_batch,
    after_claim,
    after_commit,
    is_claimed_by_another_query,
    judge,
)
from streamgroup.model import CommittedOffset, OffsetRange, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ME, OTHER = Claimant("checkpoint", "run"), Claimant("another", "other")


def part(tp: TopicPartition = A, start: int = 10, until: int = 20, claim: int = 1) -> BatchPart:
    return BatchPart(OffsetRange(tp, start, until), claim, CommittedOffset(until, "told", 3))


def row(offset: int | None = 10, claim: int = 1, by: Claimant = ME) -> StoredOffset:
    return StoredOffset(offset, claim, by.lineage, by.member)


@pytest.mark.parametrize(
    ("parts", "rows", "expected"),
    [
        ([part()], {A: row()}, Judgement.NEW),
        ([part()], {A: row(20)}, Judgement.REPLAY),
        ([part()], {A: row(20, claim=7, by=OTHER)}, Judgement.REPLAY),
        ([part(), part(B)], {A: row(), B: row()}, Judgement.NEW),
        ([part(), part(B)], {A: row(20), B: row(20)}, Judgement.REPLAY),
        ([], {}, Judgement.NEW),
        ([part(until=10)], {A: row(99, claim=5)}, Judgement.NEW),
        ([part(until=10), part(B)], {A: row(99, claim=5), B: row(20)}, Judgement.REPLAY),
    ],
)
def test_a_batch_is_new_or_a_replay(
    parts: list[BatchPart], rows: dict[TopicPartition, StoredOffset], expected: Judgement
) -> None:
    assert judge("g", parts, rows) is expected


def test_a_batch_of_an_earlier_claim_is_refused_though_nothing_was_added_since() -> None:
    with pytest.raises(FencedError, match=r"group g: .*t-0\[10, 20\).*run other \(claim 2, the batch has 1\)"):
        judge("g", [part()], {A: row(claim=2, by=OTHER)})


def test_a_batch_is_refused_after_a_reset() -> None:
    with pytest.raises(FencedError, match="an operator, who has reset the offset"):
        judge("g", [part()], {A: StoredOffset(10, 2)})


@pytest.mark.parametrize("offset", [None, 0, 9, 11, 19, 21])
def test_a_batch_that_does_not_begin_at_the_offset_is_refused(offset: int | None) -> None:
    at = "no offset" if offset is None else f"offset {offset} "
    with pytest.raises(OffsetStoreError, match=at):
        judge("g", [part()], {A: row(offset)})


def test_a_batch_of_which_a_part_is_stored_is_refused() -> None:
    with pytest.raises(OffsetStoreError, match=r"t-0\[10, 20\)"):
        judge("g", [part(), part(B)], {A: row(20), B: row()})


def test_a_claim_keeps_the_offset_and_counts() -> None:
    before = StoredOffset(10, 4, "x", "y", 3, "told")
    assert after_claim(before, ME) == StoredOffset(10, 5, ME.lineage, ME.member, 3, "told")
    assert after_claim(before, ME, CommittedOffset(99)).next_offset == 10


def test_a_run_keeps_its_claim_until_another_run_has_claimed() -> None:
    mine = after_claim(StoredOffset(10, 4), ME)
    assert after_claim(mine, ME) == mine
    assert after_claim(after_claim(mine, OTHER), ME).claim == mine.claim + 2
    assert after_claim(after_claim(StoredOffset(), ME), ME, CommittedOffset(7)).next_offset == 7


def test_the_first_claim_takes_over_the_commit_of_the_group() -> None:
    told = CommitMetadata("lineage", "run", 4, 0, 1, "id").text()
    for metadata, kept in ((told, told), ("of another client", "")):
        row = after_claim(StoredOffset(), ME, CommittedOffset(7, metadata, 2))
        assert row == StoredOffset(7, 1, ME.lineage, ME.member, 2, kept)
    assert after_claim(StoredOffset(), ME).committed is None


@pytest.mark.parametrize(
    ("held", "expected"),
    [(row(by=ME), False), (row(by=OTHER), True), (StoredOffset(), False), (StoredOffset(5, 3), False)],
)
def test_whether_another_query_has_claimed_a_partition(held: StoredOffset, expected: bool) -> None:
    assert is_claimed_by_another_query(held, ME) is expected


def test_adding_a_batch_moves_the_offset_and_keeps_the_claim() -> None:
    assert after_batch(row(), part()) == StoredOffset(20, 1, ME.lineage, ME.member, 3, "told")


@pytest.mark.parametrize(
    ("held", "known", "expected"),
    [
        (row(None), None, 15),
        (row(10), 10, 15),
        (row(20), 10, 20),  # a batch was stored whose end the owner does not know yet
        (row(20), None, 20),
        (row(10, claim=2), 10, None),
    ],
)
def test_a_commit_outside_a_batch(held: StoredOffset, known: int | None, expected: int | None) -> None:
    after = after_commit(held, 1, known, CommittedOffset(15, "told"))
    assert (None if after is None else after.next_offset) == expected


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """Steps of two members with one partition: who, what, and how many records."""
    step = st.tuples(st.sampled_from(["claim", "read", "store", "commit"]), st.integers(0, 1), st.integers(0, 3))
    return [(what, who, count) for what, who, count in draw(st.lists(step, max_size=40))]


@given(histories())
def test_no_history_of_two_members_adds_a_record_twice_or_leaves_one_out(history: list[tuple[str, int, int]]) -> None:
    stored: list[int] = []
    held = StoredOffset(0)
    mine: dict[int, StoredOffset] = {}
    batches: dict[int, BatchPart] = {}
    for what, who, count in history:
        claimant = Claimant(f"c{who}", f"m{who}")
        if what == "claim":
            mine[who] = held = after_claim(held, claimant)
        elif what == "read" and who in mine:
            start = mine[who].next_offset
            assert start is not None
            batches[who] = part(start=start, until=start + count, claim=mine[who].claim)
        elif what == "store" and who in batches:
            try:
                judged = judge("g", [batches[who]], {A: held})
            except (FencedError, OffsetStoreError):
                continue
            if judged is Judgement.NEW and len(batches[who].range):
                stored += range(batches[who].range.start, batches[who].range.until)
                held = after_batch(held, batches[who])
            mine[who] = replace(mine[who], next_offset=batches[who].range.until)
        elif what == "commit" and who in mine:
            known = mine[who].next_offset
            assert known is not None
            after = after_commit(held, mine[who].claim, known, CommittedOffset(known))
            held = held if after is None else after
    assert stored == list(range(held.next_offset or 0))

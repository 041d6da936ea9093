"""Commits from due to answered."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import ErrorCode
from streamgroup.group.commits import (
    DOUBTFUL_BYTES,
    NOT_FOUNDED,
    PART_BYTES,
    CommitMetadata,
    Commits,
    CommitVerdict,
    Offsets,
    PartSize,
    deciding,
    refusals,
)
from streamgroup.group.offsets.store import COMMITTED, TIMED_OUT, PartitionVerdict, Verdict
from streamgroup.model import CommittedOffset, OffsetRange, TopicPartition
from tests.fakes.offsets import batch_bytes

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
OFFSETS = {A: CommittedOffset(5, "told", 3), C: CommittedOffset(7)}
NOW = 1000.0


def due(commits: Commits, now: float = NOW, *, moved: bool = False, everything: bool = False) -> bool:
    return commits.is_due(now, moved=moved, everything=everything)


def test_one_that_is_to_be_made_again_is_due_although_nothing_has_moved_since() -> None:
    commits = Commits()
    assert not commits.answered(commits.make(NOW, "m", 3, OFFSETS), CommitVerdict.RETRY, NOW)
    assert (due(commits), commits.unfinished) == (True, True)
    commits.nothing_held()
    assert (due(commits), commits.unfinished) == (False, False)


def test_it_measures_how_long_the_accepted_ones_took() -> None:
    commits = Commits()
    commits.answered(commits.make(NOW, "m", 3, OFFSETS), CommitVerdict.RETRY, NOW + 10)
    overtaken = commits.make(NOW + 10, "m", 3, OFFSETS)
    commits.answered(commits.make(NOW + 20, "m", 3, OFFSETS), CommitVerdict.ACCEPTED, NOW + 20.5)
    commits.answered(overtaken, CommitVerdict.ACCEPTED, NOW + 21)
    commits.answered(commits.make(NOW + 30, "m", 3, OFFSETS), CommitVerdict.ACCEPTED, NOW + 31)
    assert (commits.accepted, commits.accepted_s) == (2, 1.5)


@pytest.mark.parametrize("kept", [True, False])
def test_an_assignment_between_commit_and_answer(kept: bool) -> None:
    commits = Commits()
    commit = commits.make(NOW, "m", 3, OFFSETS)
    commits.interrupted(kept=kept)
    assert (commits.unfinished, due(commits)) == (kept, kept)
    assert not commits.answered(commit, CommitVerdict.ACCEPTED, NOW), "it was of another generation"


def test_a_partition_without_a_verdict_was_not_committed_and_a_deleted_one_is_no_refusal() -> None:
    assert refusals(OFFSETS, {A: COMMITTED, C: COMMITTED}, lambda tp: True) == {}
    assert refusals(OFFSETS, {A: COMMITTED}, lambda tp: True) == {C: TIMED_OUT}
    unknown = PartitionVerdict(Verdict.STALE_METADATA, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert refusals(OFFSETS, {A: COMMITTED, C: unknown}, lambda tp: True) == {C: unknown}
    assert refusals(OFFSETS, {A: COMMITTED, C: unknown}, lambda tp: tp != C) == {}


def test_of_several_refusals_the_one_that_no_attempt_mends_decides() -> None:
    passing, failed, final, moved, fenced = (
        PartitionVerdict(verdict, 1)
        for verdict in (Verdict.RETRIABLE, Verdict.FAILED, Verdict.REFUSED, Verdict.MOVED, Verdict.FENCED)
    )
    assert deciding({A: passing, B: failed}) == (B, failed)
    assert deciding({A: failed, B: final}) == (B, final)
    assert deciding({A: final, B: moved}) == (B, moved)
    assert deciding({A: moved, B: fenced, C: passing}) == (B, fenced)
    assert deciding({B: final, A: final}) == (A, final), "the first partition, of the same kind"


# -- the newest batch that has sunk (R30) -----------------------------------------------------------------------------


def test_a_batch_that_has_sunk_is_outstanding_until_the_group_is_known_to_have_it() -> None:
    commits = Commits()
    commits.sank([OffsetRange(A, 0, 5), OffsetRange(B, 3, 9), OffsetRange(C, 0, 8)])
    assert commits.outstanding == {A, B, C}
    refused = commits.make(NOW, "m", 3, OFFSETS)
    commits.answered(refused, CommitVerdict.RETRY, NOW)
    assert commits.outstanding == {A, B, C}
    commits.answered(commits.make(NOW, "m", 3, OFFSETS), CommitVerdict.ACCEPTED, NOW)
    assert commits.outstanding == {B, C}, "C is committed at 7 only"
    commits.seen({B: CommittedOffset(20, "another member's"), C: CommittedOffset(7)})
    assert commits.outstanding == {C}
    commits.sank([OffsetRange(A, 5, 6)])
    assert commits.outstanding == {A}, "the newest batch alone"


MAX_MESSAGE_BYTES = 1_048_588
"""The default of brokers and topics."""
OURS = CommitMetadata(*("0123456789abcdef",) * 2, 2**40, 2**40, 2**31 - 1, "a" * 36, 2**40).text()


def offsets(partitions: int, topic: str = "orders", metadata: str = OURS) -> Offsets:
    return {TopicPartition(topic, n): CommittedOffset(2**60, metadata, 7) for n in range(partitions)}


def joined(parts: tuple[Offsets, ...]) -> Offsets:
    return {tp: offset for part in parts for tp, offset in part.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("group", "topic"), [("g", "t"), ("etl", "orders"), ("g" * 200, "t" * 249), ("Gruppe-ä", "t")])
@pytest.mark.parametrize("metadata", ["", OURS, "x" * 4096])
def test_every_part_fits_into_a_record_batch_of_the_default_size(group: str, topic: str, metadata: str) -> None:
    wanted = offsets(20_000 if len(metadata) < 4096 else 2_000, topic, metadata)
    size = PartSize(group)
    parts = size.split(wanted)
    assert joined(parts) == wanted
    assert all(batch_bytes(group, part) <= size.bytes_of(part) + 61 <= MAX_MESSAGE_BYTES for part in parts)
    assert len(parts) <= 2 * size.bytes_of(wanted) / PART_BYTES + 1, "no more requests than it takes"


def test_a_share_of_a_common_size_is_one_request() -> None:
    assert len(PartSize("etl").split(offsets(1_500))) == 1
    assert PartSize("etl").split({}) == ()


def test_a_part_that_is_refused_for_its_size_is_halved_down_to_one_partition() -> None:
    size = PartSize("etl")
    part = offsets(1_000)
    seen = [len(part)]
    while size.shrink(part, certain=True):
        assert joined(size.split(part)) == part
        part = size.split(part)[0]
        seen.append(len(part))
    assert seen[-1] == 1
    assert all(after <= before // 2 + 1 for before, after in pairwise(seen))
    assert len(size.split(offsets(10))) == 10


def test_a_failure_that_may_mean_anything_makes_only_large_requests_smaller() -> None:
    size = PartSize("etl")
    assert not size.shrink(offsets(2), certain=False)
    assert size.most == PART_BYTES
    large = offsets(1_000)
    assert size.bytes_of(large) > DOUBTFUL_BYTES
    assert size.shrink(large, certain=False)
    assert size.most == size.bytes_of(large) // 2


@pytest.mark.slow
def test_a_hundred_thousand_partitions_are_divided_in_linear_time() -> None:
    began = time.process_time()
    parts = PartSize("etl").split(offsets(100_000))
    assert time.process_time() - began < 5
    assert sum(map(len, parts)) == 100_000


METADATA = CommitMetadata("1c0ffee5", "deadbeef", sequence=7, asked=8, founding=3, topic_id="topic-id")
TEXT = '{"streamgroup":1,"lineage":"1c0ffee5","run":"deadbeef","sequence":7,"asked":8,"founding":3,"topic":"topic-id"}'
BROKERS_LIMIT = 4096


def changed(**values: object) -> str:
    return json.dumps(json.loads(TEXT) | values)


@pytest.mark.parametrize(
    ("metadata", "text"),
    [(METADATA, TEXT), (replace(METADATA, batch=12), TEXT[:-1] + ',"batch":12}')],
    ids=["as ever", "with Spark's batch id, which a listener reported"],
)
def test_the_text_is_readable_and_stays_as_it_is(metadata: CommitMetadata, text: str) -> None:
    assert metadata.text() == text
    assert CommitMetadata.parse(text) == metadata


@given(
    st.builds(
        CommitMetadata,
        lineage=st.text(max_size=20),
        run=st.text(max_size=20),
        sequence=st.integers(0, 2**63 - 1),
        asked=st.integers(0, 2**63 - 1),
        founding=st.integers(NOT_FOUNDED, 2**31 - 1),
        topic_id=st.text(max_size=36),
        batch=st.none() | st.integers(0, 2**63 - 1),
    )
)
def test_what_was_written_is_read(metadata: CommitMetadata) -> None:
    text = metadata.text()
    assert CommitMetadata.parse(text) == metadata
    assert len(text.encode()) < BROKERS_LIMIT


@pytest.mark.parametrize(
    "change", [*({"batch": batch} for batch in (None, "12", 12.0, True, -1, [12])), {"a later release's": 12}], ids=str
)
def test_an_invalid_batch_id_and_an_unknown_key_take_nothing_from_the_rest(change: dict[str, object]) -> None:
    """Nothing is decided by them."""
    assert CommitMetadata.parse(changed(**change)) == METADATA


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="an operator's reset, or a Java consumer"),
        pytest.param("node-17", id="another client's text"),
        pytest.param('"streamgroup"', id="a JSON text"),
        pytest.param("[1]", id="a JSON array"),
        pytest.param("{}", id="an empty object"),
        pytest.param("[" * 5000, id="deeper than anybody reads"),
        pytest.param("9" * 5000, id="a longer number than Python reads"),
        pytest.param(TEXT[:-1], id="cut off"),
        pytest.param(changed(streamgroup=2), id="a newer format"),
        pytest.param(changed(streamgroup=True), id="true is no format"),
        pytest.param(changed(streamgroup=1.0), id="1.0 is no format"),
        pytest.param(changed(run=None), id="no run"),
        pytest.param(changed(lineage=5), id="a number for the lineage"),
        pytest.param(changed(topic=0), id="a number for the topic"),
        pytest.param(changed(sequence="7"), id="a text for a number"),
        pytest.param(changed(asked=8.0), id="a float for a number"),
        pytest.param(changed(founding=True), id="true for a number"),
    ],
)
def test_what_is_not_ours_tells_nothing(text: str) -> None:
    assert CommitMetadata.parse(text) is None


@pytest.mark.slow
@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_text_is_read_without_an_error(text: str) -> None:
    assert CommitMetadata.parse(text) is None

from __future__ import annotations

import pytest

from streamgroup.cli._spark_offsets import after_sunk, of_document, of_replay, spark_value
from streamgroup.errors import ConfigError
from streamgroup.group.commit_metadata import CommitMetadata
from streamgroup.model import CommittedOffset, Document, OffsetRange, Position, TopicPartition

ZERO, ONE, TWO = (TopicPartition("orders", number) for number in range(3))
TOPICS = ["orders"]
DOCUMENT = Document(
    "g",
    "line",
    "run",
    7,
    ranges=(OffsetRange(ZERO, 50, 90),),
    positions={ZERO: Position(90, "id", 3), ONE: Position(20, "id", 3)},
)


def ours(offset: int, lineage: str = "line") -> CommittedOffset:
    return CommittedOffset(offset, CommitMetadata(lineage, "run", 6, 7, 1).text())


def test_spark_goes_on_at_the_positions_of_a_batch_that_has_sunk() -> None:
    found = after_sunk(DOCUMENT, {ZERO: ours(90), ONE: ours(20)}, TOPICS)
    assert (found.ends, found.notes) == ({ZERO: 90, ONE: 20}, ())
    assert spark_value(found.ends) == {"orders": {"0": 90, "1": 20}}
    assert of_document(DOCUMENT) == found.ends


def test_what_has_sunk_and_is_not_committed_is_not_read_again() -> None:
    assert after_sunk(DOCUMENT, {ZERO: ours(50)}, TOPICS).ends[ZERO] == 90


@pytest.mark.parametrize("commit", [CommittedOffset(30), CommittedOffset(95), ours(30, "another"), ours(95, "another")])
def test_a_commit_of_somebody_else_is_followed(commit: CommittedOffset) -> None:
    found = after_sunk(DOCUMENT, {ZERO: commit}, TOPICS)
    assert found.ends == {ZERO: commit.offset, ONE: 20}
    assert found.notes == (f"orders-0: the group has committed {commit.offset}, the checkpoint says 90",)


def test_partitions_of_other_members_come_from_the_commits_of_the_group() -> None:
    commits = {TWO: CommittedOffset(33), TopicPartition("payments", 0): CommittedOffset(1)}
    found = after_sunk(DOCUMENT, commits, TOPICS)
    assert found.ends == {ZERO: 90, ONE: 20, TWO: 33}, "and no topic that the query has not read"
    assert found.notes == ("of other members of the group, from its commits: orders-2",)


def test_a_batch_that_has_not_sunk_keeps_its_ranges() -> None:
    found = of_replay(DOCUMENT, {ZERO: ours(50), ONE: ours(20), TWO: CommittedOffset(33)}, TOPICS)
    assert found.starts == {ZERO: 50, ONE: 20, TWO: 33}
    assert found.ends == {ZERO: 90, ONE: 20, TWO: 33}


@pytest.mark.parametrize(("commit", "start", "end"), [(60, 60, 90), (90, 90, 90), (120, 120, 120)])
def test_a_replay_leaves_out_what_the_group_has_committed(commit: int, start: int, end: int) -> None:
    found = of_replay(DOCUMENT, {ZERO: CommittedOffset(commit)}, TOPICS)
    assert (found.starts[ZERO], found.ends[ZERO]) == (start, end)
    assert len(found.notes) == 1


def test_a_replay_of_a_batch_before_which_nothing_was_committed_begins_where_it_was_planned() -> None:
    """The batch before it has sunk, and a crash came before its commit."""
    assert of_replay(DOCUMENT, {ZERO: ours(10)}, TOPICS).starts[ZERO] == 50
    assert of_replay(DOCUMENT, {}, TOPICS).starts == {ZERO: 50, ONE: 20}


def test_a_reset_behind_a_planned_batch_is_refused() -> None:
    with pytest.raises(ConfigError, match="starts orders-0 at 50, and the group was reset to 10"):
        of_replay(DOCUMENT, {ZERO: CommittedOffset(10)}, TOPICS)

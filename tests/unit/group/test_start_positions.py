"""R5 to R8 as tables. `checkpoint` is the newest document proven sunk: sequence 7 of run `now`, position 100."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamgroup.group.commits import FIRST_EPOCH, NOT_FOUNDED, CommitMetadata
from streamgroup.group.start_positions import (
    Origin,
    StartPosition,
    applies_starting_offsets,
    founding_epoch,
    founding_generation,
    start_of,
)
from streamgroup.kafka.wire.messages.offsets import NO_METADATA
from streamgroup.model import INITIAL_DOCUMENT, CommittedOffset, Document, Position, TopicPartition

A, B, C = (TopicPartition("orders", n) for n in range(3))
NOW = Document("g", "lineage", "now", 7, positions={A: Position(100, "id")})
BEFORE = replace(NOW, run="before")
SPARKS_OWN = Document("", "", "", 0, positions={A: Position(100)})


def ours(
    offset: int, run: str, sequence: int, *, asked: int = 0, lineage: str = "lineage", topic: str = "id"
) -> Commit:
    return CommittedOffset(offset, CommitMetadata(lineage, run, sequence, asked, 1, topic).text())


def foreign(offset: int) -> Commit:
    return CommittedOffset(offset)


Commit = CommittedOffset
AHEAD, COMMITTED, CHECKPOINT = Origin.CHECKPOINT_AHEAD, Origin.COMMITTED, Origin.CHECKPOINT


RECREATED, STARTING, EARLIEST = Origin.RECREATED, Origin.STARTING, Origin.EARLIEST
Row = tuple[str, Document, Commit | None, Origin, int | None]


def each(rows: list[Row]) -> pytest.MarkDecorator:
    """Run a test for each row: the case, the checkpoint, the commit, and the origin and offset of the start."""
    return pytest.mark.parametrize(
        ("checkpoint", "committed", "origin", "offset"), [row[1:] for row in rows], ids=[row[0] for row in rows]
    )


def start(checkpoint: Document, committed: Commit | None, **others: Any) -> StartPosition:
    others = {"run": "now", "topic_id": "id", "use_starting_offsets": True} | others
    return start_of(A, checkpoint=checkpoint, committed=committed, **others)


@pytest.mark.parametrize("starting", [True, False])
@each(
    [
        ("a: the commit of a proven batch was lost", NOW, ours(90, "now", 6), AHEAD, 100),
        ("a: the last run was stopped, its batch ran", BEFORE, ours(90, "before", 6, asked=7), AHEAD, 100),
        ("b: the sink skipped the last batch (R17)", BEFORE, ours(90, "before", 6, asked=6), COMMITTED, 90),
        ("b: a later batch was asked, in doubt", BEFORE, ours(90, "before", 6, asked=8), COMMITTED, 90),
        ("b: another member continued from an older place", NOW, ours(90, "other", 6, asked=7), COMMITTED, 90),
        ("b: another member continued", NOW, ours(250, "other", 9), COMMITTED, 250),
        ("b: a forked checkpoint repeats sequences", NOW, ours(90, "now", 6, lineage="fork"), COMMITTED, 90),
        ("b: gained again after this document was emitted", NOW, ours(90, "now", 7), COMMITTED, 90),
        ("b: a restored, older checkpoint", NOW, ours(90, "now", 12), COMMITTED, 90),
        ("b: the commit is as far as the checkpoint", NOW, ours(100, "now", 6), COMMITTED, 100),
        ("b: the checkpoint never pulls a commit back", NOW, ours(120, "now", 6), COMMITTED, 120),
        ("b: an operator reset it back", NOW, foreign(20), COMMITTED, 20),
        ("b: an operator set it forward", NOW, foreign(500), COMMITTED, 500),
        ("b: a new query continues at the group's commit", INITIAL_DOCUMENT, foreign(20), COMMITTED, 20),
        ("b: a checkpoint of Spark's connector has no lineage", SPARKS_OWN, ours(90, "now", 6), COMMITTED, 90),
        ("c: the commit has expired", NOW, None, CHECKPOINT, 100),
        ("c: a checkpoint of Spark's connector, a new group", SPARKS_OWN, None, CHECKPOINT, 100),
    ]
)
def test_where_a_gained_partition_starts(
    checkpoint: Document, committed: Commit | None, origin: Origin, offset: int, starting: bool
) -> None:
    assert start(checkpoint, committed, use_starting_offsets=starting) == StartPosition(origin, offset)


@each(
    [
        ("its own commit, never the last", BEFORE, ours(90, "before", 6, asked=6), CHECKPOINT, 100),
        ("a restored checkpoint has a restored state", NOW, ours(250, "other", 12), CHECKPOINT, 100),
        ("an operator reset it back", NOW, foreign(20), COMMITTED, 20),
        ("an operator set it forward", NOW, foreign(500), COMMITTED, 500),
        ("others read for other sinks", NOW, ours(250, "a", 6, lineage="a"), CHECKPOINT, 100),
        ("its sink skipped a batch (R17)", NOW, ours(90, "now", 6, lineage=""), COMMITTED, 90),
        ("no lineage in both is no common lineage", SPARKS_OWN, ours(90, "now", 6, lineage=""), COMMITTED, 90),
        ("nothing is committed", NOW, None, CHECKPOINT, 100),
        ("ZooKeeper has no writer of a commit", NOW, Commit(90, NO_METADATA), CHECKPOINT, 100),
        ("nor a mark of a reset", NOW, Commit(500, NO_METADATA), CHECKPOINT, 100),
        ("a new checkpoint takes over", INITIAL_DOCUMENT, Commit(90, NO_METADATA), COMMITTED, 90),
        ("a new checkpoint in a known group", INITIAL_DOCUMENT, ours(90, "now", 6), COMMITTED, 90),
    ]
)
def test_alone_the_checkpoint_goes_before_the_commits_of_queries(
    checkpoint: Document, committed: Commit | None, origin: Origin, offset: int
) -> None:
    assert start(checkpoint, committed, alone=True) == StartPosition(origin, offset)


@each(
    [
        ("a replay left out what another query had claimed", NOW, ours(90, "now", 6), COMMITTED, 90),
        ("the last run asked for the batch", BEFORE, ours(90, "before", 6, asked=7), COMMITTED, 90),
        ("the table is ahead", NOW, ours(120, "now", 8), COMMITTED, 120),
        ("the table does not know the partition yet", NOW, None, CHECKPOINT, 100),
    ]
)
def test_no_checkpoint_is_ahead_of_the_offset_table(
    checkpoint: Document, committed: Commit | None, origin: Origin, offset: int
) -> None:
    assert start(checkpoint, committed, with_rows=True) == StartPosition(origin, offset)


@each(
    [
        ("the batch after the checkpoint is stored", NOW, ours(120, "now", 8), COMMITTED, 120),
        ("the table is as far", NOW, ours(100, "now", 7), CHECKPOINT, 100),
        ("the state has what the table lacks", NOW, ours(90, "now", 6), CHECKPOINT, 100),
        ("an operator reset it back", NOW, foreign(20), COMMITTED, 20),
    ]
)
def test_alone_the_checkpoint_never_moves_the_offset_table_back(
    checkpoint: Document, committed: Commit | None, origin: Origin, offset: int
) -> None:
    assert start(checkpoint, committed, alone=True, with_rows=True) == StartPosition(origin, offset)


@pytest.mark.parametrize(
    ("checkpoint", "committed", "topic_id", "found"),
    [
        pytest.param(INITIAL_DOCUMENT, None, "id", StartPosition(CHECKPOINT, 40, 3), id="batch 0 without any commit"),
        pytest.param(INITIAL_DOCUMENT, foreign(20), "id", StartPosition(COMMITTED, 20), id="the group knows better"),
        pytest.param(NOW, None, "id", StartPosition(CHECKPOINT, 100), id="the checkpoint knows better"),
        pytest.param(INITIAL_DOCUMENT, None, "new", StartPosition(STARTING), id="the batch is of an older topic"),
    ],
)
def test_a_replayed_batch_tells_where_it_began_where_nothing_else_does(
    checkpoint: Document, committed: Commit | None, topic_id: str, found: StartPosition
) -> None:
    assert start(checkpoint, committed, topic_id=topic_id, begun=Position(40, "id", 3)) == found


@pytest.mark.parametrize(
    ("checkpoint", "starting", "origin"),
    [
        pytest.param(INITIAL_DOCUMENT, True, STARTING, id="d: the founding generation of a new query"),
        pytest.param(INITIAL_DOCUMENT, False, EARLIEST, id="a topic that appears in generation 2"),
        pytest.param(replace(NOW, positions={}), False, EARLIEST, id="a partition that the checkpoint never had"),
    ],
)
def test_a_partition_that_nobody_knows_asks_the_log(checkpoint: Document, starting: bool, origin: Origin) -> None:
    assert start(checkpoint, None, use_starting_offsets=starting) == StartPosition(origin)


@each(
    [
        ("document and commit are of the old topic", NOW, ours(90, "now", 6), RECREATED, None),
        ("the broker deleted the commits with the topic", NOW, None, RECREATED, None),
        ("only the commit is known, and old", INITIAL_DOCUMENT, ours(90, "now", 6), RECREATED, None),
        ("another member read the new topic", NOW, ours(5, "other", 9, topic="new"), COMMITTED, 5),
        ("an operator set the new topic's offset", NOW, foreign(5), COMMITTED, 5),
    ]
)
def test_another_topic_id_voids_positions(
    checkpoint: Document, committed: Commit | None, origin: Origin, offset: int | None
) -> None:
    assert start(checkpoint, committed, topic_id="new") == StartPosition(origin, offset)


@pytest.mark.parametrize(
    ("commit_topic", "topic_id", "origin"),
    [
        pytest.param("old", "id", CHECKPOINT, id="only the commit is of an old topic"),
        pytest.param("id", "", AHEAD, id="a broker that knows no ids contradicts nothing"),
        pytest.param("", "id", AHEAD, id="ids since an upgrade of the brokers"),
    ],
)
def test_an_unknown_topic_id_voids_nothing(commit_topic: str, topic_id: str, origin: Origin) -> None:
    assert start(NOW, ours(90, "now", 6, topic=commit_topic), topic_id=topic_id) == StartPosition(origin, 100)


@pytest.mark.parametrize("origin", list(Origin))
def test_every_position_but_the_committed_one_is_committed_before_its_first_fetch(origin: Origin) -> None:
    assert StartPosition(origin, 1).commit_at_once is (origin is not Origin.COMMITTED)


def founded(generation: int, offset: int = 1) -> Commit:
    return CommittedOffset(offset, CommitMetadata("l", "r", 1, 1, generation).text())


@pytest.mark.parametrize(
    ("commits", "generation", "founding", "starting"),
    [
        pytest.param({}, 1, 1, True, id="nobody has committed: this generation founds"),
        pytest.param({}, 5, 5, True, id="the founders of 1 to 4 died before a commit"),
        pytest.param({A: founded(3), B: founded(3)}, 3, 3, True, id="another founder of this generation was faster"),
        pytest.param({A: founded(1)}, 2, 1, False, id="a partition that appears in generation 2"),
        pytest.param({A: founded(1), B: founded(2)}, 2, 1, False, id="not all say that this generation founded"),
        pytest.param({A: founded(4), B: founded(2)}, 9, 2, False, id="the oldest one counts"),
        pytest.param({A: foreign(7)}, 1, NOT_FOUNDED, False, id="a Java consumer was here before"),
        pytest.param({A: founded(2), B: foreign(7)}, 2, NOT_FOUNDED, False, id="an operator set one partition"),
        pytest.param({A: founded(2), B: foreign(7)}, 3, 2, False, id="an operator reset one partition of an old group"),
        pytest.param(
            {A: founded(NOT_FOUNDED)}, 1, NOT_FOUNDED, False, id="copied from a group that was not founded by us"
        ),
        pytest.param({C: founded(1)}, 2, 1, False, id="commits of partitions that are not held count"),
    ],
)
def test_starting_offsets_are_for_the_founding_generation(
    commits: dict[TopicPartition, Commit], generation: int, founding: int, starting: bool
) -> None:
    assert founding_generation(commits, generation) == founding
    assert applies_starting_offsets(INITIAL_DOCUMENT, founding, generation) is starting
    assert not applies_starting_offsets(NOW, founding, generation), "only of a query that starts from nothing"


@pytest.mark.parametrize(
    ("commits", "epoch", "founding"),
    [
        pytest.param({}, 5, 5, id="nobody has committed: this epoch founds"),
        pytest.param({A: founded(FIRST_EPOCH + 3)}, 3, 3, id="another founder of this epoch was faster"),
        pytest.param({A: founded(FIRST_EPOCH + 3)}, 1, 1, id="one of a later epoch was faster"),
        pytest.param({A: founded(FIRST_EPOCH + 3)}, 4, 3, id="a partition that is gained after the first commit"),
        pytest.param({A: founded(FIRST_EPOCH + 3), B: founded(FIRST_EPOCH + 1)}, 2, 1, id="the oldest one counts"),
    ],
)
def test_starting_offsets_are_for_what_a_member_has_owned_since_before_the_first_commit(
    commits: dict[TopicPartition, Commit], epoch: int, founding: int
) -> None:
    """A member that has yet to give partitions up stays in its epoch, while others go on to the next ones."""
    assert founding_epoch(commits, FIRST_EPOCH + epoch) == FIRST_EPOCH + founding

"""R5 to R8 as tables. `checkpoint` is the newest document proven sunk: sequence 7 of run `now`, position 100."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamgroup.group.commits import NOT_FOUNDED, CommitMetadata
from streamgroup.group.positions import Origin, StartPosition, applies_starting_offsets, founding_generation, start_of
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


@pytest.mark.parametrize(
    ("checkpoint", "committed", "start"),
    [
        pytest.param(NOW, ours(90, "now", 6), StartPosition(AHEAD, 100), id="a: the commit of a proven batch was lost"),
        pytest.param(
            BEFORE,
            ours(90, "before", 6, asked=7),
            StartPosition(AHEAD, 100),
            id="a: the last run was stopped, its batch ran",
        ),
        pytest.param(
            BEFORE,
            ours(90, "before", 6, asked=6),
            StartPosition(COMMITTED, 90),
            id="b: the sink skipped the last batch (R17)",
        ),
        pytest.param(
            BEFORE,
            ours(90, "before", 6, asked=8),
            StartPosition(COMMITTED, 90),
            id="b: a later batch was asked, in doubt",
        ),
        pytest.param(
            NOW,
            ours(90, "other", 6, asked=7),
            StartPosition(COMMITTED, 90),
            id="b: another member went on from an older place",
        ),
        pytest.param(NOW, ours(250, "other", 9), StartPosition(COMMITTED, 250), id="b: another member went on"),
        pytest.param(
            NOW,
            ours(90, "now", 6, lineage="fork"),
            StartPosition(COMMITTED, 90),
            id="b: a forked checkpoint repeats sequences",
        ),
        pytest.param(
            NOW, ours(90, "now", 7), StartPosition(COMMITTED, 90), id="b: gained again after this document was emitted"
        ),
        pytest.param(NOW, ours(90, "now", 12), StartPosition(COMMITTED, 90), id="b: a restored, older checkpoint"),
        pytest.param(
            NOW, ours(100, "now", 6), StartPosition(COMMITTED, 100), id="b: the commit is as far as the checkpoint"
        ),
        pytest.param(
            NOW, ours(120, "now", 6), StartPosition(COMMITTED, 120), id="b: the checkpoint never pulls a commit back"
        ),
        pytest.param(NOW, foreign(20), StartPosition(COMMITTED, 20), id="b: an operator reset it back"),
        pytest.param(NOW, foreign(500), StartPosition(COMMITTED, 500), id="b: an operator set it forward"),
        pytest.param(
            INITIAL_DOCUMENT,
            foreign(20),
            StartPosition(COMMITTED, 20),
            id="b: a new query goes on where the group stands",
        ),
        pytest.param(
            SPARKS_OWN,
            ours(90, "now", 6),
            StartPosition(COMMITTED, 90),
            id="b: a checkpoint of Spark's connector has no lineage",
        ),
        pytest.param(NOW, None, StartPosition(CHECKPOINT, 100), id="c: the commit has expired"),
        pytest.param(
            SPARKS_OWN, None, StartPosition(CHECKPOINT, 100), id="c: a checkpoint of Spark's connector, a new group"
        ),
    ],
)
def test_where_a_gained_partition_starts(checkpoint: Document, committed: Commit | None, start: StartPosition) -> None:
    for starting in (True, False):
        found = start_of(
            A, checkpoint=checkpoint, run="now", committed=committed, topic_id="id", use_starting_offsets=starting
        )
        assert found == start


@pytest.mark.parametrize(
    ("checkpoint", "committed", "start"),
    [
        pytest.param(
            BEFORE, ours(90, "before", 6, asked=6), StartPosition(CHECKPOINT, 100), id="its own commit, never the last"
        ),
        pytest.param(
            NOW, ours(250, "other", 12), StartPosition(CHECKPOINT, 100), id="a restored checkpoint has a restored state"
        ),
        pytest.param(NOW, foreign(20), StartPosition(COMMITTED, 20), id="an operator reset it back"),
        pytest.param(NOW, foreign(500), StartPosition(COMMITTED, 500), id="an operator set it forward"),
        pytest.param(
            NOW, ours(250, "a", 6, lineage="a"), StartPosition(CHECKPOINT, 100), id="others read for other sinks"
        ),
        pytest.param(
            NOW, ours(90, "now", 6, lineage=""), StartPosition(COMMITTED, 90), id="its sink skipped a batch (R17)"
        ),
        pytest.param(
            SPARKS_OWN, ours(90, "now", 6, lineage=""), StartPosition(COMMITTED, 90), id="no lineage is no kinship"
        ),
        pytest.param(NOW, None, StartPosition(CHECKPOINT, 100), id="nothing is committed"),
        pytest.param(
            NOW, Commit(90, NO_METADATA), StartPosition(CHECKPOINT, 100), id="ZooKeeper does not tell whose it is"
        ),
        pytest.param(NOW, Commit(500, NO_METADATA), StartPosition(CHECKPOINT, 100), id="nor that it is a reset"),
        pytest.param(
            INITIAL_DOCUMENT, Commit(90, NO_METADATA), StartPosition(COMMITTED, 90), id="a new checkpoint takes over"
        ),
        pytest.param(
            INITIAL_DOCUMENT, ours(90, "now", 6), StartPosition(COMMITTED, 90), id="a new checkpoint in a known group"
        ),
    ],
)
def test_alone_the_checkpoint_goes_before_the_commits_of_queries(
    checkpoint: Document, committed: Commit | None, start: StartPosition
) -> None:
    found = start_of(
        A,
        checkpoint=checkpoint,
        run="now",
        committed=committed,
        topic_id="id",
        use_starting_offsets=True,
        alone=True,
    )
    assert found == start


BEGUN = Position(40, "id", 3)


@pytest.mark.parametrize(
    ("checkpoint", "committed", "topic_id", "start"),
    [
        pytest.param(
            INITIAL_DOCUMENT, None, "id", StartPosition(CHECKPOINT, 40, 3), id="batch 0 of who never committed"
        ),
        pytest.param(INITIAL_DOCUMENT, foreign(20), "id", StartPosition(COMMITTED, 20), id="the group knows better"),
        pytest.param(NOW, None, "id", StartPosition(CHECKPOINT, 100), id="the checkpoint knows better"),
        pytest.param(
            INITIAL_DOCUMENT, None, "new", StartPosition(Origin.STARTING), id="the batch is of an older topic"
        ),
    ],
)
def test_a_replayed_batch_tells_where_it_began_where_nothing_else_does(
    checkpoint: Document, committed: Commit | None, topic_id: str, start: StartPosition
) -> None:
    found = start_of(
        A,
        checkpoint=checkpoint,
        run="now",
        committed=committed,
        topic_id=topic_id,
        use_starting_offsets=True,
        begun=BEGUN,
    )
    assert found == start


@pytest.mark.parametrize(
    ("checkpoint", "starting", "origin"),
    [
        pytest.param(INITIAL_DOCUMENT, True, Origin.STARTING, id="d: the founding generation of a new query"),
        pytest.param(INITIAL_DOCUMENT, False, Origin.EARLIEST, id="a topic that appears in generation 2"),
        pytest.param(
            replace(NOW, positions={}), False, Origin.EARLIEST, id="a partition that the checkpoint never had"
        ),
    ],
)
def test_a_partition_that_nobody_knows_asks_the_log(checkpoint: Document, starting: bool, origin: Origin) -> None:
    found = start_of(A, checkpoint=checkpoint, run="now", committed=None, topic_id="id", use_starting_offsets=starting)
    assert found == StartPosition(origin)


@pytest.mark.parametrize(
    ("checkpoint", "committed", "topic_id", "start"),
    [
        pytest.param(
            NOW,
            ours(90, "now", 6),
            "new",
            StartPosition(Origin.RECREATED),
            id="document and commit are of the old topic",
        ),
        pytest.param(
            NOW, None, "new", StartPosition(Origin.RECREATED), id="the broker deleted the commits with the topic"
        ),
        pytest.param(
            INITIAL_DOCUMENT,
            ours(90, "now", 6),
            "new",
            StartPosition(Origin.RECREATED),
            id="only the commit is known, and old",
        ),
        pytest.param(
            NOW,
            ours(5, "other", 9, topic="new"),
            "new",
            StartPosition(COMMITTED, 5),
            id="another member read the new topic",
        ),
        pytest.param(NOW, foreign(5), "new", StartPosition(COMMITTED, 5), id="an operator set the new topic's offset"),
        pytest.param(
            NOW,
            ours(90, "now", 6, topic="old"),
            "id",
            StartPosition(CHECKPOINT, 100),
            id="only the commit is of an old topic",
        ),
        pytest.param(
            NOW, ours(90, "now", 6), "", StartPosition(AHEAD, 100), id="a broker that knows no ids contradicts nothing"
        ),
        pytest.param(
            NOW, ours(90, "now", 6, topic=""), "id", StartPosition(AHEAD, 100), id="ids since an upgrade of the brokers"
        ),
    ],
)
def test_another_topic_id_voids_positions(
    checkpoint: Document, committed: Commit | None, topic_id: str, start: StartPosition
) -> None:
    for starting in (True, False) if start.origin is not Origin.RECREATED else (True,):
        found = start_of(
            A, checkpoint=checkpoint, run="now", committed=committed, topic_id=topic_id, use_starting_offsets=starting
        )
        assert found == start


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

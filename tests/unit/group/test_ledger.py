"""Scenarios of the ledger: what Spark, the group and the offset store do to it, and what it then commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from streamgroup.errors import ConfigError
from streamgroup.group.commits import NOT_FOUNDED, RECOMMIT_AFTER_S, CommitMetadata, CommitVerdict
from streamgroup.group.holdings import summary_of
from streamgroup.group.ledger import Ledger
from streamgroup.group.positions import Origin, StartPosition
from streamgroup.model import (
    INITIAL_DOCUMENT,
    CommittedOffset,
    Document,
    OffsetRange,
    PartitionInfo,
    Position,
    TopicInfo,
    TopicPartition,
)
from tests.unit.group.ledgers import (
    NOW,
    A,
    B,
    C,
    accept,
    assign,
    document,
    due,
    gain,
    in_flight,
    offsets,
    ours,
    started,
    told,
    topics,
)

# -- a batch ----------------------------------------------------------------------------------------------------------


def test_a_batch_moves_its_positions_when_it_is_proven_and_the_commit_carries_all_that_is_held() -> None:
    ledger = in_flight({A: ours(90), B: ours(40)}, document(5, a=(90, 100), b=(40, 40)))
    assert ledger.commit_due(NOW) is None
    assert offsets(ledger) == {A: 90, B: 40}
    ledger.mark_sunk(document(5, a=(90, 100), b=(40, 40)))
    assert ledger.idle
    assert not ledger.settled
    commit = accept(ledger)
    assert offsets(commit) == {A: 100, B: 40}
    assert commit.offsets[A].leader_epoch == 5
    assert told(commit, A) == CommitMetadata("lineage", "now", 5, 5, 1, "id")
    assert ledger.settled
    assert ledger.commit_due(NOW) is None


def test_an_older_start_proves_nothing() -> None:
    planned = document(5, a=(90, 100))
    ledger = in_flight({A: ours(90)}, planned)
    ledger.mark_sunk(document(4, a=(90, 90), b=(40, 40)))
    assert not ledger.idle
    assert offsets(ledger) == {A: 90}


def test_a_batch_that_the_sink_skipped_commits_nothing_and_says_why() -> None:
    ledger = started(document(4, a=(90, 90)))
    gain(ledger, {A: ours(90)})
    skipped = document(5, a=(90, 100))
    ledger.emitted(skipped)
    with pytest.raises(ConfigError, match=r"group g: the sink skipped a batch.*document 5 \(t-0\[90, 100\)\)"):
        ledger.mark_sunk(skipped)
    farewell = ledger.commit_due(NOW, everything=True)
    assert farewell is not None
    assert offsets(farewell) == {A: 90}
    assert (told(farewell, A).sequence, told(farewell, A).asked) == (4, 0)


def test_only_the_document_in_flight_is_handed_out() -> None:
    ledger = in_flight({A: ours(90)}, document(5, a=(90, 100)))
    with pytest.raises(ValueError, match="document 6 is not in flight"):
        ledger.handed_out(document(6, a=(100, 110)))


# -- gaining ----------------------------------------------------------------------------------------------------------


def test_no_offsets_are_fetched_before_spark_tells_the_checkpoint() -> None:
    """AvailableNow joins before the first call, and a replay while its filter is fetched."""
    ledger = Ledger("g", "now", "lineage")
    assign(ledger, A)
    assert not ledger.offsets_wanted(topics())
    assert not ledger.settled
    ledger.mark_sunk(document(4, a=(90, 90)))
    assert ledger.offsets_wanted(topics())
    assert ledger.offsets_found("m", 3, {}, topics()) == {A: StartPosition(Origin.CHECKPOINT, 90, 5)}


def test_no_offsets_are_fetched_before_the_topic_is_known() -> None:
    ledger = started()
    assign(ledger, A)
    assert not ledger.offsets_wanted({})
    assert ledger.offsets_found("m", 3, {A: ours(90)}, {}) == {}
    assert ledger.offsets_wanted(topics())


def test_a_topic_that_the_metadata_lacks_holds_up_its_own_partitions_only() -> None:
    other = TopicPartition("u", 0)
    both = {**topics(), "u": TopicInfo("u", (PartitionInfo(0, 1, 5),), "id of u")}
    ledger = started()
    assign(ledger, A, other)
    assert ledger.offsets_wanted(topics())
    assert ledger.offsets_found("m", 3, {}, topics()) == {A: StartPosition(Origin.STARTING)}
    ledger.resolved(3, {A: 90})
    accept(ledger)
    assert (ledger.settled, ledger.offsets_wanted(topics())) == (True, False)
    ledger.emitted(document(1, a=(90, 95)))
    assert ledger.offsets_wanted(both)
    found = ledger.offsets_found("m", 3, {A: ours(90, 0, founding=3)}, both)
    assert found == {other: StartPosition(Origin.STARTING)}, "this is the founding generation still (R7)"
    assert not ledger.settled
    ledger.resolved(3, {other: 40})
    assert offsets(commit := accept(ledger)) == {A: 90, other: 40}
    assert told(commit, other).sequence == 1, "gained after that document (R20)"


def test_a_topic_that_the_checkpoint_knows_is_waited_for() -> None:
    """A document without it would become the checkpoint, and it would start at earliest where no commit is left."""
    other = TopicPartition("u", 0)
    for known, settled in (({A: Position(90)}, True), ({A: Position(90), other: Position(7)}, False)):
        ledger = started(replace(document(4), positions=known))
        assign(ledger, A, other)
        ledger.offsets_found("m", 3, {}, topics())
        accept(ledger)
        assert (ledger.settled, ledger.awaits_offsets) == (settled, True)


def test_a_partition_that_grew_after_the_last_metadata_has_its_topics_id() -> None:
    ledger = started()
    assign(ledger, A, C)
    ledger.offsets_found("m", 3, {A: ours(90), C: ours(7)}, topics(count=1))
    assert {p.topic_id for p in ledger.positions().values()} == {"id"}


def test_a_position_from_the_checkpoint_is_committed_before_anything_is_planned() -> None:
    ledger = started(document(4, a=(90, 90)))
    assert gain(ledger, {}, A) == {A: StartPosition(Origin.CHECKPOINT, 90, 5)}
    assert not ledger.settled
    assert offsets(accept(ledger)) == {A: 90}
    assert ledger.settled


def test_starting_offsets_are_resolved_by_the_log_and_committed_before_anything_is_planned() -> None:
    ledger = started()
    assert gain(ledger, {}, A, B) == {A: StartPosition(Origin.STARTING), B: StartPosition(Origin.STARTING)}
    assert ledger.unresolved == {A: Origin.STARTING, B: Origin.STARTING}
    assert not ledger.settled
    assert ledger.commit_due(NOW) is None
    ledger.resolved(2, {A: 1, B: 1})
    assert ledger.unresolved, "an answer for another generation counts for nothing"
    ledger.resolved(3, {A: 500, B: 700, C: 9})
    assert not ledger.settled
    commit = accept(ledger)
    assert offsets(commit) == {A: 500, B: 700}
    assert told(commit, A) == CommitMetadata("lineage", "now", 0, 0, 3, "id")


def test_the_group_is_founded_by_the_first_commit_that_is_accepted() -> None:
    """A rebalance comes between resolving and committing: those who join in it are founders too."""
    ledger = started()
    gain(ledger, {}, A)
    ledger.resolved(3, {A: 500})
    ledger.answered(due(ledger), CommitVerdict.RETRY, NOW)
    assign(ledger, A, generation=4, kept=(A,))
    assert told(accept(ledger), A).founding == 4
    assign(ledger, A, generation=5, kept=(A,))
    ledger.moved(A, 501)
    assert told(accept(ledger), A).founding == 4


@pytest.mark.parametrize(
    ("commits", "founding"),
    [({B: ours(1, founding=2)}, 2), ({B: CommittedOffset(1)}, NOT_FOUNDED), ({B: ours(1, founding=3)}, 3)],
    ids=["an older generation", "another client", "this generation"],
)
def test_a_commit_copies_who_founded_the_group(commits: dict[TopicPartition, CommittedOffset], founding: int) -> None:
    ledger = started()
    starts = gain(ledger, commits, A)
    assert starts[A].origin is (Origin.STARTING if founding == 3 else Origin.EARLIEST)
    ledger.resolved(3, {A: 0})
    assert told(accept(ledger), A).founding == founding


def test_an_answer_for_another_generation_or_member_id_changes_nothing() -> None:
    ledger = started()
    assign(ledger, A)
    assert ledger.offsets_found("m", 2, {A: ours(1)}, topics()) == {}
    assert ledger.offsets_found("other", 3, {A: ours(1)}, topics()) == {}
    assert ledger.positions() == {}
    assert ledger.offsets_wanted(topics())


# -- losing -----------------------------------------------------------------------------------------------------------


def test_a_lost_partition_is_moved_and_committed_by_nobody() -> None:
    planned = document(5, a=(90, 100), b=(40, 60))
    ledger = in_flight({A: ours(90), B: ours(40)}, planned)
    assign(ledger, B, generation=4, kept=(B,))
    ledger.mark_sunk(planned)
    assert offsets(accept(ledger)) == {B: 60}


def test_a_partition_lost_to_another_member_and_regained_is_where_that_member_left_it() -> None:
    planned = document(5, a=(90, 100))
    ledger = in_flight({A: ours(90)}, planned)
    assign(ledger, generation=4)
    gain(ledger, {A: ours(95, 9, run="other")}, generation=5)
    ledger.mark_sunk(planned)
    assert offsets(ledger) == {A: 95}


@pytest.mark.parametrize("regained_first", [True, False], ids=["regained, then proven", "proven, then regained"])
def test_a_lone_querys_hiccup_repeats_nothing(regained_first: bool) -> None:
    planned = document(5, a=(90, 100), b=(40, 40))
    ledger = in_flight({A: ours(90, run="now"), B: ours(40, run="now")}, planned)
    ledger.lost()
    if not regained_first:
        ledger.mark_sunk(planned)
    gain(ledger, {A: ours(90, run="now"), B: ours(40, run="now")}, generation=4)
    if regained_first:
        assert ledger.settled
        assert not ledger.idle
        ledger.mark_sunk(planned)
    assert offsets(ledger) == {A: 100, B: 40}
    assert not ledger.settled
    assert offsets(accept(ledger)) == {A: 100, B: 40}


@pytest.mark.parametrize("regained_first", [True, False])
def test_an_operators_reset_is_not_undone_by_the_document_before_it(regained_first: bool) -> None:
    planned = document(5, a=(90, 100))
    ledger = in_flight({A: ours(90, run="now")}, planned)
    ledger.lost()
    if not regained_first:
        ledger.mark_sunk(planned)
    gain(ledger, {A: CommittedOffset(20)}, generation=4)
    if regained_first:
        ledger.mark_sunk(planned)
    assert offsets(ledger) == {A: 20}


def test_an_operators_reset_stays_although_this_member_has_committed_it_since() -> None:
    """The commit of a partition gained later names the newest document emitted: that document is no news to it."""
    planned = document(5, a=(90, 100), b=(40, 60))
    ledger = in_flight({A: ours(90, run="now"), B: ours(40, run="now")}, planned)
    ledger.lost()
    gain(ledger, {A: CommittedOffset(20), B: ours(40, run="now")}, generation=4)
    farewell = ledger.commit_due(NOW, everything=True)
    assert farewell is not None
    assert told(farewell, A).sequence == 5
    ledger.lost()
    ledger.mark_sunk(planned)
    gain(ledger, farewell.offsets, generation=5)
    assert offsets(ledger)[A] == 20


def test_a_batch_given_up_at_a_rebalance_counts_its_partitions_as_gained() -> None:
    planned = document(5, a=(90, 100), b=(40, 40))
    ledger = in_flight({A: ours(90), B: ours(40)}, planned)
    ledger.abandoned()
    assign(ledger, A, B, generation=4, kept=(A, B))
    assert offsets(ledger) == {B: 40}
    assert set(ledger.offsets_found("m", 4, {A: ours(95, 9, run="other"), B: ours(1)}, topics())) == {A}
    ledger.mark_sunk(planned)
    assert offsets(ledger) == {A: 95, B: 40}


def test_an_empty_document_made_while_nothing_was_held_does_not_hide_what_has_sunk() -> None:
    """AvailableNow waits for the group with empty documents (R10); the batch before them is not to be repeated."""
    planned = document(5, a=(90, 100))
    ledger = in_flight({A: ours(90, run="now")}, planned)
    ledger.lost()
    ledger.mark_sunk(planned)
    for sequence in (6, 7):
        empty = document(sequence)
        ledger.emitted(empty)
        ledger.mark_sunk(empty)
        ledger.mark_sunk(empty)
    assert gain(ledger, {A: ours(90, run="now")}, generation=4) == {A: StartPosition(Origin.CHECKPOINT_AHEAD, 100, 5)}
    assert told(accept(ledger), A).sequence == 7


def test_an_empty_document_made_before_the_first_assignment_is_no_checkpoint_yet() -> None:
    ledger = started()
    empty = document(1)
    ledger.emitted(empty)
    ledger.mark_sunk(empty)
    assert gain(ledger, {}, A) == {A: StartPosition(Origin.STARTING)}


@pytest.mark.parametrize("how", ["restarted", "replayed"])
def test_a_restart_from_a_document_that_tells_nothing_is_still_the_founding(how: str) -> None:
    empty, ledger = document(1, "before"), Ledger("g", "now", "new")
    if how == "replayed":
        ledger.replayed(INITIAL_DOCUMENT, empty, (), {})
        assert ledger.lineage == "lineage"
    ledger.mark_sunk(empty)
    assert ledger.lineage == "lineage", "it is carried on (R1)"
    assert gain(ledger, {}, A) == {A: StartPosition(Origin.STARTING)}


def test_a_restart_from_a_document_that_tells_nothing_founds_no_group_that_has_been_founded() -> None:
    """Its own part, which it has never committed, starts at earliest: who has read it meanwhile cannot be known."""
    assert gain(started(document(1, "before")), {B: ours(5)}, A)[A] == StartPosition(Origin.EARLIEST)


def test_an_empty_document_that_repeats_the_checkpoint_does_not_stand_for_it() -> None:
    """It is of this run, and the checkpoint's own run is what the group's commit has to match (R5a)."""
    ledger = started(document(5, "before", a=(90, 100)))
    again = replace(document(6, a=(100, 100)), ranges=())
    ledger.emitted(again)
    ledger.mark_sunk(again)
    assert gain(ledger, {A: ours(90, asked=5)}) == {A: StartPosition(Origin.CHECKPOINT_AHEAD, 100, 5)}


def test_a_commit_after_an_empty_document_does_not_let_it_prove_a_batch_that_was_skipped() -> None:
    """The sink skipped document 5 in an earlier run (R17). This run has repeated its positions in document 6."""
    ledger = started(document(5, "before", a=(90, 100)))
    assign(ledger, A)
    again = replace(document(6, a=(100, 100)), ranges=())
    ledger.emitted(again)
    ledger.offsets_found("m", 3, {A: ours(90)}, topics())
    ledger.handed_out(again)
    farewell = ledger.commit_due(NOW, everything=True)
    assert farewell is not None
    restarted = Ledger("g", "later", "new")
    restarted.mark_sunk(again)
    assert gain(restarted, farewell.offsets, A) == {A: StartPosition(Origin.COMMITTED, 90)}


# -- commits ----------------------------------------------------------------------------------------------------------


def test_a_refused_commit_is_made_again_after_the_rebalance_for_what_is_kept() -> None:
    planned = document(5, a=(90, 100), b=(40, 60))
    ledger = in_flight({A: ours(90), B: ours(40)}, planned)
    ledger.mark_sunk(planned)
    ledger.answered(due(ledger), CommitVerdict.RETRY, NOW)
    assert ledger.commit_pending
    gain(ledger, {B: ours(41, 9, run="other"), A: ours(90)}, A, B, generation=4, kept=(A,))
    again = due(ledger)
    assert (again.generation, offsets(again)) == (4, {A: 100, B: 41})


def test_an_answer_that_comes_after_the_next_generation_changes_nothing() -> None:
    planned = document(5, a=(90, 100))
    ledger = in_flight({A: ours(90)}, planned)
    ledger.mark_sunk(planned)
    old = due(ledger)
    assign(ledger, A, generation=4, kept=(A,))
    ledger.answered(old, CommitVerdict.ACCEPTED, NOW)
    assert ledger.commit_pending
    assert offsets(due(ledger)) == {A: 100}


def test_an_idle_member_commits_hourly() -> None:
    ledger = started()
    gain(ledger, {A: ours(90)})
    assert ledger.commit_due(NOW) is None
    assert ledger.commit_due(NOW + RECOMMIT_AFTER_S - 1) is None
    assert offsets(accept(ledger, NOW + RECOMMIT_AFTER_S)) == {A: 90}
    assert ledger.commit_due(NOW + RECOMMIT_AFTER_S + 1) is None


def test_a_farewell_commits_what_has_not_moved_and_takes_the_place_of_what_is_unanswered() -> None:
    planned = document(5, a=(90, 100))
    ledger = in_flight({A: ours(90), B: ours(40)}, planned)
    farewell = ledger.commit_due(NOW, everything=True)
    assert farewell is not None
    assert offsets(farewell) == {A: 90, B: 40}
    assert (told(farewell, A).sequence, told(farewell, A).asked) == (4, 5)
    second = ledger.commit_due(NOW, everything=True)
    assert second is not None
    ledger.answered(farewell, CommitVerdict.ACCEPTED, NOW)
    assert ledger.commit_pending
    ledger.answered(second, CommitVerdict.ACCEPTED, NOW)
    assert not ledger.commit_pending


def test_a_member_that_holds_nothing_owes_nothing() -> None:
    ledger = started(document(4, a=(90, 90)))
    gain(ledger, {}, A)
    ledger.answered(due(ledger), CommitVerdict.RETRY, NOW)
    assign(ledger, generation=4)
    assert ledger.commit_due(NOW, everything=True) is None
    assert ledger.settled


def test_the_data_loss_policy_moves_a_position_and_it_is_committed_before_the_next_plan() -> None:
    ledger = started()
    gain(ledger, {A: ours(90)})
    ledger.moved(A, 200)
    ledger.moved(C, 5)
    assert not ledger.settled
    assert offsets(accept(ledger)) == {A: 200}


def holding_with_commits() -> Ledger:
    """A and B from commits, C waits for the log."""
    ledger = Ledger("g", "run", "lineage")
    ledger.mark_sunk(INITIAL_DOCUMENT)
    ledger.assigned("m", 1, [A, B, C], frozenset())
    ledger.offsets_found("m", 1, {A: CommittedOffset(3), B: CommittedOffset(7)}, topics())
    return ledger


def flying_batch(ledger: Ledger) -> Document:
    positions = {A: Position(5, "id", 4), B: Position(7, "id")}
    document = Document("g", "lineage", "run", 1, (OffsetRange(A, 3, 5),), positions)
    ledger.emitted(document)
    ledger.handed_out(document)
    return document


def sinks(ledger: Ledger) -> None:
    ledger.mark_sunk(flying_batch(ledger))


def sinks_after_it_was_lost_and_regained(ledger: Ledger) -> None:
    document = flying_batch(ledger)
    ledger.lost()
    ledger.assigned("m2", 2, [A], frozenset())
    told = CommitMetadata("lineage", "run", 0, 0, 1, "id").text()
    ledger.offsets_found("m2", 2, {A: CommittedOffset(3, told)}, topics())
    assert ledger.positions()[A].offset == 3
    ledger.mark_sunk(document)
    assert ledger.positions()[A].offset == 5


def is_abandoned(ledger: Ledger) -> None:
    flying_batch(ledger)
    ledger.abandoned()


def is_given_up(ledger: Ledger) -> None:
    ledger.assigned("m", 2, [A], frozenset({A}), frozenset({B}))
    assert ledger.partitions() == (A, B)
    ledger.give_up([B])


def is_committed(ledger: Ledger) -> None:
    ledger.resolved(1, {C: 0})
    commit = ledger.commit_due(0.0)
    assert ledger.commit_pending
    assert commit is not None
    ledger.answered(commit, CommitVerdict.ACCEPTED, NOW)
    assert not ledger.commit_pending


CHANGES: dict[str, Callable[[Ledger], object]] = {
    "assigned": lambda ledger: ledger.assigned("m", 2, [A, C], frozenset({A})),
    "found": lambda ledger: (ledger.assigned("m", 2, [A], ()), ledger.offsets_found("m", 2, {}, topics())),
    "lost": Ledger.lost,
    "sunk": sinks,
    "judged again": sinks_after_it_was_lost_and_regained,
    "abandoned": is_abandoned,
    "given up": is_given_up,
    "resolved": lambda ledger: ledger.resolved(1, {C: 0}),
    "moved": lambda ledger: ledger.moved(A, 9),
    "vouched": lambda ledger: ledger.vouched({A: 9}),
    "committed": is_committed,
    "recreated": lambda ledger: ledger.topics_seen(topics("another")),
    "recreated with fewer partitions": lambda ledger: ledger.topics_seen(topics("another", count=0)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_after_a_change_the_ledger_answers_as_if_it_had_never_answered_before(change: str) -> None:
    ledger = holding_with_commits()
    before = ledger.partitions(), ledger.positions(), ledger.settled, ledger.commit_pending
    CHANGES[change](ledger)
    now = summary_of(ledger.held)
    assert (ledger.partitions(), ledger.positions()) == (now.partitions, now.positions)
    assert ledger.commit_pending == (now.dirty or ledger.commits.unfinished)
    assert ledger.settled == (not now.unplaced and not ledger.commit_pending)
    assert (ledger.partitions(), ledger.positions(), ledger.settled, ledger.commit_pending) != before, (
        "it does change something"
    )


def test_a_topic_that_shows_its_id_at_last_shows_it_in_the_positions() -> None:
    ledger = Ledger("g", "run", "lineage")
    ledger.mark_sunk(INITIAL_DOCUMENT)
    ledger.assigned("m", 1, [A], frozenset())
    ledger.offsets_found("m", 1, {A: CommittedOffset(3)}, topics(""))
    assert ledger.positions() == {A: Position(3)}
    ledger.topics_seen(topics("id"))
    assert ledger.positions() == {A: Position(3, "id")}


def test_while_nothing_changes_the_answers_are_the_same_objects() -> None:
    ledger = holding_with_commits()
    ledger.resolved(1, {C: 0})
    partitions, positions = ledger.partitions(), ledger.positions()
    ledger.mark_sunk(INITIAL_DOCUMENT)
    ledger.topics_seen(topics())
    ledger.vouched({A: -1})
    ledger.commit_due(0.0)
    assert ledger.partitions() is partitions
    assert ledger.positions() is positions

"""Scenarios of the ledger: what Spark, the group and the offset store do to it, and what it then commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from streamgroup.errors import SkippedBatchError
from streamgroup.group.commits import NOT_FOUNDED, RECOMMIT_AFTER_S, CommitMetadata, CommitVerdict
from streamgroup.group.holdings import summary_of
from streamgroup.group.ledger import Ledger
from streamgroup.group.start_positions import Origin, StartPosition
from streamgroup.model import (
    INITIAL_DOCUMENT,
    CommittedOffset,
    OffsetRange,
    PartitionInfo,
    Position,
    TopicInfo,
    TopicPartition,
)
from tests.unit.group.ledgers import (
    BOTH,
    NOW,
    PLANNED,
    A,
    B,
    C,
    accept,
    assign,
    document,
    due,
    gain,
    in_flight,
    last_commit,
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
    ledger.complete_batch(document(5, a=(90, 100), b=(40, 40)))
    assert ledger.idle
    assert not ledger.settled
    commit = accept(ledger)
    assert offsets(commit) == {A: 100, B: 40}
    assert commit.offsets[A].leader_epoch == 5
    assert told(commit, A) == CommitMetadata("lineage", "now", 5, 5, 1, "id")
    assert ledger.settled
    assert ledger.commit_due(NOW) is None


def test_an_older_start_proves_nothing() -> None:
    ledger = in_flight({A: ours(90)})
    ledger.complete_batch(document(4, a=(90, 90), b=(40, 40)))
    assert not ledger.idle
    assert offsets(ledger) == {A: 90}


@pytest.mark.parametrize("reported", [False, True], ids=["Spark's next call", "a listener"])
def test_a_batch_that_the_sink_skipped_commits_nothing_and_says_why(reported: bool) -> None:
    ledger = started(document(4, a=(90, 90)))
    gain(ledger, {A: ours(90)})
    ledger.emitted(PLANNED)
    assert not reported or ledger.on_batch_done(PLANNED, 7)
    with pytest.raises(SkippedBatchError, match=r"group g: the sink skipped a batch.*document 5 \(t-0\[90, 100\)\)"):
        ledger.complete_batch(PLANNED)
    farewell = last_commit(ledger)
    assert offsets(ledger) == offsets(farewell) == {A: 90}
    assert (told(farewell, A).sequence, told(farewell, A).asked) == (4, 0)


def test_only_the_document_in_flight_is_handed_out() -> None:
    ledger = in_flight({A: ours(90)})
    with pytest.raises(ValueError, match="document 6 is not in flight"):
        ledger.handed_out(document(6, a=(100, 110)))


# -- gaining ----------------------------------------------------------------------------------------------------------


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
    ledger = in_flight({A: ours(90), B: ours(40)}, BOTH)
    assign(ledger, B, generation=4, kept=(B,))
    ledger.complete_batch(BOTH)
    assert offsets(accept(ledger)) == {B: 60}


def test_a_partition_lost_to_another_member_and_regained_is_where_that_member_left_it() -> None:
    ledger = in_flight({A: ours(90)})
    assign(ledger, generation=4)
    gain(ledger, {A: ours(95, 9, run="other")}, generation=5)
    ledger.complete_batch(PLANNED)
    assert offsets(ledger) == {A: 95}


@pytest.mark.parametrize("regained_first", [True, False], ids=["regained, then proven", "proven, then regained"])
def test_a_lone_querys_hiccup_repeats_nothing(regained_first: bool) -> None:
    planned = document(5, a=(90, 100), b=(40, 40))
    ledger = in_flight({A: ours(90, run="now"), B: ours(40, run="now")}, planned)
    ledger.lost()
    if not regained_first:
        ledger.complete_batch(planned)
    gain(ledger, {A: ours(90, run="now"), B: ours(40, run="now")}, generation=4)
    if regained_first:
        assert ledger.settled
        assert not ledger.idle
        ledger.complete_batch(planned)
    assert offsets(ledger) == {A: 100, B: 40}
    assert not ledger.settled
    assert offsets(accept(ledger)) == {A: 100, B: 40}


@pytest.mark.parametrize("regained_first", [True, False])
def test_an_operators_reset_is_not_undone_by_the_document_before_it(regained_first: bool) -> None:
    ledger = in_flight({A: ours(90, run="now")})
    ledger.lost()
    if not regained_first:
        ledger.complete_batch(PLANNED)
    gain(ledger, {A: CommittedOffset(20)}, generation=4)
    if regained_first:
        ledger.complete_batch(PLANNED)
    assert offsets(ledger) == {A: 20}


def test_an_operators_reset_stays_although_this_member_has_committed_it_since() -> None:
    """The commit of a partition gained later names the newest document emitted: that document is no news to it."""
    ledger = in_flight({A: ours(90, run="now"), B: ours(40, run="now")}, BOTH)
    ledger.lost()
    gain(ledger, {A: CommittedOffset(20), B: ours(40, run="now")}, generation=4)
    farewell = last_commit(ledger)
    assert told(farewell, A).sequence == 5
    ledger.lost()
    ledger.complete_batch(BOTH)
    gain(ledger, farewell.offsets, generation=5)
    assert offsets(ledger)[A] == 20


def test_a_batch_given_up_at_a_rebalance_counts_its_partitions_as_gained() -> None:
    planned = document(5, a=(90, 100), b=(40, 40))
    ledger = in_flight({A: ours(90), B: ours(40)}, planned)
    ledger.abandoned()
    assign(ledger, A, B, generation=4, kept=(A, B))
    assert offsets(ledger) == {B: 40}
    assert set(ledger.offsets_found("m", 4, {A: ours(95, 9, run="other"), B: ours(1)}, topics())) == {A}
    ledger.complete_batch(planned)
    assert offsets(ledger) == {A: 95, B: 40}


def test_an_empty_document_made_while_nothing_was_held_does_not_hide_what_has_sunk() -> None:
    """AvailableNow waits for the group with empty documents (R10); the batch before them is not to be repeated."""
    ledger = in_flight({A: ours(90, run="now")})
    ledger.lost()
    ledger.complete_batch(PLANNED)
    for sequence in (6, 7):
        empty = document(sequence)
        ledger.emitted(empty)
        ledger.complete_batch(empty)
        ledger.complete_batch(empty)
    assert gain(ledger, {A: ours(90, run="now")}, generation=4) == {A: StartPosition(Origin.CHECKPOINT_AHEAD, 100, 5)}
    assert told(accept(ledger), A).sequence == 7


def test_an_empty_document_made_before_the_first_assignment_is_no_checkpoint_yet() -> None:
    ledger = started()
    empty = document(1)
    ledger.emitted(empty)
    ledger.complete_batch(empty)
    assert gain(ledger, {}, A) == {A: StartPosition(Origin.STARTING)}


@pytest.mark.parametrize("how", ["restarted", "replayed"])
def test_a_restart_from_a_document_that_tells_nothing_is_still_the_founding(how: str) -> None:
    empty, ledger = document(1, "before"), Ledger("g", "now", "new")
    if how == "replayed":
        ledger.replayed(INITIAL_DOCUMENT, empty, (), {})
        assert ledger.lineage == "lineage"
    ledger.complete_batch(empty)
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
    ledger.complete_batch(again)
    assert gain(ledger, {A: ours(90, asked=5)}) == {A: StartPosition(Origin.CHECKPOINT_AHEAD, 100, 5)}


def test_a_commit_after_an_empty_document_does_not_let_it_prove_a_batch_that_was_skipped() -> None:
    """The sink skipped document 5 in an earlier run (R17). This run has repeated its positions in document 6."""
    ledger = started(document(5, "before", a=(90, 100)))
    assign(ledger, A)
    again = replace(document(6, a=(100, 100)), ranges=())
    ledger.emitted(again)
    ledger.offsets_found("m", 3, {A: ours(90)}, topics())
    ledger.handed_out(again)
    farewell = last_commit(ledger)
    restarted = Ledger("g", "later", "new")
    restarted.complete_batch(again)
    assert gain(restarted, farewell.offsets, A) == {A: StartPosition(Origin.COMMITTED, 90)}


# -- replays ----------------------------------------------------------------------------------------------------------

BEFORE, LOGGED = document(4, "before", a=(90, 90)), document(5, "before", a=(90, 100))
"""The start and the end of a batch that an earlier run planned."""


@pytest.mark.parametrize(
    ("seen", "found", "position"),
    [
        pytest.param(ours(90), ours(90), 100, id="nothing has happened since"),
        pytest.param(ours(90), ours(95, 9, run="other"), 100, id="a member went on within the range, and left"),
        pytest.param(ours(90), ours(130, 9, run="other"), 130, id="a member went on beyond it"),
        pytest.param(ours(90), CommittedOffset(95), 95, id="an operator reset it into the range, after the filter"),
        pytest.param(CommittedOffset(95), CommittedOffset(95), 100, id="an operator reset it into the range, before"),
        pytest.param(CommittedOffset(20), CommittedOffset(20), 20, id="an operator reset it to before the range"),
        pytest.param(None, None, 100, id="no commit: it starts at the checkpoint"),
    ],
)
@pytest.mark.parametrize("gained", ["before the proof", "after the proof"])
def test_a_proven_replay_moves_what_stands_in_its_ranges(
    seen: CommittedOffset | None, found: CommittedOffset | None, position: int, gained: str
) -> None:
    ledger = Ledger("g", "now", "lineage")
    low = 90 if seen is None else max(90, seen.offset)
    ledger.replayed(BEFORE, LOGGED, (OffsetRange(A, low, 100),), {} if seen is None else {A: seen})
    assert ledger.in_flight is not None
    assert ledger.in_flight.ranges == (OffsetRange(A, low, 100),), "what the filter has left"
    assert not ledger.is_planned_here(LOGGED)
    if gained == "after the proof":
        ledger.complete_batch(LOGGED)
    gain(ledger, {} if found is None else {A: found}, A)
    ledger.complete_batch(LOGGED)
    assert offsets(ledger) == {A: position}


def test_a_partition_gained_while_its_batch_is_replayed_starts_before_that_batch() -> None:
    """The process before has asked for the batch and said so (R20); whether it sinks, only the replay will show."""
    ledger = Ledger("g", "now", "lineage")
    asked = ours(90, asked=LOGGED.sequence)
    ledger.replayed(document(4, "before", a=(80, 90)), LOGGED, LOGGED.ranges, {A: asked})
    assert gain(ledger, {A: asked}) == {A: StartPosition(Origin.COMMITTED, 90)}
    assert ledger.commit_due(NOW) is None
    assert told(last_commit(ledger), A).asked == LOGGED.sequence, "this process has asked for it, too"


def test_a_replay_of_a_partition_that_the_log_had_to_place() -> None:
    ledger = Ledger("g", "now", "lineage")
    batch_0 = document(1, "before", a=(0, 10))
    ledger.replayed(INITIAL_DOCUMENT, batch_0, batch_0.ranges, {})
    ledger.complete_batch(batch_0)
    assert gain(ledger, {}, A) == {A: StartPosition(Origin.CHECKPOINT, 10, 5)}


def test_a_replay_is_of_no_use_to_a_partition_gained_after_the_membership_was_lost() -> None:
    """While the group is empty an operator may reset it, and a member may go on from there."""
    ledger = Ledger("g", "now", "lineage")
    ledger.replayed(BEFORE, LOGGED, LOGGED.ranges, {A: ours(90)})
    ledger.complete_batch(LOGGED)
    ledger.lost()
    gain(ledger, {A: ours(92, 9, run="other")})
    assert offsets(ledger) == {A: 92}


# -- topics created again ---------------------------------------------------------------------------------------------


def test_a_topic_created_again_voids_its_positions_and_the_batch_in_flight() -> None:
    ledger = in_flight({A: ours(90)})
    assert ledger.topics_seen(topics("new")) == [A]
    assert ledger.unresolved == {A: Origin.RECREATED}
    ledger.resolved(3, {A: 95})
    ledger.complete_batch(PLANNED)
    assert offsets(ledger) == {A: 95}
    assert told(accept(ledger), A).topic_id == "new"


def test_a_batch_of_a_topic_that_was_created_again_is_stored_for_nobody() -> None:
    """Its end would be taken for an offset of the new topic, whose first records would be left out."""
    ledger = in_flight({A: ours(90)})
    ranges = (OffsetRange(A, 90, 100),)
    ledger.handed_out(PLANNED)
    assert ledger.may_store(ranges)
    ledger.topics_seen(topics("new"))
    ledger.resolved(3, {A: 90})
    assert ledger.may_store(ranges) is False
    metadata = CommitMetadata.parse(ledger.stored_with_batch()[A].metadata)
    assert metadata is not None
    assert metadata.topic_id != "new"


def test_a_replay_of_a_topic_that_was_created_again_moves_nothing() -> None:
    ledger = Ledger("g", "now", "lineage")
    ledger.replayed(BEFORE, LOGGED, (OffsetRange(A, 0, 100),), {})
    assign(ledger, A)
    assert ledger.offsets_found("m", 3, {}, topics("new")) == {A: StartPosition(Origin.RECREATED)}
    ledger.resolved(3, {A: 0})
    ledger.complete_batch(LOGGED)
    assert offsets(ledger) == {A: 0}


def test_a_partition_that_the_new_topic_has_not_is_held_no_more() -> None:
    ledger = started()
    gain(ledger, {A: ours(90), C: ours(7)})
    assert ledger.topics_seen(topics("new", count=1)) == [A]
    assert set(ledger.held) == {A}


def test_another_leader_alone_voids_nothing() -> None:
    ledger = started()
    gain(ledger, {A: ours(90)})
    ledger.vouched({A: 5})
    assert ledger.topics_seen(topics(epoch=6)) == []
    assert ledger.positions() == {A: Position(90, "id", 5)}, "the newer epoch is taken over when the log is checked"
    ledger.vouched({A: 6, B: 6})
    assert ledger.positions() == {A: Position(90, "id", 6)}


# -- leader epochs (R8) ------------------------------------------------------------------------------------------------


def epochs(ledger: Ledger) -> dict[TopicPartition, int]:
    return {tp: p.leader_epoch for tp, p in ledger.positions().items()}


def test_positions_keep_the_epoch_that_the_checkpoint_or_the_commit_gives_and_commits_tell_it() -> None:
    ledger = started(document(4, a=(90, 90)))
    by_java = CommittedOffset(40, "", 3)
    gain(ledger, {B: by_java, C: CommittedOffset(7)}, A, B, C)
    assert epochs(ledger) == {A: 5, B: 3, C: -1}
    ledger.topics_seen(topics(epoch=9))
    commit = due(ledger)
    assert {tp: offset.leader_epoch for tp, offset in commit.offsets.items()} == {A: 5, B: 3, C: -1}


def test_an_epoch_is_taken_over_when_the_log_was_checked_and_a_batch_brings_that_of_its_planning() -> None:
    ledger = in_flight({A: ours(90), B: ours(40)})
    ledger.vouched({A: 6, B: 7, C: 8})
    assert epochs(ledger) == {A: 6, B: 7}
    ledger.complete_batch(PLANNED)
    assert epochs(ledger) == {A: 5, B: 7}, "planned under 5: whether 6 has it all is to be checked again"


@pytest.mark.parametrize("how", ["moved", "resolved", "recreated"])
def test_a_position_that_the_log_has_placed_has_no_epoch_until_one_is_vouched_for(how: str) -> None:
    ledger = started()
    gain(ledger, {} if how == "resolved" else {A: CommittedOffset(90, "", 4)}, A)
    if how == "moved":
        ledger.moved(A, 50)
    elif how == "recreated":
        ledger.topics_seen(topics("first"))
        ledger.topics_seen(topics("second"))
    ledger.resolved(3, {A: 50})
    assert ledger.positions()[A].offset == 50
    assert epochs(ledger) == {A: -1}
    ledger.vouched({A: 6})
    assert epochs(ledger) == {A: 6}


# -- commits ----------------------------------------------------------------------------------------------------------


def test_a_refused_commit_is_made_again_after_the_rebalance_for_what_is_kept() -> None:
    ledger = in_flight({A: ours(90), B: ours(40)}, BOTH)
    ledger.complete_batch(BOTH)
    ledger.answered(due(ledger), CommitVerdict.RETRY, NOW)
    assert ledger.commit_pending
    gain(ledger, {B: ours(41, 9, run="other"), A: ours(90)}, A, B, generation=4, kept=(A,))
    again = due(ledger)
    assert (again.generation, offsets(again)) == (4, {A: 100, B: 41})


def test_an_idle_member_commits_hourly() -> None:
    ledger = started()
    gain(ledger, {A: ours(90)})
    assert ledger.commit_due(NOW) is None
    assert ledger.commit_due(NOW + RECOMMIT_AFTER_S - 1) is None
    assert offsets(accept(ledger, NOW + RECOMMIT_AFTER_S)) == {A: 90}
    assert ledger.commit_due(NOW + RECOMMIT_AFTER_S + 1) is None


def test_a_farewell_commits_what_has_not_moved_and_takes_the_place_of_what_is_unanswered() -> None:
    ledger = in_flight({A: ours(90), B: ours(40)}, PLANNED)
    farewell = last_commit(ledger)
    assert offsets(farewell) == {A: 90, B: 40}
    assert (told(farewell, A).sequence, told(farewell, A).asked) == (4, 5)
    second = last_commit(ledger)
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


# -- reports of a listener (R15, R17, R20) -----------------------------------------------------------------------------


def test_only_the_document_in_flight_is_to_be_proven() -> None:
    ledger = in_flight({A: ours(90)})
    for other in (
        INITIAL_DOCUMENT,
        document(4, a=(90, 90), b=(40, 40)),
        document(5, a=(90, 99)),
        document(5, "another", a=(90, 100)),
        document(6, a=(100, 110)),
    ):
        assert not ledger.on_batch_done(other, 7)
    assert ledger.in_flight is not None
    assert offsets(ledger) == {A: 90}
    assert ledger.on_batch_done(PLANNED, 7)
    assert not ledger.idle, "telling it is not yet proving it"


@pytest.mark.parametrize("number", [7, None])
def test_the_commit_names_the_batch_that_was_reported(number: int | None) -> None:
    ledger = in_flight({A: ours(90)})
    assert ledger.on_batch_done(PLANNED, number)
    ledger.complete_batch(PLANNED)
    assert told(accept(ledger), A).batch == number


def test_a_batch_reported_after_spark_has_proven_it_is_named_by_the_commits_to_come() -> None:
    ledger = in_flight({A: ours(90)})
    ledger.complete_batch(PLANNED)
    assert told(accept(ledger), A).batch is None
    assert not ledger.on_batch_done(PLANNED, 7), "proven, and committed, already"
    assert ledger.commit_due(NOW) is None, "a name alone is not worth a commit"
    assert told(last_commit(ledger), A).batch == 7


def test_the_next_batch_has_no_name_until_it_is_reported() -> None:
    ledger = in_flight({A: ours(90)})
    ledger.on_batch_done(PLANNED, 7)
    ledger.complete_batch(PLANNED)
    accept(ledger)
    following = document(6, a=(100, 110))
    ledger.emitted(following)
    ledger.handed_out(following)
    ledger.complete_batch(following)
    assert told(accept(ledger), A).batch is None


# -- proven, and not yet committed -------------------------------------------------------------------------------------


def test_a_batch_proven_while_its_partitions_are_not_held_awaits_who_holds_them() -> None:
    ledger = in_flight({A: ours(90)})
    ledger.lost()
    assert not ledger.awaits_holding, "nothing is proven yet"
    ledger.complete_batch(PLANNED)
    assert (ledger.idle, ledger.commit_pending, ledger.awaits_holding) == (True, False, True)
    gain(ledger, {A: ours(90, run="now", sequence=4, asked=5)}, generation=4)
    accept(ledger)
    assert offsets(ledger) == {A: 100}
    assert not ledger.awaits_holding


@pytest.mark.parametrize("committed", [False, True])
def test_a_proven_batch_whose_membership_is_lost_awaits_the_next_one_unless_it_is_committed(committed: bool) -> None:
    ledger = in_flight({A: ours(90)})
    ledger.complete_batch(PLANNED)
    if committed:
        accept(ledger)
    assert not ledger.awaits_holding
    ledger.lost()
    assert (ledger.commit_pending, ledger.awaits_holding) == (False, not committed)


def test_a_proven_batch_whose_partition_a_rebalance_takes_away_awaits_who_has_it() -> None:
    ledger = in_flight({A: ours(90)})
    ledger.complete_batch(PLANNED)
    assign(ledger, B, generation=4)
    assert ledger.awaits_holding


# -- a cooperative member: what it is to give up is held for its commit alone (R25) ------------------------------------


COMMITS = {A: ours(90), B: ours(40)}


def revoking() -> Ledger:
    """Document 5 reads A and B; generation 4 keeps A, takes B away and gives C."""
    ledger = in_flight(COMMITS, BOTH)
    ledger.assigned("m", 4, [A, C], {A}, {B})
    return ledger


def test_what_is_to_be_given_up_is_planned_no_more_and_what_is_kept_is_not_looked_up_again() -> None:
    ledger = revoking()
    assert ledger.offsets_found("m", 4, COMMITS | {C: ours(7)}, topics()).keys() == {C}
    assert offsets(ledger) == {A: 90, C: 7}
    assert ledger.in_use({B})


def test_its_batch_is_committed_with_the_rest_before_it_goes() -> None:
    ledger = revoking()
    ledger.offsets_found("m", 4, COMMITS | {C: ours(7)}, topics())
    ledger.complete_batch(BOTH)
    assert ledger.in_use({B}), "the commit is due"
    commit = due(ledger)
    assert (commit.generation, offsets(commit)) == (4, {A: 100, B: 60, C: 7})
    assert ledger.in_use({B}), "the commit is unanswered"
    ledger.answered(commit, CommitVerdict.ACCEPTED, NOW)
    assert not ledger.in_use({B})
    ledger.give_up({B})
    assert ledger.held.keys() == {A, C}
    assert ledger.settled


def test_what_no_batch_reads_is_free_at_once() -> None:
    ledger = in_flight(COMMITS)
    ledger.assigned("m", 4, [A], {A}, {B})
    assert not ledger.in_use({B})
    assert ledger.in_use({A})


def test_a_commit_that_a_rebalance_interrupted_is_made_again_for_what_is_to_be_given_up_too() -> None:
    ledger = in_flight(COMMITS, BOTH)
    ledger.complete_batch(BOTH)
    ledger.answered(due(ledger), CommitVerdict.RETRY, NOW)
    ledger.assigned("m", 4, [], frozenset(), {A, B})
    assert offsets(accept(ledger)) == {A: 100, B: 60}


def test_given_up_without_proof_it_moves_no_position_when_it_comes_back() -> None:
    """R22, R16: another member may have read on since."""
    ledger = revoking()
    ledger.give_up({B})
    other = {A: ours(90), B: ours(55, run="another")}
    gain(ledger, other, A, B, generation=5, kept=(A,))
    ledger.complete_batch(BOTH)
    assert offsets(ledger) == {A: 100, B: 55}


def test_what_comes_back_before_it_was_given_up_goes_on() -> None:
    ledger = revoking()
    ledger.assigned("m", 5, [A, B, C], {A, B, C}, ())
    ledger.complete_batch(BOTH)
    assert offsets(ledger) == {A: 100, B: 60}
    assert offsets(due(ledger)) == {A: 100, B: 60}
    assert ledger.offsets_wanted(topics()), "C was never found: it is gained anew"


def test_what_was_never_found_is_gone_when_it_is_taken_away() -> None:
    ledger = started(document(4))
    ledger.assigned("m", 3, [A, B], (), ())
    ledger.assigned("m", 4, [A], {A}, {B})
    assert ledger.held.keys() == {A}
    assert not ledger.in_use({B})


def test_a_topic_created_again_leaves_nothing_to_commit_of_what_is_to_be_given_up() -> None:
    ledger = revoking()
    ledger.offsets_found("m", 4, COMMITS | {C: ours(7)}, topics())
    void = ledger.topics_seen(topics("another"))
    assert set(void) == {A, C}
    assert ledger.held.keys() == {A, C}
    assert ledger.commit_due(NOW) is None


# -- what the ledger keeps of the partitions ---------------------------------------------------------------------------


def holding() -> Ledger:
    """A and B from commits, of which the document in flight reads A; C waits for the log."""
    ledger = started()
    gain(ledger, {A: ours(90), B: ours(40)}, A, B, C)
    ledger.emitted(PLANNED)
    ledger.handed_out(PLANNED)
    return ledger


def sinks_after_it_was_lost_and_regained(ledger: Ledger) -> None:
    ledger.lost()
    gain(ledger, {A: ours(90, run="now")}, generation=4)
    assert offsets(ledger) == {A: 90}
    ledger.complete_batch(PLANNED)
    assert offsets(ledger) == {A: 100}


def is_given_up(ledger: Ledger) -> None:
    ledger.assigned("m", 4, [A], {A}, {B})
    assert ledger.partitions() == (A, B)
    ledger.give_up([B])


def is_committed(ledger: Ledger) -> None:
    ledger.resolved(3, {C: 0})
    assert ledger.commit_pending
    accept(ledger)
    assert not ledger.commit_pending


CHANGES: dict[str, Callable[[Ledger], object]] = {
    "assigned": lambda ledger: assign(ledger, A, C, generation=4, kept=(A,)),
    "found": lambda ledger: gain(ledger, {}, A, generation=4),
    "lost": Ledger.lost,
    "sunk": lambda ledger: ledger.complete_batch(PLANNED),
    "judged again": sinks_after_it_was_lost_and_regained,
    "abandoned": Ledger.abandoned,
    "given up": is_given_up,
    "resolved": lambda ledger: ledger.resolved(3, {C: 0}),
    "moved": lambda ledger: ledger.moved(A, 9),
    "vouched": lambda ledger: ledger.vouched({A: 9}),
    "committed": is_committed,
    "recreated": lambda ledger: ledger.topics_seen(topics("another")),
    "recreated with fewer partitions": lambda ledger: ledger.topics_seen(topics("another", count=0)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_after_a_change_the_ledger_answers_as_if_it_had_never_answered_before(change: str) -> None:
    def answers() -> tuple[object, ...]:
        return ledger.partitions(), ledger.positions(), ledger.settled, ledger.commit_pending

    ledger = holding()
    before = answers()
    CHANGES[change](ledger)
    now = summary_of(ledger.held)
    pending = now.dirty or ledger.commits.unfinished
    assert answers() == (now.partitions, now.positions, not now.unplaced and not pending, pending)
    assert answers() != before, "it does change something"


def test_a_topic_that_shows_its_id_at_last_shows_it_in_the_positions() -> None:
    ledger = started()
    assign(ledger, A)
    ledger.offsets_found("m", 3, {A: CommittedOffset(3)}, topics(""))
    assert ledger.positions() == {A: Position(3)}
    ledger.topics_seen(topics("id"))
    assert ledger.positions() == {A: Position(3, "id")}


def test_while_nothing_changes_the_answers_are_the_same_objects() -> None:
    ledger = holding()
    ledger.resolved(3, {C: 0})
    partitions, positions = ledger.partitions(), ledger.positions()
    ledger.complete_batch(INITIAL_DOCUMENT)
    ledger.topics_seen(topics())
    ledger.vouched({A: -1})
    ledger.commit_due(NOW)
    assert ledger.partitions() is partitions
    assert ledger.positions() is positions

"""A run whose offsets are in a table of a database: where it starts, what it replays, what its sink stores (R37)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from streamgroup.coordinator.run import interface
from streamgroup.errors import FencedError
from streamgroup.group.offsets.table_rows import BatchPart, Claimant, StoredOffset
from streamgroup.model import INITIAL_DOCUMENT, LATEST, CommittedOffset, Document, OffsetRange
from streamgroup.options.types import GroupMode, GroupOptions, LimitOptions
from tests.unit.coordinator.run.run_shell import P0, P1, PLAN, Shell, latest_offset, partitions, ranges, snapshot

TABLE = GroupOptions("g", store_url="sqlite:////offsets.db")
OTHER = Claimant("another checkpoint", "other")


def parts(shell: Shell) -> list[BatchPart]:
    """What the control channel tells a sink of the batch in flight."""
    told = json.loads(json.dumps(shell.result(ranges)))
    return [
        BatchPart(OffsetRange(type(P0)(topic, p), start, until), claim, CommittedOffset(until, metadata, epoch))
        for (topic, p, start, until), (claim, epoch, metadata) in zip(told["ranges"], told["stored"], strict=True)
    ]


def offsets(shell: Shell) -> dict[int, int | None]:
    return {tp.partition: row.next_offset for tp, row in shell.table.rows.items()}


def restarted(shell: Shell, group: GroupOptions = TABLE) -> Shell:
    """Another start of the query, with the same table. The group has forgotten the earlier member."""
    again = Shell(group)
    again.table, again.coordinator.offsets = shell.table, dict(shell.coordinator.offsets)
    again.ledger.run = "r2"
    return again


def replayed(shell: Shell, document: Document, start: Document = INITIAL_DOCUMENT) -> tuple[OffsetRange, ...]:
    tasks = shell.result(partitions(start, document))
    return tuple(one.range for task in tasks for one in task.ranges)


def test_a_batch_is_stored_under_the_claims_of_its_partitions() -> None:
    shell = Shell(TABLE)
    document = shell.batch()
    assert [(part.range, part.claim) for part in parts(shell)] == [(one, 1) for one in document.ranges]
    assert shell.table.store("g", parts(shell))
    assert offsets(shell) == {0: 10, 1: 10}
    assert shell.result(latest_offset(document, LimitOptions())) is document
    assert shell.committed == {0: 10, 1: 10}, "the group follows, for tools"


def test_the_offset_before_the_first_batch_is_in_the_table_before_the_batch_is_planned() -> None:
    shell = Shell(TABLE)
    shell.result(PLAN)
    assert offsets(shell) == {0: 0, 1: 0}


def test_a_sink_that_stores_no_offsets_leaves_them_to_the_commit() -> None:
    shell = Shell(TABLE)
    document = shell.batch()
    shell.result(latest_offset(document, LimitOptions()))
    assert offsets(shell) == {0: 10, 1: 10}


def test_the_table_goes_before_the_groups_commits() -> None:
    shell = Shell(TABLE)
    shell.coordinator.offsets = {P0: CommittedOffset(3), P1: CommittedOffset(4)}
    shell.table.rows = {P0: StoredOffset(7, 5, OTHER.lineage, OTHER.member)}
    assert shell.batch().ranges == (OffsetRange(P0, 7, 10), OffsetRange(P1, 4, 10))
    assert [part.claim for part in parts(shell)] == [6, 1]


@pytest.mark.parametrize("mode", [GroupMode.MEMBER, GroupMode.COMMIT])
def test_the_group_follows_the_table_although_no_record_comes(mode: GroupMode) -> None:
    """The group was reset in Kafka, or has lost its commits: it would show a lag until the next record."""
    shell = Shell(replace(TABLE, mode=mode))
    shell.table.rows = {tp: StoredOffset(10, 5, OTHER.lineage, OTHER.member) for tp in (P0, P1)}
    shell.coordinator.offsets = {P0: CommittedOffset(3)}
    shell.result(PLAN)
    assert shell.committed == {0: 10, 1: 10}
    assert offsets(shell) == {0: 10, 1: 10}


def test_a_batch_that_was_stored_but_not_completed_is_replayed_without_records() -> None:
    shell = Shell(TABLE)
    document = shell.batch()
    shell.table.store("g", parts(shell))
    again = restarted(shell)
    assert replayed(again, document) == ()
    assert parts(again) == []


def test_a_batch_that_was_not_stored_is_replayed_whole_under_new_claims() -> None:
    shell = Shell(TABLE)
    document = shell.batch()
    before = parts(shell)
    again = restarted(shell)
    assert replayed(again, document) == document.ranges
    assert [part.claim for part in parts(again)] == [2, 2]
    with pytest.raises(FencedError):
        shell.table.store("g", before)  # of the earlier process, which still lives
    assert again.table.store("g", parts(again))
    assert again.result(latest_offset(document, LimitOptions())) is document
    assert offsets(again) == {0: 10, 1: 10}


def test_a_replay_leaves_out_what_another_query_has_claimed_and_starts_there_when_it_is_back() -> None:
    """The other query has left before it stored anything: the checkpoint is ahead of the table."""
    shell = Shell(TABLE)
    document = shell.batch()
    shell.table.claim(OTHER, [P0], {})
    again = restarted(shell)
    assert replayed(again, document) == (OffsetRange(P1, 0, 10),)
    assert again.table.store("g", parts(again))
    planned = again.batch(document)
    assert planned.ranges == (OffsetRange(P0, 0, 10),)
    assert again.table.store("g", parts(again))
    assert offsets(again) == {0: 10, 1: 10}


def test_a_query_that_is_no_member_replays_all_and_its_sink_finds_the_replay() -> None:
    """Its state needs the records again. Its sink does not."""
    alone = replace(TABLE, mode=GroupMode.COMMIT)
    shell = Shell(alone)
    document = shell.batch()
    assert shell.table.store("g", parts(shell))
    again = restarted(shell, alone)
    assert replayed(again, document) == document.ranges
    assert not again.table.store("g", parts(again))


def test_a_query_that_is_no_member_replays_what_another_query_has_claimed() -> None:
    """It has no other members: the other one is its own process on an earlier machine, before its first batch."""
    alone = replace(TABLE, mode=GroupMode.COMMIT)
    shell = Shell(alone)
    document = shell.batch()
    shell.table.claim(OTHER, [P0], {})
    again = restarted(shell, alone)
    assert replayed(again, document) == document.ranges
    assert again.table.store("g", parts(again))
    assert again.result(latest_offset(document, LimitOptions())) is document
    assert again.table.records == list(document.ranges)
    assert offsets(again) == {0: 10, 1: 10}


def test_a_later_batch_of_a_query_that_is_no_member_is_not_stored_again_by_its_replay() -> None:
    """The checkpoint goes before commits, but it does not move the table back to the start of the batch."""
    alone = replace(TABLE, mode=GroupMode.COMMIT)
    shell = Shell(alone)
    first = shell.batch()
    shell.table.store("g", parts(shell))
    shell.logs.ends = {P0: 20, P1: 20}
    second = shell.batch(first)
    assert shell.table.store("g", parts(shell))
    again = restarted(shell, alone)
    assert replayed(again, second, first) == second.ranges
    assert offsets(again) == {0: 20, 1: 20}
    assert not again.table.store("g", parts(again))
    again.logs.ends = {P0: 20, P1: 20}
    assert again.result(latest_offset(second, LimitOptions())) is second
    assert offsets(again) == {0: 20, 1: 20}


def test_a_partition_that_was_reset_to_before_its_batch_is_left_out_of_the_replay() -> None:
    shell = Shell(TABLE)
    first = shell.batch()
    shell.table.store("g", parts(shell))
    shell.logs.ends = {P0: 20, P1: 20}
    second = shell.batch(first)
    shell.table.rows[P0] = StoredOffset(5, 2)
    again = restarted(shell)
    assert replayed(again, second, first) == (OffsetRange(P1, 10, 20),)
    assert again.table.store("g", parts(again))
    again.logs.ends = {P0: 20, P1: 20}
    assert again.batch(second).ranges == (OffsetRange(P0, 5, 20),)


def test_a_replay_of_a_batch_after_a_reset_does_not_undo_the_reset() -> None:
    """The query is no member. The checkpoint before the batch is still at the offset from before the reset."""
    alone = replace(TABLE, mode=GroupMode.COMMIT)
    shell = Shell(alone)
    first = shell.batch()
    shell.table.store("g", parts(shell))
    shell.table.rows[P0] = StoredOffset(5, 2)
    second_run = restarted(shell, alone)
    second = second_run.result(latest_offset(first, LimitOptions(2)))
    assert second_run.result(partitions(first, second))
    assert second_run.table.store("g", parts(second_run))
    again = restarted(second_run, alone)
    assert replayed(again, second, first) == (OffsetRange(P0, 5, 7),)
    assert not again.table.store("g", parts(again))
    assert offsets(again) == {0: 7, 1: 10}
    assert again.batch(second).ranges == (OffsetRange(P0, 7, 10),)


def test_a_reset_by_an_operator_fences_the_batch_and_the_next_one_starts_there() -> None:
    shell = Shell(TABLE)
    document = shell.batch()
    shell.table.rows[P0] = StoredOffset(5, 2)
    with pytest.raises(FencedError, match="an operator"):
        shell.table.store("g", parts(shell))
    again = restarted(shell)
    assert replayed(again, document) == (OffsetRange(P0, 5, 10), OffsetRange(P1, 0, 10))


@pytest.mark.parametrize("group", [TABLE, replace(TABLE, mode=GroupMode.COMMIT)], ids=lambda group: group.mode.value)
def test_a_reset_between_two_batches_ends_the_query_and_the_next_start_follows_it(group: GroupOptions) -> None:
    shell = Shell(group)
    document = shell.batch()
    assert shell.table.store("g", parts(shell))
    shell.table.rows[P0] = StoredOffset(5, 2)
    shell.call(latest_offset(document, LimitOptions()))
    shell.serve()
    (raised,) = shell.of(interface.Raise)
    assert isinstance(raised.error, FencedError)
    again = restarted(shell, group)
    assert again.batch(document).ranges == (OffsetRange(P0, 5, 10),)


def test_without_a_table_the_channel_tells_no_claims() -> None:
    shell = Shell()
    shell.batch()
    assert "stored" not in shell.result(ranges)


def test_a_partition_that_appears_after_the_group_has_expired_starts_at_its_first_record() -> None:
    """Kafka has deleted the group, so generations begin at 1 again. The table has kept its offsets."""
    shell = Shell(TABLE, starting=LATEST)
    shell.cluster = snapshot(t=1)
    shell.call(PLAN)
    shell.serve()
    assert offsets(shell) == {0: 10}
    shell.coordinator.expel(shell.ledger.member_id)
    shell.coordinator.group.delete()
    shell.coordinator.offsets.clear()
    again = Shell(TABLE, starting=LATEST)
    again.table, again.coordinator = shell.table, shell.coordinator
    assert again.batch().ranges == (OffsetRange(P1, 0, 10),)
    assert again.ledger.generation == shell.ledger.generation == 1


def test_the_group_follows_a_batch_that_was_stored_before_the_restart() -> None:
    """Tools that read the group's commits in Kafka would show its records as unread until others come."""
    shell = Shell(TABLE)
    document = shell.batch()
    shell.table.store("g", parts(shell))
    again = restarted(shell)
    assert replayed(again, document) == ()
    assert again.result(latest_offset(document, LimitOptions())) is document
    assert again.committed == {0: 10, 1: 10}

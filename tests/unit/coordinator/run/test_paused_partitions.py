"""Partitions that an operator has paused: held and committed, and not planned."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from streamgroup.coordinator.run import interface
from streamgroup.coordinator.run.machine import Run
from streamgroup.coordinator.run.paused_partitions import PausedPartitions, PauseRefused
from streamgroup.group import events as ev
from streamgroup.model import INITIAL_DOCUMENT, Document, OffsetRange
from streamgroup.options.types import GroupOptions, LimitOptions
from tests.unit.coordinator.run.run_shell import MODES, OFF, P0, P1, P2, Shell, latest_offset, partitions

TRIGGERS_THAT_END = pytest.mark.parametrize("once", [False, True], ids=["AvailableNow", "Once"])


def pause(shell: Shell, *partitions: object, is_paused: bool = True) -> None:
    chosen = frozenset(partitions) if partitions else None
    shell.result(lambda run: run.pause_reading(chosen, is_paused=is_paused))  # type: ignore[arg-type]


def plan(shell: Shell, start: Document, *, once: bool = False) -> Document:
    document = shell.result(latest_offset(start, LimitOptions(), once=once))
    assert isinstance(document, Document)
    return document


@MODES
def test_a_paused_partition_is_left_out_and_keeps_its_position_until_it_is_resumed(group: GroupOptions) -> None:
    shell = Shell(group)
    first = shell.batch()
    shell.logs.ends = {P0: 20, P1: 20}
    pause(shell, P0)
    second = shell.batch(first)
    assert second.ranges == (OffsetRange(P1, 10, 20),)
    assert second.positions[P0].offset == 10, "its document has the position, so a restart goes on there"
    assert plan(shell, second) is second, "nothing else is new"
    assert shell.committed == ({} if group is OFF else {0: 10, 1: 20})
    pause(shell, P0, is_paused=False)
    assert shell.batch(second).ranges == (OffsetRange(P0, 10, 20),)


def test_the_batch_in_flight_is_committed_although_its_partition_is_paused() -> None:
    shell = Shell()
    first = shell.batch()
    pause(shell, P0, P1)
    assert plan(shell, first) is first
    assert shell.committed == {0: 10, 1: 10}


def test_a_paused_query_plans_nothing_and_the_status_says_so() -> None:
    shell = Shell()
    first = shell.batch()
    shell.logs.ends = {P0: 20, P1: 20}
    pause(shell)
    assert plan(shell, first) is first
    status = shell.result(Run.status)
    assert (status["paused"], status["paused_whole"], status["state"]) == (["t-0", "t-1"], True, "stable")
    pause(shell, is_paused=False)
    assert len(shell.batch(first).ranges) == 2


def test_a_replay_reads_what_it_planned_paused_or_not() -> None:
    """A restart has no pauses, but a pause may come before Spark asks for the batch again (R13)."""
    shell = Shell()
    planned = Document("g", "lineage", "r0", 1, (OffsetRange(P0, 0, 10), OffsetRange(P1, 0, 10)), {})
    shell.result(latest_offset(INITIAL_DOCUMENT, LimitOptions()))
    pause(shell, P0)
    shell.result(partitions(INITIAL_DOCUMENT, planned))
    assert {r.range for task in shell.of(interface.CallReply)[0].result for r in task.ranges} == set(planned.ranges)


def paused_before_a_trigger_that_ends(*, once: bool, end: int) -> tuple[Shell, Document]:
    """Ten records of P0, which is paused, and `end` of P1. Returns the document from which the trigger plans, too."""
    shell = Shell()
    shell.logs.ends = {P0: 0, P1: 0}
    first = plan(shell, INITIAL_DOCUMENT)  # the member joins
    shell.logs.ends = {P0: 10, P1: end}
    if not once:
        shell.result(Run.prepare_available_now)
    pause(shell, P0)
    return shell, first


@TRIGGERS_THAT_END
def test_a_trigger_that_ends_leaves_out_a_paused_partition_and_says_so(*, once: bool) -> None:
    shell, first = paused_before_a_trigger_that_ends(once=once, end=10)
    second = plan(shell, first, once=once)
    assert second.ranges == (OffsetRange(P1, 0, 10),)
    if not once:
        shell.result(partitions(first, second))
        assert plan(shell, second) is second, "it ends"
    assert [note.text for note in shell.of(ev.Note) if "skips paused" in note.text] == [
        f"group g: Trigger.{'Once' if once else 'AvailableNow'} skips paused partitions: t-0 from 0 to 10. The query "
        "reads them after its next start"
    ]


@TRIGGERS_THAT_END
def test_a_trigger_that_ends_does_not_wait_for_the_broker_of_a_paused_partition(
    monkeypatch: pytest.MonkeyPatch, *, once: bool
) -> None:
    shell, first = paused_before_a_trigger_that_ends(once=once, end=0)
    monkeypatch.setattr(shell.logs, "unsound", lambda positions, logs: frozenset({P0}))
    assert plan(shell, first, once=once) is first


def test_a_partition_that_is_not_held_is_refused_and_the_query_goes_on() -> None:
    shell = Shell()
    first = shell.batch()
    shell.call(lambda run: run.pause_reading(frozenset({P2}), is_paused=True))
    ((failed),) = shell.of(interface.Raise)
    assert isinstance(failed.error, PauseRefused)
    assert "cannot pause t-2: not assigned to this query now. Assigned are t-0, t-1" in str(failed.error)
    assert shell.run.failure is None
    assert plan(shell, first) is first


# -- rebalances --------------------------------------------------------------------------------------------------------


class Pauses(PausedPartitions):
    def __init__(self, *held: object) -> None:
        self.lines: list[str] = []
        super().__init__("g", lambda level, line: self.lines.append(line))
        self.pause(held, held)  # type: ignore[arg-type]

    def of(self, held: Collection[object]) -> list[str]:
        return self.names(held)  # type: ignore[arg-type]


def test_a_pause_lasts_over_an_assignment_that_has_the_partition_and_ends_with_one_that_lacks_it() -> None:
    pauses = Pauses(P0, P1)
    pauses.assigned((P0, P2))
    assert pauses.of((P0, P1, P2)) == ["t-0"]
    assert pauses.lines[-1] == "group g: this query's new assignment lacks t-1, so the pause there has ended"
    pauses.assigned((P0, P1, P2))
    assert pauses.of((P0, P1, P2)) == ["t-0"], "a partition that comes back is read"


def test_a_pause_of_the_whole_query_includes_partitions_that_it_gains() -> None:
    pauses = Pauses(P0)
    pauses.pause(None, (P0,))
    pauses.assigned((P1, P2))
    assert pauses.of((P1, P2)) == ["t-1", "t-2"]


def test_one_partition_of_a_paused_query_cannot_be_resumed_and_neither_can_one_that_is_not_paused() -> None:
    pauses = Pauses(P0)
    with pytest.raises(PauseRefused, match=r"cannot resume t-1: not paused\. Paused are t-0"):
        pauses.resume((P1,))
    pauses.pause(None, (P0,))
    with pytest.raises(PauseRefused, match="the entire query is paused"):
        pauses.resume((P0,))


def test_a_rebalance_of_the_run_ends_the_pause_of_a_partition_that_moves() -> None:
    shell = Shell()
    first = shell.batch()
    pause(shell, P0)
    ledger = shell.ledger
    shell.run._perform(
        [ev.Assigned(ledger.generation + 1, ledger.member_id, (P1,), frozenset({P1}), "range", False, 2, 2)]
    )
    assert shell.result(Run.status)["paused"] == []
    assert first.positions[P0].offset == 10


def test_a_run_without_pauses_plans_from_the_very_logs_that_it_judged() -> None:
    logs = {P0: object()}
    pauses = Pauses()
    assert pauses.without(logs) is logs

"""Leader epochs: which positions are suspect, what is asked about them, and what the answers come to."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.cluster.requests import EpochCheck, EpochEnd
from streamgroup.errors import BrokerError, DataLossError, ErrorCode, TransportError
from streamgroup.model import INITIAL_DOCUMENT, LogRange, OffsetRange, Position
from streamgroup.options.types import LimitOptions
from tests.unit.run.test_planner import P0, P1, FakeLedger, FakeWatcher, Planning, planner

LOGS = {P0: LogRange(0, 20), P1: LogRange(0, 20)}


class Asked:
    """A cluster that notes what it is asked about."""

    def epoch_ends(self, wanted: Any, deadline: float) -> Any:
        return wanted


def question(watcher: FakeWatcher, number: int = -1) -> Any:
    return watcher.questions[number][0](Asked(), 0.0)


def answer(watcher: FakeWatcher, ends: dict[Any, EpochEnd]) -> None:
    watcher.questions[-1][1].set_result(ends)


def ask(made: Planning, ledger: FakeLedger) -> None:
    made.checks.epochs.ask(ledger.positions(), 0.0)


def test_as_long_as_no_leader_changes_nothing_is_asked() -> None:
    ledger, watcher = FakeLedger({P0: 4, P1: 8}), FakeWatcher()
    made = planner(ledger, watcher, strict=True)
    ask(made, ledger)
    assert made.look(LOGS) == (LOGS, {})
    assert watcher.questions == []


def test_a_suspect_is_not_planned_until_its_leader_has_answered_then_the_epoch_is_taken_over() -> None:
    ledger, watcher = FakeLedger({P0: 4, P1: 8}), FakeWatcher()
    ledger.held[P1] = Position(8, "id", 3)
    made = planner(ledger, watcher, strict=True)
    watcher.know(2, epoch=3)
    for _ in range(2):
        ask(made, ledger)
        assert made.look(LOGS) == ({P1: LOGS[P1]}, {}), "the other is planned meanwhile"
    assert len(watcher.questions) == 1
    assert question(watcher) == {P0: EpochCheck(1, 3)}
    answer(watcher, {P0: EpochEnd(1, 4)})
    ask(made, ledger)
    assert made.look(LOGS) == (LOGS, {})
    assert ledger.held[P0] == Position(4, "id", 3)
    document = made.next(INITIAL_DOCUMENT, LOGS, LimitOptions(), now=0.0)
    assert document is not None
    assert (document.ranges[0], document.positions[P0]) == (OffsetRange(P0, 4, 20), Position(20, "id", 3))
    ask(made, ledger)
    assert (len(watcher.questions), watcher.doubted) == (1, [])


def cut(strict: bool) -> tuple[Planning, FakeWatcher]:
    """P0 stands at 9 under epoch 1, which ended at 6: the log was cut there and has grown past 9 since."""
    ledger, watcher = FakeLedger({P0: 9, P1: 8}), FakeWatcher()
    made = planner(ledger, watcher, strict=strict)
    watcher.know(2, epoch=2)
    ask(made, ledger)
    answer(watcher, {P0: EpochEnd(1, 6), P1: EpochEnd(1, 8)})
    ask(made, ledger)
    assert made.look(LOGS) == ({P1: LOGS[P1]}, {}), "not before the metadata is refreshed"
    assert watcher.doubted == [P0]
    watcher.refreshed()
    ask(made, ledger)
    assert ledger.held[P0].leader_epoch == 1
    return made, watcher


def test_a_log_that_was_cut_and_has_grown_past_the_position_is_an_error_that_names_both_offsets() -> None:
    made, _ = cut(strict=True)
    with pytest.raises(DataLossError, match=r"t-0: .* gone at position 9: .*unclean election.* at offset 6"):
        made.look(LOGS)


def test_without_fail_on_data_loss_it_goes_on_at_the_cut_and_not_at_the_end_of_the_log() -> None:
    made, watcher = cut(strict=False)
    assert made.look(LOGS).moved == {P0: 6}
    assert len(watcher.questions) == 1


def test_a_leader_that_cannot_tell_proves_nothing() -> None:
    ledger, watcher = FakeLedger({P0: 9}), FakeWatcher()
    made = planner(ledger, watcher, strict=True)
    watcher.know(1, epoch=2)
    ask(made, ledger)
    answer(watcher, {P0: EpochEnd()})
    ask(made, ledger)
    assert made.look({P0: LOGS[P0]}) == ({P0: LOGS[P0]}, {})
    assert ledger.held[P0].leader_epoch == 2


def test_an_answer_counts_for_the_epochs_that_were_asked_about() -> None:
    ledger, watcher = FakeLedger({P0: 9}), FakeWatcher()
    made = planner(ledger, watcher, strict=True)
    watcher.know(1, epoch=2)
    ask(made, ledger)
    watcher.know(1, epoch=3)
    answer(watcher, {P0: EpochEnd(1, 9)})
    ask(made, ledger)
    assert made.look({P0: LOGS[P0]}) == ({}, {})
    ask(made, ledger)
    assert [question(watcher, n) for n in (0, 1)] == [{P0: EpochCheck(1, 2)}, {P0: EpochCheck(1, 3)}]


@pytest.mark.parametrize("unanswered", [{}, TransportError("down")], ids=["nothing", "error"])
def test_what_was_not_answered_is_asked_again(unanswered: Any) -> None:
    ledger, watcher = FakeLedger({P0: 9}), FakeWatcher()
    made = planner(ledger, watcher, strict=True)
    watcher.know(1, epoch=2)
    ask(made, ledger)
    if unanswered:
        watcher.questions[0][1].set_exception(unanswered)
    else:
        answer(watcher, unanswered)
    ask(made, ledger)
    ask(made, ledger)
    assert len(watcher.questions) == 2


def test_a_log_that_may_not_be_asked_about_ends_the_query() -> None:
    ledger, watcher = FakeLedger({P0: 9}), FakeWatcher()
    made = planner(ledger, watcher)
    watcher.know(1, epoch=2)
    ask(made, ledger)
    watcher.questions[0][1].set_exception(BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t-0"))
    with pytest.raises(BrokerError):
        ask(made, ledger)


def test_a_suspect_without_a_leader_is_asked_about_when_it_has_one() -> None:
    ledger, watcher = FakeLedger({P0: 9}), FakeWatcher()
    made = planner(ledger, watcher)
    watcher.know(1, epoch=2, leader=-1)
    ask(made, ledger)
    assert watcher.questions == []
    assert made.look({P0: LOGS[P0]}) == ({}, {})
    watcher.know(1, epoch=3)
    ask(made, ledger)
    assert question(watcher) == {P0: EpochCheck(1, 3)}


def test_a_position_without_an_epoch_takes_that_of_a_log_that_reaches_it() -> None:
    ledger, watcher = FakeLedger({P0: 9, P1: 30}), FakeWatcher()
    ledger.held = {P0: Position(9, "id"), P1: Position(30, "id")}
    made = planner(ledger, watcher)
    ask(made, ledger)
    made.look(LOGS)
    assert watcher.questions == []
    assert [ledger.held[tp].leader_epoch for tp in (P0, P1)] == [1, -1]

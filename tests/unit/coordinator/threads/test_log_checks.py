"""Leader epochs: which positions are suspect, what is asked about them, and what the answers come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from streamgroup.advice import NO_LOCATION, OffsetLocation, StoredIn
from streamgroup.coordinator.threads.log_checks import LogChecks
from streamgroup.errors import BrokerError, DataLossError, DecodeError, ErrorCode, TooLarge, TransportError
from streamgroup.kafka.cluster.requests import EpochCheck, EpochEnd
from streamgroup.kafka.cluster.samples import LogSample
from streamgroup.model import (
    INITIAL_DOCUMENT,
    ClusterSnapshot,
    Dialect,
    LogRange,
    OffsetRange,
    PartitionInfo,
    Position,
    TopicInfo,
)
from streamgroup.options.types import LimitOptions
from tests.clock import Clock
from tests.fakes.broker07 import tp
from tests.fakes.cluster import NODES
from tests.unit.coordinator.run.test_planner import P0, P1, FakeLedger, FakeWatcher, Planning, planner
from tests.unit.coordinator.threads.test_boundaries import Brokers

LOGS_OF_EPOCHS = {P0: LogRange(0, 20), P1: LogRange(0, 20)}


class Asked:
    """A cluster that notes what it is asked about."""

    def epoch_ends(self, wanted: Any, deadline: float) -> Any:
        return wanted


def question(watcher: FakeWatcher, number: int = -1) -> Any:
    return watcher.questions[number][0](Asked(), 0.0)


def epoch_answer(watcher: FakeWatcher, ends: dict[Any, EpochEnd]) -> None:
    watcher.questions[-1][1].set_result(ends)


def ask(made: Planning, ledger: FakeLedger) -> None:
    made.checks.epochs.ask(ledger.positions(), 0.0)


def test_a_suspect_is_not_planned_until_its_leader_has_answered_then_the_epoch_is_taken_over() -> None:
    ledger, watcher = FakeLedger({P0: 4, P1: 8}), FakeWatcher()
    ledger.held[P1] = Position(8, "id", 3)
    made = planner(ledger, watcher, strict=True)
    watcher.know(2, epoch=3)
    for _ in range(2):
        ask(made, ledger)
        assert made.look(LOGS_OF_EPOCHS) == ({P1: LOGS_OF_EPOCHS[P1]}, {}), "the other is planned meanwhile"
    assert len(watcher.questions) == 1
    assert question(watcher) == {P0: EpochCheck(1, 3)}
    epoch_answer(watcher, {P0: EpochEnd(1, 4)})
    ask(made, ledger)
    assert made.look(LOGS_OF_EPOCHS) == (LOGS_OF_EPOCHS, {})
    assert ledger.held[P0] == Position(4, "id", 3)
    document = made.next(INITIAL_DOCUMENT, LOGS_OF_EPOCHS, LimitOptions(), now=0.0)
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
    epoch_answer(watcher, {P0: EpochEnd(1, 6), P1: EpochEnd(1, 8)})
    ask(made, ledger)
    assert made.look(LOGS_OF_EPOCHS) == ({P1: LOGS_OF_EPOCHS[P1]}, {}), "not before the metadata is refreshed"
    assert watcher.doubted == [P0]
    watcher.refreshed()
    ask(made, ledger)
    assert ledger.held[P0].leader_epoch == 1
    return made, watcher


def test_a_log_that_was_cut_and_has_grown_past_the_position_is_an_error_that_names_both_offsets() -> None:
    made, _ = cut(strict=True)
    with pytest.raises(DataLossError, match=r"t-0: .* gone at position 9: .*unclean election.* at offset 6"):
        made.look(LOGS_OF_EPOCHS)


def test_without_fail_on_data_loss_it_goes_on_at_the_cut_and_not_at_the_end_of_the_log() -> None:
    made, watcher = cut(strict=False)
    assert made.look(LOGS_OF_EPOCHS).moved == {P0: 6}
    assert len(watcher.questions) == 1


def test_a_leader_that_cannot_tell_proves_nothing() -> None:
    ledger, watcher = FakeLedger({P0: 9}), FakeWatcher()
    made = planner(ledger, watcher, strict=True)
    watcher.know(1, epoch=2)
    ask(made, ledger)
    epoch_answer(watcher, {P0: EpochEnd()})
    ask(made, ledger)
    assert made.look({P0: LOGS_OF_EPOCHS[P0]}) == ({P0: LOGS_OF_EPOCHS[P0]}, {})
    assert ledger.held[P0].leader_epoch == 2


def test_an_answer_counts_for_the_epochs_that_were_asked_about() -> None:
    ledger, watcher = FakeLedger({P0: 9}), FakeWatcher()
    made = planner(ledger, watcher, strict=True)
    watcher.know(1, epoch=2)
    ask(made, ledger)
    watcher.know(1, epoch=3)
    epoch_answer(watcher, {P0: EpochEnd(1, 9)})
    ask(made, ledger)
    assert made.look({P0: LOGS_OF_EPOCHS[P0]}) == ({}, {})
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
        epoch_answer(watcher, unanswered)
    ask(made, ledger)
    ask(made, ledger)
    assert len(watcher.questions) == 2


def test_a_suspect_without_a_leader_is_asked_about_when_it_has_one() -> None:
    ledger, watcher = FakeLedger({P0: 9}), FakeWatcher()
    made = planner(ledger, watcher)
    watcher.know(1, epoch=2, leader=-1)
    ask(made, ledger)
    assert watcher.questions == []
    assert made.look({P0: LOGS_OF_EPOCHS[P0]}) == ({}, {})
    watcher.know(1, epoch=3)
    ask(made, ledger)
    assert question(watcher) == {P0: EpochCheck(1, 3)}


def test_a_position_without_an_epoch_takes_that_of_a_log_that_reaches_it() -> None:
    ledger, watcher = FakeLedger({P0: 9, P1: 30}), FakeWatcher()
    ledger.held = {P0: Position(9, "id"), P1: Position(30, "id")}
    made = planner(ledger, watcher)
    ask(made, ledger)
    made.look(LOGS_OF_EPOCHS)
    assert watcher.questions == []
    assert [ledger.held[tp].leader_epoch for tp in (P0, P1)] == [1, -1]


IN_ZOOKEEPER = OffsetLocation("g", StoredIn.ZOOKEEPER)
NO_LIMIT = LimitOptions()
LOGS = {P0: LogRange(0, 50), P1: LogRange(0, 50)}
POSITIONS = {P0: Position(10, "id", 1), P1: Position(20, "id", 1)}

OLD, OLD_B = tp(0, 0), tp(1, 2)
OLD_LOGS = {OLD: LogRange(0, 10_000, (0, 5_000))}


class Watcher07(FakeWatcher):
    """Of a cluster of Kafka 0.7."""

    def know(self, partitions: int, topic_id: str = "id", epoch: int = 1, leader: int = 0) -> None:
        infos = (PartitionInfo(OLD.partition, 0), PartitionInfo(OLD_B.partition, 1))
        self.snapshot = ClusterSnapshot(NODES, {OLD.topic: TopicInfo(OLD.topic, infos)}, dialect=Dialect.KAFKA07)
        self.changes = object()


def checks_of(watcher: FakeWatcher, location: OffsetLocation = IN_ZOOKEEPER) -> LogChecks:
    return LogChecks(watcher, location, Clock())  # type: ignore[arg-type]


def answer(watcher: FakeWatcher, value: Any, number: int = -1) -> None:
    watcher.questions[number][1].set_result(value)


# -- Kafka 0.8 and later -----------------------------------------------------------------------------------------------


def test_positions_of_the_newest_epochs_without_a_limit_of_bytes_ask_nothing() -> None:
    watcher = FakeWatcher()
    checks = checks_of(watcher)
    checks.ask(POSITIONS, LOGS, LimitOptions(max_offsets_per_trigger=5), None, 0.0)
    assert watcher.questions == []
    assert checks.suspects(POSITIONS) == {}


def test_a_leader_that_refuses_is_an_error_of_the_call() -> None:
    watcher = FakeWatcher()
    checks = checks_of(watcher)
    watcher.know(2, epoch=3)
    checks.ask(POSITIONS, LOGS, NO_LIMIT, None, 0.0)
    watcher.questions[0][1].set_exception(BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t-0"))
    with pytest.raises(BrokerError, match="t-0"):
        checks.ask(POSITIONS, LOGS, NO_LIMIT, None, 0.0)


def test_every_offset_of_a_later_kafka_is_a_boundary() -> None:
    checks = checks_of(FakeWatcher())
    assert (checks.boundaries(LOGS), checks.unsound(POSITIONS, LOGS)) == (None, frozenset())


# -- Kafka 0.7 ---------------------------------------------------------------------------------------------------------


def test_where_a_plan_ends_the_next_one_begins_without_a_check() -> None:
    watcher = Watcher07()
    checks = checks_of(watcher)
    checks.planned([OffsetRange(OLD, 0, 60)])
    at = {OLD: Position(60)}
    checks.ask(at, OLD_LOGS, NO_LIMIT, None, 0.0)
    assert (checks.unsound(at, OLD_LOGS), watcher.questions) == (frozenset(), [])


@pytest.mark.parametrize(
    "limits",
    [
        LimitOptions(max_offsets_per_trigger=100),
        LimitOptions(max_bytes_per_trigger=100),
        LimitOptions(max_offsets_per_trigger=100, max_bytes_per_trigger=10_000),
        LimitOptions(max_offsets_per_trigger=10_000, max_bytes_per_trigger=100),
    ],
    ids=["offsets", "bytes", "fewer offsets", "fewer bytes"],
)
def test_the_smaller_limit_has_the_log_scanned_for_the_end_of_the_batch(limits: LimitOptions) -> None:
    """Offsets of Kafka 0.7 are bytes, so both limits are limits of bytes."""
    watcher = Watcher07()
    checks = checks_of(watcher)
    at = {OLD: Position(5_000)}
    checks.ask(at, OLD_LOGS, limits, None, 0.0)
    answer(watcher, watcher.questions[0][0](Brokers(), 0.0))
    checks.ask(at, OLD_LOGS, limits, None, 0.0)
    found = checks.boundaries(OLD_LOGS)
    assert found is not None
    assert (found.segment_starts, found.message_ends) == ({OLD: (0, 5_000)}, {OLD: (5_030, 5_060, 5_090)})


def test_a_position_that_is_not_known_to_be_a_boundary_is_not_scanned_from() -> None:
    watcher = Watcher07()
    checks = checks_of(watcher)
    logs = {**OLD_LOGS, OLD_B: LogRange(0, 10_000, (0,))}
    at = {OLD: Position(5_000), OLD_B: Position(33)}
    limits = LimitOptions(max_offsets_per_trigger=100)
    checks.ask(at, logs, limits, None, 0.0)
    assert len(watcher.questions) == 2
    answer(watcher, watcher.questions[1][0](Brokers(), 0.0), 1)
    checks.ask(at, logs, limits, None, 0.0)
    found = checks.boundaries(logs)
    assert found is not None
    assert found.message_ends.keys() == {OLD}


@pytest.mark.parametrize(
    ("location", "text"),
    [
        (IN_ZOOKEEPER, r"^group g: position 30: .*: stop the query and all members, and .*/consumers/g/offsets"),
        (OffsetLocation("g", StoredIn.KAFKA), r"^group g: position 30: .*streamgroup groups --reset-offsets --group g"),
        (NO_LOCATION, r"^position 30: no message begins there$"),
    ],
    ids=["zookeeper", "brokers", "no group"],
)
def test_a_position_inside_of_a_message_names_the_group_and_how_to_set_its_offset(
    location: OffsetLocation, text: str
) -> None:
    watcher = Watcher07()
    checks = checks_of(watcher, location)
    checks.ask({OLD: Position(30)}, OLD_LOGS, NO_LIMIT, None, 0.0)
    error = TooLarge("position 30: no message begins there")
    error.base_offset, error.next_offset = 30, 60
    watcher.questions[0][1].set_exception(error)
    with pytest.raises(DecodeError, match=text) as raised:
        checks.ask({OLD: Position(30)}, OLD_LOGS, NO_LIMIT, None, 0.0)
    assert type(raised.value) is TooLarge
    assert (raised.value.base_offset, raised.value.next_offset) == (30, 60)


SIZED_LOGS = {P0: LogRange(0, 1_000), P1: LogRange(0, 1_000)}
LIMITS = LimitOptions(max_bytes_per_trigger=10_000)


@dataclass
class Given:
    made: Planning
    ledger: FakeLedger
    watcher: FakeWatcher

    def ask(self) -> None:
        self.made.ask(self.ledger.positions(), SIZED_LOGS, LIMITS, 0.0)

    def batch(self, limits: LimitOptions = LIMITS) -> Any:
        document = self.made.next(INITIAL_DOCUMENT, SIZED_LOGS, limits, now=0.0)
        assert document is not None
        return document


def given(*positions: int) -> Given:
    ledger, watcher = FakeLedger(dict(zip((P0, P1), positions, strict=True))), FakeWatcher()
    return Given(planner(ledger, watcher, strict=True), ledger, watcher)


def test_a_limit_of_bytes_follows_the_samples_where_the_batch_begins() -> None:
    test = given(0, 0)
    test.ask()
    ((_, answer),) = test.watcher.questions
    answer.set_result({P0: LogSample(1_000, 10), P1: LogSample(100, 10)})
    test.ask()
    assert test.batch().ranges == (OffsetRange(P0, 0, 90), OffsetRange(P1, 0, 90)), "9 000 and 900 bytes"
    assert len(test.watcher.questions) == 1, "nothing new is asked at the same positions"


def test_before_the_first_sample_an_offset_counts_as_a_mebibyte() -> None:
    test = given(0, 0)
    test.ask()
    assert test.batch(LimitOptions(max_bytes_per_trigger=20 << 20)).ranges == (
        OffsetRange(P0, 0, 10),
        OffsetRange(P1, 0, 10),
    )


def test_both_limits_hold() -> None:
    test = given(0, 0)
    test.ask()
    test.watcher.questions[0][1].set_result({P0: LogSample(10, 10), P1: LogSample(10, 10)})
    test.ask()
    both = LimitOptions(6, max_bytes_per_trigger=1_000)
    assert test.batch(both).ranges == (OffsetRange(P0, 0, 3), OffsetRange(P1, 0, 3))


def test_leaders_that_do_not_answer_are_asked_again_and_hold_up_no_batch() -> None:
    test = given(0, 0)
    test.ask()
    test.watcher.questions[0][1].set_exception(TransportError("gone"))
    test.ask()
    assert test.batch().ranges == (OffsetRange(P0, 0, 1), OffsetRange(P1, 0, 1))
    test.ask()
    assert len(test.watcher.questions) == 2


def test_only_partitions_with_records_are_sampled_and_only_where_bytes_are_limited() -> None:
    test = given(1_000, 1_000)
    test.ask()
    test.made.ask(given(0, 0).ledger.positions(), SIZED_LOGS, LimitOptions(5), 0.0)
    assert test.watcher.questions == []

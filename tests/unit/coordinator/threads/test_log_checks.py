"""What leaders are asked before a plan: boundaries of messages, epochs, sizes. The watcher answers as the test says."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from streamgroup.advice import NO_LOCATION, OffsetLocation, StoredIn
from streamgroup.coordinator.threads import boundaries
from streamgroup.coordinator.threads.boundaries import BoundaryScans, PositionChecks, require_boundaries
from streamgroup.coordinator.threads.log_checks import LogChecks
from streamgroup.errors import BrokerError, ConfigError, DataLossError, DecodeError, ErrorCode, TooLarge, TransportError
from streamgroup.kafka.cluster.kafka07 import Kafka07Cluster
from streamgroup.kafka.cluster.requests import EpochCheck, EpochEnd
from streamgroup.kafka.cluster.samples import LogSample
from streamgroup.model import INITIAL_DOCUMENT, LogRange, OffsetRange, Position, TopicPartition
from streamgroup.options.types import LimitOptions
from tests.clock import Clock
from tests.fakes.broker07 import tp
from tests.fakes.registry07 import FakeNodes, client07
from tests.unit.coordinator.run.run_shell import registered
from tests.unit.coordinator.run.test_planner import P0, P1, FakeLedger, FakeWatcher, Planning, planned, planner
from tests.unit.coordinator.shells import SOON

A, B = tp(0, 0), tp(1, 2)
POSITIONS07 = {A: Position(10), B: Position(20)}
LOGS07 = {A: LogRange(0, 110, (0, 50)), B: LogRange(0, 120, (0,))}


@pytest.fixture
def watcher() -> FakeWatcher:
    return FakeWatcher()


@pytest.fixture
def scans(watcher: FakeWatcher) -> BoundaryScans:
    return BoundaryScans(watcher)  # type: ignore[arg-type]


def test_what_no_segment_tells_is_asked_once_and_the_late_answer_counts_at_its_position_only(
    scans: BoundaryScans, watcher: FakeWatcher
) -> None:
    for _ in range(3):
        scans.ask(POSITIONS07, LOGS07, 100, None, 0.0)
    assert scans.known(LOGS07).segment_starts == {A: (0, 50), B: (0,)}
    assert scans.known(LOGS07).message_ends == {}
    watcher.questions[0][1].set_result({B: (31, 64)})
    scans.ask(POSITIONS07, LOGS07, 100, None, 0.0)
    assert scans.known(LOGS07).message_ends == {B: (31, 64)}
    assert len(watcher.questions) == 1
    scans.ask({**POSITIONS07, B: Position(64)}, LOGS07, 60, None, 0.0)
    assert scans.known(LOGS07).message_ends == {}
    assert len(watcher.questions) == 2


def test_no_limit_in_the_way_asks_nothing(scans: BoundaryScans, watcher: FakeWatcher) -> None:
    scans.ask(POSITIONS07, LOGS07, 1_000, None, 0.0)
    scans.ask(POSITIONS07, LOGS07, 1_000, {A: 100, B: 100}, 0.0)
    assert not watcher.questions


# -- positions that were not planned here ------------------------------------------------------------------------------


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def checks(watcher: FakeWatcher, clock: Clock) -> PositionChecks:
    return PositionChecks(watcher, clock)  # type: ignore[arg-type]


def test_a_position_is_sound_once_a_message_was_found_there(
    checks: PositionChecks, watcher: FakeWatcher, clock: Clock
) -> None:
    checks.ask(POSITIONS07, LOGS07, 0.0)
    assert checks.unsound(POSITIONS07, LOGS07) == {A, B}
    watcher.questions[0][1].set_result({A: (40,)})
    checks.ask(POSITIONS07, LOGS07, 0.0)
    assert checks.unsound(POSITIONS07, LOGS07) == {B}
    checks.ask(POSITIONS07, LOGS07, 5.0)
    assert len(watcher.questions) == 1, "not before a while: and the other can be planned from meanwhile"
    clock.now += boundaries.CHECK_EVERY_S
    checks.ask(POSITIONS07, LOGS07, 0.0)
    watcher.questions[1][1].set_result({B: (50,)})
    checks.ask(POSITIONS07, LOGS07, 0.0)
    assert checks.unsound(POSITIONS07, LOGS07) == frozenset()


def test_the_first_answer_is_waited_for_that_a_query_fails_before_it_has_begun(
    checks: PositionChecks, watcher: FakeWatcher
) -> None:
    told = {A: Position(50), B: Position(20)}
    threading.Timer(0.2, lambda: watcher.questions[0][1].set_exception(DecodeError("position 20"))).start()
    with pytest.raises(DecodeError, match="position 20"):
        checks.ask(told, LOGS07, SOON)
    checks.ask(told, LOGS07, SOON)  # and not again: A can be planned from
    assert checks.unsound(told, LOGS07) == {B}


def test_where_a_plan_has_ended_the_next_one_may_begin_and_nowhere_else(
    checks: PositionChecks, watcher: FakeWatcher, clock: Clock
) -> None:
    """A partition may be lost, and held again somewhere else, between two plans."""
    checks.ask({A: Position(20)}, {A: LOGS07[A]}, 0.0)
    watcher.questions[0][1].set_result({A: (40,)})
    checks.ask({A: Position(20)}, {A: LOGS07[A]}, 0.0)
    checks.planned([OffsetRange(A, 20, 70)])
    assert checks.unsound({A: Position(70)}, LOGS07) == frozenset()
    checks.ask({A: Position(70)}, {A: LOGS07[A]}, 0.0)
    assert checks.unsound({A: Position(70)}, LOGS07) == frozenset()
    clock.now += boundaries.CHECK_EVERY_S
    checks.ask({A: Position(77)}, {A: LOGS07[A]}, 0.0)
    assert checks.unsound({A: Position(77)}, LOGS07) == {A}
    assert len(watcher.questions) == 2


def test_a_check_that_nobody_answers_is_given_up(
    checks: PositionChecks, watcher: FakeWatcher, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """The batch's task then tells what is amiss with the broker; a query that waits for ever tells nothing."""
    began = clock.now
    while checks.unsound({A: Position(20)}, LOGS07) and clock.now < began + 60:
        checks.ask({A: Position(20)}, {A: LOGS07[A]}, 0.0)
        if not watcher.questions[-1][1].done():
            watcher.questions[-1][1].set_exception(TransportError("it hangs up"))
        clock.now += 0.5
    assert boundaries.CHECK_TIMEOUT_S <= clock.now - began <= boundaries.CHECK_TIMEOUT_S + 2
    assert len(watcher.questions) <= boundaries.CHECK_TIMEOUT_S / boundaries.CHECK_EVERY_S + 1
    said = "events 0-0: cannot check whether a message begins at position 20: no broker responded within 30 s"
    assert said in caplog.text


@pytest.mark.parametrize(("position", "end"), [(0, 500), (50, 500), (110, 500), (-1, 110), (111, 110)])
def test_neither_boundaries_that_brokers_have_reported_nor_positions_outside_of_the_log_are_asked_about(
    position: int, end: int, checks: PositionChecks, watcher: FakeWatcher
) -> None:
    """The log may have grown to `end`. Positions outside are the data-loss policy's."""
    at = {A: Position(position)}
    checks.ask(at, {A: LOGS07[A]}, 0.0)
    assert checks.unsound(at, {A: LogRange(0, end, (0, 50))}) == frozenset()
    assert not watcher.questions


def test_who_comes_back_or_is_set_back_is_asked_about_anew(
    checks: PositionChecks, watcher: FakeWatcher, clock: Clock
) -> None:
    checks.ask({A: Position(20)}, {A: LOGS07[A]}, 0.0)
    watcher.questions[0][1].set_result({A: (40,)})
    checks.ask({A: Position(20)}, {A: LOGS07[A]}, 0.0)
    assert checks.unsound({A: Position(20)}, LOGS07) == frozenset()
    clock.now += boundaries.CHECK_EVERY_S
    checks.ask({A: Position(17)}, {A: LOGS07[A]}, 0.0)
    assert checks.unsound({A: Position(17)}, LOGS07) == {A}
    watcher.questions[1][1].set_result({A: (40,)})
    checks.ask({}, {}, 0.0)
    checks.ask({A: Position(40)}, {A: LOGS07[A]}, 0.0)
    assert checks.unsound({A: Position(40)}, LOGS07) == {A}


def test_a_position_inside_of_a_message_ends_the_query_before_it_is_planned(
    checks: PositionChecks, watcher: FakeWatcher
) -> None:
    checks.ask(POSITIONS07, LOGS07, 0.0)
    watcher.questions[0][1].set_exception(DecodeError("position 20: no message begins there"))
    with pytest.raises(DecodeError, match="position 20"):
        checks.ask(POSITIONS07, LOGS07, 0.0)
    assert checks.unsound(POSITIONS07, LOGS07) == {A, B}


# -- positions that a batch read is given ------------------------------------------------------------------------------


class Brokers(Kafka07Cluster):
    """Messages of 30 bytes each."""

    def __init__(self) -> None:
        super().__init__(client07(), FakeNodes({}))
        self.asked: list[int] = []

    def is_message_start(self, tp: TopicPartition, position: int, deadline: float) -> bool:
        self.asked.append(position)
        return position % 30 == 0

    def boundaries(
        self, wanted: Any, deadline: float, budget: float, *, check_crc: bool = False
    ) -> dict[TopicPartition, tuple[int, ...]]:
        return {r.partition: tuple(range(r.start + 30, r.until + 1, 30)) for r in wanted}


@pytest.mark.parametrize(
    ("start", "until", "wrong"),
    [
        (0, 300, None),
        (60, 90, None),
        (150, 300, None),
        (61, 90, ("startingOffsets", 61, 60)),
        (60, 179, ("endingOffsets", 179, 150)),
        (29, 60, ("startingOffsets", 29, 0)),
    ],
)
def test_positions_of_a_batch_read_must_be_where_messages_begin(
    start: int, until: int, wrong: tuple[str, int, int] | None
) -> None:
    brokers, logs = Brokers(), {B: LogRange(0, 300, (0, 150))}
    ranges = [OffsetRange(B, start, until)]
    if wrong is None:
        require_boundaries(brokers, ranges, logs, 1e9)
        assert not {0, 150, 300} & set(brokers.asked), "what the brokers have told needs no look"
        return
    option, position, before = wrong
    said = rf"^invalid {option}: no message begins at position {position} of events 1-2 .* begins at {before}$"
    with pytest.raises(ConfigError, match=said):
        require_boundaries(brokers, ranges, logs, 1e9)


LOGS_OF_EPOCHS = {P0: LogRange(0, 20), P1: LogRange(0, 20)}


class Asked:
    """A cluster that notes what it is asked about."""

    def epoch_ends(self, wanted: Any, deadline: float) -> Any:
        return wanted


def question(watcher: FakeWatcher, number: int = -1) -> Any:
    return watcher.questions[number][0](Asked(), 0.0)


def answer(watcher: FakeWatcher, value: Any, number: int = -1) -> None:
    watcher.questions[number][1].set_result(value)


def ask(made: Planning, ledger: FakeLedger) -> None:
    made.checks.epochs.ask(ledger.positions(), 0.0)


def suspect(leader: int = 0) -> tuple[Planning, FakeLedger, FakeWatcher]:
    """P0 stands at 9 under epoch 1. The newest epoch is 2, and its leader is asked where epoch 1 ended."""
    ledger, watcher = FakeLedger({P0: 9}), FakeWatcher()
    made = planner(ledger, watcher, strict=True)
    watcher.know(1, epoch=2, leader=leader)
    ask(made, ledger)
    return made, ledger, watcher


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
    answer(watcher, {P0: EpochEnd(1, 4)})
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
    answer(watcher, {P0: EpochEnd(1, 6), P1: EpochEnd(1, 8)})
    ask(made, ledger)
    assert made.look(LOGS_OF_EPOCHS) == ({P1: LOGS_OF_EPOCHS[P1]}, {}), "not before the metadata is refreshed"
    assert watcher.doubted == [P0]
    watcher.refreshed()
    ask(made, ledger)
    assert ledger.held[P0].leader_epoch == 1
    return made, watcher


def test_a_log_that_was_cut_and_has_grown_past_the_position_is_an_error_that_names_both_offsets() -> None:
    made, _ = cut(strict=True)
    with pytest.raises(DataLossError, match=r"t-0: .* lost from position 9 on: .*unclean election.* at offset 6"):
        made.look(LOGS_OF_EPOCHS)


def test_without_fail_on_data_loss_it_goes_on_at_the_cut_and_not_at_the_end_of_the_log() -> None:
    made, watcher = cut(strict=False)
    assert made.look(LOGS_OF_EPOCHS).moved == {P0: 6}
    assert len(watcher.questions) == 1


def test_a_leader_that_cannot_tell_proves_nothing() -> None:
    made, ledger, watcher = suspect()
    answer(watcher, {P0: EpochEnd()})
    ask(made, ledger)
    assert made.look({P0: LOGS_OF_EPOCHS[P0]}) == ({P0: LOGS_OF_EPOCHS[P0]}, {})
    assert ledger.held[P0].leader_epoch == 2


def test_an_answer_counts_for_the_epochs_that_were_asked_about() -> None:
    made, ledger, watcher = suspect()
    watcher.know(1, epoch=3)
    answer(watcher, {P0: EpochEnd(1, 9)})
    ask(made, ledger)
    assert made.look({P0: LOGS_OF_EPOCHS[P0]}) == ({}, {})
    ask(made, ledger)
    assert [question(watcher, n) for n in (0, 1)] == [{P0: EpochCheck(1, 2)}, {P0: EpochCheck(1, 3)}]


@pytest.mark.parametrize("unanswered", [{}, TransportError("down")], ids=["nothing", "error"])
def test_what_was_not_answered_is_asked_again(unanswered: Any) -> None:
    made, ledger, watcher = suspect()
    if unanswered:
        watcher.questions[0][1].set_exception(unanswered)
    else:
        answer(watcher, unanswered)
    ask(made, ledger)
    ask(made, ledger)
    assert len(watcher.questions) == 2


def test_a_suspect_without_a_leader_is_asked_about_when_it_has_one() -> None:
    made, ledger, watcher = suspect(leader=-1)
    assert watcher.questions == []
    assert made.look({P0: LOGS_OF_EPOCHS[P0]}) == ({}, {})
    watcher.know(1, epoch=3)
    ask(made, ledger)
    assert question(watcher) == {P0: EpochCheck(1, 3)}


IN_ZOOKEEPER = OffsetLocation("g", StoredIn.ZOOKEEPER)
NO_LIMIT = LimitOptions()
LOGS = {P0: LogRange(0, 50), P1: LogRange(0, 50)}
POSITIONS = {P0: Position(10, "id", 1), P1: Position(20, "id", 1)}

SEGMENTED = {A: LogRange(0, 10_000, (0, 5_000))}


class Watcher07(FakeWatcher):
    """Of a cluster of Kafka 0.7."""

    def know(self, partitions: int, topic_id: str = "id", epoch: int = 1, leader: int = 0) -> None:
        self.snapshot, self.changes = registered(A, B), object()


def checks_of(watcher: FakeWatcher, location: OffsetLocation = IN_ZOOKEEPER) -> LogChecks:
    return LogChecks(watcher, location, Clock())  # type: ignore[arg-type]


def test_positions_of_the_newest_epochs_without_a_limit_of_bytes_ask_nothing() -> None:
    watcher = FakeWatcher()
    checks = checks_of(watcher)
    checks.ask(POSITIONS, LOGS, LimitOptions(max_offsets_per_trigger=5), None, 0.0)
    assert watcher.questions == []
    assert checks.suspects(POSITIONS) == {}
    assert (checks.boundaries(LOGS), checks.unsound(POSITIONS, LOGS)) == (None, frozenset()), "any offset is a boundary"


def test_a_leader_that_refuses_is_an_error_of_the_call() -> None:
    watcher = FakeWatcher()
    checks = checks_of(watcher)
    watcher.know(2, epoch=3)
    checks.ask(POSITIONS, LOGS, NO_LIMIT, None, 0.0)
    watcher.questions[0][1].set_exception(BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t-0"))
    with pytest.raises(BrokerError, match="t-0"):
        checks.ask(POSITIONS, LOGS, NO_LIMIT, None, 0.0)


# -- Kafka 0.7 ---------------------------------------------------------------------------------------------------------


def test_where_a_plan_ends_the_next_one_begins_without_a_check() -> None:
    watcher = Watcher07()
    checks = checks_of(watcher)
    checks.planned([OffsetRange(A, 0, 60)])
    at = {A: Position(60)}
    checks.ask(at, SEGMENTED, NO_LIMIT, None, 0.0)
    assert (checks.unsound(at, SEGMENTED), watcher.questions) == (frozenset(), [])


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
    at = {A: Position(5_000)}
    checks.ask(at, SEGMENTED, limits, None, 0.0)
    answer(watcher, watcher.questions[0][0](Brokers(), 0.0))
    checks.ask(at, SEGMENTED, limits, None, 0.0)
    found = checks.boundaries(SEGMENTED)
    assert found is not None
    assert (found.segment_starts, found.message_ends) == ({A: (0, 5_000)}, {A: (5_030, 5_060, 5_090)})


def test_a_position_that_is_not_known_to_be_a_boundary_is_not_scanned_from() -> None:
    watcher = Watcher07()
    checks = checks_of(watcher)
    logs = {**SEGMENTED, B: LogRange(0, 10_000, (0,))}
    at = {A: Position(5_000), B: Position(33)}
    limits = LimitOptions(max_offsets_per_trigger=100)
    checks.ask(at, logs, limits, None, 0.0)
    assert len(watcher.questions) == 2
    answer(watcher, watcher.questions[1][0](Brokers(), 0.0), 1)
    checks.ask(at, logs, limits, None, 0.0)
    found = checks.boundaries(logs)
    assert found is not None
    assert found.message_ends.keys() == {A}


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
    checks.ask({A: Position(30)}, SEGMENTED, NO_LIMIT, None, 0.0)
    error = TooLarge("position 30: no message begins there")
    error.base_offset, error.next_offset = 30, 60
    watcher.questions[0][1].set_exception(error)
    with pytest.raises(DecodeError, match=text) as raised:
        checks.ask({A: Position(30)}, SEGMENTED, NO_LIMIT, None, 0.0)
    assert type(raised.value) is TooLarge
    assert (raised.value.base_offset, raised.value.next_offset) == (30, 60)


SIZED_LOGS = {P0: LogRange(0, 1_000), P1: LogRange(0, 1_000)}
LIMITS = LimitOptions(max_bytes_per_trigger=10_000)


class Sized:
    """A planner under a limit of bytes, whose two partitions stand at `position` of a thousand records."""

    def __init__(self, position: int = 0) -> None:
        self.ledger, self.watcher = FakeLedger({P0: position, P1: position}), FakeWatcher()
        self.made = planner(self.ledger, self.watcher, strict=True)
        self.ask()

    def ask(self) -> None:
        self.made.ask(self.ledger.positions(), SIZED_LOGS, LIMITS, 0.0)

    def takes(self, limits: LimitOptions = LIMITS) -> list[int]:
        """Return the number of offsets that the next batch takes of each partition."""
        return [len(range_) for range_ in planned(self.made, SIZED_LOGS, limits)]


def test_a_limit_of_bytes_follows_the_samples_where_the_batch_begins_and_holds_with_one_of_offsets() -> None:
    sized = Sized()
    answer(sized.watcher, {P0: LogSample(1_000, 10), P1: LogSample(100, 10)})
    sized.ask()
    assert sized.takes() == [90, 90], "9 000 and 900 bytes"
    assert sized.takes(LimitOptions(6, max_bytes_per_trigger=10_000)) == [3, 3]
    assert len(sized.watcher.questions) == 1, "nothing new is asked at the same positions"


def test_leaders_that_do_not_answer_are_asked_again_and_an_offset_counts_as_a_mebibyte_meanwhile() -> None:
    sized = Sized()
    assert sized.takes(LimitOptions(max_bytes_per_trigger=20 << 20)) == [10, 10]
    sized.watcher.questions[0][1].set_exception(TransportError("gone"))
    sized.ask()
    assert sized.takes() == [1, 1]
    sized.ask()
    assert len(sized.watcher.questions) == 2


def test_only_partitions_with_records_are_sampled() -> None:
    assert Sized(position=1_000).watcher.questions == []

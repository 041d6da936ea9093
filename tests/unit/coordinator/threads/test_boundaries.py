"""Where plans of Kafka 0.7 end: asked of a watcher that answers when the test says so."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from streamgroup.coordinator.threads import boundaries
from streamgroup.coordinator.threads.boundaries import BoundaryScans, PositionChecks, require_boundaries
from streamgroup.errors import ConfigError, DecodeError, TransportError
from streamgroup.kafka.cluster.kafka07 import Kafka07Cluster
from streamgroup.model import LogRange, OffsetRange, Position, TopicPartition
from tests.clock import Clock
from tests.fakes.broker07 import tp
from tests.fakes.registry07 import FakeNodes, client07
from tests.unit.coordinator.run.test_planner import FakeWatcher
from tests.unit.coordinator.shells import SOON

A, B = tp(0, 0), tp(1, 2)
POSITIONS = {A: Position(10), B: Position(20)}
LOGS = {A: LogRange(0, 110, (0, 50)), B: LogRange(0, 120, (0,))}


@pytest.fixture
def watcher() -> FakeWatcher:
    return FakeWatcher()


@pytest.fixture
def scans(watcher: FakeWatcher) -> BoundaryScans:
    return BoundaryScans(watcher)  # type: ignore[arg-type]


def test_only_what_no_segment_tells_is_asked_and_once(scans: BoundaryScans, watcher: FakeWatcher) -> None:
    for _ in range(3):
        scans.ask(POSITIONS, LOGS, 100, None, 0.0)
    assert len(watcher.questions) == 1
    assert scans.known(LOGS).segment_starts == {A: (0, 50), B: (0,)}
    assert scans.known(LOGS).message_ends == {}


def test_an_answer_that_came_late_is_at_hand_for_the_next_plan(scans: BoundaryScans, watcher: FakeWatcher) -> None:
    scans.ask(POSITIONS, LOGS, 100, None, 0.0)
    watcher.questions[0][1].set_result({B: (31, 64)})
    scans.ask(POSITIONS, LOGS, 100, None, 0.0)
    assert scans.known(LOGS).message_ends == {B: (31, 64)}
    assert len(watcher.questions) == 1


def test_answers_count_only_from_where_they_were_walked(scans: BoundaryScans, watcher: FakeWatcher) -> None:
    scans.ask(POSITIONS, LOGS, 100, None, 0.0)
    watcher.questions[0][1].set_result({B: (31, 64)})
    scans.ask(POSITIONS, LOGS, 100, None, 0.0)
    scans.ask({**POSITIONS, B: Position(64)}, LOGS, 60, None, 0.0)
    assert scans.known(LOGS).message_ends == {}
    assert len(watcher.questions) == 2


def test_no_limit_in_the_way_asks_nothing(scans: BoundaryScans, watcher: FakeWatcher) -> None:
    scans.ask(POSITIONS, LOGS, 1_000, None, 0.0)
    scans.ask(POSITIONS, LOGS, 1_000, {A: 100, B: 100}, 0.0)
    assert not watcher.questions


def test_brokers_that_are_away_are_asked_again(scans: BoundaryScans, watcher: FakeWatcher) -> None:
    scans.ask(POSITIONS, LOGS, 100, None, 0.0)
    watcher.questions[0][1].set_exception(TransportError("away"))
    scans.ask(POSITIONS, LOGS, 100, None, 0.0)
    scans.ask(POSITIONS, LOGS, 100, None, 0.0)
    assert len(watcher.questions) == 2


def test_a_position_that_is_no_boundary_ends_the_query(scans: BoundaryScans, watcher: FakeWatcher) -> None:
    scans.ask(POSITIONS, LOGS, 100, None, 0.0)
    watcher.questions[0][1].set_exception(DecodeError("position 20: no message begins there"))
    with pytest.raises(DecodeError, match="position 20"):
        scans.ask(POSITIONS, LOGS, 100, None, 0.0)


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
    checks.ask(POSITIONS, LOGS, 0.0)
    assert checks.unsound(POSITIONS, LOGS) == {A, B}
    watcher.questions[0][1].set_result({A: (40,)})
    checks.ask(POSITIONS, LOGS, 0.0)
    assert checks.unsound(POSITIONS, LOGS) == {B}
    checks.ask(POSITIONS, LOGS, 5.0)
    assert len(watcher.questions) == 1, "not before a while: and the other can be planned from meanwhile"
    clock.now += boundaries.CHECK_EVERY_S
    checks.ask(POSITIONS, LOGS, 0.0)
    watcher.questions[1][1].set_result({B: (50,)})
    checks.ask(POSITIONS, LOGS, 0.0)
    assert checks.unsound(POSITIONS, LOGS) == frozenset()


def test_the_first_answer_is_waited_for_that_a_query_fails_before_it_has_begun(
    checks: PositionChecks, watcher: FakeWatcher
) -> None:
    told = {A: Position(50), B: Position(20)}
    threading.Timer(0.2, lambda: watcher.questions[0][1].set_exception(DecodeError("position 20"))).start()
    with pytest.raises(DecodeError, match="position 20"):
        checks.ask(told, LOGS, SOON)
    checks.ask(told, LOGS, SOON)  # and not again: A can be planned from
    assert checks.unsound(told, LOGS) == {B}


def test_where_a_plan_has_ended_the_next_one_may_begin_and_nowhere_else(
    checks: PositionChecks, watcher: FakeWatcher, clock: Clock
) -> None:
    """A partition may be lost, and held again somewhere else, between two plans."""
    checks.ask({A: Position(20)}, {A: LOGS[A]}, 0.0)
    watcher.questions[0][1].set_result({A: (40,)})
    checks.ask({A: Position(20)}, {A: LOGS[A]}, 0.0)
    checks.planned([OffsetRange(A, 20, 70)])
    assert checks.unsound({A: Position(70)}, LOGS) == frozenset()
    checks.ask({A: Position(70)}, {A: LOGS[A]}, 0.0)
    assert checks.unsound({A: Position(70)}, LOGS) == frozenset()
    clock.now += boundaries.CHECK_EVERY_S
    checks.ask({A: Position(77)}, {A: LOGS[A]}, 0.0)
    assert checks.unsound({A: Position(77)}, LOGS) == {A}
    assert len(watcher.questions) == 2


def test_a_check_that_nobody_answers_is_given_up(
    checks: PositionChecks, watcher: FakeWatcher, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """The batch's task then tells what is amiss with the broker; a query that waits for ever tells nothing."""
    began = clock.now
    while checks.unsound({A: Position(20)}, LOGS) and clock.now < began + 60:
        checks.ask({A: Position(20)}, {A: LOGS[A]}, 0.0)
        if not watcher.questions[-1][1].done():
            watcher.questions[-1][1].set_exception(TransportError("it hangs up"))
        clock.now += 0.5
    assert boundaries.CHECK_TIMEOUT_S <= clock.now - began <= boundaries.CHECK_TIMEOUT_S + 2
    assert len(watcher.questions) <= boundaries.CHECK_TIMEOUT_S / boundaries.CHECK_EVERY_S + 1
    assert "events 0-0: no broker answered within 30 s whether a message begins at position 20" in caplog.text


@pytest.mark.parametrize("told", [0, 50, 110])
def test_what_the_brokers_have_reported_needs_no_look(told: int, checks: PositionChecks, watcher: FakeWatcher) -> None:
    at = {A: Position(told)}
    checks.ask(at, {A: LOGS[A]}, 0.0)
    grown = {A: LogRange(0, 500, (0, 50))}
    assert checks.unsound(at, grown) == frozenset()
    assert not watcher.questions


@pytest.mark.parametrize("beyond", [-1, 111])
def test_what_lies_outside_of_the_log_is_not_asked_about(
    beyond: int, checks: PositionChecks, watcher: FakeWatcher
) -> None:
    """It is the data-loss policy's."""
    checks.ask({A: Position(beyond)}, {A: LOGS[A]}, 0.0)
    assert checks.unsound({A: Position(beyond)}, LOGS) == frozenset()
    assert not watcher.questions


def test_who_comes_back_or_is_set_back_is_asked_about_anew(
    checks: PositionChecks, watcher: FakeWatcher, clock: Clock
) -> None:
    checks.ask({A: Position(20)}, {A: LOGS[A]}, 0.0)
    watcher.questions[0][1].set_result({A: (40,)})
    checks.ask({A: Position(20)}, {A: LOGS[A]}, 0.0)
    assert checks.unsound({A: Position(20)}, LOGS) == frozenset()
    clock.now += boundaries.CHECK_EVERY_S
    checks.ask({A: Position(17)}, {A: LOGS[A]}, 0.0)
    assert checks.unsound({A: Position(17)}, LOGS) == {A}
    watcher.questions[1][1].set_result({A: (40,)})
    checks.ask({}, {}, 0.0)
    checks.ask({A: Position(40)}, {A: LOGS[A]}, 0.0)
    assert checks.unsound({A: Position(40)}, LOGS) == {A}


def test_a_position_inside_of_a_message_ends_the_query_before_it_is_planned(
    checks: PositionChecks, watcher: FakeWatcher
) -> None:
    checks.ask(POSITIONS, LOGS, 0.0)
    watcher.questions[0][1].set_exception(DecodeError("position 20: no message begins there"))
    with pytest.raises(DecodeError, match="position 20"):
        checks.ask(POSITIONS, LOGS, 0.0)
    assert checks.unsound(POSITIONS, LOGS) == {A, B}


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
    with pytest.raises(ConfigError, match=rf"{option}: {position} of events 1-2 .* begins at {before}, before it"):
        require_boundaries(brokers, ranges, logs, 1e9)

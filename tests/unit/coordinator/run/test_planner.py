"""Positions against logs: what may be planned from, what has moved, what is looked at again."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from streamgroup.advice import NO_LOCATION, OffsetLocation, StoredIn
from streamgroup.coordinator.planning import loss
from streamgroup.coordinator.run.planner import PlannableLogs, Planner
from streamgroup.coordinator.run.run_events import RunEvents
from streamgroup.coordinator.threads.log_checks import LogChecks
from streamgroup.errors import DataLossError
from streamgroup.kafka.cluster.requests import EpochEnd
from streamgroup.logline import parse
from streamgroup.model import (
    INITIAL_DOCUMENT,
    UNKNOWN_EPOCH,
    ClusterSnapshot,
    Dialect,
    Document,
    LogRange,
    OffsetRange,
    PartitionInfo,
    Position,
    TopicInfo,
    TopicPartition,
)
from streamgroup.options.types import LimitOptions
from tests.fakes.cluster import NODES

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
OTHER = TopicPartition("not subscribed any more", 0)
IN_ZOOKEEPER = OffsetLocation("g", StoredIn.ZOOKEEPER)


class FakeLedger:
    group, lineage, run = "g", "l", "r"

    def __init__(self, positions: Mapping[TopicPartition, int]) -> None:
        self.held = {tp: Position(offset, "id", 1) for tp, offset in positions.items()}
        self.kept: dict[TopicPartition, Position] = {}

    def positions(self) -> dict[TopicPartition, Position]:
        """As of a ledger: the same object until something changes."""
        if self.kept != self.held:
            self.kept = dict(self.held)
        return self.kept

    def vouched(self, epochs: Mapping[TopicPartition, int]) -> None:
        self.held |= {tp: replace(self.held[tp], leader_epoch=epoch) for tp, epoch in epochs.items()}


class FakeWatcher:
    """Knows one snapshot; what is doubted is noted, and refreshed by the test."""

    def __init__(self, partitions: int = 2, topic_id: str = "id") -> None:
        self.metadata_at = 0.0
        self.doubted: list[TopicPartition] = []
        self.void: set[TopicPartition] = set()
        """Logs that were dropped since they were asked for."""
        self.high: dict[TopicPartition, int] = {}
        self.questions: list[tuple[Any, Future[Any]]] = []
        self.partitions = partitions
        self.know(partitions, topic_id)

    def know(self, partitions: int, topic_id: str = "id", epoch: int = 1, leader: int = 0) -> None:
        infos = tuple(PartitionInfo(n, leader, epoch) for n in range(partitions))
        topics = {"t": TopicInfo("t", infos, topic_id)}
        self.snapshot = ClusterSnapshot(NODES, topics if partitions else {})
        self.changes = object()

    @property
    def known_since(self) -> tuple[object, object]:
        return self.changes, self.snapshot

    def known(self, logs: Mapping[TopicPartition, LogRange]) -> dict[TopicPartition, LogRange]:
        return {tp: known for tp, known in logs.items() if tp not in self.void}

    def watermarks(self, logs: Mapping[TopicPartition, LogRange]) -> dict[TopicPartition, LogRange]:
        return {tp: LogRange(r.earliest, self.high.get(tp, r.latest)) for tp, r in logs.items()}

    def leader_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        known = {tp: self.snapshot.partition(tp) for tp in partitions}
        return {tp: info.leader_epoch for tp, info in known.items() if info is not None}

    def post(self, question: Any, timeout: float) -> Future[Any]:
        self.questions.append((question, Future()))
        return self.questions[-1][1]

    def doubt(self, partitions: Collection[TopicPartition], now: float) -> None:
        self.doubted += sorted(partitions)

    def refreshed(self) -> None:
        self.metadata_at = float("inf")


class Planning(Planner):
    """A planner with the driver's checks of the logs."""

    def __init__(self, ledger: FakeLedger, watcher: FakeWatcher, **others: Any) -> None:
        given = {"location": IN_ZOOKEEPER, "fail_on_data_loss": False, **others}
        self.told: list[tuple[int, str]] = []
        events = RunEvents("g", "r", lambda level, line: self.told.append((level, line)))
        self.checks = LogChecks(watcher, given["location"])  # type: ignore[arg-type]
        super().__init__(ledger, watcher, self.checks, events, **given)  # type: ignore[arg-type]

    def look(self, logs: Mapping[TopicPartition, LogRange]) -> PlannableLogs:
        """Judge now."""
        return self.judge(logs, time.monotonic())

    def ask(self, *asked: Any) -> None:
        """Ask as `CheckPositions` does; wait for no answer."""
        self.checks.ask(*asked[:-1], self.targets, asked[-1])


def planner(ledger: FakeLedger, watcher: FakeWatcher, *, strict: bool = False) -> Planning:
    return Planning(ledger, watcher, fail_on_data_loss=strict)


def planned(
    made: Planning,
    logs: Mapping[TopicPartition, LogRange],
    limits: LimitOptions = LimitOptions(),  # noqa: B008 - it is frozen
    start: Document = INITIAL_DOCUMENT,
) -> tuple[OffsetRange, ...]:
    """Return the ranges of the next batch."""
    document = made.next(start, logs, limits, now=0.0)
    assert document is not None
    return document.ranges


def test_a_position_below_its_log_is_an_error_or_moves_and_is_reported_once() -> None:
    logs = {P0: LogRange(5, 10), P1: LogRange(0, 10)}
    ledger = FakeLedger({P0: 4, P1: 8})
    strict, lenient = planner(ledger, FakeWatcher(), strict=True), planner(ledger, FakeWatcher())
    with pytest.raises(DataLossError, match=r"t-0[\s\S]*ZooKeeper's nodes /consumers/g/offsets"):
        strict.look(logs)
    ((level, line),) = strict.told
    assert (level, parse(line)["failed"]) == (40, "true")
    assert lenient.look(logs).moved == {P0: 5}
    lenient.look(logs)
    ((level, line),) = lenient.told
    told = parse(line)
    assert (level, told["event"], told["partition"]) == (30, "data_loss", "t-0")
    assert (told["from"], told["to"], told["count"]) == ("4", "5", "1")


def test_a_log_that_ends_below_the_position_is_loss_only_after_a_refresh_of_the_metadata() -> None:
    logs = {P0: LogRange(0, 3), P1: LogRange(0, 10)}
    watcher = FakeWatcher()
    made = planner(FakeLedger({P0: 9, P1: 8}), watcher)
    for _ in range(2):
        assert made.look(logs) == ({P1: LogRange(0, 10)}, {}), "the others are planned meanwhile"
    assert watcher.doubted == [P0], "asked for once in half a second"
    watcher.refreshed()
    assert made.look(logs).moved == {P0: 3}


def test_a_position_up_to_the_end_of_its_log_that_has_no_epoch_gets_the_newest_one() -> None:
    """A position at the end included: a log that an unclean election cuts and fills again would show nothing else."""
    ledger, watcher = FakeLedger({P0: 10, P1: 30}), FakeWatcher()
    ledger.held = {tp: replace(position, leader_epoch=UNKNOWN_EPOCH) for tp, position in ledger.held.items()}
    watcher.know(2, epoch=7)
    made = planner(ledger, watcher)
    made.checks.epochs.ask(ledger.positions(), 0.0)
    made.look({P0: LogRange(0, 10), P1: LogRange(0, 10)})
    assert {tp: position.leader_epoch for tp, position in ledger.held.items()} == {P0: 7, P1: UNKNOWN_EPOCH}
    assert watcher.questions == []


def test_an_open_transaction_is_no_loss() -> None:
    watcher = FakeWatcher()
    watcher.high = {P0: 12}
    made = planner(FakeLedger({P0: 9, P1: 4}), watcher, strict=True)
    logs = {P0: LogRange(0, 7), P1: LogRange(2, 10)}  # the last stable offset of P0 fell behind the position
    assert made.look(logs) == (logs, {})
    assert watcher.doubted == []
    assert planned(made, logs) == (OffsetRange(P1, 4, 10),)


def test_available_now_is_done_at_its_targets_and_does_not_wait_for_what_is_deleted() -> None:
    watcher = FakeWatcher()
    made = planner(FakeLedger({P0: 4, P1: 8}), watcher)
    made.targets = {P0: 6, P1: 8}
    logs = {P0: LogRange(0, 50), P1: LogRange(0, 50)}
    made.look(logs)
    assert made.unread(logs) == {P0}
    assert planned(made, logs) == (OffsetRange(P0, 4, 6),)
    empty = made.empty(INITIAL_DOCUMENT)
    assert (empty.ranges, empty.sequence) == ((), INITIAL_DOCUMENT.sequence + 1)
    watcher.know(0)
    made.look({})
    watcher.refreshed()
    made.look({})
    assert not made.unread({})


def test_an_empty_document_repeats_the_positions_before_it_where_it_knows_none() -> None:
    """A restart from it would take the query for one that has never read anything (R7)."""
    ledger = FakeLedger({})
    made = planner(ledger, FakeWatcher())
    before = made.empty(replace(INITIAL_DOCUMENT, positions={P0: Position(4, "id", 1)}))
    assert before.positions == {P0: Position(4, "id", 1)}
    ledger.held = {P1: Position(8, "id", 1)}
    assert made.empty(before).positions == ledger.held
    ledger.held = {}
    assert made.empty(INITIAL_DOCUMENT).positions == {}, "nothing was ever read"


def test_a_log_that_was_another_topics_when_it_was_asked_for_is_neither_planned_nor_moved_to() -> None:
    ledger, watcher = FakeLedger({P0: 5, P1: 5}), FakeWatcher()
    judging = planner(ledger, watcher)
    old = {P0: LogRange(3, 9), P1: LogRange(3, 9)}
    watcher.know(2, topic_id="new")
    judging.look(old)
    watcher.refreshed()
    watcher.void = {P0, P1}  # with the metadata that showed the new topic
    judged = judging.look(old)
    assert (judged.logs, judged.moved) == ({}, {})
    watcher.void = set()
    judged = judging.look({P0: LogRange(0, 2), P1: LogRange(1, 2)})
    assert judged.moved == {P0: 0, P1: 1}


@pytest.mark.parametrize("end", [5, 8, 10, 30])
def test_after_a_batch_whose_rest_was_cut_off_reading_goes_on_at_the_cut(end: int) -> None:
    """Its task has left out [5, 10) and reported success; the log, cut at 5, has grown to `end` since."""
    ledger, watcher = FakeLedger({P0: 4}), FakeWatcher()
    made = planner(ledger, watcher)
    document = made.next(INITIAL_DOCUMENT, {P0: LogRange(0, 10)}, LimitOptions(), now=0.0)
    assert document is not None
    assert document.ranges == (OffsetRange(P0, 4, 10),)
    ledger.held = dict(document.positions)
    watcher.know(2, epoch=2)
    logs = {P0: LogRange(0, end)}
    made.ask(ledger.positions(), logs, LimitOptions(), 0.0)
    watcher.questions[0][1].set_result({P0: EpochEnd(1, 5)})
    made.ask(ledger.positions(), logs, LimitOptions(), 0.0)
    assert made.look(logs) == ({}, {}), "not planned before the metadata is refreshed"
    watcher.refreshed()
    assert made.look(logs).moved == {P0: 5}
    (told,) = (parse(line) for _, line in made.told)
    assert (told["event"], told["from"], told["to"]) == ("data_loss", "10", "5")
    ledger.held[P0] = Position(5, "id")
    if end > 5:
        assert made.look(logs).logs == logs
        assert planned(made, logs, start=document) == (OffsetRange(P0, 5, end),)


# -- Kafka 0.7 ---------------------------------------------------------------------------------------------------------


def old(watcher: FakeWatcher) -> FakeWatcher:
    """The same cluster as one of Kafka 0.7."""
    watcher.know(watcher.partitions, topic_id="", epoch=-1)
    watcher.snapshot = replace(watcher.snapshot, dialect=Dialect.KAFKA07)
    return watcher


def sound(made: Planning, watcher: FakeWatcher, logs: dict[TopicPartition, LogRange]) -> None:
    """A message begins at every position, as the brokers tell."""
    positions = made._ledger.positions()
    made.ask(positions, logs, LimitOptions(), 0.0)
    watcher.questions.pop()[1].set_result({tp: (p.offset + 1,) for tp, p in positions.items()})
    made.ask(positions, logs, LimitOptions(), 0.0)


def test_positions_are_bytes_and_count_no_records() -> None:
    made = planner(FakeLedger({P0: 4}), old(FakeWatcher()))
    assert made.look({P0: LogRange(500, 900)}).moved == {P0: 500}
    assert "up to 496 bytes are lost from position 4 on" in made.told[0][1]
    with pytest.raises(DataLossError, match="up to 496 bytes are lost from position 4 on"):
        planner(FakeLedger({P0: 4}), old(FakeWatcher()), strict=True).look({P0: LogRange(500, 900)})


def test_nothing_is_planned_from_a_position_before_a_message_was_found_there() -> None:
    watcher = old(FakeWatcher())
    logs = {P0: LogRange(0, 10), P1: LogRange(0, 10)}
    made = planner(FakeLedger({P0: 0, P1: 8}), watcher, strict=True)
    made.ask(made._ledger.positions(), logs, LimitOptions(), 0.0)
    assert made.look(logs) == ({P0: logs[P0]}, {})
    watcher.questions[0][1].set_result({P1: (10,)})
    made.ask(made._ledger.positions(), logs, LimitOptions(), 0.0)
    assert made.look(logs) == (logs, {})
    assert len(watcher.questions) == 1


def test_a_partition_whose_broker_is_away_waits_and_nothing_is_lost() -> None:
    watcher = old(FakeWatcher(partitions=1))
    watcher.refreshed()
    logs = {P0: LogRange(0, 10), P1: LogRange(0, 10)}
    made = planner(FakeLedger({P0: 4, P1: 8}), watcher, strict=True)
    sound(made, watcher, logs)
    judged = made.look(logs)
    assert judged == ({P0: LogRange(0, 10)}, {})
    made.targets = {P0: 4, P1: 10}
    assert made.unread(judged.logs) == {P1}, "AvailableNow waits for it"
    assert (made.deleted, watcher.doubted, made.told) == (frozenset(), [], [])


def test_what_was_not_there_when_the_run_began_is_not_lost_either() -> None:
    planner(FakeLedger({}), old(FakeWatcher()), strict=True).miss({P1: Position(8)})
    with pytest.raises(DataLossError):
        planner(FakeLedger({}), FakeWatcher(), strict=True).miss({P1: Position(8)})


def test_without_a_group_documents_carry_the_positions_of_brokers_that_are_away() -> None:
    previous = replace(INITIAL_DOCUMENT, positions={P0: Position(2), P1: Position(8), OTHER: Position(5)})
    for alone, carried in ((True, {P1: Position(8)}), (False, {})):
        made = Planning(
            FakeLedger({P0: 4}),
            old(FakeWatcher(partitions=1)),
            location=NO_LOCATION,
            fail_on_data_loss=True,
            documents_positions=alone,
            is_subscribed=lambda tp: tp != OTHER,
        )
        document = made.next(previous, {P0: LogRange(0, 10)}, LimitOptions(), now=0.0)
        assert document is not None
        assert document.positions == {P0: replace(made._ledger.positions()[P0], offset=10), **carried}
        assert made.empty(previous).positions.keys() == {P0, *carried}


def test_a_limit_inside_of_a_segment_waits_for_where_messages_end() -> None:
    watcher = old(FakeWatcher(partitions=1))
    ledger = FakeLedger({P0: 4})
    made = planner(ledger, watcher, strict=True)
    logs = {P0: LogRange(0, 100, (0, 60))}
    sound(made, watcher, logs)
    made.ask(ledger.positions(), logs, LimitOptions(50), 0.0)
    assert made.next(INITIAL_DOCUMENT, logs, LimitOptions(50), now=0.0) is None
    watcher.questions[0][1].set_result({P0: (14, 34, 54)})
    made.ask(ledger.positions(), logs, LimitOptions(50), 0.0)
    for limit, until in ((50, 54), (29, 14), (3, 14), (70, 60), (None, 100)):
        assert planned(made, logs, LimitOptions(limit)) == (OffsetRange(P0, 4, until),)


def judgements(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many positions were judged each time."""
    made: list[int] = []
    judge = loss.judge

    def counted(positions: Any, *given: Any, **named: Any) -> Any:
        made.append(len(positions))
        return judge(positions, *given, **named)

    monkeypatch.setattr(loss, "judge", counted)
    return made


def test_a_judgement_stands_until_positions_logs_or_metadata_change(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = judgements(monkeypatch)
    ledger, watcher, logs = FakeLedger({P0: 4, P1: 8}), FakeWatcher(), {P0: LogRange(0, 10), P1: LogRange(2, 8)}
    made = planner(ledger, watcher, strict=True)

    def is_judged_anew() -> bool:
        judged.clear()
        assert made.look(logs).moved == {}
        return bool(judged)

    assert is_judged_anew()
    assert not is_judged_anew()
    ledger.held[P0] = Position(5, "id", 1)
    assert is_judged_anew(), "a position"
    watcher.know(2)
    assert is_judged_anew(), "the metadata"
    watcher.changes = object()
    assert is_judged_anew(), "what the brokers tell"
    logs = dict(logs)
    assert is_judged_anew(), "the ends"
    assert not is_judged_anew()


def test_what_is_in_doubt_is_judged_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = judgements(monkeypatch)
    ledger, watcher, logs = FakeLedger({P0: 4}), FakeWatcher(partitions=0), {P0: LogRange(0, 10)}
    made = planner(ledger, watcher)
    for _ in range(2):
        judged.clear()
        assert made.look(logs).logs == {}
        assert judged, "the metadata may be refreshed any moment"
    watcher.refreshed()
    made.look(logs)
    assert made.deleted == {P0}
    judged.clear()
    made.look(logs)
    made.look(logs)
    assert len(judged) <= 2, "its loss was told, and nothing changes any more"
    ledger.held.clear()
    made.look(logs)
    assert made.deleted == frozenset(), "it is held no more"

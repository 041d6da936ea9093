"""The simulated database does what one does, and its checker is not blind: each of its words, shown to it directly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from streamgroup.errors import ClaimLostError, FencedError
from streamgroup.group.offsets.table_rows import BatchPart, Claimant
from streamgroup.model import CommittedOffset, Document, OffsetRange, Position, TopicPartition
from streamgroup.options.types import GroupMode
from tests.fakes.offset_table import OpenTransaction
from tests.sim import checker as words
from tests.sim.broker import Logs
from tests.sim.clock import SimulatedClock
from tests.sim.network import Network
from tests.sim.settings import Settings
from tests.sim.table import Connection, DatabaseAway, NotStored, SimDatabase
from tests.sim.tablechecker import TableChecker
from tests.sim.test_checker import FakeProcess, violated

TP = TopicPartition("a", 0)


class Chance:
    """Draws the same number each time."""

    def __init__(self, number: float) -> None:
        self.number = number

    def random(self) -> float:
        return self.number


class Play:
    """A table with one partition, whose records 0 to 99 two processes may add."""

    def __init__(self, chance: float = 0.0) -> None:
        self.clock = SimulatedClock()
        logs = Logs({"a": 1})
        logs.produce(TP, 100)
        self.checker = TableChecker(self.clock, logs)
        self.table = SimDatabase(self.clock, self.checker)
        self.p, self.q = (self._process(name, chance) for name in "pq")
        self.told: list[Any] = []

    def _process(self, name: str, chance: float) -> Any:
        process = cast("Any", FakeProcess(name))
        process.clock, process.network = self.clock, Network(self.clock, cast("Any", Chance(chance)), 0.02)
        process.world = type("World", (), {"table": self.table, "keeper": process.world.keeper})
        process.settings = Settings(())
        process.ledger = type("Ledger", (), {"generation": 1, "in_flight": None, "held": {}})
        return process

    def claim(self, process: Any) -> int:
        transaction = self.table.begin()
        claimed = transaction.claim(Claimant(process.name, process.name), [TP], {TP: CommittedOffset(0)})
        self.table.commit(transaction, process, [TP])
        return claimed[TP].claim

    def connect(self, process: Any) -> Connection:
        return Connection(process, lambda act: act())

    def store(self, process: Any, claim: int, start: int, until: int, *, is_judged: bool = True) -> None:
        part, transaction = part_of(start, until, claim), self.table.begin()
        try:
            if is_judged:
                transaction.judge("g", [part])
            transaction.add([part.range])
            transaction.store([part])
            self.table.commit(transaction, process, ())
        finally:
            transaction.rollback()

    def commit_through(self, connection: Connection, claim: int) -> None:
        """Store the records 0 to 9 by two requests; the second one is under way."""

        def write(transaction: OpenTransaction) -> None:
            transaction.add([part_of(0, 10).range])
            transaction.store([part_of(0, 10, claim)])

        connection.request(write, self.told.append)
        self.clock.run_until(self.clock.now + 1.0)
        self.told.clear()
        connection.request(lambda tx: None, self.told.append, commits=True)

    @property
    def offset(self) -> int | None:
        return self.table.row(TP).next_offset


def part_of(start: int, until: int, claim: int = 1) -> BatchPart:
    return BatchPart(OffsetRange(TP, start, until), claim, CommittedOffset(until))


# -- the checker -------------------------------------------------------------------------------------------------------


def test_a_record_added_twice_is_a_duplicate_and_one_left_out_is_lost() -> None:
    for start, word in ((9, words.DUPLICATE), (11, words.LOST)):
        play = Play()
        claim = play.claim(play.p)
        play.store(play.p, claim, 0, 10)
        with violated(word):
            play.store(play.p, claim, start, 20, is_judged=False)


def test_a_batch_of_a_former_owner_is_refused_and_would_be_unfenced() -> None:
    play = Play()
    claim = play.claim(play.p)
    play.claim(play.q)
    with pytest.raises(FencedError):
        play.store(play.p, claim, 0, 10)
    with violated(words.UNFENCED):
        play.store(play.p, claim, 0, 10, is_judged=False)


def test_an_offset_without_its_records_is_seen_at_its_commit() -> None:
    play = Play()
    transaction = play.table.begin()
    claim = play.claim(play.p)
    transaction.store([part_of(0, 10, claim)])
    with violated(words.UNSTORED):
        play.table.commit(transaction, play.p, ())


@pytest.mark.parametrize(("start", "word"), [(9, words.DUPLICATE), (11, words.SKIPPED)])
def test_who_has_read_the_row_plans_from_there(start: int, word: str) -> None:
    play = Play()
    play.store(play.p, play.claim(play.p), 0, 10)
    document = Document("g", "l", "r", 1, (OffsetRange(TP, start, 20),), {TP: Position(20)})
    with violated(word):
        play.checker.planned(play.p, document)


def test_a_batch_that_is_stored_must_not_be_reported_as_failed() -> None:
    play = Play()
    transaction = play.table.begin()
    play.checker.failed(play.p.query, NotStored("nothing is stored", transaction))
    transaction.commit()
    with violated(words.FAILED):
        play.checker.failed(play.p.query, NotStored("nothing is stored", transaction))


def test_only_another_claim_or_a_reset_may_fence() -> None:
    play = Play()
    play.p.ledger.held = {TP: None}
    play.p.query.process = play.p
    play.claim(play.p)
    with violated(words.FAILED):
        play.checker.failed(play.p.query, FencedError("fenced"))
    play.table.reset({TP: 0})
    play.checker.failed(play.p.query, FencedError("fenced"))


def test_the_table_may_refuse_an_offset_after_another_claim_only() -> None:
    play = Play()
    lost = ClaimLostError("another run has claimed a-0")
    play.p.query.process = play.p
    play.claim(play.p)
    with violated(words.UNFENCED):
        play.checker.refused(play.p, [TP])
    play.claim(play.q)
    with violated(words.FAILED):
        play.checker.failed(play.p.query, lost)
    play.checker.refused(play.p, [TP])
    play.checker.failed(play.p.query, lost)


@pytest.mark.parametrize("stores", [False, True])
def test_a_start_that_is_not_in_the_table_outlives_its_group(stores: bool) -> None:
    play = Play()
    play.checker.resolved(play.p, 1, TP, 30, starting=True)
    if stores:
        play.claim(play.p)
    play.checker.group_deleted()
    assert (play.p in play.checker.track(TP).starts) is not stores


def test_a_late_commit_of_a_run_without_a_membership_may_undo_one_of_the_next_run() -> None:
    play = Play()
    play.store(play.p, play.claim(play.p), 0, 10)
    play.claim(play.q)
    play.checker.committed(play.q, "", -1, {TP: 10})
    with violated(words.NON_MONOTONIC):
        play.checker.committed(play.q, "", -1, {TP: 5})
    play.p.settings = replace(play.p.settings, mode=GroupMode.COMMIT)
    play.checker.committed(play.p, "", -1, {TP: 5})
    with violated(words.BEYOND_SUNK):
        play.checker.committed(play.p, "", -1, {TP: 11})


# -- the database ------------------------------------------------------------------------------------------------------


def test_a_claim_waits_for_the_transaction_that_has_the_row() -> None:
    play = Play()
    connection = play.connect(play.p)
    claim = play.claim(play.p)
    connection.request(lambda tx: tx.judge("g", [part_of(0, 10, claim)]), play.told.append, locks=[TP])
    play.clock.run_until(1.0)
    claims: list[Any] = []
    other = play.connect(play.q)
    other.request(
        lambda tx: tx.claim(Claimant("q", "q"), [TP], {}), claims.append, locks=[TP], claims=[TP], commits=True
    )
    play.clock.run_until(2.0)
    assert not claims
    connection.close()
    play.clock.run_until(3.0)
    assert claims[0][TP].claim == claim + 1


def test_a_lock_timeout_is_told_as_a_lost_connection() -> None:
    play = Play()
    play.table.begin().lock([TP])
    play.connect(play.p).request(lambda tx: tx.lock([TP]), play.told.append, locks=[TP], timeout=5.0)
    play.clock.run_until(6.0)
    assert isinstance(play.told[0], DatabaseAway)


@pytest.mark.parametrize(("chance", "is_stored"), [(0.0, True), (0.9, False)])
def test_a_commit_of_a_broken_connection_is_carried_out_or_lost_and_nobody_is_told(
    chance: float, *, is_stored: bool
) -> None:
    play = Play(chance)
    connection = play.connect(play.p)
    play.commit_through(connection, play.claim(play.p))
    connection.lose()
    play.clock.run_until(10.0)
    assert [type(each) for each in play.told] == [DatabaseAway]
    assert (play.offset == 10) is is_stored
    assert not play.table.locks


def test_a_server_that_stops_forgets_what_is_not_committed() -> None:
    play = Play()
    connection = play.connect(play.p)
    play.commit_through(connection, play.claim(play.p))
    play.table.go_away(5.0)
    play.clock.run_until(1.0)
    again: list[Any] = []
    play.connect(play.p).request(lambda tx: None, again.append, commits=True)
    play.clock.run_until(10.0)
    assert [type(each) for each in (*play.told, *again)] == [DatabaseAway, DatabaseAway]
    assert (play.offset, play.table.locks) == (0, {})

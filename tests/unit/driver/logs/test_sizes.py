"""When logs are sampled, and what becomes of the answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamgroup.cluster.samples import LogSample
from streamgroup.errors import TransportError
from streamgroup.model import INITIAL_DOCUMENT, LogRange, OffsetRange
from streamgroup.options.types import LimitOptions
from tests.unit.run.test_planner import P0, P1, FakeLedger, FakeWatcher, Planning, planner

LOGS = {P0: LogRange(0, 1_000), P1: LogRange(0, 1_000)}
LIMITS = LimitOptions(max_bytes_per_trigger=10_000)


@dataclass
class Given:
    made: Planning
    ledger: FakeLedger
    watcher: FakeWatcher

    def ask(self) -> None:
        self.made.ask(self.ledger.positions(), LOGS, LIMITS, 0.0)

    def batch(self, limits: LimitOptions = LIMITS) -> Any:
        document = self.made.next(INITIAL_DOCUMENT, LOGS, limits, now=0.0)
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
    test.made.ask(given(0, 0).ledger.positions(), LOGS, LimitOptions(5), 0.0)
    assert test.watcher.questions == []

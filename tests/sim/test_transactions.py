"""Simulated brokers end transactions as real ones do, and the checker is not blind: each of its words, shown to it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from streamgroup.errors import ErrorCode as E
from streamgroup.errors import FencedError
from streamgroup.model import CommittedOffset, OffsetRange, TopicPartition
from tests.sim import checker as words
from tests.sim.broker import Logs
from tests.sim.clock import SimulatedClock
from tests.sim.settings import QuerySettings, Settings
from tests.sim.test_checker import FakeProcess, violated
from tests.sim.transactionchecker import TransactionChecker
from tests.sim.transactions import MARKERS_S, SimTransactionalId
from tests.sim.world import World

TP = TopicPartition("a", 0)
VERSIONS = pytest.mark.parametrize("is_v2", [False, True], ids=["v1", "v2"])


def part(start: int, until: int) -> OffsetRange:
    return OffsetRange(TP, start, until)


class Play:
    """Transactions of two processes, as the checker sees them."""

    def __init__(self) -> None:
        logs = Logs({"a": 1})
        logs.produce(TP, 100)
        self.checker = TransactionChecker(SimulatedClock(), logs)
        self.p, self.q = (self._process(name) for name in "pq")

    def _process(self, name: str) -> Any:
        process = cast("Any", FakeProcess(name))
        process.sink = SimpleNamespace(is_fenced=False, was_fenced=False)
        process.ledger = SimpleNamespace(in_flight=None, held={})
        return process

    def visible(
        self, process: Any, *parts: OffsetRange, offset: int, member_id: str = "m-1", generation: int = 1
    ) -> None:
        self.checker.visible((process, member_id, generation), {TP: list(parts)}, {TP: offset})

    def fail(self, process: Any, error: Exception) -> None:
        process.query.process = process
        self.checker.failed(process.query, error)


# -- the checker -------------------------------------------------------------------------------------------------------


def test_a_record_that_is_visible_twice_is_a_duplicate_and_one_left_out_is_lost() -> None:
    for start, word in ((9, words.DUPLICATE), (11, words.LOST)):
        play = Play()
        play.visible(play.p, part(5, 10), part(0, 5), offset=10)
        with violated(word):
            play.visible(play.p, part(start, 20), offset=20)


@pytest.mark.parametrize("offset", [9, 11])
def test_an_offset_without_its_records_is_seen(offset: int) -> None:
    play = Play()
    with violated(words.UNSTORED):
        play.visible(play.p, part(0, 10), offset=offset)


def test_a_transaction_of_no_member_or_of_an_older_generation_is_seen() -> None:
    play = Play()
    with violated(words.TWO_OWNERS):
        play.visible(play.p, part(0, 10), offset=10, member_id="")
    play = Play()
    play.visible(play.p, part(0, 10), offset=10, generation=2)
    with violated(words.TWO_OWNERS):
        play.visible(play.q, part(10, 20), offset=20, member_id="m-2")


def test_a_replay_begins_where_the_group_is() -> None:
    play = Play()
    play.visible(play.p, part(0, 10), offset=10)
    play.checker.replayed(play.q, [part(10, 20)], {})
    with violated(words.DUPLICATE):
        play.checker.replayed(play.q, [part(0, 20)], {})


def test_a_refusal_is_licensed_if_another_has_raised_the_epoch() -> None:
    play = Play()
    with violated(words.FAILED):
        play.fail(play.p, FencedError("PRODUCER_FENCED"))
    play.p.sink.is_fenced = True
    play.fail(play.p, FencedError("PRODUCER_FENCED"))


# -- the brokers -------------------------------------------------------------------------------------------------------


def an_id(*, is_v2: bool) -> tuple[World, SimTransactionalId]:
    settings = Settings(
        (QuerySettings("q"),), {"a": 1}, in_transaction=True, transactions_v2=is_v2, transaction_timeout_s=10.0
    )
    world = World("transactions", settings)
    one = world.transactions.of("id")
    one.epoch = 0
    return world, one


@VERSIONS
def test_a_number_is_taken_once_and_none_is_left_out(is_v2: bool) -> None:
    _, one = an_id(is_v2=is_v2)
    one.state = "Ongoing"
    assert one.write(0, part(0, 5), 0) == 0
    assert one.write(0, part(5, 10), 0) == 0
    assert one.write(0, part(5, 10), 2) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert one.written[TP] == [part(0, 5)]


@VERSIONS
def test_a_task_of_an_earlier_epoch_is_refused(is_v2: bool) -> None:
    _, one = an_id(is_v2=is_v2)
    one.state, one.epoch = "Ongoing", 1
    assert one.write(0, part(0, 5), 0) in {E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED}
    assert not one.written[TP]


def test_a_transaction_that_is_open_too_long_is_aborted_under_a_new_epoch() -> None:
    world, one = an_id(is_v2=True)
    one.write(0, part(0, 5), 0)
    world.clock.run_until(9.9)
    assert (one.state, one.epoch) == ("Ongoing", 0)
    world.clock.run_until(10.0 + MARKERS_S)
    assert (one.state, one.epoch, one.written) == ("Aborted", 1, {})


def test_offsets_are_unstable_until_the_markers_are_written() -> None:
    world, one = an_id(is_v2=True)
    one.state, one.offsets = "Ongoing", {TP: CommittedOffset(5)}
    assert world.broker.is_unstable([TP])
    assert not world.broker.is_unstable([])
    one._decide(is_committed=False)
    assert world.broker.is_unstable([TP])
    world.clock.run_until(MARKERS_S)
    assert not world.broker.is_unstable([TP])

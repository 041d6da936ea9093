"""Starting offsets that only the log can tell, asked for until they come or the query ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from streamgroup.cluster.requests import ListedOffset
from streamgroup.errors import BrokerError, DataLossError, TransportError
from streamgroup.group import events as ev
from streamgroup.group.member import Resolve
from streamgroup.group.positions import Origin
from streamgroup.logline import parse
from streamgroup.model import EARLIEST, LATEST, ConfiguredOffsets, TopicPartition
from streamgroup.options.types import GroupMode, GroupOptions, Isolation, OffsetsStorage
from streamgroup.remediation import NO_LOCATION, OffsetLocation, StoredIn
from streamgroup.run.questions import ListOffsets, Question
from streamgroup.run.run_events import RunEvents
from streamgroup.run.starting_offsets import StartingOffsets, losses_of, refuse
from tests.fakes.cluster import FakeCluster, Logs, logs_of
from tests.unit.run.calls import Call, config

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))
FOUNDED = Resolve(4, {P0: Origin.STARTING, P1: Origin.STARTING})
IN_ZOOKEEPER = GroupOptions("g", offsets_storage=OffsetsStorage.ZOOKEEPER)
SPEC = ConfiguredOffsets(LATEST)
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


class Finder:
    """The search of one run, which the brokers of `logs` answer, and what it told."""

    def __init__(
        self,
        logs: Logs,
        is_new: Callable[[TopicPartition], bool] = lambda tp: False,
        *,
        spec: ConfiguredOffsets = SPEC,
        **options: Any,
    ) -> None:
        self.found: list[tuple[int, dict[TopicPartition, int]]] = []
        self.actions: list[Any] = []
        self.lines: list[tuple[int, str]] = []
        self.asked: list[tuple[float, ListOffsets]] = []
        self.hears: Callable[[], None] = lambda: None
        self.cluster = FakeCluster(logs)
        options = {"group": IN_ZOOKEEPER, "fetch_offset_retry_interval_ms": 250, **options}
        given = replace(config(**options), starting=spec)
        events = RunEvents("g", "r", lambda level, line: self.lines.append((level, line)))
        self.starts = StartingOffsets(given, self, events, perform=self.actions.extend, is_new=is_new)  # type: ignore[arg-type]
        self.now = 100.0
        self.ledger = SimpleNamespace(generation=4)

    def resolved(self, generation: int, offsets: Mapping[TopicPartition, int], now: float) -> list[Any]:
        """As of a member."""
        self.hears()
        self.found.append((generation, dict(offsets)))
        return ["the member's actions"]

    def answer(self, question: Question) -> object:
        assert isinstance(question, ListOffsets)
        self.asked.append((self.now, question))
        return self.cluster.list_offsets(question.wanted, Isolation.READ_COMMITTED, self.now + question.timeout)

    def find(self, wanted: Resolve = FOUNDED) -> Call:
        """To the end; it waits only between two attempts."""
        self.ledger.generation = wanted.generation
        call = Call(self.starts.find(wanted), self.now, answer=self.answer)
        while not call.is_over:
            assert call.wake_at is not None
            self.now = call.wake_at
            call.at(self.now)
        return call


def found(logs: Logs, origins: Mapping[TopicPartition, Origin], **options: Any) -> dict[TopicPartition, int]:
    finder = Finder(logs, **options)
    finder.find(Resolve(1, origins))
    ((_, offsets),) = finder.found
    return offsets


# -- what is found ----------------------------------------------------------------------------------------------------


def test_what_the_log_tells_is_reported_with_the_generation_that_asked() -> None:
    finder = Finder(logs_of([10, 20]))
    finder.find()
    assert finder.found == [(4, {P0: 10, P1: 20})]
    assert finder.actions == ["the member's actions"]


def test_what_came_to_be_after_the_run_began_starts_at_earliest() -> None:
    finder = Finder(logs_of([10, 20]), is_new=lambda tp: tp == P1)
    finder.find()
    assert finder.found == [(4, {P0: 10, P1: 0})]


def test_founders_start_as_the_options_say_and_all_others_at_earliest() -> None:
    origins = {P0: Origin.STARTING, P1: Origin.EARLIEST, P2: Origin.EARLIEST}
    assert found(logs_of([10, 20, 30]), origins) == {P0: 10, P1: 0, P2: 0}


def test_offsets_that_are_given_ask_nobody() -> None:
    logs = logs_of([10])
    assert found(logs, {P0: Origin.STARTING}, spec=ConfiguredOffsets(LATEST, offsets={P0: 4})) == {P0: 4}
    assert logs.listings == []


def test_a_timestamp_beyond_the_last_record_asks_for_the_end_in_the_time_that_is_left() -> None:
    finder = Finder(logs_of([10]), spec=ConfiguredOffsets(LATEST, timestamp=1_000, no_match_is_latest=True))
    call = Call(finder.starts.find(Resolve(4, {P0: Origin.STARTING})), 100.0)
    assert call.question == ListOffsets({P0: 1_000}, 60.0)
    call.at(102.0).answered({P0: ListedOffset(-1)})
    assert call.question == ListOffsets({P0: LATEST}, 58.0)
    call.answered({P0: ListedOffset(10)})
    assert finder.found == [(4, {P0: 10})]


# -- records that may have been missed --------------------------------------------------------------------------------


def test_losses_that_are_allowed_are_said() -> None:
    logs = logs_of([10, 20])
    logs.starts = {P0: 5}
    finder = Finder(logs, fail_on_data_loss=False)
    finder.find(Resolve(1, {P0: Origin.EARLIEST}))
    assert finder.found == [(1, {P0: 5})]
    ((level, line),) = finder.lines
    assert (level, "its log starts at 5" in line) == (ev.WARNING, True)
    fields = parse(line)
    assert (fields["event"], fields["to"], fields["count"]) == ("data_loss", "5", "5")
    assert "failed" not in fields


def test_losses_that_are_not_allowed_fail_at_once() -> None:
    logs = logs_of([10, 20])
    logs.starts = {P0: 5}
    finder = Finder(logs)
    with pytest.raises(DataLossError, match="ZooKeeper's nodes /consumers/g/offsets"):
        finder.find(Resolve(1, {P0: Origin.EARLIEST}))
    assert [parse(line)["failed"] for _, line in finder.lines] == ["true"]
    assert finder.found == []
    assert logs.listings == [(EARLIEST, (P0,))]


def test_a_loss_that_an_earlier_generation_found_is_not_reported() -> None:
    logs = logs_of([10])
    logs.starts = {P0: 5}
    finder = Finder(logs)
    call = Call(finder.starts.find(Resolve(3, {P0: Origin.EARLIEST})), 100.0, answer=finder.answer)
    assert call.is_over
    assert (finder.found, finder.lines) == ([], [])


@pytest.mark.parametrize(
    ("origin", "start", "told"),
    [(Origin.EARLIEST, 5, "its log starts at 5"), (Origin.RECREATED, 0, "deleted and created again")],
)
def test_records_that_may_have_been_missed_are_reported_or_end_the_query(origin: Origin, start: int, told: str) -> None:
    logs = logs_of([10])
    logs.starts = {P0: start}
    offsets = found(logs, {P0: origin}, fail_on_data_loss=False)
    assert offsets == {P0: start}
    losses = losses_of("g", {P0: origin}, offsets)
    assert [(loss.partition, loss.at, loss.to) for loss in losses] == [(P0, None, start)]
    assert told in losses[0].text
    assert re.search(
        rf"'g', t-0: [^\n]*{told}[\s\S]*failOnDataLoss=false.*--group g", str(refuse(OffsetLocation("g"), losses))
    )
    there = str(refuse(OffsetLocation("g", StoredIn.ZOOKEEPER), losses))
    assert "write the group's offsets into ZooKeeper's nodes /consumers/g/offsets/<topic>/<partition>" in there
    assert "kafka-consumer-groups" not in there


@pytest.mark.parametrize("origin", [Origin.STARTING, Origin.EARLIEST])
def test_a_founders_start_and_a_log_that_starts_at_0_lose_nothing(origin: Origin) -> None:
    assert losses_of("g", {P0: origin}, {P0: 5 if origin is Origin.STARTING else 0}) == []


@pytest.mark.parametrize("origin", [Origin.EARLIEST, Origin.RECREATED])
def test_without_a_group_a_loss_speaks_of_none(origin: Origin) -> None:
    logs = logs_of([10])
    logs.starts = {P0: 5}
    finder = Finder(logs, group=GroupOptions(mode=GroupMode.OFF))
    with pytest.raises(DataLossError) as raised:
        finder.find(Resolve(1, {P0: origin}))
    losses = losses_of("", {P0: origin}, {P0: 5})
    for text in (str(raised.value), str(refuse(NO_LOCATION, losses))):
        assert text.startswith("t-0: ")
        assert "group" not in text
        assert "failOnDataLoss=false" in text


# -- brokers that do not answer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("failures", "retries", "is_found"), [(2, 2, True), (3, 2, False), (1, 0, False)])
def test_brokers_that_do_not_answer_are_asked_again_as_often_as_said(
    failures: int, retries: int, is_found: bool
) -> None:
    logs = logs_of([10, 20])
    logs.failures = [TransportError("down")] * failures
    finder = Finder(logs, fetch_offset_retries=retries)
    if is_found:
        finder.find()
    else:
        with pytest.raises(TransportError, match="down"):
            finder.find()
    assert bool(finder.found) is is_found
    assert logs.failures == []
    assert len(logs.listings) == retries + 1
    assert [at for at, _ in finder.asked] == [100.0 + 0.25 * n for n in range(retries + 1)]
    assert {question.timeout for _, question in finder.asked} == {60.0}
    notes = [action for action in finder.actions if isinstance(action, ev.Note)]
    assert len(notes) == retries
    assert [n.text for n in notes] == [
        f"group g: cannot look up the starting offsets of t-0, t-1: down. Retry {n} of {retries} follows in 0.25 s"
        for n in range(1, retries + 1)
    ]


@pytest.mark.parametrize("where", ["the question", "who hears the answer"])
def test_whatever_else_is_raised_ends_the_search(where: str) -> None:
    """The run fails the query with it: see test_machine.py."""
    logs = logs_of([10, 20])
    finder = Finder(logs)

    def fail() -> None:
        raise ZeroDivisionError("a defect")

    if where == "the question":
        logs.hook = fail
    else:
        finder.hears = fail
    with pytest.raises(ZeroDivisionError, match="a defect"):
        finder.find()
    assert finder.found == []


def test_an_error_of_a_broker_is_not_asked_about_again() -> None:
    logs = logs_of([10, 20])
    logs.failures = [BrokerError(29, "t")]
    with pytest.raises(BrokerError):
        Finder(logs).find()
    assert len(logs.listings) == 1


def test_the_search_waits_for_no_broker() -> None:
    finder = Finder(logs_of([10, 20]))
    call = Call(finder.starts.find(FOUNDED))
    assert call.question == ListOffsets({P0: LATEST, P1: LATEST}, 60.0)
    assert not call.is_over
    assert finder.actions == []

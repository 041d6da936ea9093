"""The age of the batch in flight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from streamgroup.coordinator.planning.pace import Pace
from streamgroup.coordinator.run import interface
from streamgroup.coordinator.run.status import MOST_BATCHES, AssignmentClock, BatchClock, BatchCompletion, Failure
from streamgroup.errors import ConfigError, FencedError, SkippedBatchError
from streamgroup.group import events as ev
from streamgroup.group.events import Send
from streamgroup.group.holdings import InFlightBatch
from streamgroup.group.member import MemberAction
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest
from streamgroup.model import INITIAL_DOCUMENT, Document, FetchRange, FetchTask, OffsetRange, TopicPartition
from tests.unit.coordinator.run.run_shell import P0, P1, PLAN, Shell


def batch() -> InFlightBatch:
    return InFlightBatch(Document("g", "l", "r", 3), planned_here=True)


def test_the_next_batch_has_an_age_of_its_own_even_if_it_equals_the_last() -> None:
    clock = BatchClock()
    first, replay = batch(), batch()
    assert first == replay
    clock.look(first, 10.0)
    assert clock.look(replay, 30.0) == 0.0
    assert clock.look(replay, 31.0) == 1.0


ASSIGNED = ev.Assigned(
    3,
    partitions=(TopicPartition("t", 0),),
    kept=frozenset(),
    strategy="range",
    leader=False,
    member_id="m-1",
    members=1,
    total=1,
)
EAGER = ev.Joining("the group rebalances", abandoned=False)
COOPERATIVE = ev.Joining("the group rebalances", abandoned=False, keeps=True)


def clock_after(*actions: tuple[object, float]) -> AssignmentClock:
    clock = AssignmentClock()
    for action, now in actions:
        clock.on_action(action, now)
    return clock


def test_time_passes_from_the_first_join_to_the_assignment() -> None:
    assert AssignmentClock().seconds(100.0) == 0
    assert clock_after((EAGER, 10.0)).seconds(12.5) == 2.5
    assert clock_after((EAGER, 10.0), (ASSIGNED, 13.0)).seconds(99.0) == 3.0


def test_each_spell_adds_up_and_a_join_within_one_does_not_begin_anew() -> None:
    clock = clock_after((EAGER, 0.0), (ASSIGNED, 1.0), (ev.Lost("x"), 10.0), (EAGER, 10.5), (ASSIGNED, 12.0))
    assert clock.seconds(50.0) == 3.0


def test_a_cooperative_member_keeps_its_assignment_while_it_joins_again() -> None:
    assert clock_after((EAGER, 0.0), (ASSIGNED, 1.0), (COOPERATIVE, 5.0)).seconds(9.0) == 1.0
    assert clock_after((EAGER, 0.0), (ASSIGNED, 1.0), (COOPERATIVE, 5.0), (ev.Lost("x"), 6.0)).seconds(9.0) == 4.0


def test_a_member_that_has_left_waits_for_nothing() -> None:
    assert clock_after((EAGER, 0.0), (ev.Left(), 2.0)).seconds(60.0) == 2.0


FIRST, LATER = FencedError("another member has joined as t-1"), ConfigError("the topic is gone")


def test_a_later_error_does_not_replace_the_first_one() -> None:
    failure = Failure()
    failure.set(FIRST)
    failure.set(LATER)
    assert failure.error is FIRST
    with pytest.raises(FencedError, match="another member has joined"):
        failure.raise_it()


QUERY: Mapping[str, Any] = {"id": "q-1", "name": "orders"}
PROVEN = {"proven": True, "why": ""}


class Reports:
    """The reports about one run, whose member holds two partitions of ten records."""

    def __init__(self) -> None:
        self.shell = Shell()
        self.actions: list[MemberAction] = []
        self.skipped: list[tuple[Document, SkippedBatchError]] = []
        self.pace = Pace()
        self.completion = BatchCompletion(
            self.shell.member, self.actions.extend, lambda *skipped: self.skipped.append(skipped), self.pace
        )

    def batch(self) -> Document:
        """Plan a batch and hand its tasks to Spark."""
        return self.shell.batch()

    def sunk(self, document: Document, query: Mapping[str, Any] = QUERY) -> Any:
        return self.completion.mark_sunk(document, 0, query, self.shell.now)

    @property
    def commits(self) -> int:
        return sum(isinstance(action, Send) and action.api is OffsetCommitRequest for action in self.actions)


# -- reports that a batch has sunk ------------------------------------------------------------------------------------


CHANGED: dict[str, Callable[[Document], Document]] = {
    "another run": lambda document: replace(document, run="another"),
    "a later document": lambda document: replace(document, sequence=document.sequence + 1),
    "other ranges": lambda document: replace(document, ranges=(OffsetRange(P0, 0, 9),)),
    "the start of the query": lambda document: INITIAL_DOCUMENT,
}


@pytest.mark.parametrize("changed", CHANGED.values(), ids=CHANGED)
def test_a_report_of_anything_else_has_no_effect_and_says_what_is_in_flight(
    changed: Callable[[Document], Document],
) -> None:
    reports = Reports()
    document = reports.batch()
    other = changed(document)
    answer = reports.sunk(other)
    assert answer == {
        "proven": False,
        "why": f"document {other.sequence} of run {other.run} is not in flight: in flight is {document.sequence}",
    }
    assert (reports.actions, reports.shell.ledger.idle) == ([], False)
    assert reports.sunk(document) == PROVEN


def test_a_batch_is_proven_once() -> None:
    reports = Reports()
    document = reports.batch()
    reports.sunk(document)
    assert reports.sunk(document)["why"].endswith("is not in flight: nothing is in flight")
    assert reports.commits == 1


def test_a_batch_that_the_sink_skipped_fails_the_query_and_commits_nothing() -> None:
    reports = Reports()
    document = reports.shell.result(PLAN)  # Spark never asks for its tasks
    answer = reports.sunk(document)
    ((skipped, error),) = reports.skipped
    assert (skipped, answer) == (document, {"proven": False, "why": str(error)})
    assert "the sink skipped a batch" in str(error)
    assert reports.actions == []


def test_the_duration_of_a_batch_ends_with_its_report() -> None:
    """The pace learns from it how many small ranges share a task; a longer duration would stand for slow records."""
    reports = Reports()
    document = reports.batch()
    reports.pace.begin([FetchTask((FetchRange(OffsetRange(P0, 0, 10), None),))], reports.shell.now)
    reports.sunk(replace(document, run="another"))
    assert reports.pace.packing.offsets == 0, "a report without effect ends nothing"
    reports.sunk(document)
    assert reports.pace.packing.offsets == 20


# -- what a report tells of the query ---------------------------------------------------------------------------------


def test_the_name_of_the_query_is_that_of_the_newest_report_that_has_one() -> None:
    reports = Reports()
    document = reports.batch()
    assert reports.completion.query == {}
    reports.sunk(document, {**QUERY, "batch": {"rows": 20}})
    assert reports.completion.query == QUERY
    reports.sunk(document, {"batch": {"rows": 5}})
    assert reports.completion.query == QUERY, "figures alone name no query"
    reports.sunk(document, {"id": "q-2", "name": None})
    assert reports.completion.query == {"id": "q-2", "name": None}


def test_the_figures_of_the_newest_batches_are_kept() -> None:
    reports = Reports()
    document = reports.batch()
    for number in range(MOST_BATCHES + 2):
        reports.sunk(document, {"batch": {"batch": number}})
    assert [figures["batch"] for figures in reports.completion.batches] == list(range(2, MOST_BATCHES + 2))


@pytest.mark.parametrize("figures", [None, 7, "rows", [1]])
def test_figures_of_another_shape_are_left_out(figures: object) -> None:
    reports = Reports()
    assert reports.sunk(reports.batch(), {**QUERY, "batch": figures}) == PROVEN
    assert list(reports.completion.batches) == []


def test_a_run_is_listened_to_once_a_listener_registers_or_reports() -> None:
    reports = Reports()
    assert not reports.completion.is_listened
    reports.completion.is_announced = lambda: True
    assert reports.completion.is_listened
    reports.completion.is_announced = lambda: False
    assert not reports.completion.is_listened
    reports.sunk(INITIAL_DOCUMENT)
    assert reports.completion.is_listened, "whatever it reports"


# -- ranges -----------------------------------------------------------------------------------------------------------


def test_ranges_are_those_of_the_batch_in_flight_from_the_call_for_its_tasks_on() -> None:
    reports = Reports()
    shell = reports.shell
    nothing = {"group": "g", "run": "r1", "lineage": "", "sequence": 0, "ranges": None}
    assert reports.completion.ranges() == nothing
    document = shell.result(PLAN)
    planned = nothing | {"lineage": "lineage", "sequence": document.sequence}
    assert reports.completion.ranges() == planned, "Spark has not asked for its tasks"
    shell.result(interface.Partitions(INITIAL_DOCUMENT, document))
    assert reports.completion.ranges() == planned | {"ranges": [["t", 0, 0, 10], ["t", 1, 0, 10]]}
    reports.sunk(document)
    assert reports.completion.ranges() == nothing


def test_the_ranges_of_a_replay_are_those_that_its_filter_left() -> None:
    reports = Reports()
    logged = Document("g", "logged", "other", 7, (OffsetRange(P0, 0, 4), OffsetRange(P1, 0, 5)))
    reports.shell.ledger.replayed(INITIAL_DOCUMENT, logged, (OffsetRange(P1, 2, 5),), {})
    found = reports.completion.ranges()
    assert (found["lineage"], found["sequence"], found["ranges"]) == ("logged", 7, [["t", 1, 2, 5]])

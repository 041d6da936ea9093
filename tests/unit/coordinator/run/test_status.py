"""The status of a run: the age of the batch in flight, reports that it has sunk, and events, one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from streamgroup.coordinator.planning.pace import Pace
from streamgroup.coordinator.run import run_events
from streamgroup.coordinator.run.run_events import LostRecords, RunEventKind, RunEvents
from streamgroup.coordinator.run.status import MOST_BATCHES, AssignmentClock, BatchClock, BatchCompletion
from streamgroup.errors import BrokerError, FencedError, SkippedBatchError
from streamgroup.group import events as ev
from streamgroup.group.events import Send
from streamgroup.group.holdings import InFlightBatch
from streamgroup.group.member import MemberAction
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest
from streamgroup.logformat import KAFKA07_LOG
from streamgroup.logline import message_of, parse
from streamgroup.model import INITIAL_DOCUMENT, Document, FetchRange, FetchTask, OffsetRange, TopicPartition
from tests.unit.coordinator.run.run_shell import P0, P1, PLAN, Shell, config, partitions


def batch() -> InFlightBatch:
    return InFlightBatch(Document("g", "l", "r", 3), planned_here=True)


def test_the_next_batch_has_an_age_of_its_own_even_if_it_equals_the_last() -> None:
    clock = BatchClock()
    first, replay = batch(), batch()
    assert first == replay
    clock.look(first, 10.0)
    assert clock.look(replay, 30.0) == 0.0
    assert clock.look(replay, 31.0) == 1.0


ASSIGNED = ev.Assigned(3, "m-1", (P0,), frozenset(), "range", leader=False, members=1, total=1)
EAGER = ev.Joining("the group rebalances", abandoned=False)
COOPERATIVE = ev.Joining("the group rebalances", abandoned=False, keeps=True)


@pytest.mark.parametrize(
    ("actions", "now", "seconds"),
    [
        pytest.param([], 100.0, 0.0, id="before the first join"),
        pytest.param([(EAGER, 10.0)], 12.5, 2.5, id="joining"),
        pytest.param([(EAGER, 10.0), (ASSIGNED, 13.0)], 99.0, 3.0, id="assigned"),
        pytest.param(
            [(EAGER, 0.0), (ASSIGNED, 1.0), (ev.Lost("x"), 10.0), (EAGER, 10.5), (ASSIGNED, 12.0)],
            *(50.0, 3.0),
            id="each spell adds up, and a join within one does not begin another",
        ),
        pytest.param([(EAGER, 0.0), (ASSIGNED, 1.0), (COOPERATIVE, 5.0)], 9.0, 1.0, id="cooperative"),
        pytest.param([(EAGER, 0.0), (ASSIGNED, 1.0), (COOPERATIVE, 5.0), (ev.Lost("x"), 6.0)], 9.0, 4.0, id="lost"),
        pytest.param([(EAGER, 0.0), (ev.Left(), 2.0)], 60.0, 2.0, id="left"),
    ],
)
def test_the_time_without_an_assignment_adds_up(
    actions: list[tuple[object, float]], now: float, seconds: float
) -> None:
    clock = AssignmentClock()
    for action, at in actions:
        clock.on_action(action, at)
    assert clock.seconds(now) == seconds


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
            self.shell.member, self.actions.extend, lambda *skipped: self.skipped.append(skipped), self.pace, config()
        )

    def sunk(self, document: Document, query: Mapping[str, Any] = QUERY) -> Any:
        return self.completion.on_report(document, 0, query, self.shell.now)

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
    document = reports.shell.batch()
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
    document = reports.shell.batch()
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
    document = reports.shell.batch()
    reports.pace.begin([FetchTask((FetchRange(OffsetRange(P0, 0, 10), None),))], reports.shell.now)
    reports.sunk(replace(document, run="another"))
    assert reports.pace.packing.offsets == 0, "a report without effect ends nothing"
    reports.sunk(document)
    assert reports.pace.packing.offsets == 20


# -- what a report tells of the query ---------------------------------------------------------------------------------


def test_the_name_of_the_query_is_that_of_the_newest_report_that_has_one() -> None:
    reports = Reports()
    document = reports.shell.batch()
    assert reports.completion.query == {}
    reports.sunk(document, {**QUERY, "batch": {"rows": 20}})
    assert reports.completion.query == QUERY
    reports.sunk(document, {"batch": {"rows": 5}})
    assert reports.completion.query == QUERY, "figures alone name no query"
    reports.sunk(document, {"id": "q-2", "name": None})
    assert reports.completion.query == {"id": "q-2", "name": None}


def test_the_figures_of_the_newest_batches_are_kept() -> None:
    reports = Reports()
    document = reports.shell.batch()
    for number in range(MOST_BATCHES + 2):
        reports.sunk(document, {"batch": {"batch": number}})
    assert [figures["batch"] for figures in reports.completion.batches] == list(range(2, MOST_BATCHES + 2))


@pytest.mark.parametrize("figures", [None, 7, "rows", [1]])
def test_figures_of_another_shape_are_left_out(figures: object) -> None:
    reports = Reports()
    assert reports.sunk(reports.shell.batch(), {**QUERY, "batch": figures}) == PROVEN
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
    shell.result(partitions(INITIAL_DOCUMENT, document))
    assert reports.completion.ranges() == planned | {"ranges": [["t", 0, 0, 10], ["t", 1, 0, 10]]}
    reports.sunk(document)
    assert reports.completion.ranges() == nothing


def test_the_ranges_of_a_replay_are_those_that_its_filter_left() -> None:
    reports = Reports()
    logged = Document("g", "logged", "other", 7, (OffsetRange(P0, 0, 4), OffsetRange(P1, 0, 5)))
    reports.shell.ledger.replayed(INITIAL_DOCUMENT, logged, (OffsetRange(P1, 2, 5),), {})
    found = reports.completion.ranges()
    assert (found["lineage"], found["sequence"], found["ranges"]) == ("logged", 7, [["t", 1, 2, 5]])


DOCUMENT = Document("g", "l", "r0", 7, (OffsetRange(P0, 0, 5), OffsetRange(P1, 3, 10)))
FLIGHT = InFlightBatch(DOCUMENT, planned_here=True)


class Told:
    """The troubles of one run, and what was said."""

    def __init__(self, group: str = "g", **others: Any) -> None:
        self.lines: list[tuple[int, str]] = []
        self.troubles = RunEvents(group, "r1", lambda level, line: self.lines.append((level, line)), **others)

    def hear(self, *actions: object, flight: InFlightBatch | None = None) -> None:
        for action in actions:
            self.troubles.on_action(action, flight)

    def only(self) -> tuple[int, str, dict[str, str]]:
        ((level, line),) = self.lines
        self.lines.clear()
        return level, message_of(line), parse(line)

    @property
    def counts(self) -> dict[str, int]:
        return {kind: counter["count"] for kind, counter in self.troubles.status().items() if counter["count"]}


def joined(**others: Any) -> Told:
    """A run that has told of its first assignment."""
    told = Told(**others)
    told.hear(assigned())
    told.lines.clear()
    return told


def assigned(generation: int = 3, **others: Any) -> ev.Assigned:
    given: dict[str, Any] = {"kept": frozenset({P0}), "members": 3, "total": 6, "member_id": "m-1"}
    given |= {"partitions": (P0, P1), "strategy": "streamgroup-range", "leader": False}
    return ev.Assigned(generation, **{**given, **others})


def test_the_first_line_of_a_query_tells_its_share_and_every_assignment_counts() -> None:
    told = Told()
    told.hear(ev.Joining("the query starts", abandoned=False), assigned())
    level, words, fields = told.only()
    assert (level, words) == (20, "joined g, generation 3, 2 of 6 partitions, 2 other members")
    assert fields == {
        "event": "rebalance",
        "group": "g",
        "run": "r1",
        "member": "m-1",
        "generation": "3",
        "count": "2",
        "kept": "1",
        "reason": "the query starts",
    }
    told.troubles.now = 13.5
    told.hear(ev.Joining("the group rebalances", abandoned=False), assigned(4))
    assert told.only()[2]["reason"] == "the group rebalances"
    assert told.troubles.status()["rebalance"] == {"count": 2, "last": 13.5, "reason": "the group rebalances"}


def test_a_new_epoch_in_which_the_member_keeps_all_is_no_rebalance() -> None:
    told = Told()
    epoch = {"is_epoch": True, "cooperative": True}
    told.hear(ev.Joining("the query starts", abandoned=False, cause=ev.JoinCause.START), assigned(3, **epoch))
    told.hear(assigned(4, kept=frozenset({P0, P1}), **epoch))
    assert told.counts == {"rebalance": 1}
    told.hear(assigned(5, partitions=(P0,), kept=frozenset({P0}), revoked=frozenset({P1}), **epoch))
    assert told.counts == {"rebalance": 2}, "it gives one up"
    told.hear(ev.Released(frozenset({P1})), assigned(6, partitions=(P0,), kept=frozenset({P0}), **epoch))
    assert told.counts == {"rebalance": 2}, "it has given it up: that is the same rebalance"
    told.hear(assigned(7, kept=frozenset({P0}), **epoch))
    assert told.counts == {"rebalance": 3}, "it gains one"
    assert told.troubles.status()["rebalance"]["reason"] == "the group rebalances", "not because of the revocation"


def test_rebalances_are_counted_by_their_cause() -> None:
    told = Told()
    told.hear(ev.Joining("the query starts", abandoned=False, cause=ev.JoinCause.START), assigned())
    told.hear(ev.Joining("the group rebalances", abandoned=False), assigned(4))
    told.hear(ev.Joining("the group rebalances", abandoned=False), ev.Joining("NOT_COORDINATOR", abandoned=False))
    told.hear(ev.Lost("ILLEGAL_GENERATION"), ev.Joining("ILLEGAL_GENERATION", False, cause=ev.JoinCause.LOST))
    told.hear(assigned(6))
    counts = told.troubles.rebalances()
    assert list(counts) == [cause.value for cause in ev.JoinCause]
    assert {cause: count for cause, count in counts.items() if count} == {"start": 1, "group": 1, "lost": 1}


def test_every_kind_has_a_counter_from_the_beginning() -> None:
    status = Told().troubles.status()
    assert list(status) == [kind.value for kind in RunEventKind]
    assert all(counter == {"count": 0, "last": None, "reason": None} for counter in status.values())


def test_a_query_that_is_no_member_rebalances_nothing() -> None:
    told = Told("")
    told.hear(assigned(member_id=""))
    told.troubles.replaying(DOCUMENT, DOCUMENT.ranges)
    _, words, fields = told.only()
    assert told.counts == {"replay": 1}
    assert words.startswith("replaying document 7")
    assert not fields.keys() & {"group", "member", "generation"}


def test_a_lost_membership_is_a_fence_and_with_a_batch_in_flight_a_repeat() -> None:
    told = joined()
    told.hear(ev.Lost("ILLEGAL_GENERATION"))
    level, words, fields = told.only()
    assert (level, words) == (30, "group g: generation 3 is lost (ILLEGAL_GENERATION), 2 partitions: rejoining")
    assert (fields["event"], fields["count"], fields["reason"]) == ("fence", "2", "ILLEGAL_GENERATION")

    told.hear(assigned(4))
    told.lines.clear()
    told.hear(ev.Lost("UNKNOWN_MEMBER_ID"), ev.Joining("UNKNOWN_MEMBER_ID", abandoned=True), flight=FLIGHT)
    fence, repeat = (parse(line) for _, line in told.lines)
    assert (fence["event"], repeat["event"], repeat["count"], repeat["document"]) == ("fence", "repeat", "12", "7")


def test_a_batch_that_is_waited_for_no_longer_is_one_repeat_however_it_goes_on() -> None:
    told = joined()
    told.hear(ev.GaveUp("why, and what to do"), ev.Joining("the group rebalances", abandoned=True), flight=FLIGHT)
    level, words, fields = told.only()
    assert (level, words, fields["event"], fields["count"]) == (30, "group g: why, and what to do", "repeat", "12")
    told.hear(ev.GaveUp("again"), flight=FLIGHT)
    told.troubles.left(FLIGHT, 0, "stopped")
    assert told.lines == []
    assert told.counts == {"rebalance": 1, "repeat": 1}


@pytest.mark.parametrize("how", ["stopped", "the drain's timeout expired", "left while Spark was silent"])
def test_what_is_left_behind_may_be_repeated(how: str) -> None:
    told = Told()
    told.troubles.left(None, 0, how)
    nothing_left = InFlightBatch(DOCUMENT, planned_here=False, planned_ranges=())
    told.troubles.left(nothing_left, 0, how)
    assert told.lines == [], "nothing was in flight, or all of it is committed"
    for _ in range(2):
        told.troubles.left(None, 9, how)
    assert len(told.lines) == 1
    assert "the commit of the last batch" in told.lines[0][1]
    assert parse(told.lines.pop()[1])["count"] == "9"
    told.troubles.left(FLIGHT, 9, how)
    _, words, fields = told.only()
    assert words.endswith("up to 12 offsets may be repeated")
    assert (fields["reason"].startswith(how), fields["event"]) == (True, "repeat")


def test_who_comes_back_and_leaves_again_leaves_something_else_behind() -> None:
    told = Told()
    for generation in (3, 5):
        told.hear(assigned(generation))
        told.troubles.left(None, 9, "left while Spark was silent")
    assert told.counts == {"rebalance": 2, "repeat": 2}


def test_being_fenced_for_good_is_an_event_and_other_failures_are_spark_s_to_tell() -> None:
    told = joined()
    told.hear(ev.Fail(BrokerError(30, "join")))
    assert told.lines == []
    told.hear(ev.Fail(FencedError("another member has the place of group.instance.id 'i'")))
    level, _, fields = told.only()
    assert (level, fields["event"], fields["failed"]) == (40, "fence", "true")
    assert fields["reason"] == "FENCED_INSTANCE_ID"


def test_replays_and_skips_tell_their_document() -> None:
    told = Told()
    told.troubles.replaying(DOCUMENT, (OffsetRange(P1, 8, 10),))
    level, words, fields = told.only()
    assert (level, words) == (20, "group g: replaying document 7 of run r0: 2 of 12 offsets are left to read")
    assert (fields["event"], fields["count"], fields["of"], fields["document"]) == ("replay", "2", "12", "7")
    told.troubles.skipped(DOCUMENT)
    level, _, fields = told.only()
    assert (level, fields["event"], fields["count"], fields["failed"]) == (40, "skip", "12", "true")


def test_records_that_are_gone_are_reported_once_with_where_it_goes_on() -> None:
    told = Told()
    loss = LostRecords(P0, "group 'g', t-0: up to 4 records are gone", "retention", at=1, to=5, count=4)
    for _ in range(2):
        told.troubles.lost_records([loss], failed=False)
    level, words, fields = told.only()
    assert (level, words) == (30, loss.text)
    assert (fields["partition"], fields["from"], fields["to"], fields["count"]) == ("t-0", "1", "5", "4")
    assert "failed" not in fields
    unknown = LostRecords(P1, "t-1: deleted", "deleted", at=3)
    told.troubles.lost_records([loss, unknown], failed=True)
    level, _, fields = told.only()
    assert (level, fields["failed"], fields.keys() & {"to", "count"}) == (40, "true", set())
    assert told.counts == {"data_loss": 2}


def test_what_is_counted_in_kafka_0_7_is_bytes() -> None:
    told = Told(log_format=lambda: KAFKA07_LOG)
    told.hear(assigned())
    assert "unit" not in told.only()[2], "partitions are counted"
    told.troubles.replaying(DOCUMENT, [OffsetRange(P0, 0, 5)])
    _, words, fields = told.only()
    assert "5 of 12 bytes are left" in words
    assert (fields["count"], fields["of"], fields["unit"]) == ("5", "12", "bytes")
    told.troubles.left(FLIGHT, 0, "stopped")
    _, words, fields = told.only()
    assert "up to 12 bytes may be repeated" in words
    assert fields["unit"] == "bytes"
    told.troubles.left(None, 7, "stopped")
    assert "up to 7 bytes may be repeated" in told.only()[1]
    losses = [LostRecords(P0, "gone", "retention", 0, 5, 5), LostRecords(P1, "all gone", "deleted", 3)]
    told.troubles.lost_records(losses, failed=False)
    counted, uncounted = (parse(line) for _, line in told.lines)
    assert (counted["count"], counted["unit"]) == ("5", "bytes")
    assert "unit" not in uncounted


def test_of_a_log_that_is_lost_from_for_ever_only_the_newest_loss_is_remembered() -> None:
    told = Told()
    losses = [LostRecords(P0, f"t-0 at {at}", "retention", at=at, to=at + 5, count=5) for at in range(0, 500, 5)]
    for loss in losses:
        for _ in range(3):
            told.troubles.lost_records([loss], failed=False)
    assert told.counts == {"data_loss": len(losses)}
    assert len(told.troubles._newest_losses) == 1


def test_of_partitions_that_come_and_go_the_latest_losses_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_events, "MOST_REMEMBERED", 10)
    told = Told()
    losses = [LostRecords(TopicPartition(f"t{n}", 0), f"t{n}-0 is deleted", "deleted", at=3) for n in range(50)]
    for loss in losses:
        told.troubles.lost_records([loss, loss], failed=False)
    assert told.counts == {"data_loss": 50}
    assert len(told.troubles._newest_losses) == 10
    told.troubles.lost_records(losses[-10:], failed=False)
    assert told.counts == {"data_loss": 50}

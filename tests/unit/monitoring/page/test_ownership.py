"""The timeline of a group: the member that held each partition and when, and the marks for events."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.logformat import KAFKA07_LOG, KAFKA_LOG
from streamgroup.model import GroupState, MemberDescription, TopicPartition
from streamgroup.monitoring.page.history.batches import GroupReading
from streamgroup.monitoring.page.history.ownership import (
    Mark,
    MarkKind,
    MemberEvents,
    Ownership,
    QueryEnds,
    Span,
    between,
)
from streamgroup.monitoring.query_totals import QueryFailure
from tests.unit.monitoring.page.readings import group, partitions, status

P = tuple(partitions(4))
ASSIGNMENTS = st.lists(st.lists(st.sampled_from(("a", "b", None)), min_size=2, max_size=2), min_size=1, max_size=30)


@given(ASSIGNMENTS, st.integers(2, 40))
def test_the_spans_of_a_partition_are_what_was_read_of_it(owners: list[list[str | None]], capacity: int) -> None:
    timeline = Ownership(capacity)
    shown = (P[0], P[1])
    for at, held in enumerate(owners):
        timeline.add(float(at), shown, {tp: who for tp, who in zip(shown, held, strict=True) if who is not None})
    changes = [at for at, held in enumerate(owners) if at == 0 or owners[at - 1] != held]
    since = changes[-capacity:][0]
    for column, tp in enumerate(shown):
        spans = timeline.spans()[tp]
        assert all(one.end <= other.start for one, other in itertools.pairwise(spans))
        for at in range(since, len(owners) - 1):
            middle = at + 0.5
            assert [s.owner for s in spans if s.start < middle < s.end] == [who for who in (owners[at][column],) if who]


@pytest.fixture
def timeline() -> Ownership:
    """Member a held both partitions from 10 on. Member b took over the second one at 20. The last reading was at 30."""
    made = Ownership(10)
    made.add(10.0, P[:2], dict.fromkeys(P[:2], "a"))
    made.add(20.0, P[:2], {P[0]: "a", P[1]: "b"})
    made.add(30.0, P[:2], {P[0]: "a", P[1]: "b"})
    return made


def test_a_span_goes_on_until_the_newest_reading_or_the_next_owner(timeline: Ownership) -> None:
    assert timeline.spans() == {P[0]: [Span(10, 30, "a")], P[1]: [Span(10, 20, "a"), Span(20, 30, "b")]}


def test_a_reading_that_repeats_the_assignment_is_not_kept(timeline: Ownership) -> None:
    assert len(timeline) == 2
    assert not timeline.add(40.0, P[:2], {P[0]: "a", P[1]: "b"})
    assert timeline.add(50.0, P[:2], {P[0]: "a"}), "the loss of an owner is a change"
    assert len(timeline) == 3
    assert not Ownership(2).add(10.0, P, {}), "the first assignment is not a change"


@pytest.mark.parametrize(
    ("since", "first", "second"),
    [
        (15.0, [Span(15, 30, "a")], [Span(15, 20, "a"), Span(20, 30, "b")]),
        (20.0, [Span(20, 30, "a")], [Span(20, 20, "a"), Span(20, 30, "b")]),
        (25.0, [Span(25, 30, "a")], [Span(25, 30, "b")]),
    ],
)
def test_spans_are_cut_where_the_view_begins(
    timeline: Ownership, since: float, first: list[Span], second: list[Span]
) -> None:
    assert timeline.spans(since) == {P[0]: first, P[1]: second}


def test_the_partitions_are_those_of_the_newest_assignment_also_without_a_member(timeline: Ownership) -> None:
    timeline.add(40.0, P, dict.fromkeys(P, "b"))
    assert timeline.partitions == P
    assert timeline.spans()[P[3]] == [Span(40, 40, "b")]
    empty = Ownership(2)
    assert (empty.partitions, empty.spans()) == ((), {})
    empty.add(10.0, P[:1], {P[1]: "a"})
    assert empty.spans() == {P[0]: []}


def test_forgetting_keeps_the_assignment_that_was_in_effect_at_that_time(timeline: Ownership) -> None:
    timeline.forget(19.0)
    assert timeline.spans()[P[1]] == [Span(10, 20, "a"), Span(20, 30, "b")]
    timeline.forget(20.0)
    assert timeline.spans()[P[1]] == [Span(20, 30, "b")]
    timeline.forget(1e9)
    assert len(timeline) == 1, "the newest assignment stays, however old it is"


def test_a_smaller_capacity_keeps_the_newest_assignments(timeline: Ownership) -> None:
    timeline.resize(1)
    assert timeline.spans()[P[1]] == [Span(20, 30, "b")]
    timeline.add(40.0, P[:2], {})
    assert len(timeline) == 1


GATHERING = group(held={"a": [], "b": []}, state=GroupState.PREPARING_REBALANCE)
WAITING = group(held={"a": [], "b": []}, state=GroupState.COMPLETING_REBALANCE)
SHARED = group(held={"a": P[:2], "b": P[2:]})


def shown(before: GroupReading, after: GroupReading) -> list[tuple[MarkKind, str, str]]:
    return [(mark.kind, mark.text, mark.member) for mark in between(5.0, before, after, KAFKA_LOG)]


# -- two readings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "texts"),
    [
        (SHARED, SHARED, []),
        (SHARED, GATHERING, ["rebalance begins (PreparingRebalance)"]),
        (SHARED, WAITING, ["rebalance begins (CompletingRebalance)"]),
        (GATHERING, WAITING, []),
        (WAITING, SHARED, ["assigned: 4 partitions to 2 members"]),
        (WAITING, group(held={"a": P[:1], "b": []}), ["assigned: 1 partition to 2 members"]),
        (SHARED, group(held={"a": P[:1], "b": P[1:]}), ["orders-1 moved"]),
        (SHARED, group(held={"a": P[2:], "b": P[:2]}), ["4 partitions moved"]),
        (SHARED, group(held={"a": P[:2], "b": P[2:3]}), ["orders-3 moved"]),
    ],
)
def test_a_rebalance_is_a_mark_when_it_begins_and_when_partitions_have_other_members(
    before: GroupReading, after: GroupReading, texts: list[str]
) -> None:
    assert shown(before, after) == [(MarkKind.REBALANCE, text, "") for text in texts]


def test_members_that_join_and_leave_come_before_the_rebalance_that_they_cause() -> None:
    after = group(held={"b": P[:2], "c": P[2:], "d": []})
    assert shown(group(held={"b": P[:2], "a": P[2:]}), after) == [
        (MarkKind.JOIN, "client-c joined", "c"),
        (MarkKind.JOIN, "client-d joined", "d"),
        (MarkKind.LEAVE, "client-a left", "a"),
        (MarkKind.REBALANCE, "2 partitions moved", ""),
    ]
    assert shown(group(held={"a": P}), group(state=GroupState.EMPTY)) == [
        (MarkKind.LEAVE, "client-a left", "a"),
        (MarkKind.REBALANCE, "4 partitions moved", ""),
    ]


def test_a_member_without_a_client_id_is_called_by_its_member_id() -> None:
    description = replace(group().description, members=(MemberDescription("m-1"),))
    (mark,) = between(5.0, group(), GroupReading(description), KAFKA_LOG)
    assert mark == Mark(5.0, MarkKind.JOIN, "m-1 joined", "m-1")


@pytest.mark.parametrize("state", [GroupState.UNKNOWN, GroupState.DEAD])
def test_a_state_in_which_brokers_do_not_tell_the_owners_is_not_a_rebalance(state: str) -> None:
    assert shown(group(held={"a": P}), group(held={"a": []}, state=state)) == []


def test_a_partition_of_kafka_0_7_has_the_name_that_its_brokers_give_it() -> None:
    tp = TopicPartition("events", 10_002)
    (mark,) = between(5.0, group(held={"a": []}), group(held={"a": [tp]}), KAFKA07_LOG)
    assert mark.text == "events 1-2 moved"


# -- the counters of members -------------------------------------------------------------------------------------------

LAST = "2026-01-01T00:00:07+00:00"
LAST_S = 1767225607.0


def counted(kind: str, count: object, **fields: Any) -> Mapping[str, Any]:
    return status("a", trouble={kind: {"count": count, **fields}})


@pytest.mark.parametrize("kind", ["fence", "replay", "skip", "repeat", "data_loss"])
def test_an_event_is_a_mark_each_time_that_its_counter_grows(kind: str) -> None:
    events = MemberEvents()
    expected = Mark(LAST_S, MarkKind(kind), "session over", "a")
    assert events.marks(10.0, [counted(kind, 1, last=LAST, reason="session over")]) == [expected]
    assert events.marks(15.0, [counted(kind, 1, last=LAST, reason="session over")]) == []
    assert events.marks(20.0, [counted(kind, 3, last=LAST, reason="session over")]) == [expected]


@pytest.mark.parametrize("last", [None, "", "yesterday", 7])
def test_an_event_without_a_time_is_at_the_time_of_the_reading(last: object) -> None:
    assert MemberEvents().marks(10.0, [counted("fence", 1, last=last)]) == [Mark(10.0, MarkKind.FENCE, "", "a")]


@pytest.mark.parametrize(
    "trouble",
    [
        None,
        {},
        [],
        {"fence": {"count": 0}},
        {"fence": {"count": None}},
        {"fence": {}},
        {"fence": 3},
        {"fence": {"count": "x"}},
        {"rebalance": {"count": 4}},  # the description of the group shows the rebalances
    ],
)
def test_a_status_without_events_has_no_marks(trouble: object) -> None:
    assert MemberEvents().marks(10.0, [status("a", trouble=trouble)]) == []


def test_a_drain_is_marked_once_for_each_time_that_it_begins() -> None:
    events = MemberEvents()
    found = [events.marks(at, [status("a", draining=at in {1, 2, 4})]) for at in range(5)]
    drain = [MarkKind.DRAIN]
    assert [[mark.kind for mark in marks] for marks in found] == [[], drain, [], [], drain]
    assert found[1] == [Mark(1, MarkKind.DRAIN, "a drains", "a")]
    assert events.marks(9.0, [status("b", run="r2", draining=True, name="east")])[0].text == "east drains"


def test_two_runs_of_a_group_have_counters_of_their_own() -> None:
    events = MemberEvents()
    fenced = {"fence": {"count": 1}}
    events.marks(10.0, [status("a", run="r1", trouble=fenced)])
    found = events.marks(15.0, [status("a", run="r1", trouble=fenced), status("b", run="r2", trouble=fenced)])
    assert [(mark.kind, mark.member) for mark in found] == [(MarkKind.FENCE, "b")]


def test_only_the_32_runs_that_were_read_last_are_remembered() -> None:
    events = MemberEvents()
    fenced = {"fence": {"count": 1}}
    runs = [status("a", run=f"r{number}", trouble=fenced) for number in range(33)]
    assert len(events.marks(10.0, runs)) == 33
    assert len(events.marks(15.0, runs[1:])) == 0
    assert len(events.marks(20.0, runs[:1])) == 1, "the oldest run was forgotten, so its events are new again"


# -- queries -----------------------------------------------------------------------------------------------------------


def test_an_error_that_ends_a_query_is_marked_at_its_own_time_and_once() -> None:
    ends = QueryEnds()
    first = QueryFailure(103.0, "orders", ("etl",), "DataLossError", "orders-0: gone")
    again = replace(first, at=120.0)
    text = "query orders has ended with DataLossError: orders-0: gone"
    assert ends.marks([first]) == [Mark(103.0, MarkKind.FAILURE, text)]
    assert ends.marks([first]) == []
    assert ends.marks([first, again]) == [Mark(120.0, MarkKind.FAILURE, text)]
    assert ends.marks([]) == []

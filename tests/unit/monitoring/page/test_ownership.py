"""The timeline of a group: the member that held each partition, and from when until when."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.monitoring.page.history.ownership import Ownership, Span
from tests.unit.monitoring.page.readings import partitions

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


def test_the_first_assignment_is_not_a_change() -> None:
    assert not Ownership(2).add(10.0, P, {})


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


def test_a_partition_that_no_member_holds_has_a_row_without_spans() -> None:
    timeline = Ownership(2)
    assert (timeline.partitions, timeline.spans()) == ((), {})
    timeline.add(10.0, P[:1], {P[1]: "a"})
    assert timeline.spans() == {P[0]: []}


def test_the_partitions_are_those_of_the_newest_assignment(timeline: Ownership) -> None:
    timeline.add(40.0, P, dict.fromkeys(P, "b"))
    assert timeline.partitions == P
    assert timeline.spans()[P[3]] == [Span(40, 40, "b")]


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

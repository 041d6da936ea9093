"""The history of a cluster and of a group: lag and rates, timeline and marks, and the limits of their size."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
from dataclasses import replace

import pytest

from streamgroup.model import GroupState, TopicPartition
from streamgroup.monitoring.page.history.batches import GroupReading
from streamgroup.monitoring.page.history.group import GroupHistory, Limits
from streamgroup.monitoring.page.history.history import History
from streamgroup.monitoring.page.history.offset_series import Total
from streamgroup.monitoring.page.history.ownership import MarkKind
from streamgroup.monitoring.query_totals import QueryFailure
from tests.ui import world
from tests.unit.monitoring.page.readings import group, partitions, reading, status

P = partitions(4)


def kinds(history: History, name: str = "etl") -> list[tuple[MarkKind, str]]:
    return [(mark.kind, mark.text) for mark in history.groups[name].marks]


# -- members of this machine -------------------------------------------------------------------------------------------


def test_an_error_that_ends_a_query_is_a_mark_of_its_groups_and_a_note_of_the_cluster() -> None:
    history = History()
    failed = QueryFailure(103.0, "orders", ("etl", "audit"), "DataLossError", "orders-0: gone")
    history.add(reading(100, group()))
    history.add(reading(105, group(), failures=[failed, QueryFailure(104.0, "q", (), "ConfigError", "no topic")]))
    history.add(reading(110, group(), failures=[failed]))
    history.add(reading(115, group(), group("audit"), failures=[failed, replace(failed, at=112.0)]))
    text = "query orders has ended with DataLossError: orders-0: gone"
    assert [(mark.at, mark.kind, mark.text) for mark in history.groups["etl"].marks] == [
        (103, MarkKind.FAILURE, text),
        (112, MarkKind.FAILURE, text),
    ]
    assert [mark.at for mark in history.groups["audit"].marks] == [103, 112]
    assert [(note.at, note.text, note.count) for note in history.failures] == [
        (104, "query q has ended with ConfigError: no topic", 1),
        (112, text, 2),
    ]


def test_a_batch_that_several_statuses_repeat_is_kept_once() -> None:
    history = History(Limits(batches=3))
    batches = [
        {"batch": n, "began": f"2026-01-01T00:00:0{n}.000Z", "rows": 10 * n, "durations_ms": {"addBatch": n}}
        for n in range(6)
    ]
    for at in range(4):
        history.add(reading(at, group(), statuses=[status("a", batches=batches[at : at + 3])]))
    (found,) = history.groups["etl"].batches.runs().values()
    assert [(b.number, b.rows, b.phases) for b in found.batches] == [(n, 10 * n, {"addBatch": n}) for n in (3, 4, 5)]
    assert found.name == "orders"


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_all_series_together_stay_within_the_limit_of_offsets() -> None:
    limits = Limits(samples=64, offsets=10_000)
    history = History(limits)
    many = partitions(50)
    for at in range(100):
        groups = [group(f"g{n}", committed=dict.fromkeys(many, at)) for n in range(1 + at // 10)]
        history.add(reading(at, *groups, ends=dict.fromkeys(many, at)))
        kept = sum(g.offsets.committed().size + g.offsets.ends().size for g in history.groups.values())
        assert kept <= limits.offsets
    assert {len(g.offsets) for g in history.groups.values()} == {8}  # 64 samples, halved until 10 x 50 x 2 x 8 fit


def test_a_deleted_group_and_a_timeline_older_than_the_series_are_forgotten() -> None:
    history = History(Limits(samples=3))
    history.add(reading(-5, group("old"), group("etl")))
    for at in range(10):
        history.add(reading(at, group(held={"ab"[at % 2]: P})))
    assert list(history.groups) == ["etl"]
    assert len(history.groups["etl"].ownership) == 3


def test_an_error_that_repeats_is_counted_and_what_is_known_stays() -> None:
    history = History(Limits(errors=2))
    history.add(reading(0, group(), notes=["no rights on topic secret"]))
    for at in (5.0, 10.0):
        history.fail(at, "no broker answers")
    assert [(e.at, e.text, e.count) for e in history.errors] == [
        (0, "no rights on topic secret", 1),
        (10, "no broker answers", 2),
    ]
    assert (history.failed, history.sequence, list(history.groups)) == ("no broker answers", 3, ["etl"])
    history.add(reading(15, group()))
    assert history.failed == ""


def test_a_group_that_is_not_read_keeps_its_history_and_counts_for_the_bounds() -> None:
    history = History(Limits(samples=4, offsets=30))  # four samples of one partition, two of five
    held = group(held={"m": P}, committed=dict.fromkeys(P, 1))
    audit = group("audit", committed={P[0]: 1})
    history.add(reading(100, held, audit))
    history.add(reading(105, held, audit))
    for at in (110, 115, 120, 125):
        history.add(replace(reading(at, audit), unread=frozenset({"etl", "new"})))
    assert list(history.groups) == ["audit", "etl"]
    etl = history.groups["etl"]
    assert (etl.offsets.times().tolist(), etl.is_read) == ([100, 105], False)
    assert etl.lag_of({P[0]: 9}, P[0]) is None
    assert len(history.groups["audit"].offsets) == 2, "halved while the other group is kept"
    history.add(reading(130, held))
    assert (etl.offsets.times().tolist(), etl.is_read, list(history.groups)) == ([105, 130], True, ["etl"])
    history.add(reading(135, audit))
    assert len(history.groups["audit"].offsets) == 1


def test_a_member_that_one_reading_lacks_is_not_new() -> None:
    history = History()
    drains = [status("a", trouble={"fence": {"count": 1}}, draining=True)]
    for statuses in (drains, [], drains):
        history.add(reading(100, group(), statuses=statuses))
    assert [kind for kind, _ in kinds(history)] == [MarkKind.FENCE, MarkKind.DRAIN]


def test_errors_that_differ_in_times_and_attempts_are_one() -> None:
    history = History()
    for text in ("no answer of broker 1 after 3 attempts in 2.4 s", "no answer of broker 1 after 1 attempt in 10 s"):
        history.add(reading(100, notes=[text]))
    history.add(reading(105, notes=["no answer of broker 2 after 3 attempts in 2.4 s"]))
    assert [(error.text, error.count) for error in history.errors] == [
        ("no answer of broker 1 after 1 attempt in 10 s", 2),
        ("no answer of broker 2 after 3 attempts in 2.4 s", 1),
    ]


def test_errors_of_readings_leave_those_of_queries() -> None:
    history = History(Limits(errors=2))
    history.add(reading(100, failures=[QueryFailure(99.0, "q", (), "ConfigError", "no topic")]))
    for at in range(5):
        history.add(reading(101 + at, notes=[f"group {at} is not read"]))
    assert [error.text for error in history.errors] == ["group 3 is not read", "group 4 is not read"]
    assert [error.text for error in history.failures] == ["query q has ended with ConfigError: no topic"]


def measure() -> None:
    """Print the bytes that live after 300 and after 900 readings."""
    limits = Limits(samples=40, assignments=20, marks=30, batches=30)
    group = world.one(0).groups[0]
    group.rebalances = range(5, 10_000, 7)
    simulated = world.SimulatedCluster([group], until=0, readings=900)
    history = History(limits)
    tracemalloc.start()
    try:
        sizes = []
        for number, reading in enumerate(simulated.readings()):
            history.add(reading)
            if number in (299, 899):
                del reading
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    print(*sizes)


@pytest.mark.slow
def test_memory_stays_flat_when_the_rings_are_full() -> None:
    """In a process of its own: tracemalloc counts what every thread allocates, those of earlier tests too."""
    code = "from tests.unit.monitoring.page.test_history import measure; measure()"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    full, later = map(int, shown.split())
    assert later - full < 20_000, f"{full} bytes at 300 readings, {later} at 900"


# -- one group ---------------------------------------------------------------------------------------------------------


def group_history(**limits: int) -> GroupHistory:
    return GroupHistory(Limits(**limits), len(P))


def add(to: GroupHistory, at: float, found: GroupReading, ends: dict[TopicPartition, int] | None = None) -> None:
    to.add(found, reading(at, found, ends=ends))


@pytest.mark.parametrize(
    ("committed", "ends", "lag"),
    [
        ({P[0]: 10, P[1]: 5}, {P[0]: 30, P[1]: 5}, 20),
        ({P[0]: 10, P[1]: 5}, {P[0]: 30}, 20),
        ({P[0]: 10}, {P[0]: 9}, 0),
        ({P[0]: 10}, {P[1]: 30}, None),
        ({}, {P[0]: 30}, None),
    ],
)
def test_the_lag_of_a_group_is_that_of_the_partitions_of_which_both_offsets_are_known(
    committed: dict[TopicPartition, int], ends: dict[TopicPartition, int], lag: int | None
) -> None:
    found = group_history()
    add(found, 100.0, group(committed=committed), ends)
    assert list(found.totals) == [Total(100.0, lag)]


def test_the_rates_are_those_since_the_sample_before() -> None:
    found = group_history()
    for at, committed, end in ((100.0, 0, 50), (110.0, 40, 100), (130.0, 40, 120)):
        add(found, at, group(committed={P[0]: committed}), {P[0]: end})
    assert list(found.totals) == [Total(100.0, 50), Total(110.0, 60, 4.0, 5.0), Total(130.0, 80, 0.0, 1.0)]


def test_a_reset_to_an_older_offset_or_a_clock_that_was_set_back_gives_no_rate() -> None:
    found = group_history()
    add(found, 100.0, group(committed={P[0]: 90}), {P[0]: 100})
    add(found, 110.0, group(committed={P[0]: 0}), {P[0]: 100})
    assert found.totals[-1] == Total(110.0, 100, 0.0, 0.0)
    found = group_history()
    for at in (100.0, 100.0, 90.0):
        add(found, at, group(committed={P[0]: 5}), {P[0]: 9})
    assert list(found.totals) == [Total(100.0, 4), Total(100.0, 4), Total(90.0, 4)]


def test_offsets_of_the_newest_reading_are_told_and_unknown_ones_are_none() -> None:
    found = group_history()
    assert found.committed(P[0]) is None, "nothing was read so far"
    add(found, 100.0, group(committed={P[0]: 10, P[1]: 0}))
    assert [found.committed(tp) for tp in P[:3]] == [10, 0, None]
    logs = {P[0]: 30, P[2]: 5}
    assert [found.lag_of(logs, tp) for tp in P[:3]] == [20, None, None]
    assert found.lag_of({P[0]: 7}, P[0]) == 0, "the group has committed since the broker told its log end"


def test_a_group_that_a_reading_lacks_has_no_known_lag_and_keeps_its_series() -> None:
    found = group_history()
    add(found, 100.0, group(committed={P[0]: 10}), {P[0]: 30})
    fenced = [status("a", trouble={"fence": {"count": 1}})]
    failed = QueryFailure(104.0, "q", ("etl",), "DataLossError", "orders-0: gone")
    found.miss("etl", reading(105.0, statuses=fenced, failures=[failed]))
    assert (found.is_read, found.committed(P[0]), found.lag_of({P[0]: 30}, P[0])) == (False, None, None)
    assert [total.at for total in found.totals] == [100.0]
    assert [mark.kind for mark in found.marks] == [MarkKind.FENCE, MarkKind.FAILURE]
    add(found, 110.0, group(committed={P[0]: 20}), {P[0]: 30})
    assert (found.is_read, found.lag_of({P[0]: 30}, P[0])) == (True, 10)


def test_marks_batches_and_failures_of_other_groups_are_left_out() -> None:
    found = group_history()
    batch = {"batch": 1, "began": "2026-01-01T00:00:00Z", "rows": 5, "durations_ms": {}}
    theirs = status("b", group="audit", trouble={"fence": {"count": 1}}, batches=[batch])
    failed = QueryFailure(104.0, "q", ("audit",), "DataLossError", "orders-0: gone")
    found.add(group(), reading(105.0, group(), statuses=[theirs], failures=[failed]))
    assert (list(found.marks), found.batches.runs()) == ([], {})


def test_the_timeline_keeps_the_rows_of_partitions_that_are_between_two_members() -> None:
    found = group_history()
    add(found, 100.0, group(held={"a": P[:2]}, committed={P[3]: 1}))
    add(found, 105.0, group(held={"a": []}, committed={P[3]: 1}, state=GroupState.PREPARING_REBALANCE))
    assert list(found.ownership.partitions) == [P[0], P[1], P[3]]
    add(found, 110.0, group(held={"a": P[:1]}, committed={P[3]: 1}))
    assert list(found.ownership.partitions) == [P[0], P[3]], "after the rebalance no member holds orders-1"


def test_series_timeline_and_marks_keep_what_the_limits_allow() -> None:
    found = group_history(samples=4, assignments=4, marks=2)
    for at in range(10):
        add(found, at, group(held={"ab"[at % 2]: P}, committed=dict.fromkeys(P, at)))
    assert (len(found.offsets), len(found.totals), len(found.ownership), len(found.marks)) == (4, 4, 4, 2)
    found.resize(Limits(samples=4, assignments=4, offsets=16, owners=8), len(P))
    assert (len(found.offsets), found.offsets.times().tolist(), len(found.ownership)) == (2, [8, 9], 2)


@pytest.mark.parametrize(
    ("partitions", "samples"),
    [(0, 720), (1, 720), (2777, 720), (2778, 360), (5555, 360), (5556, 180), (1_000_000, 2), (10**9, 2)],
)
def test_series_are_halved_until_the_offsets_of_all_partitions_fit(partitions: int, samples: int) -> None:
    assert Limits().samples_for(partitions) == samples


@pytest.mark.parametrize(
    ("partitions", "assignments"), [(0, 100), (40_000, 100), (40_001, 50), (80_000, 50), (80_001, 25), (10**9, 1)]
)
def test_timelines_are_halved_until_the_owners_of_all_partitions_fit(partitions: int, assignments: int) -> None:
    assert Limits().assignments_for(partitions) == assignments

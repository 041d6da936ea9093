from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
from dataclasses import replace

import pytest

from streamgroup.monitoring.page.history.group import Limits
from streamgroup.monitoring.page.history.history import History
from streamgroup.monitoring.page.history.offset_series import Total
from streamgroup.monitoring.page.history.ownership import MarkKind
from streamgroup.monitoring.query_totals import QueryFailure
from tests.ui import world
from tests.unit.monitoring.page.readings import group, partitions, reading, status

P = partitions(4)


def kinds(history: History, name: str = "etl") -> list[tuple[MarkKind, str]]:
    return [(mark.kind, mark.text) for mark in history.groups[name].marks]


# -- totals ------------------------------------------------------------------------------------------------------------


def test_lag_and_rates_are_those_of_all_partitions() -> None:
    history = History()
    history.add(reading(100, group(committed={P[0]: 10, P[1]: 0}), ends={P[0]: 30, P[1]: 5}))
    history.add(reading(110, group(committed={P[0]: 60, P[1]: 0}), ends={P[0]: 90, P[1]: 15}))
    assert list(history.groups["etl"].totals) == [Total(100, 25), Total(110, 45, 5.0, 7.0)]


# -- the timeline ------------------------------------------------------------------------------------------------------


def test_the_timeline_forgets_what_is_older_than_the_series() -> None:
    history = History(Limits(samples=3))
    for at in range(10):
        history.add(reading(at, group(held={"ab"[at % 2]: P})))
    assert len(history.groups["etl"].ownership) == 3


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


def test_a_deleted_group_is_forgotten() -> None:
    history = History()
    history.add(reading(0, group("old"), group("etl")))
    history.add(reading(5, group("etl")))
    assert list(history.groups) == ["etl"]


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
    simulated = world.World([group], until=0, readings=900)
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

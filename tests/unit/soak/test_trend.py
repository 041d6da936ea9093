"""Slopes with confidence intervals, which find a planted leak and no other, and the checks that judge a soak."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.soak.judgement import COORDINATOR, WORKER, Finding, Limits, Measured, judge, memory_limit, table, warm_up_s
from tests.soak.sample import LagSample, ProcessSample
from tests.soak.trend import Series, growth, t_quantile, trend

MINUTE = 60.0
HOUR = 3600.0


def life(
    rng: random.Random, *, begins: float = 0.0, seconds: float = HOUR, level: float = 80.0, leak: float = 0.0
) -> Series:
    """A process: it takes 30 MiB while it warms up, then its memory wavers by steps that die away, every 5 s."""
    points, step = [], 0.0
    for second in range(0, int(seconds), 5):
        step = 0.9 * step + rng.gauss(0, 0.3)
        warming = -30 * max(0.0, 1 - second / 90)
        points.append((begins + second, level + warming + step + leak * second / HOUR))
    return points


def test_a_slope_without_noise_is_exact() -> None:
    found = trend([[(n * MINUTE, 10 + n / 60 * 7) for n in range(60)]], 0, MINUTE)
    assert found is not None
    assert found.per_hour == pytest.approx(7)
    assert found.high - found.low == pytest.approx(0, abs=1e-6)


def test_processes_of_different_levels_share_a_slope() -> None:
    """A line through the points of both would rise, since the later process is larger."""
    lives = [[(at, level + at / HOUR) for at in range(first, first + 600, 30)] for first, level in ((0, 50), (900, 90))]
    found = trend(lives, 0, MINUTE)
    assert found is not None
    assert found.per_hour == pytest.approx(1, abs=1e-6)
    assert found.processes == 2


@pytest.mark.parametrize("seed", range(10))
def test_a_planted_leak_is_noticed_and_memory_that_wavers_is_not(seed: int) -> None:
    rng = random.Random(seed)
    flat = trend([life(rng, begins=n * HOUR / 2) for n in range(3)], 120, MINUTE)
    leak = trend([life(rng, begins=n * HOUR / 2, leak=20.0) for n in range(3)], 120, MINUTE)
    assert flat is not None
    assert leak is not None
    assert flat.high < 5 < leak.low


@pytest.mark.slow
@pytest.mark.parametrize(("lives", "seconds", "warm_s", "bin_s"), [(1, 3600, 120, 60), (3, 600, 100, 15)])
def test_the_interval_has_the_true_slope_as_often_as_it_promises(
    lives: int, seconds: int, warm_s: float, bin_s: float
) -> None:
    """Bins that resemble their neighbours make the textbook's interval too narrow."""
    rng = random.Random(4)
    found = [trend([life(rng, seconds=seconds, leak=3) for _ in range(lives)], warm_s, bin_s) for _ in range(100)]
    covered = sum(each is not None and each.low <= 3 <= each.high for each in found)
    assert covered >= 90


def test_too_few_points_give_no_slope() -> None:
    assert trend([], 0, MINUTE) is None
    assert trend([[]], 0, MINUTE) is None
    assert trend([[(0, 1), (70, 1)]], 0, MINUTE) is None
    assert trend([[(at, 1) for at in range(0, 100, 5)]], 120, MINUTE) is None, "it never got warm"


@pytest.mark.parametrize(
    ("freedom", "known"), [(1, 12.706), (2, 4.303), (5, 2.571), (10, 2.228), (30, 2.042), (120, 1.980), (10_000, 1.960)]
)
def test_quantiles_are_those_of_the_tables(freedom: int, known: float) -> None:
    assert t_quantile(freedom) == pytest.approx(known, abs=0.003)


def test_growth_compares_the_ends_of_a_life_and_ignores_a_peak() -> None:
    steady: Series = [(at, 12.0 + 30 * (at == 300)) for at in range(0, 600, 5)]
    leaking: Series = [(at, 12.0 + at // 60) for at in range(0, 600, 5)]
    assert growth(steady, 60) == 0
    assert growth(leaking, 60) == pytest.approx(6, abs=1)
    assert growth(steady[:20], 60) is None


SECONDS = 7200.0
LIMITS = Limits()


def samples(
    role: str, *, release: str = "2", rss: float = 0, handles: float = 0, threads: float = 0, cpu: float = 0.1
) -> list[Any]:
    """Two hours of a process, which grows by so much an hour. `cpu` is the share of a core that it uses."""
    rng = random.Random(role)
    return [
        ProcessSample(
            float(at),
            f"{role}-{release}-{cpu}",
            role,
            release,
            cpu * at,
            80 + rng.gauss(0, 0.5) + rss * at / 3600,
            20 + int(handles * at / 3600),
            9 + int(threads * at / 3600),
        )
        for at in range(0, int(SECONDS), 10)
    ]


GOOD = Measured(
    seconds=SECONDS,
    rate=100,
    warm_s=120,
    bin_s=60,
    release="2",
    processes=[*samples(COORDINATOR), *samples(WORKER)],
    lags=[LagSample(at, at * 100, 900) for at in range(0, int(SECONDS), 10)],
    sent=720_000,
    lost=0,
    repeats=100,
    licensed=60,
    planned={"pause": 2},
    happened={"pause": 2},
)


def failing(run: Measured) -> list[str]:
    return [finding.check for finding in judge(run, LIMITS) if not finding.passes]


def test_a_good_run_passes() -> None:
    assert failing(GOOD) == []


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"lost": 1}, "records lost"),
        ({"sent": 0}, "records lost"),
        ({"repeats": 121}, "records repeated"),
        ({"losses": 1}, "lost records or skipped batches in logs"),
        ({"wrong": ["two members committed"]}, "every repeat, commit and owner"),
        ({"lags": [LagSample(9.0, 20_000, 12_001)]}, "largest lag, records"),
        ({"lags": []}, "largest lag, records"),
        ({"happened": {"pause": 1}}, "events"),
        ({"planned": {}, "happened": {}}, "events"),
        ({"processes": [*samples(COORDINATOR, rss=20), *samples(WORKER)]}, "memory of coordinator processes, MiB/h"),
        ({"processes": [*samples(COORDINATOR), *samples(WORKER, rss=20)]}, "memory of worker processes, MiB/h"),
        (
            {"processes": [*samples(COORDINATOR, handles=6), *samples(WORKER)]},
            "growth of file handles in a coordinator process",
        ),
        ({"processes": [*samples(COORDINATOR), *samples(WORKER, threads=6)]}, "growth of threads in a worker process"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_check_fails_alone(change: dict[str, Any], check: str) -> None:
    assert failing(replace(GOOD, **change)) == [check]


def test_a_run_that_measured_nothing_does_not_pass() -> None:
    assert len(failing(replace(GOOD, processes=[]))) == 6


def test_a_leak_of_the_release_before_is_not_this_ones() -> None:
    leaking = samples(COORDINATOR, release="1", rss=200)
    assert failing(replace(GOOD, processes=[*GOOD.processes, *leaking])) == []


def test_idle_workers_do_not_hide_the_leak_of_a_busy_one() -> None:
    """A line through the points of all would rise by a third of the leak only."""
    workers = [*samples(WORKER, rss=20), *samples(WORKER, cpu=0), *samples(WORKER, cpu=0.001)]
    run = replace(GOOD, processes=[*samples(COORDINATOR), *workers])
    assert failing(run) == ["memory of worker processes, MiB/h"]


@pytest.mark.parametrize(("seconds", "limit"), [(7200, 16), (3600, 16), (600, 192)])
def test_a_short_run_has_a_wider_limit_of_memory(seconds: float, limit: float) -> None:
    assert memory_limit(seconds, LIMITS) == limit


def test_the_table_has_a_row_for_each_check() -> None:
    lines = table([Finding("records lost", "0 of 9", "0", True), Finding("events", "none", "all", False)]).splitlines()
    assert lines[2:] == ["| records lost | 0 of 9 | 0 | ok |", "| events | none | all | FAILED |"]


@pytest.mark.parametrize(("minutes", "warm_up"), [(5, 45), (10, 60), (60, 600), (120, 1200), (600, 1200)])
def test_the_beginning_of_a_life_does_not_count(minutes: int, warm_up: int) -> None:
    assert warm_up_s(minutes * 60) == warm_up

"""The checks of a soak: each fails by what it is for, and by nothing else."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.soak.judgement import (
    COORDINATOR,
    WORKER,
    Finding,
    Limits,
    Measured,
    judge,
    memory_limit,
    table,
    warm_up_s,
)
from tests.soak.sample import LagSample, ProcessSample

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
        (
            {"processes": [*samples(COORDINATOR, rss=20), *samples(WORKER)]},
            "memory of coordinator processes, MiB/h",
        ),
        ({"processes": [*samples(COORDINATOR), *samples(WORKER, rss=20)]}, "memory of worker processes, MiB/h"),
        (
            {"processes": [*samples(COORDINATOR, handles=6), *samples(WORKER)]},
            "growth of file handles in a coordinator process",
        ),
        (
            {"processes": [*samples(COORDINATOR), *samples(WORKER, threads=6)]},
            "growth of threads in a worker process",
        ),
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

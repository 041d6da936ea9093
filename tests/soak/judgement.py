"""The checks of a soak: pure functions of what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.soak.sample import LagSample, ProcessSample
from tests.soak.trend import SECONDS_PER_HOUR, Series, growth, trend

COORDINATOR, WORKER, DRIVER, JVM = ROLES = "coordinator", "worker", "driver", "jvm"
JUDGED = (COORDINATOR, WORKER)
"""The processes that run streamgroup's code for hours. The others are reported."""

IDLE_SHARE = 0.002
"""A process that uses less CPU time than this share of its life does nothing."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a run.

    `memory_mib` is the most that the resident memory of a process may grow in an hour, `short_run_mib` in the whole of
    a run of less than an hour, whose intervals are wide. The upper end of the confidence interval counts: a run that
    cannot exclude a leak does not pass.
    """

    memory_mib: float = 16.0
    short_run_mib: float = 32.0
    handles: int = 4
    threads: int = 4
    lag_s: float = 120.0
    """Seconds of the producer's rate."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of a run. `wrong` are sentences of the checker on records and commits, empty if all is well."""

    seconds: float
    rate: float
    warm_s: float
    bin_s: float
    release: str
    processes: Sequence[ProcessSample]
    lags: Sequence[LagSample]
    sent: int
    lost: int
    repeats: int
    licensed: int
    """The records that were in flight at a blow or that a log line announced: the bound of repeats is twice this."""
    wrong: Sequence[str] = ()
    planned: Mapping[str, int] = field(default_factory=dict)
    happened: Mapping[str, int] = field(default_factory=dict)
    """Events by kind, as scheduled and as carried out."""
    losses: int = 0
    """Log lines of lost records and of skipped batches."""
    unrecorded: int = 0
    """Announced repeats of batches that Spark had planned and not recorded when it was stopped."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was measured, its limit, and whether it passes."""

    check: str
    measured: str
    limit: str
    passes: bool


def judge(run: Measured, limits: Limits) -> list[Finding]:
    """Return all checks, in the order of the report."""
    return [*_records(run), *_memory(run, limits), *_counts(run, limits), _lag(run, limits), _events(run)]


def memory_limit(seconds: float, limits: Limits) -> float:
    """Return the limit of the slope in MiB/h."""
    if seconds >= SECONDS_PER_HOUR:
        return limits.memory_mib
    return limits.short_run_mib * SECONDS_PER_HOUR / seconds


def warm_up_s(seconds: float) -> float:
    """Return how many seconds of each process's life do not count in a run of so many seconds.

    A coordinator grows by steps of up to 0.7 MiB at its first broker restarts, and then no more. So in runs of an hour
    or more 10 to 20 min do not count, and the process that is never killed gives the slope.
    """
    if seconds >= SECONDS_PER_HOUR:
        return min(1200.0, seconds / 6)
    return max(45.0, seconds / 10)


def _records(run: Measured) -> Iterator[Finding]:
    yield Finding("records lost", f"{run.lost} of {run.sent}", "0", run.lost == 0 and run.sent > 0)
    bound = 2 * run.licensed
    # A batch that Spark had not recorded licenses nothing, and its coordinator cannot know. So there may be as many as
    # members were stopped.
    stops = sum(run.happened.values())
    yield Finding("announced batches that were not recorded", str(run.unrecorded), str(stops), run.unrecorded <= stops)
    yield Finding("records repeated", str(run.repeats), f"{bound} (in flight, twice)", run.repeats <= bound)
    yield Finding("lost records or skipped batches in logs", str(run.losses), "0", run.losses == 0)
    yield Finding("every repeat, commit and owner", "; ".join(run.wrong) or "as documented", "", not run.wrong)


def _memory(run: Measured, limits: Limits) -> Iterator[Finding]:
    limit = memory_limit(run.seconds, limits)
    for role in JUDGED:
        found = trend(series_of(run, role, lambda s: s.rss_mib).values(), run.warm_s, run.bin_s)
        check = f"memory of {role} processes, MiB/h"
        if found is None:
            yield Finding(check, "too few samples", f"{limit:.0f}", False)
            continue
        text = f"{found.per_hour:+.1f} [{found.low:+.1f}, {found.high:+.1f}], {found.processes} processes"
        yield Finding(check, text, f"upper end {limit:.0f}", found.high <= limit)


def _counts(run: Measured, limits: Limits) -> Iterator[Finding]:
    handles: Callable[[ProcessSample], float] = lambda s: s.handles  # noqa: E731
    threads: Callable[[ProcessSample], float] = lambda s: s.threads  # noqa: E731
    for role in JUDGED:
        for what, value, limit in (("file handles", handles, limits.handles), ("threads", threads, limits.threads)):
            grown = [growth(points, run.warm_s) for points in series_of(run, role, value).values()]
            known = [each for each in grown if each is not None]
            check = f"growth of {what} in a {role} process"
            most = max(known, default=None)
            text = "too few samples" if most is None else f"{most:+.0f}"
            yield Finding(check, text, str(limit), most is not None and most <= limit)


def _lag(run: Measured, limits: Limits) -> Finding:
    bound = int(limits.lag_s * run.rate)
    most = max((sample.lag for sample in run.lags), default=None)
    is_bounded = most is not None and most <= bound
    return Finding("largest lag, records", "unknown" if most is None else str(most), str(bound), is_bounded)


def _events(run: Measured) -> Finding:
    text = ", ".join(f"{count} {kind}" for kind, count in sorted(run.happened.items()))
    return Finding("events", text or "none", "as scheduled", bool(run.planned) and run.happened == run.planned)


def series_of(run: Measured, role: str, value: Callable[[ProcessSample], float]) -> dict[str, Series]:
    """Return the points of each process of a role and of the judged release, by process.

    A process that does nothing is left out: Spark keeps idle workers, whose memory is flat whatever leaks in others.
    """
    found: dict[str, list[ProcessSample]] = {}
    for sample in run.processes:
        if sample.role == role and sample.release == run.release:
            found.setdefault(sample.process, []).append(sample)
    return {
        process: [(sample.at, value(sample)) for sample in samples]
        for process, samples in found.items()
        if samples[-1].cpu_s - samples[0].cpu_s > IDLE_SHARE * (samples[-1].at - samples[0].at)
    }


def table(findings: Sequence[Finding]) -> str:
    """Return the report, a row for each check, in the form of the pages."""
    rows = [("check", "measured", "limit", "result"), ("---",) * 4]
    rows += [(f.check, f.measured, f.limit, "ok" if f.passes else "FAILED") for f in findings]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)

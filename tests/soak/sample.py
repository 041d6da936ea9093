"""Measurements of a soak as values: of one process, and of the group."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """A process at `at` (seconds of the run). `process` names one life of it; `release` is that of its package.

    `cpu_s` is the CPU time that it has used since it started.
    """

    at: float
    process: str
    role: str
    release: str
    cpu_s: float
    rss_mib: float
    handles: int
    threads: int


@dataclass(frozen=True, slots=True)
class LagSample:
    """The records that were sent, and of them those that the group had not committed."""

    at: float
    sent: int
    lag: int

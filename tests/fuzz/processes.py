"""Runs campaigns in processes of their own, so that a crash is a finding and memory can be measured from outside."""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from tests.fuzz.campaign import Campaign, Finding, Outcome
from tests.fuzz.decoder import Decoder

CHUNK = 50_000
"""Cases of one process."""
RSS_GROWTH = 96 << 20
"""Bytes by which a process may grow while it tries its cases, beyond three times the decoder's cap."""
MOST_FINDINGS = 5
"""A process that has found so much ends: most findings of a decoder have one cause."""
_POLL_S = 0.1
_PER_KIB = 1024 if sys.platform != "darwin" else 1
"""ru_maxrss is in KiB on Linux."""


@dataclass(slots=True)
class Report:
    """The results of the cases of one decoder."""

    outcome: Outcome = field(default_factory=Outcome)
    findings: list[str] = field(default_factory=list)
    cpu_s: float = 0.0
    grown: int = 0
    """Bytes by which the process that grew most has grown."""

    def add(self, other: Report) -> None:
        mine, theirs = self.outcome, other.outcome
        mine.cases += theirs.cases
        mine.accepted += theirs.accepted
        mine.slowest_s = max(mine.slowest_s, theirs.slowest_s)
        mine.most_memory = max(mine.most_memory, theirs.most_memory)
        self.findings += other.findings
        self.cpu_s += other.cpu_s
        self.grown = max(self.grown, other.grown)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some cases of a decoder."""

    decoder: Decoder
    seed: int
    first: int
    cases: int
    limits: bool

    def campaign(self) -> Campaign:
        return Campaign(self.decoder, self.seed, limits=self.limits)


class _Running:
    """One process, and how far it has come."""

    def __init__(self, chunk: Chunk) -> None:
        context = multiprocessing.get_context("fork")  # what was imported need not be imported again
        self.chunk = chunk
        self._number = context.RawValue("q", -1)
        self._receiver, sender = context.Pipe(duplex=False)
        self._process: BaseProcess = context.Process(target=_work, args=(chunk, self._number, sender))
        self._process.start()
        sender.close()

    def report(self) -> Report | None:
        """Return the report of a process that has ended, None before."""
        if not self._receiver.poll(0):
            return None
        try:
            found: Report = self._receiver.recv()
        except EOFError:
            self._process.join()
            number: int = self._number.value
            case = self.chunk.campaign().case(number)
            how = f"the process ended with exit code {self._process.exitcode}"
            return Report(findings=[str(Finding(case, how))])
        self._process.join()
        return found

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def _work(chunk: Chunk, number: Any, sender: Connection[Report, Any]) -> None:
    campaign = chunk.campaign()
    report = Report(campaign.outcome)
    if (refused := campaign.sound()) is not None:
        report.findings.append(str(refused))
    before = _peak()
    began = time.process_time()
    for finding in campaign.findings(chunk.cases, chunk.first, number):
        report.findings.append(str(finding))
        if len(report.findings) >= MOST_FINDINGS:
            break
    report.cpu_s = time.process_time() - began
    report.grown = _peak() - before
    if chunk.limits and report.grown > RSS_GROWTH + 3 * chunk.decoder.cap:
        where = f"cases {chunk.first} to {chunk.first + chunk.cases} of seed {chunk.seed}"
        report.findings.append(f"{chunk.decoder.name}: the process grew by {report.grown} bytes in {where}")
    sender.send(report)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _PER_KIB


def run(
    decoders: Sequence[Decoder], cases: int, seed: int, jobs: int, *, limits: bool
) -> Iterator[tuple[Decoder, Report]]:
    """Try `cases` of each decoder by `jobs` processes at a time. Yield a decoder's report when its cases are done."""
    waiting = [
        Chunk(decoder, seed, first, min(CHUNK, cases - first), limits)
        for decoder in decoders
        for first in range(0, cases, CHUNK)
    ]
    left = {decoder.name: sum(chunk.decoder is decoder for chunk in waiting) for decoder in decoders}
    reports = {decoder.name: Report() for decoder in decoders}
    running: list[_Running] = []
    waiting.reverse()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_Running(waiting.pop()))
            time.sleep(_POLL_S)
            for one in list(running):
                report = one.report()
                if report is None:
                    continue
                running.remove(one)
                decoder = one.chunk.decoder
                reports[decoder.name].add(report)
                left[decoder.name] -= 1
                if not left[decoder.name]:
                    yield decoder, reports[decoder.name]
    finally:
        for one in running:
            one.end()

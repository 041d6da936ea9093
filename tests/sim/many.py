"""Many seeds, in as many processes as there are cores."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass

from tests.sim.bugs import BUGS
from tests.sim.runs import plan_of, run

CHUNK = 25


@dataclass(frozen=True)
class Chunk:
    """What came of a few seeds: `failed` are (seed, word, text)."""

    seeds: int
    events: int
    duplicates: int
    failed: tuple[tuple[int, str, str], ...]


def run_chunk(first: int, count: int, bug: str | None = None) -> Chunk:
    """Run `count` seeds from `first` on, with a planted bug or without."""
    events = duplicates = 0
    failed = []
    with BUGS[bug].planted() if bug else nullcontext():
        for seed in range(first, first + count):
            result = run(plan_of(seed))
            events += result.events
            duplicates += result.duplicates
            if result.violation is not None:
                failed.append((seed, result.violation.word, str(result.violation)))
    return Chunk(count, events, duplicates, tuple(failed))


def run_seeds(first: int, count: int, bug: str | None = None, workers: int | None = None) -> Iterator[Chunk]:
    """Run the seeds in parallel; what came of them, in order."""
    starts = range(first, first + count, CHUNK)
    # Not forked: the caller (pytest) may have threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers or os.cpu_count() or 1, mp_context=context) as pool:
        futures = [pool.submit(run_chunk, start, min(CHUNK, first + count - start), bug) for start in starts]
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()

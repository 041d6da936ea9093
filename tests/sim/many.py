"""Many seeds, in as many processes as there are cores."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from tests.sim.registrybugs import ALL_BUGS
from tests.sim.runs import kind_of, plan_of, run
from tests.sim.settings import Kind

CHUNK = 25

Failed = tuple[int, Kind, str, str]


@dataclass(frozen=True)
class Chunk:
    """The results of a few seeds: `failed` are (seed, its kind of world, word, text)."""

    seeds: int
    events: int
    duplicates: int
    failed: tuple[Failed, ...]


def run_chunk(first: int, count: int, bug: str | None = None, kind: Kind | None = None) -> Chunk:
    """Run `count` seeds from `first` on, with a planted bug or without; of no one kind: as `kind_of` says."""
    events = duplicates = 0
    failed = []
    with ALL_BUGS[bug].planted() if bug else nullcontext():
        for seed in range(first, first + count):
            of = kind or kind_of(seed)
            result = run(plan_of(seed, of))
            events += result.events
            duplicates += result.duplicates
            if result.violation is not None:
                failed.append((seed, of, result.violation.word, str(result.violation)))
    return Chunk(count, events, duplicates, tuple(failed))


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect garbage only after the block: collections within a seed take a fifth of its time."""
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


def _chunk_alone(first: int, count: int, bug: str | None, kind: Kind | None) -> Chunk:
    with uncollected():
        return run_chunk(first, count, bug, kind)


def run_seeds(
    first: int, count: int, bug: str | None = None, workers: int | None = None, kind: Kind | None = None
) -> Iterator[Chunk]:
    """Run the seeds in parallel; what came of them, in order."""
    starts = range(first, first + count, CHUNK)
    # Not forked: the caller (pytest) may have threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers or os.cpu_count() or 1, mp_context=context) as pool:
        futures = [pool.submit(_chunk_alone, start, min(CHUNK, first + count - start), bug, kind) for start in starts]
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()

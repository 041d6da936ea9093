"""Many random seeds of the simulation; a failing one prints itself, made small, with its trace."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.sim.many import run_seeds
from tests.sim.runs import plan_of, run
from tests.sim.settings import Kind
from tests.sim.shrink import shrunk

SEEDS = 200
"""Of all kinds of worlds. `make test-sim` runs 50 000."""


TRACED = range(4, 6)


@pytest.fixture(scope="module")
def traces() -> Sequence[str]:
    return digests(TRACED)


@pytest.mark.timeout(1200)
def test_200_seeds_lose_nothing_and_repeat_no_more_than_is_licensed() -> None:
    failed = [f for chunk in run_seeds(0, SEEDS) for f in chunk.failed]
    if failed:
        seed, kind, word, text = failed[0]
        small = shrunk(plan_of(seed, kind), word)
        trace = "\n".join(small.trace)
        again = f"python -m tests.sim --seed {seed} --world {kind.value} --trace"
        pytest.fail(f"{len(failed)} of {SEEDS} seeds failed; seed {seed}: {text}\n{trace}\n{again}")


def digests(seeds: Iterable[int]) -> list[str]:
    """Return a digest of the trace of each seed in each kind of world."""
    plans = (plan_of(seed, kind) for seed in seeds for kind in Kind)
    traces = ("\n".join(run(plan, tracing=True).trace) for plan in plans)
    return [hashlib.sha256(trace.encode()).hexdigest() for trace in traces]


def test_the_same_seed_gives_the_same_trace_in_any_process(traces: Sequence[str]) -> None:
    code = "from tests.sim.test_seeds import TRACED, digests; print(*digests(TRACED))"
    root = Path(__file__).parents[2]
    for hash_seed in ("1", "2"):
        environment = dict(os.environ) | {"PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout.split() == traces


def test_seeds_differ(traces: Sequence[str]) -> None:
    assert len(set(traces)) == len(TRACED) * len(Kind)

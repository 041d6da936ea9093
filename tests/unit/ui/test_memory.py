from __future__ import annotations

import gc
import tracemalloc

import pytest

from streamgroup.ui.history.history import History
from streamgroup.ui.history.limits import Limits
from tests.ui import world


def allocated_by_the_history() -> int:
    """Return the bytes that live: those of other threads of the process, such as of an earlier test, do not count."""
    ours = [tracemalloc.Filter(True, "*/ui/history/*", all_frames=True)]
    found = tracemalloc.take_snapshot().filter_traces(ours)
    return sum(trace.size for trace in found.traces)


@pytest.mark.slow
def test_memory_stays_flat_when_the_rings_are_full() -> None:
    limits = Limits(samples=40, assignments=20, marks=30, batches=30)
    group = world.one(0).groups[0]
    group.rebalances = range(5, 10_000, 7)
    simulated = world.World([group], until=0, readings=900)
    history = History(limits)
    tracemalloc.start(12)
    try:
        sizes = []
        for number, reading in enumerate(simulated.readings()):
            history.add(reading)
            if number in (299, 899):
                del reading
                gc.collect()
                sizes.append(allocated_by_the_history())
    finally:
        tracemalloc.stop()
    full, later = sizes
    assert later - full < 20_000, f"{full} bytes at 300 readings, {later} at 900"

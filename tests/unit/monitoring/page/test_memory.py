from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc

import pytest

from streamgroup.monitoring.page.history.group import Limits
from streamgroup.monitoring.page.history.history import History
from tests.ui import world


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
    code = "from tests.unit.monitoring.page.test_memory import measure; measure()"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    full, later = map(int, shown.split())
    assert later - full < 20_000, f"{full} bytes at 300 readings, {later} at 900"

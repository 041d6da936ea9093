"""The memory and time of the live page's history: python -m benchmarks.ui_memory [HOURS]

Simulated readings, one for every 5 s: fifty groups and one with 500 partitions, which rebalance every few minutes. The
first hour fills the rings. After that memory must stay flat.
"""

from __future__ import annotations

import gzip
import resource
import sys
import time

from streamgroup.ui.board import Board
from streamgroup.ui.history import views
from tests.ui import world

_PER_HOUR = 720


def _resident_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def main() -> None:
    hours = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    groups = [*world.fifty(0).groups, *world.wide(0).groups]
    for number, group in enumerate(groups):
        # Joins and leaves in turn, all within the run.
        group.rebalances = range(10 + number % 50, hours * _PER_HOUR, 60)
    partitions = sum(group.partitions for group in groups)
    print(f"{len(groups)} groups, {partitions} partitions; {_resident_mb():.0f} MB before the first reading")
    simulated = world.World(groups, until=time.time(), readings=hours * _PER_HOUR)
    board, adding = Board(), 0.0
    for number, reading in enumerate(simulated.readings(), 1):
        began = time.perf_counter()
        board.add(reading)
        adding += time.perf_counter() - began
        if number % (_PER_HOUR // 2) == 0:
            print(
                f"{number / _PER_HOUR:.1f} h: {_resident_mb():.0f} MB, {adding / number * 1000:.1f} ms for each reading"
            )
    for name, view in (("all groups", views.overview), ("500 partitions", lambda h: views.group_view(h, "clicks-etl"))):
        began = time.perf_counter()
        body = board.answer(name, view)[1] or b""
        took = time.perf_counter() - began
        print(
            f"{name}: {took * 1000:.0f} ms, {len(body) / 1e3:.0f} kB, {len(gzip.compress(body, 6)) / 1e3:.0f} kB sent"
        )


if __name__ == "__main__":
    main()

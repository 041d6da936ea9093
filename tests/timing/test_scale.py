"""The CPU time of a large group's steps grows as its partitions do, not as their square.

`tests/unit/test_scale.py` counts the lines of Python of the same steps. A count does not see what one line costs in C,
such as a search in a list. The time does.
"""

from __future__ import annotations

import pytest

from benchmarks.scale import GROWTH, STEPS, cpu_seconds

FEW = 200
MOST = 4 * GROWTH
"""Between the growth of what is linear, 8 with a busy cache's noise, and of what is quadratic, 64."""
ATTEMPTS = 20


@pytest.mark.parametrize("name", STEPS)
def test_eight_times_the_partitions_do_not_take_a_multiple_of_eight_times_the_time(name: str) -> None:
    small = large = float("inf")
    for _ in range(ATTEMPTS):  # the least of several counts: the others measure the neighbours
        small = min(small, cpu_seconds(STEPS[name], FEW, times=3))
        large = min(large, cpu_seconds(STEPS[name], FEW * GROWTH, times=1))
        if large < MOST * small:
            return
    pytest.fail(f"{name}: {1e3 * small:.2f} ms, and {1e3 * large:.2f} ms for {GROWTH} times the partitions")

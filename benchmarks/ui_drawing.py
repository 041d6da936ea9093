"""The frames of the live page in a real browser: python -m benchmarks.ui_drawing [READINGS]

The page of a group with 500 partitions is open while readings come, one each second, with their lags. A function that
the browser calls before each frame notes the time. The longest time between two frames is what an operator can see as
a stutter: a page that draws all the time has one every 16.7 ms. The page asks for new figures every half second.
"""

from __future__ import annotations

import statistics
import sys
import time

from streamgroup.monitoring.page.server import Board
from tests.browser import Browser
from tests.ui import world
from tests.ui.served import served

_SIZE = (1366, 850)
_WARM_UP = 3
_OPEN = 60
"""The readings of the history that the page opens with, at least."""
_WATCH = """
window.frames = []; window.before = performance.now();
(function frame() {
    const now = performance.now();
    window.frames.push(now - window.before);
    window.before = now;
    requestAnimationFrame(frame);
})();
"""
_SHOWN = "document.querySelector('.tall tbody tr td:nth-child(4)').innerText.replaceAll(',', '')"


def measure(count: int) -> None:
    """Print the median and the longest of the times between frames, and how soon a reading is drawn."""
    simulated = world.wide(time.time())
    readings = list(simulated.readings())
    assert count + _WARM_UP <= len(readings) - _OPEN, f"at most {len(readings) - _OPEN - _WARM_UP} readings"
    board = Board()
    for one in readings[: -count - _WARM_UP]:
        board.add(one)
    longest, drawn = [], []
    with served(board, interval=0.5) as url, Browser() as page:
        page.show(*_SIZE)
        page.open(f"{url}/#/group/clicks-etl")
        page.wait_for("document.querySelectorAll('.tall tbody tr').length === 500")
        page.evaluate(_WATCH)
        for number, one in enumerate(readings[-count - _WARM_UP :]):
            began = time.perf_counter()
            page.evaluate("window.frames.length = 0")
            board.add(one)
            page.wait_for(f"{_SHOWN} === '{one.log_ends[min(one.log_ends)]}'")
            took = time.perf_counter() - began
            time.sleep(max(0.0, 1 - took))
            if number >= _WARM_UP:
                drawn.append(took)
                longest.append(page.evaluate("Math.max(...window.frames)"))
        page.open("about:blank")
    print(f"{count} readings of a group of 500 partitions, {_SIZE[0]} x {_SIZE[1]}")
    for what, values, unit in (
        ("longest time between two frames", longest, "ms"),
        ("from the reading to the table, which is asked for every 500 ms", [1000 * each for each in drawn], "ms"),
    ):
        print(f"{what}: median {statistics.median(values):.0f}, most {max(values):.0f} {unit}")


if __name__ == "__main__":
    measure(int(sys.argv[1]) if len(sys.argv) > 1 else 30)

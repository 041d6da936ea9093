"""The memory and time of the live page's server under browsers: python -m benchmarks.ui_memory [HOURS]

Simulated readings, one for every 5 s: fifty groups and one with 500 partitions, which rebalance every few minutes.
After each reading three browsers, in a process of their own, ask for what the pages of all groups, of the large group
and of the cluster ask for. The first hour fills the rings. After that memory must stay flat.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import time
import urllib.parse
from http.client import HTTPConnection

from benchmarks.memory import resident_mb
from streamgroup.monitoring.page.server import Board
from tests.ui import world
from tests.ui.served import served

_PER_HOUR = 720
_LARGE = "clicks-etl"
_VIEWS = {"all groups": "/api/overview", "500 partitions": f"/api/group?name={_LARGE}", "cluster": "/api/cluster"}
_BROWSERS = "--browsers"


def browsers(url: str) -> None:
    """Ask for each view, with its ETag, whenever a line comes from stdin; answer it by a line."""
    where = urllib.parse.urlsplit(url).netloc
    tags: dict[str, str] = {}
    for _ in sys.stdin:
        for path in _VIEWS.values():
            known = {"If-None-Match": tags[path]} if path in tags else {}
            connection = HTTPConnection(where)  # the server closes one that is idle for 5 s
            connection.request("GET", path, headers={"Accept-Encoding": "gzip", **known})
            response = connection.getresponse()
            assert response.status == 200, f"{path}: HTTP status {response.status}"
            tags[path] = response.headers["ETag"]
            response.read()
            connection.close()
        print(flush=True)


def measure(hours: int) -> None:
    """Print resident memory every half an hour of readings, and the time that each view takes."""
    groups = [*world.fifty(0).groups, *world.wide(0).groups]
    for number, group in enumerate(groups):
        # Joins and leaves in turn, all within the run.
        group.rebalances = range(10 + number % 50, hours * _PER_HOUR, 60)
    partitions = sum(group.partitions for group in groups)
    simulated = world.SimulatedCluster(groups, until=time.time(), readings=hours * _PER_HOUR)
    board, adding = Board(), 0.0
    with served(board) as url:
        print(f"{len(groups)} groups, {partitions} partitions; {resident_mb():.0f} MB before the first reading")
        command = [sys.executable, "-m", "benchmarks.ui_memory", _BROWSERS, url]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as asking:
            assert asking.stdin is not None
            assert asking.stdout is not None
            for number, reading in enumerate(simulated.readings(), 1):
                began = time.perf_counter()
                board.add(reading)
                adding += time.perf_counter() - began
                asking.stdin.write("\n")
                asking.stdin.flush()
                assert asking.stdout.readline(), "the browsers have ended"
                if number % (_PER_HOUR // 2) == 0:
                    each = adding / number * 1000
                    print(
                        f"{number / _PER_HOUR:.1f} h: {resident_mb():.0f} MB, {each:.1f} ms for each reading",
                        flush=True,
                    )
            asking.stdin.close()
        for name, path in _VIEWS.items():
            connection = HTTPConnection(urllib.parse.urlsplit(url).netloc)
            began = time.perf_counter()
            connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
            body = connection.getresponse().read()
            took = time.perf_counter() - began
            whole = gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
            print(f"{name}: {took * 1000:.0f} ms, {len(whole) / 1e3:.0f} kB, {len(body) / 1e3:.0f} kB sent")
            connection.close()


if __name__ == "__main__":
    if _BROWSERS in sys.argv:
        browsers(sys.argv[-1])
    else:
        measure(int(sys.argv[1]) if len(sys.argv) > 1 else 2)

"""The order of the tests, and which of them run in one process, where several processes of pytest run side by side."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from xdist.scheduler import LoadFileScheduling

_SHARED = {
    "tests/fault/applications": r"tests/fault/test_(consumer_groups|processes_\w+|sql_sink|transactions|upgrade)\.py",
    "tests/fault/brokers": r"tests/fault/test_(brokers|network|producer)\.py",
    "tests/live/older": r"tests/live/test_(consume|emptied_log|group_changes|limits_of_old_brokers|old_\w+|ui)\.py",
}
"""Files whose tests take applications of Spark from one pool, files that share brokers which they disturb, and
short files that share brokers of older releases."""


class SharedServersScheduling(LoadFileScheduling):
    """Runs the tests of a file in one process, which starts their servers once; and so several files that share."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def unit_of(nodeid: str) -> str:
    """Return the name of what runs in one process: the test's file, or that of several files."""
    path = nodeid.split("::", 1)[0]
    return next((unit for unit, files in _SHARED.items() if re.fullmatch(files, path)), path)


def alternate(computing: Sequence[str], waiting: Sequence[str]) -> list[str]:
    """Merge two lists of files evenly.

    The files of `computing` start Spark, which keeps a core busy. Those of `waiting` mostly wait for their servers. So
    there are always some of each at a time.
    """
    places = [*_places(computing), *_places(waiting)]
    return [path for _, path in sorted(places, key=lambda place: place[0])]


def _places(paths: Sequence[str]) -> Iterable[tuple[float, str]]:
    return (((number + 0.5) / len(paths), path) for number, path in enumerate(paths))

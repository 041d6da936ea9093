"""The SHA-256 of every jar that this project fetches, in `jars.sha256`, as sha256sum writes and checks them.

`python -m tests.bring_jars --pin` writes the file anew (`make pins`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).with_name("jars.sha256")


def pins_of(directory: str, file: Path = FILE) -> Mapping[str, str] | None:
    """Return the sums of the jars in one directory of the cache, by name; None if it is not pinned."""
    return _read(file).get(directory)


def pinned(file: Path = FILE) -> frozenset[str]:
    """Return the directories of the cache that are pinned."""
    return frozenset(_read(file))


def write_pins(sums: Mapping[str, Mapping[str, str]], file: Path = FILE) -> None:
    """Write the sums of all directories, sorted by path, so that a changed jar changes one line."""
    lines = sorted(
        (f"{directory}/{name}", sum_) for directory, of_jars in sums.items() for name, sum_ in of_jars.items()
    )
    file.write_text("".join(f"{sum_}  {path}\n" for path, sum_ in lines))
    _read.cache_clear()


@functools.cache
def _read(file: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for line in file.read_text().splitlines():
        sum_, _, path = line.partition("  ")
        directory, _, name = path.partition("/")
        found.setdefault(directory, {})[name] = sum_
    return found

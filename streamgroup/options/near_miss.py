"""Tells a misspelled option from a name that belongs to something else.

Spark's Kafka source ignores every name that it does not know, so code that passes one set of options to all sources
works with it. Such a name is far from each option. A misspelled option is near to one: few letters differ, or only
separators do, as in `starting_offsets`.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable

from streamgroup.options.properties import PREFIX

_SEPARATORS = re.compile(r"[._\s-]")
_MISTAKES = ((8, 1), (14, 2))
"""Below this many letters, this many mistakes make a near miss."""
_MOST_MISTAKES = 3
_OTHER_SOURCES = frozenset({"maxfilespertrigger"})
"""Names that are near to one of ours, but are options of Spark's file source."""


def near_miss(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` misspells, or None. All names are in lower case.

    Kafka's properties are compared without their prefix: with it, short names would have much in common.
    """
    if name in _OTHER_SOURCES:
        return None
    is_property = name.startswith(PREFIX)
    written = _letters(name.removeprefix(PREFIX))
    best: tuple[int, str] | None = None
    for other in known:
        if is_property and not other.startswith(PREFIX):
            continue
        letters = _letters(other.removeprefix(PREFIX) if is_property else other)
        most = _most_mistakes(len(letters))
        if _fewest_mistakes(written, letters) <= most and (count := mistakes(written, letters)) <= most:
            best = min(best or (count, other), (count, other))
    return None if best is None else best[1]


def mistakes(written: str, meant: str) -> int:
    """Return how many letters are missing, too many, other ones, or exchanged with their neighbour."""
    before: list[int] = []
    row = list(range(len(meant) + 1))
    for i, letter in enumerate(written, 1):
        before, last, row = row, before, [i]
        for j, other in enumerate(meant, 1):
            count = min(row[j - 1] + 1, before[j] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and (letter, written[i - 2]) == (meant[j - 2], other):
                count = min(count, last[j - 2] + 1)
            row.append(count)
    return row[-1]


def _fewest_mistakes(written: str, meant: str) -> int:
    """Return a lower bound of `mistakes` from the letters alone, in any order. It costs a hundredth of it."""
    if abs(len(written) - len(meant)) > _MOST_MISTAKES:
        return _MOST_MISTAKES + 1
    common = (_counts(written) & _counts(meant)).total()
    return max(len(written), len(meant)) - common


@functools.lru_cache(maxsize=1024)
def _counts(letters: str) -> Counter[str]:
    return Counter(letters)


def _letters(name: str) -> str:
    return _SEPARATORS.sub("", name)


def _most_mistakes(length: int) -> int:
    return next((count for below, count in _MISTAKES if length < below), _MOST_MISTAKES)

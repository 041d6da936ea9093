"""The reader of a user's settings: options of a read (`options/parse.py`), or keys of a job file (`jobs/config.py`).

A table has one row for each name. The reader looks up every entry that the user has set, parses its value by the row's
kind, and collects all problems, so that one error can name them together.
"""

from __future__ import annotations

import functools
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from streamgroup.options.kinds import ValueKind
from streamgroup.options.rows import PREFIX


class Row(Protocol):
    """The attributes of a table row that `SettingsReader` needs."""

    @property
    def name(self) -> str:
        """The name of the entry."""

    @property
    def kind(self) -> ValueKind:
        """The kind of value."""


R = TypeVar("R", bound=Row)


class SettingsReader(ABC, Generic[R]):
    """Reads what the user has set: options of a read, or keys of a job file.

    `rows` describes the settings that exist. A subclass writes the texts of the problems.
    """

    def __init__(self, rows: Mapping[str, R], problems: list[str]) -> None:
        self.rows = rows
        self.problems = problems
        self.given: set[str] = set()
        """The names of the rows that the user has set, also those with an invalid value."""
        self.values: dict[str, Any] = {}
        """The parsed values by the name of the row."""
        self.invalid: dict[str, str] = {}
        """The problems of values that could not be parsed, by the name of the row."""

    def take(self, key: str, value: Any) -> None:
        """Read one entry. An unknown key, a repeated key and an invalid value become problems."""
        row = self.find(key)
        if row is None:
            self.problems.append(self.unknown(key))
        elif row.name in self.given:
            self.problems.append(f"{self.label(row)} is set twice, in different spellings. Remove one of them")
        else:
            self.given.add(row.name)
            self.parse(row, value)

    def parse(self, row: R, value: Any) -> None:
        """Parse the value of a row into `values`; a ValueError becomes a problem."""
        try:
            self.values[row.name] = self.kind(row).parse(value)
        except ValueError as error:
            self.problems.append(f"invalid value{self.shown(row, value)} for {self.label(row)}: {error}")
            self.invalid[row.name] = self.problems[-1]

    def find(self, key: str) -> R | None:
        return self.rows.get(key)

    def kind(self, row: R) -> ValueKind:
        return row.kind

    @abstractmethod
    def label(self, row: R) -> str:
        """Return how a problem names the row."""

    def shown(self, row: R, value: Any) -> str:
        """Return a space and the value as a problem shows it; empty if the value may be secret."""
        return ""

    @abstractmethod
    def unknown(self, key: str) -> str:
        """Return the problem of a key that no row has."""


def suggestion(name: str, known: Iterable[str], template: str = "{!r}") -> str:
    """Return `. Did you mean 'x'?` for the most similar known name, or an empty text."""
    near = near_miss(name.lower(), known)
    return "" if near is None else f". Did you mean {template.format(near)}?"


def together(problems: list[str], heading: str) -> str:
    """Return the text of one error for all problems: a single one alone, several as a list below their count."""
    if len(problems) == 1:
        return problems[0]
    return f"{len(problems)} {heading}:" + "".join(f"\n  - {problem}" for problem in problems)


_SEPARATORS = re.compile(r"[._\s-]")
_MISTAKES = ((8, 1), (14, 2))
"""Below this many letters, up to this many mistakes are a near miss."""
_MOST_MISTAKES = 3
_OTHER_SOURCES = frozenset({"maxfilespertrigger"})
"""Names similar to one of streamgroup's that are options of Spark's file source."""


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
    """Return the number of letters that are missing, added, replaced, or swapped with their neighbour."""
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

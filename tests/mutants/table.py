"""Read `table.toml` and check that each row still fits the code."""

from __future__ import annotations

import ast
import difflib
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tools.symbols import Place, UnclearNameError, symbols

ROOT = Path(__file__).parents[2]
PACKAGE = "streamgroup"
TABLE = Path(__file__).with_name("table.toml")
RULES = tuple(f"R{number}" for number in range(1, 40))


@dataclass(frozen=True)
class Mutant:
    """One row: in `symbol`, or in `file`, the text `old` becomes `new`, which breaks `rule`."""

    id: str
    rule: str
    old: str
    new: str
    breaks: str
    """The consequence, in one sentence."""
    suites: tuple[str, ...]
    """Test files or directories below `tests`; at least one of their tests must fail."""
    symbol: str = ""
    """A definition of the package, as pages name it (`tools/symbols.py`)."""
    file: str = ""
    """In place of a symbol: a file below the package, for a text that is in no definition or in an unclear one."""

    def __post_init__(self) -> None:
        if bool(self.symbol) == bool(self.file):
            raise TypeError(f"row {self.id} must name a symbol or a file, one of them")

    def place(self, root: Path = ROOT) -> Place:
        """Return the lines in which `old` is. Raises UnclearNameError if they cannot be found."""
        if self.symbol:
            return symbols(root).place_of(self.symbol)
        path = f"{PACKAGE}/{self.file}"
        if not (root / path).is_file():
            raise UnclearNameError(f"{path} does not exist")
        return Place(path, 1, len((root / path).read_text().splitlines()))


@dataclass(frozen=True)
class Table:
    """All rows."""

    mutants: tuple[Mutant, ...]
    promises: dict[str, str]
    """The promises of the pages beside the rules, by the names that stand for a rule in a row."""


def read_table(path: Path = TABLE) -> Table:
    """Return the rows of `table.toml`. Raises TypeError for a row with other keys than those of `Mutant`."""
    document = tomllib.loads(path.read_text())
    rows = (Mutant(**{**row, "suites": tuple(row["suites"])}) for row in document["mutant"])
    return Table(tuple(rows), document["promises"])


def problem_of(mutant: Mutant, root: Path = ROOT) -> str | None:
    """Return why the row cannot be planted in the code below `root`, and what to do about it; None where it can."""
    try:
        place = mutant.place(root)
    except UnclearNameError as error:
        return _says(mutant, str(error), "Name the definition, or the file, that has the rule now")
    where = f"`{mutant.symbol}` ({place.path})" if mutant.symbol else place.path
    text = (root / place.path).read_text()
    _, within, _ = _parts(text, place)
    count = within.count(mutant.old)
    if count > 1:
        longer = "Lengthen `old` (and `new` with it) until it occurs once"
        return _says(mutant, f"`old` occurs {count} times in {where}", longer)
    if not count:
        return _says(mutant, f"`old` does not occur in {where}: {mutant.old!r}", _repair(mutant, within, place.first))
    try:
        ast.parse(planted(mutant, text, place))
    except SyntaxError as error:
        line = f"{place.path} is not valid Python with `new`: {error.msg} in line {error.lineno}"
        return _says(mutant, line, "Write a `new` that parses: a suite that cannot import the code notices nothing")
    missing = [suite for suite in mutant.suites if not (root / "tests" / suite).exists()]
    if missing or not mutant.suites:
        return _says(mutant, f"no such suite: {', '.join(missing) or 'none is named'}", "Name test files below tests/")
    return None


def planted(mutant: Mutant, text: str, place: Place) -> str:
    """Return the text of the file with the mutant in it."""
    before, within, after = _parts(text, place)
    return before + within.replace(mutant.old, mutant.new, 1) + after


def _parts(text: str, place: Place) -> tuple[str, str, str]:
    """Divide a text into what is before, in and after the lines of `place`."""
    lines = text.splitlines(keepends=True)
    parts = (lines[: place.first - 1], lines[place.first - 1 : place.last], lines[place.last :])
    before, within, after = ("".join(part) for part in parts)
    return before, within, after


def _repair(mutant: Mutant, within: str, line: int) -> str:
    """Say what to do about an `old` that is gone, with the line that resembles it most; the first one is `line`."""
    first = max(mutant.old.splitlines(), key=len, default="").strip()
    lines = {line.strip(): number for number, line in enumerate(within.splitlines(), line)}
    close = difflib.get_close_matches(first, lines, n=1, cutoff=0.5)
    hint = f" (the closest is line {lines[close[0]]}: {close[0]!r})" if close else ""
    return (
        f"The code has changed: write into `old` what stands there now{hint}, and into `new` the same breach of "
        f"{mutant.rule}; if the rule has moved, change `{'symbol' if mutant.symbol else 'file'}`, too"
    )


def _says(mutant: Mutant, what: str, how: str) -> str:
    again = f"python -m tests.mutants --only {mutant.id}"
    return f"tests/mutants/table.toml, row {mutant.id} ({mutant.rule}): {what}. {how}. Then run {again}"

"""Read `table.toml` and check that each row still fits the code."""

from __future__ import annotations

import ast
import difflib
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "streamgroup"
TABLE = Path(__file__).with_name("table.toml")
RULES = tuple(f"R{number}" for number in range(1, 39))


@dataclass(frozen=True)
class Mutant:
    """One row: in `file` (below the package) the text `old` becomes `new`, which breaks `rule`."""

    id: str
    rule: str
    file: str
    old: str
    new: str
    breaks: str
    """The consequence, in one sentence."""
    suites: tuple[str, ...]
    """Test files or directories below `tests`; at least one of their tests must fail."""

    @property
    def path(self) -> str:
        """The file to change, from the root."""
        return f"{PACKAGE}/{self.file}"


@dataclass(frozen=True)
class Table:
    """All rows."""

    mutants: tuple[Mutant, ...]
    not_built: dict[str, str]
    """The rules that no code implements yet, with the reason for it."""
    promises: dict[str, str]
    """The promises of the pages beside the rules, by the names that stand for a rule in a row."""


def read_table(path: Path = TABLE) -> Table:
    """Return the rows of `table.toml`. Raises TypeError for a row with other keys than those of `Mutant`."""
    document = tomllib.loads(path.read_text())
    rows = (Mutant(**{**row, "suites": tuple(row["suites"])}) for row in document["mutant"])
    return Table(tuple(rows), document["not_built"], document["promises"])


def problem_of(mutant: Mutant, root: Path = ROOT) -> str | None:
    """Return why the row cannot be planted in the code below `root`, and what to do about it; None where it can."""
    path = root / mutant.path
    if not path.is_file():
        return _says(mutant, f"{mutant.path} does not exist", "Name the file in which the rule lives now")
    text = path.read_text()
    count = text.count(mutant.old)
    if count > 1:
        longer = "Lengthen `old` (and `new` with it) until it occurs once"
        return _says(mutant, f"`old` occurs {count} times in {mutant.path}", longer)
    if not count:
        return _says(mutant, f"`old` does not occur in {mutant.path}: {mutant.old!r}", _repair(mutant, text))
    try:
        ast.parse(planted(mutant, text))
    except SyntaxError as error:
        line = f"{mutant.path} is not valid Python with `new`: {error.msg} in line {error.lineno}"
        return _says(mutant, line, "Write a `new` that parses: a suite that cannot import the code notices nothing")
    missing = [suite for suite in mutant.suites if not (root / "tests" / suite).exists()]
    if missing or not mutant.suites:
        return _says(mutant, f"no such suite: {', '.join(missing) or 'none is named'}", "Name test files below tests/")
    return None


def planted(mutant: Mutant, text: str) -> str:
    """Return the text of the file with the mutant in it."""
    return text.replace(mutant.old, mutant.new, 1)


def _repair(mutant: Mutant, text: str) -> str:
    """Say what to do about an `old` that is gone, with the line of the file that resembles it most."""
    first = max(mutant.old.splitlines(), key=len, default="").strip()
    lines = {line.strip(): number for number, line in enumerate(text.splitlines(), 1)}
    close = difflib.get_close_matches(first, lines, n=1, cutoff=0.5)
    hint = f" (the closest is line {lines[close[0]]}: {close[0]!r})" if close else ""
    return (
        f"The code has changed: write into `old` what stands there now{hint}, and into `new` the same breach of "
        f"{mutant.rule}; if the rule has moved, change `file`, too"
    )


def _says(mutant: Mutant, what: str, how: str) -> str:
    again = f"python -m tests.mutants --only {mutant.id}"
    return f"tests/mutants/table.toml, row {mutant.id} ({mutant.rule}): {what}. {how}. Then run {again}"

"""The tables of the commands, as text or JSON. An unknown value is None: `-` in text and null in JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

_NARROWEST = 12

R = TypeVar("R")

PartitionName = int | str
"""The number of a partition, or `1-2` for partition 2 of broker 1 in Kafka 0.7."""


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """One column: its title, its name in JSON, and its value for a row.

    As text, a `verbose` column is shown only with --verbose, and an `if_any` column only if a row has a value.
    """

    title: str
    name: str
    of: Callable[[R], Any]
    verbose: bool = False
    if_any: bool = False


def table(columns: Sequence[Column[R]], rows: Sequence[R], *, verbose: bool = False, width: int | None = None) -> str:
    """Return the rows below their titles. Scripts may split the lines at white space, as those of Kafka's tools.

    If a line is longer than `width`, the first column is shortened, to 12 characters at least.
    """
    shown = [c for c in columns if _is_shown(c, rows, verbose)]
    cells = [[column.title for column in shown]] + [[_cell(column.of(row)) for column in shown] for row in rows]
    if width is not None:
        _shorten_first(cells, width)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def _shorten_first(cells: list[list[str]], width: int) -> None:
    others = [max(map(len, column)) for column in zip(*cells, strict=True)][1:]
    most = max(_NARROWEST, width - sum(others) - 2 * len(others))
    for line in cells:
        line[0] = line[0] if len(line[0]) <= most else line[0][: most - 1] + "…"


def json_rows(columns: Sequence[Column[R]], rows: Iterable[R]) -> list[dict[str, Any]]:
    """Return the rows for JSON, with every column."""
    return [{column.name: column.of(row) for column in columns} for row in rows]


def _is_shown(column: Column[R], rows: Sequence[R], verbose: bool) -> bool:
    if column.if_any:
        return any(column.of(row) is not None for row in rows)
    return verbose or not column.verbose


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None or value == "" else str(value)

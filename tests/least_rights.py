"""The table of least rights (`least_rights.toml`)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("least_rights.toml")


@dataclass(frozen=True)
class Needed:
    """A right that a mode needs, as `Read topic`, and the result when the user lacks it."""

    right: str
    fails: str = ""
    """The right that the error names."""
    degrades: str = ""
    """The result for a user without the right, if it is not an error."""
    instead: str = ""
    """The weaker right that the user has in place of `right`."""
    before: str = ""
    since: str = ""

    @property
    def resource(self) -> str:
        return self.right.split()[1]

    def applies_to(self, version: tuple[int, ...]) -> bool:
        """Whether brokers of this release ask for the right."""
        return (not self.since or version >= _number(self.since)) and (
            not self.before or version < _number(self.before)
        )


@dataclass(frozen=True)
class Mode:
    """A mode or command, and its least rights."""

    name: str
    does: str
    rights: tuple[Needed, ...]
    is_command: bool
    arguments: Any = field(default=())
    since: tuple[int, ...] = ()
    """The first release that has the mode."""
    long: bool = False
    """Whether it is left to the long tests."""

    def least(self, version: tuple[int, ...]) -> list[str]:
        """The rights that brokers of this release ask for, each once."""
        return list(dict.fromkeys(each.right for each in self.rights if each.applies_to(version)))


def read_table() -> list[Mode]:
    found = tomllib.loads(TABLE.read_text())
    return [*_modes(found["mode"], is_command=False), *_modes(found["command"], is_command=True)]


def _modes(rows: list[Mapping[str, Any]], *, is_command: bool) -> Iterator[Mode]:
    for row in rows:
        rights = tuple(Needed(**each) for each in row["rights"])
        since = _number(row["since"]) if "since" in row else ()
        yield Mode(
            row["name"], row["does"], rights, is_command, row.get("arguments", {}), since, row.get("long", False)
        )


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def page_row(mode: Mode) -> str:
    """The row of docs/least-rights.md."""
    cells = [mode.name, *(_cell(mode, resource) for resource in ("topic", "group", "cluster")), _without(mode)]
    return f"| {' | '.join(cells)} |"


def _cell(mode: Mode, resource: str) -> str:
    rights = (each for each in mode.rights if each.resource == resource and not each.instead)
    shown = (f"{each.right.split()[0]}{_releases(each)}" for each in rights)
    return ", ".join(shown) or "-"


def _releases(needed: Needed) -> str:
    if needed.since:
        return f" (since {needed.since})"
    return f" (before {needed.before})" if needed.before else ""


def _without(mode: Mode) -> str:
    results = [each.degrades or "error" for each in mode.rights if not each.instead]
    return "; ".join(dict.fromkeys(results)) or "-"

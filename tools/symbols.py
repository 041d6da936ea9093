"""Where a name is defined that a page or a table gives: `Ledger.commit_due`, `group.Reset`, `test_a_batch_…_twice`.

A name is that of a class, a function or a constant, or of a member of a class. It has no module in front, so it stays
right when its module moves. Packages in front tell namesakes apart: `group.Reset`, `group.registry.Reset`. streamgroup
goes before tests and tools. A test has its name alone, in which `…` stands for anything. A name that
fits definitions in several files is not accepted.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class UnclearNameError(LookupError):
    """A name that nothing has, or several definitions."""


class Place(NamedTuple):
    """A definition: its file, from the root, and its first and last line."""

    path: str
    first: int
    last: int


_ByName = defaultdict[str, list[tuple[str, Place]]]
"""Definitions of a name, each with the packages in front of it."""


class Symbols:
    """The definitions below `root`, by name."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @functools.cached_property
    def _package(self) -> _ByName:
        return _by_name(self._read("streamgroup"))

    @functools.cached_property
    def _others(self) -> _ByName:
        found = (*self._in_tests, *self._read("tools"))
        return _by_name(one for one in found if not _is_of_tests(one[2]))

    @functools.cached_property
    def _tests(self) -> _ByName:
        found = ((name.rpartition(".")[2], packages, place) for name, packages, place in self._in_tests)
        return _by_name(one for one in found if one[0].startswith("test_") and _is_of_tests(one[2]))

    @functools.cached_property
    def _in_tests(self) -> list[tuple[str, str, Place]]:
        return self._read("tests")

    def _read(self, room: str) -> list[tuple[str, str, Place]]:
        """The definitions below a directory, each with the packages in front of it."""
        found = []
        for path in sorted((self._root / room).rglob("*.py")):
            file = path.relative_to(self._root)
            packages = ".".join(file.parent.parts[room == "streamgroup" :])
            definitions = _definitions(ast.parse(path.read_text()).body)
            found += [(name, packages, _place(file, node)) for name, node in definitions]
        return found

    def place_of(self, name: str) -> Place:
        """Return where `name` is defined. Raises UnclearNameError if that is nowhere, or in several files."""
        found = _fitting(self._package, name) or _fitting(self._others, name)
        if not found:
            raise UnclearNameError(f"nothing is called `{name}`: write Class.member, or packages and a name")
        return _only(found, name)

    def test_called(self, pattern: str) -> Place:
        """Return where the test is. Raises UnclearNameError if there is none, or if tests in several files fit."""
        expression = re.compile(".*".join(map(re.escape, re.sub(r"\[.*", "", pattern).split("…"))))
        names = [name for name in self._tests if expression.fullmatch(name)] if "…" in pattern else [expression.pattern]
        found = [(place.path, place) for name in names for _, place in self._tests.get(name, ())]
        if not found:
            raise UnclearNameError(f"no test is called `{pattern}`")
        return _only(found, pattern)


def _by_name(definitions: Iterable[tuple[str, str, Place]]) -> _ByName:
    found: _ByName = defaultdict(list)
    for name, packages, place in definitions:
        found[name].append((packages, place))
    return found


def _is_of_tests(place: Place) -> bool:
    return "/test_" in place.path


def _fitting(known: _ByName, name: str) -> list[tuple[str, Place]]:
    """The definitions of a name with as few packages in front as it can have."""
    parts = name.split(".")
    for length in range(len(parts)):
        packages, symbol = "".join(f".{part}" for part in parts[:length]), ".".join(parts[length:])
        found = [one for one in known.get(symbol, ()) if f".{one[0]}".endswith(packages)]
        if found:
            return [(f"`{package}.{symbol}`".replace("`.", "`"), place) for package, place in found]
    return []


def _only(found: list[tuple[str, Place]], name: str) -> Place:
    """Return the place, if all are in one file; else name the others by the first part of each pair."""
    if len({place.path for _, place in found}) > 1:
        raise UnclearNameError(f"`{name}` is not clear: {', '.join(sorted({other for other, _ in found}))}")
    return found[0][1]


def _place(file: Path, node: ast.stmt) -> Place:
    first = min((one.lineno for one in getattr(node, "decorator_list", ())), default=node.lineno)
    return Place(file.as_posix(), first, node.end_lineno or node.lineno)


def _definitions(body: list[ast.stmt], inside: str = "") -> Iterator[tuple[str, ast.stmt]]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield inside + name, node
                for one in ast.walk(node) if inside and name == "__init__" else ():
                    if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store):
                        yield inside + one.attr, node
            case ast.ClassDef(name=name):
                yield inside + name, node
                yield from _definitions(node.body, f"{inside}{name}.")
            case ast.Assign() | ast.AnnAssign():
                for one in ast.walk(node):
                    if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                        yield inside + one.id, node
            case ast.If(body=then, orelse=other) | ast.Try(body=then, orelse=other):
                yield from _definitions([*then, *other], inside)


@functools.cache
def symbols(root: Path = ROOT) -> Symbols:
    """Return the definitions of a checkout, which are read once."""
    return Symbols(root)

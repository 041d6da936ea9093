"""The rooms of the code: who imports whom, and what the import contracts in pyproject.toml forbid."""

from __future__ import annotations

import ast
import functools
import itertools
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tools.pictures.svg import Drawing, width_of

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "streamgroup"
IMPURE = frozenset({"socket", "ssl", "threading", "time", "random"})
"""A room is pure where a contract forbids all of these modules."""
LEAVES = "modules beside"
PARTS = (
    "kafka.wire", "kafka.records", "kafka.net", "kafka.cluster", "kafka.producer",
    "coordinator.planning", "coordinator.run", "spark.parsing",
)  # fmt: skip
"""The parts of rooms that have contracts of their own. They are drawn as rooms."""
_ABOUT = {
    LEAVES: "errors, values, formats",
    "options": "tables, parsing",
    "kafka.wire": "bytes to messages",
    "kafka.records": "bytes to columns",
    "kafka.producer": "order, sequences",
    "kafka.net": "sockets to brokers, SASL",
    "kafka.cluster": "the cluster, asked",
    "group": "membership, offsets",
    "coordinator.planning": "ranges, limits",
    "coordinator.run": "one run of a query",
    "coordinator": "the process",
    "spark.parsing": "values, Avro, Protobuf",
    "monitoring": "metrics, the live page",
    "zookeeper": "sessions, nodes",
    "executor": "tasks",
    "sql": "offsets in a database",
    "spark": "source, sink, listener",
    "jobs": "ingest, backfill, mirror",
    "testing": "servers for tests",
    "cli": "the command",
}

Contracts = list[dict[str, Any]]


@functools.cache
def contracts() -> Contracts:
    """Return the import contracts of pyproject.toml."""
    found: Contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return found


def rooms() -> list[str]:
    """Return the names of all rooms, and of their parts. The modules beside the rooms count as one."""
    names = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"kafka"}  # which has nothing but parts
    return [LEAVES, *sorted(names.union(PARTS))]


def room_of(module: str) -> str | None:
    """Return the room of a module, or the part of a room. None for other packages."""
    first, *parts = module.split(".")
    if first != "streamgroup":
        return None
    if (part := ".".join(parts[:2])) in PARTS:
        return part
    return parts[0] if parts and (PACKAGE / parts[0]).is_dir() else LEAVES


def _imported(tree: ast.AST) -> Iterator[str]:
    """The modules that a file imports at run time; imports for annotations alone are left out."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=str(module), level=0, names=names):
                yield from (f"{module}.{name.name}" for name in names)
        yield from _imported(node)


@functools.cache
def imports() -> frozenset[tuple[str, str]]:
    """Return each pair of rooms of which the first imports the second."""
    found = set()
    for room in rooms():
        files = PACKAGE.glob("*.py") if room == LEAVES else (PACKAGE / room.replace(".", "/")).rglob("*.py")
        for file in files:
            module = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
            # What users import, `streamgroup/__init__.py`, takes from every room.
            if file != PACKAGE / "__init__.py" and room_of(module) == room:
                targets = map(room_of, _imported(ast.parse(file.read_text())))
                found |= {(room, target) for target in targets if target not in {None, room}}
    return frozenset((source, target) for source, target in found if target is not None)


@functools.cache
def forbidden() -> frozenset[tuple[str, str]]:
    """Return each pair of rooms of which a contract forbids the first to import the second."""
    found = set()
    for contract in contracts():
        if contract["type"] == "independence":
            sources = targets = contract["modules"]
        else:
            sources, targets = contract.get("source_modules", ()), contract.get("forbidden_modules", ())
        for source, target in itertools.product(_rooms_in(sources), _rooms_in(targets)):
            found |= {(source, target)} if source != target else set()
    return frozenset(found)


def _rooms_in(modules: Iterable[str]) -> set[str]:
    """The rooms that the modules of a contract cover as wholes."""
    named = [module.removeprefix("streamgroup.") for module in modules if room_of(module) is not None]
    leaves = {LEAVES for module in modules if room_of(module) == LEAVES}
    return leaves | {room for room in rooms() for name in named if f"{room}.".startswith(f"{name}.")}


@functools.cache
def pure() -> frozenset[str]:
    """Return the rooms that may use no sockets, clocks and randomness."""
    found = set[str]()
    for contract in contracts():
        if IMPURE.issubset(contract.get("forbidden_modules", ())):
            found |= _rooms_in(contract["source_modules"])
    return frozenset(found)


def layers() -> list[list[str]]:
    """Return the rooms from the lowest up: a room lies above all that it imports."""
    left, found, below = set(rooms()), [], set[str]()
    while left:
        free = sorted(room for room in left if {to for by, to in imports() if by == room} <= below)
        if not free:
            raise ValueError(f"the rooms {', '.join(sorted(left))} import each other in a circle")
        found.append(free)
        below.update(free)
        left -= set(free)
    return found


def architecture() -> str:
    """Return the rooms in layers, as SVG."""
    wide, tall, gap, margin = 158.0, 52.0, 14.0, 20.0
    if set(_ABOUT) != set(rooms()):
        named = ", ".join(sorted(set(_ABOUT) ^ set(rooms())))
        raise ValueError(f"tools/pictures/rooms.py says what each room holds, and no more: correct {named}")
    rows = layers()[::-1]
    across = max(map(len, rows))
    width = 2 * margin + across * (wide + gap) - gap
    height = 2 * margin + len(rows) * (tall + 22) - 22 + 40
    drawing = Drawing(width, height, "The rooms of the code. A room imports only rooms that lie below it")
    for level, row in enumerate(rows):
        x, y = margin + (across - len(row)) * (wide + gap) / 2, margin + level * (tall + 22)
        drawing.box(margin - 8, y - 7, width - 2 * margin + 16, tall + 14, fill="band")
        for room in row:
            drawing.box(x, y, wide, tall, fill="pure" if room in pure() else "box", line="rule")
            drawing.text(x + wide / 2, y + 22, room if room == LEAVES else room.replace(".", "/") + "/", 14, bold=True)
            drawing.text(x + wide / 2, y + 40, _ABOUT[room], 11.5, colour="soft")
            x += wide + gap
    keys = (("pure", "pure: a contract forbids sockets, clocks and randomness"), ("box", "may use them"))
    x, y = margin, height - margin - 14
    for fill, meaning in keys:
        drawing.box(x, y, 22, 14, fill=fill, line="rule", radius=3)
        drawing.text(x + 30, y + 11.5, meaning, 12, colour="soft", anchor="start")
        x += 60 + width_of(meaning, 12)
    return drawing.render()


def allowed_imports() -> str:
    """Return a matrix of who imports whom, and what the contracts forbid, as SVG."""
    order = [room for layer in layers()[::-1] for room in layer]
    cell, left, top, margin = 27.0, 138.0, 112.0, 20.0
    width, height = left + cell * len(order) + 76, top + cell * len(order) + 70
    drawing = Drawing(width, height, "Which room imports which, and what the import contracts forbid")
    drawing.text(left - 12, top - 12, "imports", 12, colour="soft", anchor="end")
    for index, room in enumerate(order):
        x, y = left + cell * index, top + cell * index
        if index % 2 == 0:
            drawing.box(margin, y, left + cell * len(order) - margin, cell, fill="band", radius=0)
        drawing.text(left - 12, y + 18, room, 12.5, anchor="end", bold=room in pure())
        drawing.slanted(x + cell / 2 + 4, top - 10, room, 12.5, bold=room in pure())
    for row, source in enumerate(order):
        for column, target in enumerate(order):
            _cell(drawing, left + cell * (column + 0.5), top + cell * (row + 0.5), source, target)
    at, y = margin + 12.0, height - 34.0
    for pair, meaning in (("imports", "imports"), ("forbids", "a contract forbids it"), ("", "no contract, no import")):
        _mark(drawing, at, y, pair)
        drawing.text(at + 16, y + 4.5, meaning, 12, colour="soft", anchor="start")
        at += 52 + width_of(meaning, 12)
    drawing.text(at, y + 4.5, "bold: a pure room", 12, colour="soft", anchor="start")
    return drawing.render()


def _cell(drawing: Drawing, x: float, y: float, source: str, target: str) -> None:
    if source == target:
        drawing.box(x - 5, y - 5, 10, 10, fill="rule", radius=2)
    elif (source, target) in imports():
        _mark(drawing, x, y, "imports")
    else:
        _mark(drawing, x, y, "forbids" if (source, target) in forbidden() else "")


def _mark(drawing: Drawing, x: float, y: float, kind: str) -> None:
    if kind == "imports":
        drawing.dot(x, y, 6.5)
    elif kind == "forbids":
        drawing.line([(x - 4, y - 4), (x + 4, y + 4)], "soft", 1.2)
        drawing.line([(x - 4, y + 4), (x + 4, y - 4)], "soft", 1.2)
    else:
        drawing.dot(x, y, 1.5, "soft")

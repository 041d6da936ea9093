"""The pages name what there is: links, files, tests, functions, planted bugs, commands."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.registrybugs import ALL_BUGS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md")) + [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
RULES = range(1, 37)

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]*)\)")
_TEST = re.compile(r"(?P<file>[\w/]*test_\w+\.py)(?:::(?P<name>\S+))?")
_MORE = re.compile(r"(?:test_|…)\S*")
"""Another test of the file named last, on the same row or in the same paragraph."""
_FILE = re.compile(r"[\w/]+\.py")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_MAKE = re.compile(r"(?:^(?: {4})?|`)make ([a-z-]+)", re.MULTILINE)
_COMMAND = re.compile(r"`streamgroup ([a-z]+)")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def passages(page: Path) -> Iterator[list[str]]:
    """What stands in backquotes, by table row or paragraph; code blocks are left out."""
    passage: list[str] = []
    for line in [*_FENCE.sub("", page.read_text()).splitlines(), ""]:
        if not line.strip() or line.startswith("|"):
            yield passage
            passage = []
        passage += _CODE.findall(line)


def named_tests(page: Path) -> Iterator[tuple[str, str]]:
    """Each test as (file, name); the name may be empty or abbreviated by `…`."""
    for passage in passages(page):
        file = ""
        for code in passage:
            if (named := _TEST.fullmatch(code)) is not None:
                file = named["file"]
                yield file, named["name"] or ""
            elif file and _MORE.fullmatch(code) and not code.endswith("_"):
                yield file, code


def file_of(named: str) -> Path | None:
    """`u/group/test_ledger.py` is `tests/unit/group/test_ledger.py`; without a directory nobody would find it."""
    unabbreviated = re.sub(r"^u/", "unit/", named)
    paths = [ROOT / unabbreviated, ROOT / "tests" / unabbreviated]
    return next((path for path in paths if "/" in named and path.is_file()), None)


@functools.cache
def names_in(path: Path) -> frozenset[str]:
    """What a test file or a module defines: functions, classes, methods, attributes, constants."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
    return frozenset(found)


def is_defined(path: Path, name: str) -> bool:
    """Whether `path` defines `name`, in which `…` stands for anything."""
    pattern = re.compile(".*".join(map(re.escape, re.sub(r"\[.*", "", name).split("…"))))
    return any(pattern.fullmatch(known) for known in names_in(path))


@functools.cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in _LINK.findall(_FENCE.sub("", page.read_text())):
        if target.startswith(("https://", "http://")):
            continue
        file, _, anchor = target.partition("#")
        path = page.parent / file if file else page
        assert path.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(path), f"{page.name}: {target}"


@each_page
def test_every_test_named_exists(page: Path) -> None:
    for file, name in named_tests(page):
        path = file_of(file)
        assert path is not None, f"{page.name}: {file}"
        assert not name or is_defined(path, name.replace("::", "…")), f"{page.name}: {file}::{name}"


@each_page
def test_every_file_named_exists(page: Path) -> None:
    everywhere = {path.name for room in ("streamgroup", "tests", "jobs") for path in (ROOT / room).rglob("*.py")}
    for file in (code for passage in passages(page) for code in passage if _FILE.fullmatch(code)):
        if _TEST.fullmatch(file):
            continue
        known = file in everywhere or any((ROOT / room / file).is_file() for room in ("", "streamgroup", "tests"))
        assert known, f"{page.name}: {file}"


@each_page
def test_every_command_named_exists(page: Path) -> None:
    text = page.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets.issuperset(_MAKE.findall(text))
    commands = {path.stem for path in (ROOT / "streamgroup" / "cli").glob("[a-z]*.py")}
    assert commands.issuperset(_COMMAND.findall(text))


# --- the page of the rules -------------------------------------------------------------------------------------------


def rows() -> Iterator[tuple[int, str, str]]:
    """Each rule's number, its code cell, its tests cell."""
    for line in (DOCS / "rules.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if re.fullmatch(r"R\d+", cells[0]):
            assert len(cells) == 4, line
            yield int(cells[0][1:]), cells[2], cells[3]


def test_every_rule_has_one_row() -> None:
    assert [number for number, _, _ in rows()] == list(RULES)


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: f"R{row[0]}")
def test_a_rule_is_where_its_row_says(row: tuple[int, str, str]) -> None:
    _, code, _ = row
    path: Path | None = None
    for one in _CODE.findall(code):
        if _FILE.fullmatch(one):
            path = ROOT / "streamgroup" / one
            assert path.is_file(), one
        elif path is not None and _NAME.fullmatch(one):
            assert is_defined(path, one.rpartition(".")[2]), f"{path.name}: {one}"
    assert path is not None, "a rule lives somewhere"


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: f"R{row[0]}")
def test_a_rule_has_its_tests_and_its_planted_bugs(row: tuple[int, str, str]) -> None:
    number, _, tests = row
    assert _TEST.search(tests), "a rule is tested somewhere"
    planted = set(re.findall(r"planted: ([^;]+)$", tests))
    named = {name for cell in planted for name in _CODE.findall(cell)}
    assert named <= {name for name, bug in ALL_BUGS.items() if bug.rule == f"R{number}"}

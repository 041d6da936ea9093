"""`tools.move` on a small tree: what refers to a module follows it, and comments survive."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tools.merge import Refused, merged, renamed
from tools.move import left, move

LEDGER = '''\
"""Positions of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgroup.group import pending
from streamgroup.group.pending import LIMIT as MOST

if TYPE_CHECKING:
    from collections.abc import Mapping

log = "streamgroup"


def take(held: Mapping[str, int]) -> int:  # the first
    """Take: `pending.py` has the limit."""
    # Spark replays batch 0.
    return min(MOST, pending.oldest(held))
'''
PENDING = '''\
"""Commits that wait."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

log = "streamgroup"
LIMIT = 5
"""Commits at a time."""


# --- the oldest ---------


def oldest(held: Mapping[str, int]) -> int:
    return math.floor(min(held.values()))
'''
TREE = {
    "streamgroup/__init__.py": "",
    "streamgroup/group/__init__.py": '"""The group: `ledger.py` first."""\n',
    "streamgroup/run/__init__.py": "",
    "streamgroup/group/ledger.py": LEDGER,
    "streamgroup/group/pending.py": PENDING,
    "streamgroup/run/machine.py": '''\
"""The run."""

from streamgroup.group import ledger, pending as waiting
from streamgroup.group.ledger import (
    # the reader's own
    take,
)


def plan(pending: int) -> int:
    from streamgroup.group import pending as lazy  # noqa: PLC0415 - a cycle

    return take({"a": pending}) + ledger.take({"b": 1}) + waiting.LIMIT + lazy.LIMIT
''',
    "streamgroup/run/steps.py": "from streamgroup.group import ledger\n\nx, book = ledger.take, ledger.log\n",
    "tests/__init__.py": "",
    "tests/unit/__init__.py": "",
    "tests/unit/group/__init__.py": "",
    "tests/unit/run/__init__.py": "",
    "tests/unit/group/test_ledger.py": '''\
"""Tests."""

from streamgroup.group.ledger import take

A = 1


def test_takes(monkeypatch) -> None:
    monkeypatch.setattr("streamgroup.group.ledger.MOST", 7)
    assert take({"a": A}) == 1
''',
    "tests/unit/group/test_pending.py": '''\
"""Tests."""

from streamgroup.group import pending

A = 2


def test_is_oldest() -> None:
    assert pending.oldest({"a": A}) == 2
''',
    "tests/mutants/table.toml": """\
not_built = {}
promises = {}
[[mutant]]
id = "r1-x"
rule = "R1"
file = "group/pending.py"
old = "math.floor"
new = "math.ceil"
breaks = "x."
suites = ["unit/group/test_pending.py", "unit/group/test_ledger.py"]
""",
    "pyproject.toml": """\
[[tool.importlinter.contracts]]
source_modules = ["streamgroup.group.ledger", "streamgroup.group.pending"]
containers = ["streamgroup.group"]
layers = [
    "ledger",
    "pending : reactions",
]
""",
    "docs/rules.md": "Code: `group/ledger.py` (`take`); `group/pending.py`. `unit/group/test_pending.py::test_is`.\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def run(root: Path, code: str) -> str:
    """Return what Python prints for `code` among the modules of the tree."""
    found = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert not found.returncode, found.stderr
    return found.stdout


def test_all_that_refers_to_a_module_follows_it(root: Path) -> None:
    move(root, ["streamgroup.group.ledger"], "streamgroup.run.book", {})
    assert not (root / "streamgroup/group/ledger.py").exists()
    machine = (root / "streamgroup/run/machine.py").read_text()
    assert "from streamgroup.run import book\n" in machine
    assert "# the reader's own\nfrom streamgroup.run.book import take" in machine
    assert "book.take(" in machine
    steps = (root / "streamgroup/run/steps.py").read_text()
    assert "from streamgroup.run import book as ledger" in steps, "the file has another `book`"
    assert "`group/pending.py` has the limit" in (root / "streamgroup/run/book.py").read_text()
    assert '"streamgroup.run.book.MOST"' in (root / "tests/unit/run/test_book.py").read_text()
    assert "`run/book.py` first" in (root / "streamgroup/group/__init__.py").read_text()
    assert "`run/book.py` (`take`)" in (root / "docs/rules.md").read_text()
    pyproject = (root / "pyproject.toml").read_text()
    assert '"streamgroup.run.book", "streamgroup.group.pending"' in pyproject
    assert 'layers = [\n    "pending : reactions",\n]' in pyproject, "it is in another package now"
    assert '"unit/run/test_book.py"]' in (root / "tests/mutants/table.toml").read_text()
    assert list(left(root, ["streamgroup.group.ledger"])) == []
    assert run(root, "from streamgroup.run import machine, steps; print(machine.plan(3))") == "14\n"


def test_a_module_is_merged_with_its_tests(root: Path) -> None:
    changed, notes = move(root, ["streamgroup.group.pending"], "streamgroup.group.ledger", {"A": "OLDEST"})
    ledger = (root / "streamgroup/group/ledger.py").read_text()
    assert ledger.count("__future__") == ledger.count("if TYPE_CHECKING") == ledger.count('log = "') == 1
    assert "from collections.abc import Iterable, Mapping" in ledger
    assert "return min(LIMIT, oldest(held))" in ledger, "the imports between the two are gone"
    assert "# Spark replays batch 0.\n" in ledger
    assert "# --- the oldest ---------\n" in ledger
    assert "`ledger.py` has the limit" in ledger
    assert '"streamgroup.group.ledger"]' in (root / "pyproject.toml").read_text(), "once"
    assert '    "ledger",\n    "reactions",\n' in (root / "pyproject.toml").read_text()
    assert 'suites = ["unit/group/test_ledger.py"]' in (root / "tests/mutants/table.toml").read_text()
    assert "`group/ledger.py` (`take`); `group/ledger.py`" in (root / "docs/rules.md").read_text()
    tests = (root / "tests/unit/group/test_ledger.py").read_text()
    assert 'ledger.oldest({"a": OLDEST})' in tests
    assert 'take({"a": A})' in tests
    assert "streamgroup/run/machine.py" in changed
    assert notes == ["the docstring of streamgroup/group/pending.py is dropped; keep what matters:\nCommits that wait."]
    assert run(root, "from streamgroup.run import machine; print(machine.plan(3))") == "14\n"


def test_two_meanings_of_a_name_are_refused_and_nothing_is_written(root: Path) -> None:
    with pytest.raises(Refused, match=r"test_pending.py into .*test_ledger.py: .*: A$"):
        move(root, ["streamgroup.group.pending"], "streamgroup.group.ledger", {})
    assert all((root / name).read_text() == text for name, text in TREE.items())


def test_an_import_cycle_is_refused(root: Path) -> None:
    (root / "streamgroup/group/pending.py").write_text("import streamgroup.run.machine\n")
    (root / "tests/unit/group/test_pending.py").unlink()
    with pytest.raises(Refused, match=r"ledger -> streamgroup.run.machine -> streamgroup.group.ledger"):
        move(root, ["streamgroup.group.pending"], "streamgroup.group.ledger", {})


def test_a_package_goes_with_all_in_it(root: Path) -> None:
    (root / "streamgroup/group/page.bin").write_bytes(b"\0")
    move(root, ["streamgroup.group"], "streamgroup.run.members", {})
    assert (root / "streamgroup/run/members/page.bin").exists()
    assert "from streamgroup.run.members import pending" in (root / "streamgroup/run/members/ledger.py").read_text()
    assert (root / "tests/unit/run/members/test_ledger.py").exists()
    assert 'file = "run/members/pending.py"' in (root / "tests/mutants/table.toml").read_text()
    assert run(root, "from streamgroup.run import machine") == ""


def test_a_definition_goes_with_the_imports_that_it_needs(root: Path) -> None:
    move(root, ["streamgroup.group.ledger:take"], "streamgroup.run.steps", {})
    steps = (root / "streamgroup/run/steps.py").read_text()
    assert "    # Spark replays batch 0.\n" in steps
    assert "from streamgroup.group.pending import LIMIT as MOST" in steps
    assert "def take" not in (root / "streamgroup/group/ledger.py").read_text()
    assert "from streamgroup.run.steps import take" in (root / "tests/unit/group/test_ledger.py").read_text()
    assert "steps.take(" in (root / "streamgroup/run/machine.py").read_text()


@pytest.mark.parametrize(
    ("new", "old", "result"),
    [
        ("class A(B):\n    pass\n", "class B:\n    pass\n", "BA"),
        ("class A:\n    def f(self):\n        return B\n", "class B:\n    pass\n", "AB"),
        ("A = [B]\n", "def B() -> None: ...\n", "BA"),
        ("A = lambda: B\n", "def B() -> None: ...\n", "AB"),
    ],
    ids=["a base", "in a method", "a value", "in a lambda"],
)
def test_a_definition_is_before_what_needs_it_at_import(new: str, old: str, result: str) -> None:
    text = merged(new, old)
    body = ast.parse(text).body
    assert "".join(getattr(node, "name", "A") for node in body) == result


def test_a_global_is_renamed_but_not_a_local_of_its_name() -> None:
    text = (
        "def f(x):\n    return x\ndef g():\n    return [x for x in ()], x  # é x\nclass C:\n    x: int = 1\nx = é = 1\n"
    )
    assert renamed(text, {"x": "other"}) == text.replace(", x ", ", other ").replace("\nx =", "\nother =")


def test_exports_are_joined_and_marks_of_a_whole_file_are_refused() -> None:
    text = merged('__all__ = ["b"]\nb = 1\n', '__all__ = ["a"]\na = 1\n')
    assert "__all__ = ['a', 'b']" in text
    with pytest.raises(Refused, match="pytestmark"):
        merged("a = 1\n", "pytestmark = 1\n")

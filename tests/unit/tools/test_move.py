"""`tools.move` on a small tree: what refers to a module follows it, and comments survive."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.merge import Refused, merged, renamed
from tools.move import left, move

ATLAS = '''\
"""Positions of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgroup.library import quires
from streamgroup.library.quires import LIMIT as MOST

if TYPE_CHECKING:
    from collections.abc import Mapping

log = "streamgroup"


def take(held: Mapping[str, int]) -> int:  # the first
    """Take: `quires.py` has the limit."""
    # Spark replays batch 0.
    return min(MOST, quires.oldest(held))
'''
QUIRES = '''\
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
    "streamgroup/library/__init__.py": '"""The group: `atlas.py` first."""\n',
    "streamgroup/desk/__init__.py": "",
    "streamgroup/library/atlas.py": ATLAS,
    "streamgroup/library/quires.py": QUIRES,
    "streamgroup/desk/reader.py": '''\
"""The run."""

from streamgroup.library import atlas, quires as waiting
from streamgroup.library.atlas import (
    # the reader's own
    take,
)


def plan(quires: int) -> int:
    from streamgroup.library import quires as lazy  # noqa: PLC0415 - a cycle

    return take({"a": quires}) + atlas.take({"b": 1}) + waiting.LIMIT + lazy.LIMIT
''',
    "streamgroup/desk/lamps.py": "from streamgroup.library import atlas\n\nx, book = atlas.take, atlas.log\n",
    "tests/__init__.py": "",
    "tests/unit/__init__.py": "",
    "tests/unit/library/__init__.py": "",
    "tests/unit/desk/__init__.py": "",
    "tests/unit/library/test_atlas.py": '''\
"""Tests."""

from streamgroup.library.atlas import take

A = 1


def test_takes(monkeypatch) -> None:
    monkeypatch.setattr("streamgroup.library.atlas.MOST", 7)
    assert take({"a": A}) == 1
''',
    "tests/unit/library/test_quires.py": '''\
"""Tests."""

from streamgroup.library import quires

A = 2


def test_is_oldest() -> None:
    assert quires.oldest({"a": A}) == 2
''',
    "tests/mutants/table.toml": """\
not_built = {}
promises = {}
[[mutant]]
id = "r1-x"
rule = "R1"
file = "library/quires.py"
old = "math.floor"
new = "math.ceil"
breaks = "x."
suites = ["unit/library/test_quires.py", "unit/library/test_atlas.py"]
""",
    "pyproject.toml": """\
[[tool.importlinter.contracts]]
source_modules = ["streamgroup.library.atlas", "streamgroup.library.quires"]
containers = ["streamgroup.library"]
layers = [
    "atlas",
    "quires : margins",
]
""",
    "docs/rules.md": "Code: `library/atlas.py` (`take`); `library/quires.py`. `library/test_quires.py::test_is`.\n",
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
    move(root, ["streamgroup.library.atlas"], "streamgroup.desk.book", {})
    assert not (root / "streamgroup/library/atlas.py").exists()
    reader = (root / "streamgroup/desk/reader.py").read_text()
    assert "from streamgroup.desk import book\n" in reader
    assert "# the reader's own\nfrom streamgroup.desk.book import take" in reader
    assert "book.take(" in reader
    lamps = (root / "streamgroup/desk/lamps.py").read_text()
    assert "from streamgroup.desk import book as atlas" in lamps, "the file has another `book`"
    assert "`library/quires.py` has the limit" in (root / "streamgroup/desk/book.py").read_text()
    assert '"streamgroup.desk.book.MOST"' in (root / "tests/unit/desk/test_book.py").read_text()
    assert "`desk/book.py` first" in (root / "streamgroup/library/__init__.py").read_text()
    assert "`desk/book.py` (`take`)" in (root / "docs/rules.md").read_text()
    pyproject = (root / "pyproject.toml").read_text()
    assert '"streamgroup.desk.book", "streamgroup.library.quires"' in pyproject
    assert 'layers = [\n    "quires : margins",\n]' in pyproject, "it is in another package now"
    assert '"unit/desk/test_book.py"]' in (root / "tests/mutants/table.toml").read_text()
    assert list(left(root, ["streamgroup.library.atlas"], "streamgroup.desk.book")) == []
    assert run(root, "from streamgroup.desk import lamps, reader; print(reader.plan(3))") == "14\n"


def test_a_module_is_merged_with_its_tests(root: Path) -> None:
    changed, notes = move(root, ["streamgroup.library.quires"], "streamgroup.library.atlas", {"A": "OLDEST"})
    atlas = (root / "streamgroup/library/atlas.py").read_text()
    assert atlas.count("__future__") == atlas.count("if TYPE_CHECKING") == atlas.count('log = "') == 1
    assert "from collections.abc import Iterable, Mapping" in atlas
    assert "return min(LIMIT, oldest(held))" in atlas, "the imports between the two are gone"
    assert "# Spark replays batch 0.\n" in atlas
    assert "# --- the oldest ---------\n" in atlas
    assert "`atlas.py` has the limit" in atlas
    assert '"streamgroup.library.atlas"]' in (root / "pyproject.toml").read_text(), "once"
    assert '    "atlas",\n    "margins",\n' in (root / "pyproject.toml").read_text()
    assert 'suites = ["unit/library/test_atlas.py"]' in (root / "tests/mutants/table.toml").read_text()
    assert "`library/atlas.py` (`take`); `library/atlas.py`" in (root / "docs/rules.md").read_text()
    tests = (root / "tests/unit/library/test_atlas.py").read_text()
    assert 'atlas.oldest({"a": OLDEST})' in tests
    assert 'take({"a": A})' in tests
    assert "streamgroup/desk/reader.py" in changed
    assert notes == [
        "the docstring of streamgroup/library/quires.py is dropped; keep what matters:\nCommits that wait."
    ]
    assert run(root, "from streamgroup.desk import reader; print(reader.plan(3))") == "14\n"


def test_two_meanings_of_a_name_are_refused_and_nothing_is_written(root: Path) -> None:
    with pytest.raises(Refused, match=r"test_quires.py into .*test_atlas.py: .*: A$"):
        move(root, ["streamgroup.library.quires"], "streamgroup.library.atlas", {})
    assert all((root / name).read_text() == text for name, text in TREE.items())


def test_an_import_cycle_is_refused(root: Path) -> None:
    (root / "streamgroup/library/quires.py").write_text("import streamgroup.desk.reader\n")
    (root / "tests/unit/library/test_quires.py").unlink()
    with pytest.raises(Refused, match=r"atlas -> streamgroup.desk.reader -> streamgroup.library.atlas"):
        move(root, ["streamgroup.library.quires"], "streamgroup.library.atlas", {})


def test_a_package_goes_with_all_in_it(root: Path) -> None:
    (root / "streamgroup/library/page.bin").write_bytes(b"\0")
    move(root, ["streamgroup.library"], "streamgroup.desk.members", {})
    assert (root / "streamgroup/desk/members/page.bin").exists()
    assert "from streamgroup.desk.members import quires" in (root / "streamgroup/desk/members/atlas.py").read_text()
    assert (root / "tests/unit/desk/members/test_atlas.py").exists()
    assert 'file = "desk/members/quires.py"' in (root / "tests/mutants/table.toml").read_text()
    assert run(root, "from streamgroup.desk import reader") == ""


def test_a_definition_goes_with_the_imports_that_it_needs(root: Path) -> None:
    move(root, ["streamgroup.library.atlas:take"], "streamgroup.desk.lamps", {})
    lamps = (root / "streamgroup/desk/lamps.py").read_text()
    assert "    # Spark replays batch 0.\n" in lamps
    assert "from streamgroup.library.quires import LIMIT as MOST" in lamps
    assert "def take" not in (root / "streamgroup/library/atlas.py").read_text()
    assert "from streamgroup.desk.lamps import take" in (root / "tests/unit/library/test_atlas.py").read_text()
    assert "lamps.take(" in (root / "streamgroup/desk/reader.py").read_text()


def test_a_definition_is_renamed_where_it_is(root: Path) -> None:
    page = root / "docs" / "a.md"
    page.parent.mkdir(exist_ok=True)
    page.write_text("`take` takes, `take()` too; `library.take`, `desk.take`; `taken`.\n")
    table = root / "tests/mutants/table.toml"
    table.write_text(table.read_text().replace('file = "library/quires.py"', 'symbol = "library.take"'))
    top = root / "streamgroup/__init__.py"
    top.write_text(
        "from streamgroup.library.atlas import take\n"
        '__all__ = [\n    "take"]\n_LAZY = {"take": "streamgroup.library.atlas", "x": "streamgroup.x"}\n'
    )
    lamps = root / "streamgroup/desk/lamps.py"
    lamps.write_text(lamps.read_text() + "# take it\ny = 'or take that'\n")
    move(root, ["streamgroup.library.atlas:take"], "streamgroup.library.atlas:fetch", {})
    assert '"fetch"]\n_LAZY = {"fetch": "streamgroup.library.atlas", "x"' in top.read_text()
    found = [*left(root, ["streamgroup.library.atlas:take"], "streamgroup.library.atlas:fetch")]
    assert "streamgroup/desk/lamps.py:4 may mean the former name: # take it" in found
    assert "streamgroup/desk/lamps.py:5 may mean the former name: 'or take that'" in found
    assert "def fetch(held" in (root / "streamgroup/library/atlas.py").read_text()
    reader = (root / "streamgroup/desk/reader.py").read_text()
    assert 'fetch({"a": quires}) + atlas.fetch({"b": 1})' in reader
    assert "atlas.fetch, atlas.log" in (root / "streamgroup/desk/lamps.py").read_text()
    assert "assert fetch(" in (root / "tests/unit/library/test_atlas.py").read_text()
    assert page.read_text() == "`fetch` takes, `fetch()` too; `library.fetch`, `desk.take`; `taken`.\n"
    assert 'symbol = "library.fetch"' in table.read_text()
    with pytest.raises(Refused, match="must define take"):
        move(root, ["streamgroup.library.atlas:take"], "streamgroup.library.atlas:fetch", {})


def test_a_definition_imports_what_stays_behind(root: Path) -> None:
    (root / "streamgroup/desk/lamps.py").write_text("")
    path = root / "streamgroup/library/quires.py"
    path.write_text("LIMIT = 5\n\n\ndef most():\n    return LIMIT\n\n\ndef oldest(held):\n    return 1\n")
    move(root, ["streamgroup.library.quires:most"], "streamgroup.desk.lamps", {})
    assert "from streamgroup.library.quires import LIMIT\n" in (root / "streamgroup/desk/lamps.py").read_text()
    assert path.read_text() == "LIMIT = 5\n\n\ndef oldest(held):\n    return 1\n"


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


def test_a_fixture_is_renamed_with_the_parameters_that_ask_for_it() -> None:
    text = (
        "@pytest.fixture\ndef pool(a: int) -> Pool: ...\n"
        "def test_it(pool: Pool, *, b: int = 1) -> None:\n    pool.take(lambda: pool, [pool for _ in b], x.pool)\n"
        "def test_other(pools: Pool) -> None: ...\n"
    )
    assert renamed(text, {"pool": "kept"}) == re.sub(r"(?<!\.)\bpool\b", "kept", text)


def test_exports_are_joined_and_marks_of_a_whole_file_go_to_its_tests() -> None:
    text = merged('__all__ = ["b"]\nb = 1\n', '__all__ = ["a"]\na = 1\n')
    assert "__all__ = ['a', 'b']" in text
    marked = "pytestmark = [slow, mark('a')]\n\n\n# why\n@other\ndef test_b() -> None: ...\n\n\ndef help(): ...\n"
    text = merged("def test_a() -> None: ...\n", marked)
    assert text.startswith("def test_a")
    assert "# why\n@slow\n@mark('a')\n@other\ndef test_b() -> None: ...\n\n\ndef help" in text
    assert "pytestmark" not in text
    assert merged(marked, marked.replace("test_b", "test_c")).count("pytestmark") == 1

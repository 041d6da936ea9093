"""The figures of a small checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path

from click.testing import CliRunner

from tools.metrics import Checkout, kinds, main, table

TREE = {
    "streamgroup/__init__.py": "",
    "streamgroup/library/__init__.py": "",
    "streamgroup/library/a.py": "import streamgroup.library.b\n\n\nclass Frames:\n    pass\n",
    "streamgroup/library/b.py": "def late():\n    from streamgroup.library import c\n    return c\n",
    "streamgroup/library/c.py": "from streamgroup.library.b import late\n" + "\n" * 70 + "class Frames:\n    pass\n",
    "tests/unit/library/__init__.py": "",
    "tests/unit/library/test_a.py": "def test_a():\n    pass\n",
    "tests/mutants/table.toml": '[[mutant]]\nid = "r1"\n',
    "docs/planted-bugs.md": "| `early-commit` | R4 |\n|---|---|\n",
    "docs/group.md": "`library/a.py`, `unit/library/test_a.py::test_a`\n",
}


def test_the_figures_of_a_checkout(tmp_path: Path) -> None:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run("git init -q && git add .", shell=True, cwd=tmp_path, check=True)
    (tmp_path / "streamgroup" / "untracked.py").write_text("")
    figures = table(Checkout(tmp_path))
    assert figures["files"] == 5
    assert figures["modules with one importer"] == 1, "c imports and b, in a function, is imported by a and c"
    assert figures["modules under 70 lines"] == 2
    assert figures["modules under both"] == 0
    assert figures["class names in several modules"] == 1
    assert figures["top-level rooms"] == 1
    assert (figures["paths of files on pages"], figures["  of tests"]) == (2, 1)
    assert (figures["unit test files"], figures["unit test lines"]) == (1, 2)
    assert (figures["mutants"], figures["planted bugs"]) == (1, 1)
    output = CliRunner().invoke(main, [str(tmp_path), "--list"]).output
    assert "  Frames: streamgroup.library.a, streamgroup.library.c\n" in output
    assert "  streamgroup/library/c.py 73 <- streamgroup.library.b\n" in output


def test_each_line_is_of_one_kind() -> None:
    head = '"""A\n\nmodule."""\n\nfrom a import (\n    b,\n)\n\n'
    text = head + 'X = """\nvalue"""\n"""Describes X."""\n# why\ndef f():  # how\n    """F."""\n'
    assert kinds(text) == {"docstring": 5, "blank": 2, "import": 3, "code": 3, "comment": 1}

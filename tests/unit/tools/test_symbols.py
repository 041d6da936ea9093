"""Names on pages lead to one definition, or are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.symbols import Place, Symbols, UnclearNameError

TREE = {
    "streamgroup/model.py": "LIMIT = 5\n",
    "streamgroup/library/atlas.py": '''\
class Atlas:
    """Positions."""

    size: int = 0

    def __init__(self) -> None:
        self.held = {}

    @property
    def due(self) -> int:
        return 1


class Reset:
    at = 1


def take() -> None: ...
''',
    "streamgroup/library/shelf/nodes.py": "class Reset:\n    pass\n\ndef take() -> None: ...\n",
    "streamgroup/cli/reset.py": "class Reset:\n    pass\n",
    "tests/sim/bugs.py": "LIMIT = 6\nBUGS = ()\n",
    "tests/unit/library/test_atlas.py": "def test_a_batch_is_due():\n    pass\n\n\ndef test_twice():\n    pass\n",
    "tests/unit/cli/test_reset.py": "class Test:\n    def test_a_batch_is_lost(self): ...\n\n\ndef test_twice(): ...\n",
}


@pytest.fixture
def known(tmp_path: Path) -> Symbols:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return Symbols(tmp_path)


@pytest.mark.parametrize(
    ("name", "path", "lines"),
    [
        ("Atlas", "streamgroup/library/atlas.py", (1, 11)),
        ("Atlas.due", "streamgroup/library/atlas.py", (9, 11)),
        ("Atlas.size", "streamgroup/library/atlas.py", (4, 4)),
        ("Atlas.held", "streamgroup/library/atlas.py", (6, 7)),
        ("Reset.at", "streamgroup/library/atlas.py", (15, 15)),
        ("cli.Reset", "streamgroup/cli/reset.py", (1, 2)),
        ("shelf.Reset", "streamgroup/library/shelf/nodes.py", (1, 2)),
        ("library.shelf.take", "streamgroup/library/shelf/nodes.py", (4, 4)),
        ("library.take", "streamgroup/library/atlas.py", (18, 18)),
        ("LIMIT", "streamgroup/model.py", (1, 1)),
        ("sim.LIMIT", "tests/sim/bugs.py", (1, 1)),
        ("BUGS", "tests/sim/bugs.py", (2, 2)),
    ],
)
def test_a_name_leads_to_its_definition(known: Symbols, name: str, path: str, lines: tuple[int, int]) -> None:
    assert known.place_of(name) == Place(path, *lines)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Reset", "`Reset` is not clear: `cli.Reset`, `library.Reset`, `library.shelf.Reset`"),
        ("take", "`library.shelf.take`, `library.take`"),
        ("atlas.Atlas", "nothing is called `atlas.Atlas`"),
        ("due", "nothing is called `due`"),
        ("Atlas.gone", "nothing is called"),
    ],
)
def test_an_unclear_name_is_refused_with_the_clear_ones(known: Symbols, name: str, problem: str) -> None:
    with pytest.raises(UnclearNameError, match=problem):
        known.place_of(name)


def test_a_test_is_found_by_its_name_or_a_part_of_it(known: Symbols) -> None:
    assert known.test_called("test_a_batch_…_due").path == "tests/unit/library/test_atlas.py"
    assert known.test_called("test_a_batch_is_lost").path == "tests/unit/cli/test_reset.py"
    with pytest.raises(UnclearNameError, match=r"cli/test_reset.py, tests/unit/library/test_atlas.py"):
        known.test_called("test_a_batch_…")
    with pytest.raises(UnclearNameError, match="`test_twice` is not clear"):
        known.test_called("test_twice")
    with pytest.raises(UnclearNameError, match="no test is called"):
        known.test_called("test_gone…")

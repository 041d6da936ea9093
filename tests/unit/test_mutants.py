"""The table of mutants fits the code: a refactoring that moves a rule is told here which row to mend, and how.

Whether the suites notice the mutants is what `make test-mutants` finds out; how it judges is tested here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.copies import Copy, Verdict, judge
from tests.mutants.table import RULES, Mutant, planted, problem_of, read_table
from tools.symbols import UnclearNameError, symbols

TABLE = read_table()


@pytest.mark.parametrize("mutant", TABLE.mutants, ids=lambda mutant: mutant.id)
def test_a_mutant_can_be_planted_and_its_suites_exist(mutant: Mutant) -> None:
    problem = problem_of(mutant)
    assert problem is None, problem


def test_a_symbol_names_packages_only_if_its_name_is_not_unique() -> None:
    """So a module can move to another package, and its mutants follow."""
    with_packages = {m.symbol for m in TABLE.mutants if re.match(r"[a-z0-9_]+\.", m.symbol)}
    for symbol in with_packages:
        with pytest.raises(UnclearNameError):
            symbols().place_of(re.sub(r"^([a-z0-9_]+\.)+(?=.)", "", symbol))


def test_every_rule_has_a_mutant() -> None:
    covered = {mutant.rule for mutant in TABLE.mutants}
    named = set(RULES) | TABLE.promises.keys()
    assert covered == named, "tests/mutants/table.toml needs a row for each rule and promise"


def test_ids_are_unique_and_begin_with_their_rule() -> None:
    ids = [mutant.id for mutant in TABLE.mutants]
    assert len(set(ids)) == len(ids)
    for mutant in TABLE.mutants:
        assert mutant.id.startswith(f"{mutant.rule.lower()}-"), mutant.id
        assert mutant.breaks.endswith("."), mutant.id


ROW = Mutant("r1-x", "R1", "if held:", "if True:", "It breaks.", ("unit",), file="a.py")
AT_A_SYMBOL = replace(ROW, old="return held", new="return 1", symbol="Atlas.take", file="")
CODE = """\
held = True
if held:
    pass
class Atlas:
    def take(self):
        return held
    def drop(self):
        return held
class Reset: ...
"""


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (ROW, None),
        (replace(ROW, file="b.py"), r"row r1-x \(R1\): streamgroup/b.py does not exist. Name the definition"),
        (replace(ROW, old="held"), r"`old` occurs 4 times in streamgroup/a.py. Lengthen"),
        (replace(ROW, old="if is_held:"), r"does not occur .*closest is line 2: 'if held:'.*--only r1-x"),
        (replace(ROW, new="if:"), r"not valid Python with `new`: .* in line 2"),
        (replace(ROW, suites=("unit", "nowhere")), r"no such suite: nowhere"),
        (AT_A_SYMBOL, None),
        (replace(AT_A_SYMBOL, symbol="Atlas"), r"`old` occurs 2 times in `Atlas` \(streamgroup/a.py\). Lengthen"),
        (
            replace(AT_A_SYMBOL, old="return gone"),
            r"does not occur in `Atlas.take` .*closest is line 6: .*change `symbol`",
        ),
        (replace(AT_A_SYMBOL, symbol="Atlas.gone"), r"nothing is called `Atlas.gone`.*. Name the definition"),
        (replace(AT_A_SYMBOL, symbol="Reset"), r"`Reset` is not clear: `Reset`, `desk.Reset`. Name"),
    ],
    ids=[
        *("fits", "no file", "several times", "not there", "no Python", "no suite"),
        *("symbol", "twice in a symbol", "not in a symbol", "no symbol", "several symbols"),
    ],
)
def test_a_row_that_does_not_fit_says_what_to_do(tmp_path: Path, row: Mutant, told: str | None) -> None:
    (tmp_path / "streamgroup" / "desk").mkdir(parents=True)
    (tmp_path / "streamgroup" / "a.py").write_text(CODE)
    (tmp_path / "streamgroup" / "desk" / "b.py").write_text("class Reset: ...\n")
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    problem = problem_of(row, tmp_path)
    assert (problem is None) is (told is None)
    assert told is None or re.search(told, problem or "")


def test_a_mutant_is_planted_in_its_definition_alone(tmp_path: Path) -> None:
    (tmp_path / "streamgroup").mkdir()
    (tmp_path / "streamgroup" / "a.py").write_text(CODE)
    place = AT_A_SYMBOL.place(tmp_path)
    assert planted(AT_A_SYMBOL, CODE, place) == CODE.replace("return held", "return 1", 1)
    drop = replace(AT_A_SYMBOL, symbol="Atlas.drop")
    assert "take(self):\n        return held" in planted(drop, CODE, drop.place(tmp_path))


@pytest.mark.parametrize("where", [{"symbol": "Atlas"}, {"file": ""}], ids=["both", "none"])
def test_a_row_names_a_symbol_or_a_file(where: dict[str, str]) -> None:
    with pytest.raises(TypeError, match="row r1-x must name a symbol or a file"):
        replace(ROW, **where)


# -- the judge --------------------------------------------------------------------------------------------------------


class Answering(Copy):
    """A copy with one file, whose suites end as a test says."""

    def __init__(self, root: Path, code: int | None, output: str) -> None:
        self.root = root
        self.answer = code, output
        self.tested = ""

    @contextmanager
    def lend(self) -> Iterator[Copy]:
        yield self

    def test(self, *_: Any) -> tuple[int | None, str]:
        self.tested = (self.root / "streamgroup/a.py").read_text()
        return self.answer


@pytest.mark.parametrize(
    ("code", "last_line", "verdict", "noticed_by"),
    [
        (1, "FAILED tests/unit/a.py::test_x[a b] - AssertionError: no", Verdict.KILLED, "unit/a.py::test_x[a b]"),
        (1, "ERROR tests/unit/a.py::test_x - streamgroup.errors.ConfigError: no", Verdict.KILLED, "unit/a.py::test_x"),
        (1, "FAILED tests/unit/a.py::test_x - NameError: name 'hold'", Verdict.BROKEN, "unit/a.py::test_x"),
        (2, "ERROR tests/unit/a.py - ImportError: no", Verdict.BROKEN, "unit/a.py"),
        (79, "streamgroup is imported from elsewhere", Verdict.BROKEN, ""),
        (0, "5 passed", Verdict.SURVIVED, "nobody: It breaks."),
        (None, "", Verdict.TIMED_OUT, ""),
    ],
    ids=["a failure", "an error", "a slip", "a collection", "other code", "none", "a hang"],
)
def test_only_a_test_that_fails_for_the_mutants_sake_kills_it(
    tmp_path: Path, code: int | None, last_line: str, verdict: Verdict, noticed_by: str
) -> None:
    file = tmp_path / "streamgroup/a.py"
    file.parent.mkdir()
    file.write_text("if held:\n    pass\n")
    compiled = Path(cache_from_source(str(file)))
    compiled.parent.mkdir()
    compiled.touch()
    copy = Answering(tmp_path, code, f"...\n{last_line}\n")
    outcome = judge(copy, ROW, 1.0)  # type: ignore[arg-type]
    assert (outcome.verdict, outcome.noticed_by) == (verdict, noticed_by)
    assert copy.tested == "if True:\n    pass\n"
    assert file.read_text() == "if held:\n    pass\n"
    assert not compiled.exists(), "Python would run it in place of the new text"

"""The pages name only what exists (links, files, tests, symbols, bugs, mutants, commands) and keep their form."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgroup.options.secrets import REDACTION_REGEX
from tests.mutants.table import RULES, read_table
from tests.sim.registrybugs import ALL_BUGS
from tools.reference.errors import NAMES
from tools.symbols import symbols

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
PAGES = sorted(DOCS.glob("*.md")) + [
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
]
MOST_LINES = 250
MOST_FILES = 100
"""Files of Python that all pages may name: jobs, examples, and files that a reader opens, makes or runs."""
MOST_WORDS_IN_A_CELL = 20
GENERATED = frozenset({"options.md", "write-options.md"}) | NAMES | {"cli-options.md", "metrics-reference.md"}
"""Pages whose tables are written from code: they describe an option in its cell."""
MUTANTS = read_table()
FOREIGN = frozenset({"Arrays", "ListVector", "String", "Trigger"})
"""Classes of Java and Spark whose members pages name."""
OF_THE_CODE = re.compile(
    r"architecture|decisions|error-codes|fuzzing|group|kafka07|mutants|performance.*|producer|protocol-.*|rules.*|run"
    r"|simulation|threads|zookeeper-groups"
)
"""Pages about the code, on which each capitalized name in backquotes is a class of it, or one of these."""
FOREIGN_CLASSES = frozenset({"AvailableNow", "Future", "Once", "ReadAllAvailable"})

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]*)\)")
_TEST = re.compile(r"(?P<file>[\w/]*test_\w+\.py)(?:::(?P<name>\S+))?")
_MORE = re.compile(r"(?:test_|…)\S*")
"""Another test of the file named last, on the same row or in the same paragraph."""
_FILE = re.compile(r"[\w/]+\.py")
_MEMBER = re.compile(r"(?:[a-z]\w*\.)*([A-Z]\w*[a-z]\w*)\.[a-z_]\w*")
_CLASS = re.compile(r"(?:[a-z]\w*\.)*[A-Z][a-z]\w*")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_MAKE = re.compile(r"(?:^(?: {4})?|`)make ([a-z-]+)", re.MULTILINE)
_MAKE_A_FILE = re.compile(r"[Mm]ake .*?the file `(\w+\.py)`")
_COMMAND = re.compile(r"`streamgroup ([a-z]+)")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def passages(page: Path) -> Iterator[list[str]]:
    """The texts in backquotes, by table row, list item or paragraph; code blocks are left out."""
    passage: list[str] = []
    for line in [*_FENCE.sub("", page.read_text()).splitlines(), ""]:
        if not line.strip() or line.startswith(("|", "- ")):
            yield passage
            passage = []
        passage += _CODE.findall(line)


def named_tests(page: Path) -> Iterator[tuple[str, str]]:
    """Each test as (file, name); the name may be empty or abbreviated by `…`.

    A test is named by its file and its name, or by its name alone if that is clear. The next ones may be in its file.
    """
    for passage in passages(page):
        file = ""
        for code in passage:
            if (named := _TEST.fullmatch(code)) is not None:
                file = named["file"]
                yield file, named["name"] or ""
            elif _MORE.fullmatch(code) and code.strip("…_") not in {"", "test"} and not code.endswith("_"):
                if not file or ((path := file_of(file)) is not None and not is_defined(path, code)):
                    file = symbols().test_called(code).path
                yield file, code


def file_of(named: str) -> Path | None:
    """`unit/group/test_ledger.py` is `tests/unit/group/test_ledger.py`; without a directory nobody would find it."""
    paths = [ROOT / named, ROOT / "tests" / named]
    return next((path for path in paths if "/" in named and path.is_file()), None)


@functools.cache
def names_in(path: Path) -> frozenset[str]:
    """The definitions of a test file or a module: functions, classes, methods, attributes, constants."""
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
def test_every_member_of_a_class_named_exists(page: Path) -> None:
    for passage in passages(page):
        for code in passage:
            if (
                (named := _MEMBER.fullmatch(code)) is not None
                and named[1] not in FOREIGN
                and not code.endswith((".md", ".scala"))
            ):
                symbols().place_of(code)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if OF_THE_CODE.fullmatch(page.stem)], ids=lambda page: page.name
)
def test_every_class_named_exists(page: Path) -> None:
    for code in {code for passage in passages(page) for code in passage if _CLASS.fullmatch(code)} - FOREIGN_CLASSES:
        symbols().place_of(code)


@functools.cache
def python_files() -> frozenset[str]:
    return frozenset(path.name for room in ("streamgroup", "tests", "jobs") for path in (ROOT / room).rglob("*.py"))


@each_page
def test_every_file_named_exists(page: Path) -> None:
    made_by_the_reader = set(_MAKE_A_FILE.findall(page.read_text()))
    for file in (code for passage in passages(page) for code in passage if _FILE.fullmatch(code)):
        if _TEST.fullmatch(file) or file in made_by_the_reader:
            continue
        known = file in python_files() or any((ROOT / room / file).is_file() for room in ("", "streamgroup", "tests"))
        assert known, f"{page.name}: {file}"


@each_page
def test_every_command_named_exists(page: Path) -> None:
    text = page.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets.issuperset(_MAKE.findall(text))
    commands = {path.stem for path in (ROOT / "streamgroup" / "cli").glob("[a-z]*.py")}
    assert commands.issuperset(_COMMAND.findall(text))


def code_cells(page: Path) -> Iterator[str]:
    """The cells of the columns that are headed `code`, by row."""
    column = None
    for line in _FENCE.sub("", page.read_text()).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if column is None or not cells:
            column = cells.index("code") if "code" in cells else None
        else:
            yield cells[column] if column < len(cells) else ""


@each_page
def test_the_code_in_a_table_exists(page: Path) -> None:
    for code in (code for cell in code_cells(page) for code in _CODE.findall(cell)):
        if _NAME.fullmatch(code) and not code.endswith((".py", ".toml")):
            symbols().place_of(code)


def test_decisions_are_in_a_table_of_code() -> None:
    assert len(list(code_cells(DOCS / "decisions.md"))) > 20


def test_pages_name_definitions_and_tests_without_their_files() -> None:
    files = {str(page.relative_to(ROOT)): len(re.findall(r"\w\.py\b", page.read_text())) for page in PAGES}
    assert sum(files.values()) <= MOST_FILES, f"name the class, the function or the test: {files}"


# --- the form of a page ----------------------------------------------------------------------------------------------


def test_every_page_is_linked_from_the_index() -> None:
    linked = {target.partition("#")[0] for target in _LINK.findall(INDEX.read_text())}
    missing = {page.name for page in DOCS.glob("*.md")} - linked - {INDEX.name}
    assert not missing, "docs/README.md must link every page of docs/"


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_a_page_begins_with_its_readers(page: Path) -> None:
    if page == INDEX or page.name in {"options.md", "jobs.md"}:
        return
    title, opening = page.read_text().split("\n\n")[:2]
    assert title.startswith("# ")
    assert opening.startswith("For "), "say for whom the page is, and what they can do after it"


@pytest.mark.parametrize("page", [p for p in PAGES if p.name not in {*GENERATED, "CHANGELOG.md"}], ids=lambda p: p.name)
def test_every_page_is_short(page: Path) -> None:
    assert len(page.read_text().splitlines()) < MOST_LINES, "split the page by purpose"


def words_in(cell: str) -> int:
    """How many words a reader meets in a cell; names in backquotes and addresses of links do not count."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", _CODE.sub(" ", cell))
    return len(re.findall(r"\w+", text))


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in GENERATED], ids=lambda page: page.name)
def test_a_table_holds_facts_and_no_paragraphs(page: Path) -> None:
    for line in _FENCE.sub("", page.read_text()).splitlines():
        for cell in line.strip("|").split(" | ") if line.startswith("|") else ():
            assert words_in(cell) <= MOST_WORDS_IN_A_CELL, f"{page.name}: write sentences below the table: {cell}"


# --- the rules -------------------------------------------------------------------------------------------------------


def sections() -> dict[str, list[str]]:
    """The paragraphs of each rule's section, by rule."""
    found = {}
    for page in sorted(DOCS.glob("rules*.md")):
        for part in re.split(r"^#+ (?=R\d+\. )", page.read_text(), flags=re.MULTILINE)[1:]:
            rule, _, rest = part.partition(". ")
            section = re.split(r"^#", rest, maxsplit=1, flags=re.MULTILINE)[0]
            assert rule not in found, f"{rule} has two sections"
            found[rule] = section.split("\n\n")
    return found


SECTIONS = sections()


def listed(rule: str, head: str) -> list[str]:
    """The texts in backquotes of one item (`Code`, `Tests`, ...) of a rule's list; empty without such an item."""
    text = "\n\n".join(SECTIONS[rule])
    item = re.search(rf"^- {head}:(.*?)(?=^- |^\s*$|\Z)", text, re.MULTILINE | re.DOTALL)
    return _CODE.findall(item[1]) if item is not None else []


def test_every_rule_has_one_section_in_order() -> None:
    assert sorted(SECTIONS, key=lambda rule: int(rule[1:])) == list(RULES)


def test_no_page_names_an_unknown_rule() -> None:
    for page in PAGES:
        named = set(re.findall(r"\bR\d+\b", _FENCE.sub("", page.read_text())))
        assert named <= set(RULES), page.name


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_its_story(rule: str) -> None:
    why = [paragraph for paragraph in SECTIONS[rule] if paragraph.startswith("**Why.**")]
    assert len(why) == 1, f"{rule} has one paragraph that begins with **Why.**"
    assert len(why[0].split()) >= 10, f"the story of {rule} says what went wrong under a simpler rule"


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_where_its_section_says(rule: str) -> None:
    code = listed(rule, "Code")
    assert code, "a rule lives somewhere"
    for one in code:
        symbols().place_of(one)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_its_tests_its_planted_bugs_and_its_mutants(rule: str) -> None:
    assert any(_TEST.fullmatch(one) or _MORE.fullmatch(one) for one in listed(rule, "Tests")), "a rule has tests"
    assert set(listed(rule, "Planted bugs")) <= {name for name, bug in ALL_BUGS.items() if bug.rule == rule}
    mutants = {mutant.id for mutant in MUTANTS.mutants if mutant.rule == rule}
    assert set(listed(rule, "Mutants")) <= mutants, "a mutant is named that the table does not have"
    assert listed(rule, "Mutants"), "a rule has mutants"


def test_the_page_of_planted_bugs_lists_each_with_its_rule() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (\w+) \|", (DOCS / "planted-bugs.md").read_text(), re.MULTILINE)
    assert dict(rows) == {name: bug.rule for name, bug in ALL_BUGS.items()}


def test_the_page_about_secrets_shows_the_setting_of_spark() -> None:
    assert f"\nspark.redaction.regex  {REDACTION_REGEX}\n" in (DOCS / "secrets.md").read_text()

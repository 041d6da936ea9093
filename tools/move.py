"""Move a module, a package or one definition, and rewrite all that refers to it.

    python -m tools.move streamgroup.group.commits streamgroup.group.proofs      # with tests/unit/group/test_commits.py
    python -m tools.move streamgroup.group.commits streamgroup.group.ledger      # merges, because ledger exists
    python -m tools.move streamgroup.group.commits streamgroup.group.ledger streamgroup.group.books   # both become one
    python -m tools.move streamgroup.group.member:Wanted streamgroup.group.requests
    python -m tools.move streamgroup.group.member:Wanted streamgroup.group.member:Request      # renames it

Rewritten are imports, dotted names in strings, paths on pages, in tables and in comments, and the lists of
pyproject.toml. A test file that is named after the module goes with it. All texts are computed and checked before any
is written. The command ends with what is left to do by hand.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import click

from tests.mutants.table import problem_of, read_table
from tools.merge import Refused, bound, cut_out, inlined, merged, origins, redirected, renamed

ROOT = Path(__file__).parents[1]
_PATH = re.compile(r"(?<![\w.-])(?:[\w-]+/)*[\w-]+\.py(?!\w)")
_NOT_OURS = re.compile(r"tests/vectors/|docs/pictures/|.*\.(lock|svg|jsonl|sha256)$")
_SHORT = ("streamgroup/", "tests/")
"""Pages and tables leave these out of a path."""
_RENAME = "Rename a definition of OLD or of its test file; MODULE, such as test_pending, says of which."


class Change(NamedTuple):
    """A module, or a package with all in it, that goes elsewhere; or some names of a module."""

    old: str
    new: str
    names: dict[str, str] | None = None
    """The names that go, and how they are called then; None: all."""

    def target(self, module: str, name: str) -> tuple[str, str]:
        """Where a name of a module is after the change."""
        if self.names is not None:
            return (self.new, self.names[name]) if module == self.old and name in self.names else (module, name)
        if f"{module}.{name}" == self.old:
            package, _, leaf = self.new.rpartition(".")
            return package, leaf
        return (self.new + module[len(self.old) :], name) if f"{module}.".startswith(f"{self.old}.") else (module, name)

    def applied(self, text: str, *, is_python: bool) -> str:
        """Return a text with imports and dotted names rewritten."""
        package, _, leaf = self.old.rpartition(".")
        if is_python and (self.old in text or (f"from {package} import " in text and leaf in text)):
            text = redirected(text, self.target, self.old if self.names else "")
        old, new = re.escape(self.old), self.new
        if self.names is None:
            return re.sub(rf"(?<![\w.]){old}(?!\w)", new, text)
        for name, other in self.names.items():
            text = re.sub(rf"(?<![\w.]){old}\.{name}(?!\w)", f"{new}.{other}", text)
        return text


class Sources:
    """The text files of a checkout, as they will be."""

    def __init__(self, root: Path) -> None:
        self.root = root
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=root, check=True, capture_output=True, text=True
        )
        names = [name for name in listed.stdout.splitlines() if (root / name).is_file()]
        self.texts = {}
        for name in names:
            if not _NOT_OURS.match(name) and b"\0" not in (data := (root / name).read_bytes()):
                self.texts[name] = data.decode()
        self.before = dict(self.texts)
        self.gone: dict[str, str] = {}
        """The files that go elsewhere, and where."""
        self.packages: dict[str, str] = {}
        """The directories that go elsewhere, and where."""
        self.notes: list[str] = []
        self.problems: list[str] = []

    def path_of(self, module: str) -> str:
        """Return the file of a module, or the directory of a package."""
        path = module.replace(".", "/")
        return path if f"{path}/__init__.py" in self.texts else f"{path}.py"

    def apply(self, change: Change) -> None:
        """Rewrite imports and dotted names everywhere."""
        for path, text in self.texts.items():
            if change.old.rpartition(".")[2] in text:
                self.texts[path] = change.applied(text, is_python=path.endswith(".py"))

    def relocate(self, old: str, new: str) -> None:
        """Rewrite the paths of a file, or of a directory with all in it, everywhere. The texts stay where they are."""
        gone = {one: new + one[len(old) :] for one in self.texts if f"{one}/".startswith(f"{old}/")}
        after = {*self.texts, *gone.values()} - gone.keys()
        leaves = {PurePosixPath(path).name for path in gone}
        for path, text in self.texts.items():
            if path not in gone and old not in text and not any(leaf in text for leaf in leaves):
                continue
            home = gone.get(path, path)
            spelled = {}
            for token in {*_PATH.findall(text)}:
                if home == path and PurePosixPath(token).name not in leaves:
                    continue
                file = _resolved(token, path, self.texts)
                target = gone.get(file or "", file)
                if file and target and (target != file or home != path) and _resolved(token, home, after) != target:
                    leaf = PurePosixPath(target).name
                    short = next((target.removeprefix(base) for base in _SHORT if target.startswith(base)), target)
                    is_near = "/" not in token and _resolved(leaf, home, after) == target
                    spelled[token] = target if token == file else leaf if is_near else short
            if old not in gone and old in text:
                spelled[old] = new
            for token, other in spelled.items():
                text = re.sub(rf"(?<![\w./-]){re.escape(token)}(?![\w-])", other, text)  # noqa: PLW2901
            if gone and new in self.before and path.endswith((".toml", ".md")) and text != self.texts[path]:
                text = _once(text, new)  # noqa: PLW2901
            self.texts[path] = text
        self.gone |= gone

    def merge(self, old: str, new: str, module: str) -> None:
        """Append the definitions of a file to another."""
        text = self.texts.pop(old)
        try:
            self.texts[new] = merged(inlined(self.texts[new], module), inlined(text, module), self.source)
        except Refused as refused:
            self.problems.append(f"{old} into {new}: {refused}")
        docstring = ast.get_docstring(ast.parse(self.before[old]))
        if docstring and not new.startswith("tests/unit/"):
            self.notes.append(f"the docstring of {old} is dropped; keep what matters:\n{docstring}")

    def source(self, module: str, name: str) -> tuple[str, str]:
        """Return the module that defines a name which `module` may only pass on."""
        text = self.texts.get(self.path_of(module), "")
        found = origins(ast.parse(text).body).get(name)
        return (module, name) if found is None else self.source(*found)

    def carry(self) -> None:
        """Put the texts where their files go."""
        self.texts = {self.gone.get(path, path): text for path, text in self.texts.items()}

    def write(self) -> list[str]:
        """Write what has changed, and return the files that were written."""
        for old, new in self.packages.items():
            (self.root / new).parent.mkdir(parents=True, exist_ok=True)
            (self.root / old).rename(self.root / new)
        for path in self.before.keys() - self.texts.keys():
            (self.root / path).unlink(missing_ok=True)
        changed = [path for path, text in self.texts.items() if text != self.before.get(path)]
        for path in changed:
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(self.texts[path])
        return changed


def _resolved(token: str, path: str, files: Collection[str]) -> str | None:
    """The file that a text in `path` calls `token`: from the root, the package, the tests, or a directory around it."""
    around = ["" if str(parent) == "." else f"{parent}/" for parent in PurePosixPath(path).parents]
    found = [base + token for base in (*(("", *_SHORT) if "/" in token else ()), *around) if base + token in files]
    if not found and "/" not in token and not path.endswith(".py"):
        found = [one for one in files if one.endswith(f"/{token}")]
        return found[0] if len(found) == 1 else None
    return found[0] if found else None


def _once(text: str, new: str) -> str:
    """Leave one of two equal elements of an array, or of two equal names in a row on a page."""
    for name in {re.escape(new), *(re.escape(new.removeprefix(base)) for base in _SHORT)}:
        text = re.sub(rf"(`{name}`)(?:(?:,| and) {name})+", r"\1", text)
        text = re.sub(rf'(\[[^\[\]]*"{name}"[^\[\]]*?),\s*"{name}"', r"\1", text)
    return text


def _layers(text: str, old: str, new: str) -> str:
    """Rewrite pyproject.toml's layers, which are called by their names in a container."""

    def rewritten(match: re.Match[str]) -> str:
        container, layers = f"{match[1]}.", match[2]
        if not old.startswith(container) or "." in (name := old.removeprefix(container)):
            return match[0]
        other = new.removeprefix(container) if new.startswith(container) else ""
        if not other or "." in other or re.search(rf"\b{other}\b", layers):
            layers = re.sub(rf" [:|] {name}\b|\b{name} [:|] |\n *\"{name}\",", "", layers)
        layers = re.sub(rf"\b{name}\b", other, layers)
        return match[0].replace(match[2], layers)

    return re.sub(r'containers = \["([\w.]+)"\]\nlayers = \[(.*?)\n\]', rewritten, text, flags=re.DOTALL)


def _cycle(texts: dict[str, str], module: str) -> list[str]:
    """Return the modules by which `module` imports itself, empty if it does not."""
    modules = {path.removesuffix(".py").replace("/", "."): path for path in texts if path.endswith(".py")}
    came_from: dict[str, str] = {}
    todo = [module]
    while todo:
        one = todo.pop()
        imports = [
            node for node in ast.parse(texts[modules[one]]).body if isinstance(node, (ast.Import, ast.ImportFrom))
        ]
        for source, name in origins(imports).values():
            other = next((full for full in (f"{source}.{name}", source, name) if full in modules), None)
            if other == module:
                found = [module, one]
                while found[-1] != module:
                    found.append(came_from[found[-1]])
                return found[::-1]
            if other is not None and other not in came_from:
                came_from[other] = one
                todo.append(other)
    return []


def test_of(module: str) -> str:
    """Return the dotted name of the tests that are named after a module or a package."""
    package, _, leaf = module.partition(".")[2].rpartition(".")
    return ".".join(filter(None, ("tests.unit", package, f"test_{leaf.lstrip('_')}")))


def move(root: Path, olds: Collection[str], new: str, names: dict[str, str]) -> tuple[list[str], list[str]]:
    """Move `olds` to `new`, and return the files written and notes. Raises Refused before anything is written."""
    sources = Sources(root)
    for old in olds:
        module, _, symbol = old.partition(":")
        if symbol and ":" in new:
            _rename_symbol(sources, module, symbol, new)
            continue
        if symbol:
            _move_symbol(sources, module, new, symbol)
            continue
        _move_module(sources, old, new, names)
        if old.startswith("streamgroup."):
            is_module = sources.path_of(new).endswith(".py")
            tests = [test_of(one) if is_module else one.replace("streamgroup", "tests.unit", 1) for one in (old, new)]
            if not {path := sources.path_of(tests[0]), f"{path}/__init__.py"}.isdisjoint(sources.texts):
                _move_module(sources, tests[0], tests[1], names)
    if (
        not sources.problems
        and ":" not in new
        and sources.path_of(new) in sources.texts
        and (loop := _cycle(sources.texts, new))
    ):
        sources.problems.append(f"an import cycle: {' -> '.join(loop)}")
    if sources.problems:
        raise Refused("\n".join(sources.problems))
    return sources.write(), sources.notes


def _move_module(sources: Sources, old: str, new: str, names: dict[str, str]) -> None:
    old_path, new_path = sources.path_of(old), sources.path_of(new)
    is_package = not old_path.endswith(".py")
    if is_package:
        new_path = new.replace(".", "/")
        sources.packages[old_path] = new_path
    elif old_path not in sources.texts:
        raise Refused(f"there is no module {old}")
    if f"{new_path}/__init__.py" in sources.texts:
        raise Refused(f"{new} is a package: name the module in it")
    package = new_path.rpartition("/")[0]
    if f"{package}/__init__.py" not in sources.texts:
        if not new.startswith("tests."):
            raise Refused(f"there is no package {package}: create it, with its docstring")
        sources.texts[f"{package}/__init__.py"] = ""
    if not is_package:
        defined = bound(ast.parse(sources.texts[old_path]))
        own = {}
        for key, other in names.items():
            module, _, name = key.rpartition(":")
            if name in defined and module in {"", old.rpartition(".")[2]}:
                own[name] = other
        if own:
            sources.apply(Change(old, old, own))
            sources.texts[old_path] = renamed(sources.texts[old_path], own)
    merges = new_path in sources.texts
    sources.relocate(old_path, new_path)
    sources.apply(Change(old, new))
    sources.texts["pyproject.toml"] = _once(_layers(sources.texts["pyproject.toml"], old, new), new)
    if merges:
        sources.merge(old_path, new_path, new)
    else:
        sources.carry()


def _rename_symbol(sources: Sources, module: str, symbol: str, new: str) -> None:
    path, (target, _, other) = sources.path_of(module), new.partition(":")
    if target != module or path not in sources.texts:
        raise Refused(f"a definition is renamed in the module that has it: {module}:{other}")
    defined = bound(ast.parse(sources.texts[path]))
    if symbol not in defined or other in defined:
        raise Refused(f"{module} must define {symbol}, and not {other}")
    sources.apply(Change(module, module, {symbol: other}))
    sources.texts[path] = renamed(sources.texts[path], {symbol: other})
    packages = ""
    for part in module.split(".")[1:-1]:
        packages = rf"(?:{packages}{part}\.)?"
    for file, text in sources.texts.items():
        if file.endswith((".md", "mutants/table.toml")):  # `Name`, `Name.method`, `group.Name` in code
            sources.texts[file] = re.sub(rf"(?<=[`\"])({packages}){symbol}(?=[`\".(])", rf"\1{other}", text)
        elif file.endswith(".py") and f'"{symbol}"' in text:  # a table of names by module, and exports
            text = re.sub(rf'"{symbol}"(?=: "{re.escape(module)}")', f'"{other}"', text)  # noqa: PLW2901
            if other in bound(ast.parse(text)):
                text = re.sub(rf'(__all__ = \[[^\]]*)"{symbol}"', rf'\1"{other}"', text)  # noqa: PLW2901
            sources.texts[file] = text


def _move_symbol(sources: Sources, old: str, new: str, symbol: str) -> None:
    old_path, new_path = sources.path_of(old), sources.path_of(new)
    if not {old_path, new_path} <= sources.texts.keys():
        raise Refused(f"{old} and {new} must exist")
    rest, piece = cut_out(sources.texts[old_path], old, {symbol}, new)
    sources.texts[old_path] = rest
    sources.apply(Change(old, new, {symbol: symbol}))
    sources.texts[new_path] = merged(inlined(sources.texts[new_path], new), inlined(piece, new), sources.source)


def left(root: Path, olds: Collection[str], new: str) -> Iterator[str]:
    """Yield what is to do by hand: unclear mentions of `olds`, which are now `new`, and mutants that no longer fit."""
    gone = [old.split(".") for old in olds if ":" not in old]
    files = "|".join(f"{parts[-1]}\\.py" for parts in gone) or "(?!)"  # matches nothing
    names = "|".join(rf"{parts[-2]}\.{parts[-1]}" for parts in gone) or "(?!)"
    former = "|".join(name for old in olds if (name := old.partition(":")[2]) and ":" in new) or "(?!)"
    sources = Sources(root)
    for path, text in sources.texts.items():
        if path.endswith(".py") and re.search(rf"\b(?:{former})\b", text):
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if "NAME" not in tokenize.tok_name[token.type] and re.search(rf"\b(?:{former})\b", token.string):
                    yield f"{path}:{token.start[0]} may mean the former name: {' '.join(token.string.split())[:100]}"
        for number, line in enumerate(text.splitlines(), 1):
            for token in re.findall(rf"(?<![\w.-])(?:[\w-]+/)*(?:{files})(?!\w)", line):
                if _resolved(token, path, sources.texts) is None:
                    yield f"{path}:{number} names {token}: {line.strip()}"
            if path.endswith(".py") and (found := re.search(rf"(?<!\w)(?:{names})(?!\w)", line)):
                yield f"{path}:{number} may mean the module by {found[0]}: {line.strip()}"
    yield from filter(None, (problem_of(one, root) for one in read_table(root / "tests/mutants/table.toml").mutants))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("old", nargs=-1, required=True)
@click.argument("new")
@click.option("--rename", multiple=True, metavar="[MODULE:]NAME=OTHER", help=_RENAME)
def main(old: tuple[str, ...], new: str, rename: tuple[str, ...]) -> None:
    """Move the module, package or definition OLD to NEW, and merge it into NEW if that is a module already.

    Several OLD become one module.
    """
    try:
        changed, notes = move(ROOT, old, new, dict(one.split("=", 1) for one in rename))
    except Refused as refused:
        raise click.ClickException(f"{refused}. Nothing was written") from None
    python = [path for path in changed if path.endswith(".py")]
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run(
        [*ruff, "check", "--quiet", "--fix-only", "--select", "I,F401,RUF022", *python], cwd=ROOT, check=False
    )
    subprocess.run([*ruff, "format", "--quiet", *python], cwd=ROOT, check=True)
    subprocess.run(["git", "add", "--all"], cwd=ROOT, check=True)
    click.echo(f"{len(changed)} files changed")
    for note in [*notes, *left(ROOT, old, new)]:
        click.echo(f"- {note}")
    subprocess.run([*ruff, "check", "--quiet", "--output-format", "concise", *python], cwd=ROOT, check=False)


if __name__ == "__main__":
    main()

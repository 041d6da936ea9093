"""Print how the code is divided: `python -m tools.metrics [--list] [CHECKOUT]`.

`CHECKOUT` is the root of a checkout of any age; without it, this one. Nothing in it is imported or run.
"""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
FEWEST_LINES = 70
"""A module with fewer lines and one importer is a part of its importer, unless it has a reason of its own."""
_PATH = re.compile(r"[\w/]*\w\.py\b")
_PLANTED = re.compile(r"^\| `[\w-]+` \| \w+ \|", re.MULTILINE)


@dataclass
class Module:
    """A module of the package that is not an `__init__`."""

    path: str
    lines: int
    importers: set[str] = field(default_factory=set)
    """Dotted names of the modules of the package that import it, in functions and for type checkers, too."""

    @property
    def is_small(self) -> bool:
        return self.lines < FEWEST_LINES


class Checkout:
    """A checkout of the project, of which only tracked files count."""

    def __init__(self, root: Path) -> None:
        listed = subprocess.run(["git", "ls-files"], cwd=root, check=True, capture_output=True, text=True)
        self.root = root
        self.files = [name for name in listed.stdout.splitlines() if (root / name).is_file()]

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def python(self, room: str) -> list[str]:
        """Return the files of Python in a directory."""
        return [path for path in self.files if path.startswith(f"{room}/") and path.endswith(".py")]

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        """The files of the package by their dotted names, `streamgroup.coordinator.run` for its `__init__.py`."""
        return {_dotted(path): ast.parse(self.read(path)) for path in self.python("streamgroup")}

    @cached_property
    def modules(self) -> dict[str, Module]:
        """The modules by their dotted names."""
        found = {
            _dotted(path): Module(path, len(self.read(path).splitlines()))
            for path in self.python("streamgroup")
            if not path.endswith("__init__.py")
        }
        for importer, tree in self.trees.items():
            for name in _imported(tree):
                if name in found and name != importer:
                    found[name].importers.add(importer)
        return found

    @cached_property
    def kinds_of_lines(self) -> Counter[str]:
        """How many lines of the package are code, docstrings, comments, imports and blank."""
        total: Counter[str] = Counter()
        for path in self.python("streamgroup"):
            total.update(kinds(self.read(path)))
        return total

    @cached_property
    def duplicate_classes(self) -> dict[str, list[str]]:
        """The modules of each class name that several modules have."""
        found = defaultdict(list)
        for module, tree in self.trees.items():
            for name in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}:
                found[name].append(module)
        return {name: sorted(modules) for name, modules in sorted(found.items()) if len(modules) > 1}

    @cached_property
    def paths_on_pages(self) -> dict[str, list[str]]:
        """The files of Python that each page names, each time that it does."""
        pages = [path for path in self.files if re.fullmatch(r"(docs/)?[\w.-]+\.md", path)]
        return {page: found for page in pages if (found := _PATH.findall(self.read(page)))}

    @property
    def rooms(self) -> list[str]:
        """The packages directly in the package."""
        return sorted({path.split("/")[1] for path in self.python("streamgroup") if path.count("/") > 1})

    @property
    def mutants(self) -> int:
        return len(tomllib.loads(self.read("tests/mutants/table.toml"))["mutant"])

    @property
    def planted_bugs(self) -> int:
        return len(_PLANTED.findall(self.read("docs/planted-bugs.md")))


def _dotted(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imported(tree: ast.AST) -> Iterable[str]:
    """The dotted names that a file imports, or reads from a table of names to import when asked for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{one.name}" for one in node.names)
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def kinds(text: str) -> Counter[str]:
    """Return how many lines of a file are of each kind. A string that stands alone describes what is before it."""
    lines = text.splitlines()
    kind = ["blank" if not line.strip() else "comment" if line.lstrip().startswith("#") else "code" for line in lines]
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import() | ast.ImportFrom():
                name = "import"
            case ast.Expr(value=ast.Constant(value=str())):
                name = "docstring"
            case _:
                continue
        kind[node.lineno - 1 : node.end_lineno] = [name] * ((node.end_lineno or 0) - node.lineno + 1)
    return Counter(kind)


def table(of: Checkout) -> dict[str, float]:
    """Return the figures by their names."""
    modules = of.modules.values()
    files, unit = of.python("streamgroup"), of.python("tests/unit")
    return {
        "files": len(files),
        "lines": sum(of.kinds_of_lines.values()),
        **{f"lines: {kind}": of.kinds_of_lines[kind] for kind in ("code", "docstring", "blank", "comment", "import")},
        "modules (files but __init__.py)": len(modules),
        "modules with one importer": sum(len(one.importers) == 1 for one in modules),
        f"modules under {FEWEST_LINES} lines": sum(one.is_small for one in modules),
        "modules under both": sum(one.is_small and len(one.importers) == 1 for one in modules),
        "median lines of a file": statistics.median(len(of.read(path).splitlines()) for path in files),
        "class names in several modules": len(of.duplicate_classes),
        "top-level rooms": len(of.rooms),
        "paths of files on pages": sum(map(len, of.paths_on_pages.values())),
        "  of tests": sum("test_" in path for paths in of.paths_on_pages.values() for path in paths),
        "unit test files": sum("/test_" in path for path in unit),
        "unit test lines": sum(len(of.read(path).splitlines()) for path in unit),
        "mutants": of.mutants,
        "planted bugs": of.planted_bugs,
    }


def offenders(of: Checkout) -> Iterable[str]:
    """Yield the lines of `--list`: by name what a figure only counts."""
    yield "\nmodules with one importer:"
    lone = [one for one in of.modules.values() if len(one.importers) == 1]
    yield from (f"  {one.path} {one.lines} <- {next(iter(one.importers))}" for one in lone)
    yield f"\nmodules under {FEWEST_LINES} lines:"
    small = sorted((one.lines, one.path, len(one.importers)) for one in of.modules.values() if one.is_small)
    yield from (f"  {path} {lines}, importers: {importers}" for lines, path, importers in small)
    yield "\nclass names in several modules:"
    yield from (f"  {name}: {', '.join(modules)}" for name, modules in of.duplicate_classes.items())
    yield "\npaths of files by page:"
    yield from (
        f"  {page} {len(paths)}" for page, paths in sorted(of.paths_on_pages.items(), key=lambda one: -len(one[1]))
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("checkout", type=click.Path(exists=True, file_okay=False, path_type=Path), default=ROOT)
@click.option("--list", "by_name", is_flag=True, help="Also name the modules, classes and pages that are counted.")
def main(checkout: Path, *, by_name: bool) -> None:
    """Print how the code of CHECKOUT is divided."""
    of = Checkout(checkout)
    for name, figure in table(of).items():
        click.echo(f"{name:34}{figure:>10,.0f}")
    for line in offenders(of) if by_name else ():
        click.echo(line)


if __name__ == "__main__":
    main()

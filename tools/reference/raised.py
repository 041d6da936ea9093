"""The errors that the package raises: the class, the file and the pattern of the text of each."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.pictures.rooms import LEAVES, room_of
from tools.reference.texts import Texts, letters

PACKAGE = Path(__file__).parents[2] / "streamgroup"
BASE = "StreamGroupError"
OF_CLICK = frozenset({"UsageError", "ClickException"})
_BROKER = ("BrokerError",)
_FEWEST_LETTERS = 5
"""A pattern with fewer letters does not say what happened."""


@dataclass(frozen=True, slots=True, order=True)
class Raised:
    """An error of class `kind`, made in a file of the package; `pattern` is empty if its text comes from elsewhere."""

    file: str
    kind: str
    pattern: str

    @property
    def room(self) -> str:
        found = room_of(f"streamgroup.{self.file.removesuffix('.py').replace('/', '.')}")
        return "" if found is None or found == LEAVES else found


@functools.cache
def _trees() -> dict[str, ast.Module]:
    return {str(file.relative_to(PACKAGE)): ast.parse(file.read_text()) for file in sorted(PACKAGE.rglob("*.py"))}


@functools.cache
def _modules() -> dict[str, ast.Module]:
    """The same by the names of modules."""
    return {
        ".".join(("streamgroup", *Path(file).with_suffix("").parts)).removesuffix(".__init__"): tree
        for file, tree in _trees().items()
    }


@functools.cache
def _classes() -> list[ast.ClassDef]:
    """The classes of all files. Those of errors are never inside of a function."""
    return [node for tree in _trees().values() for node in tree.body if isinstance(node, ast.ClassDef)]


@functools.cache
def kinds() -> dict[str, str]:
    """Return the classes of errors of this package with the first sentence of their docstrings."""
    found = {BASE: ""}
    while True:
        new = {
            node.name: (ast.get_docstring(node) or "").partition("\n\n")[0].replace("\n", " ")
            for node in _classes()
            if node.name not in found and any(isinstance(base, ast.Name) and base.id in found for base in node.bases)
        }
        if not new:
            return found
        found |= new


@functools.cache
def parents() -> dict[str, str]:
    """Return each class of errors with the first class that it derives from."""
    found = {}
    for node in _classes():
        if node.name in kinds() and node.name != BASE:
            found[node.name] = next(base.id for base in node.bases if isinstance(base, ast.Name) and base.id in kinds())
    return found


@functools.cache
def raised() -> tuple[Raised, ...]:
    """Return all errors that the package makes, sorted, each pattern of a file once."""
    files: dict[str, Texts] = {}
    found = {one for file, tree in _trees().items() for one in _in_file(file, Texts(tree, _modules(), files), tree)}
    return tuple(sorted(found))


def _in_file(file: str, texts: Texts, tree: ast.Module) -> Iterator[Raised]:
    for node, function, inside in _statements(tree):
        kind, text = _error_of(node, inside)
        for pattern in texts.of(text, function) if kind and text is not None else ():
            shown = pattern if letters(pattern) >= _FEWEST_LETTERS else ""
            if kind in _BROKER and shown:
                shown += ": <name> (<code>): <meaning>"
            yield Raised(file, kind, " ".join(shown.split()))


def _statements(
    node: ast.AST, function: ast.AST | None = None, inside: str = ""
) -> Iterator[tuple[ast.AST, ast.AST | None, str]]:
    """Each call and each `+=` with the function and the class that it is in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call | ast.AugAssign):
            yield child, function, inside
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        name = child.name if isinstance(child, ast.ClassDef) else inside
        yield from _statements(child, child if is_function else function, name)


def _error_of(node: ast.AST, inside: str) -> tuple[str, ast.expr | None]:
    """The class of the error that a call makes, or "", and the expression of its text. Problems become ConfigErrors."""
    kind = ""
    words: Any = None
    match node:
        case ast.Call(func=ast.Name(id="BrokerError" as kind), args=[_, words]):
            pass
        case ast.Call(func=ast.Name(id=kind) | ast.Attribute(attr=kind), args=[words, *_]) if kind in OF_CLICK or (
            kind in kinds() and not _words_itself(kind)
        ):
            pass
        case ast.Call(func=ast.Attribute(attr="error" | "_damaged"), args=[*_, words, ast.Name(id=kind)]) if (
            kind in kinds()
        ):
            pass  # of a frame: a batch, a compressed message, messages
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="__init__"), args=[words, *_]):
            kind = inside if _words_itself(inside) else ""
        case (
            ast.Call(func=ast.Attribute(value=holder, attr="append"), args=[words])
            | ast.AugAssign(target=holder, value=ast.List() | ast.ListComp() as words)
        ):
            kind = "ConfigError" if _holds_problems(holder) else ""
        case _:
            kind = ""
    return kind, words


def _holds_problems(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and "problems" in {
        getattr(node, "id", ""),
        getattr(node, "attr", ""),
    }


@functools.cache
def _words_itself(kind: str) -> bool:
    """Whether the class puts its text together in its own `__init__`, from values."""
    own = next((node.body for node in _classes() if node.name == kind), []) if kind in kinds() else []
    return any(isinstance(part, ast.FunctionDef) and part.name == "__init__" for part in own)

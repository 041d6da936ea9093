"""Texts of Python modules for `tools.move`: redirect imports, rename globals, cut out a definition, merge two modules.

Parts of a text are replaced at their places in its syntax tree, so that comments and layout survive.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

Target = Callable[[str, str], tuple[str, str]]
"""Returns the module and the name by which a name of a module is imported after the move."""

_FUTURE = "from __future__ import annotations\n"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Refused(Exception):
    """The move would change what the code does, or needs a decision. Nothing has been written."""


class Code:
    """A text of Python and the replacements to make in it."""

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self._bytes = text.encode()  # columns of the tree count bytes
        self._lines = [0, *accumulate(len(line) for line in self._bytes.splitlines(keepends=True))]
        self._edits: list[tuple[int, int, str]] = []

    def lines(self, first: int, last: int) -> str:
        """Return the lines from `first` to `last`, which count from 1."""
        return self._bytes[self._lines[first - 1] : self._lines[last]].decode()

    def replace(self, node: ast.expr | ast.stmt | ast.alias | ast.arg, new: str) -> None:
        self._edit(node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0, new)

    def replace_start(self, node: ast.arg, old: str, new: str) -> None:
        self._edit(node.lineno, node.col_offset, node.lineno, node.col_offset + len(old.encode()), new)

    def replace_name(self, node: ast.stmt, old: str, new: str) -> None:
        """Replace the name in the header of a definition."""
        header = re.compile(rf"\b(?:def|class)\s+({re.escape(old)})\b")
        start = self._lines[node.lineno - 1] + node.col_offset
        found = header.search(self._bytes[start:].decode())
        assert found is not None
        self._edits.append((start + found.start(1), start + found.end(1), new))

    def remove(self, node: ast.stmt) -> None:
        """Remove a statement with its lines; the only one of a block becomes `pass`."""
        bodies = [getattr(one, "body", None) for one in ast.walk(self.tree) if not isinstance(one, ast.Module)]
        if any(isinstance(body, list) and {*map(type, body)} <= {ast.ImportFrom} and node in body for body in bodies):
            self.replace(node, "pass")
        else:
            self._edit(node.lineno, 0, (node.end_lineno or 0) + 1, 0, "")

    def _edit(self, line: int, column: int, end_line: int, end_column: int, new: str) -> None:
        end = min(self._lines[min(end_line, len(self._lines)) - 1] + end_column, len(self._bytes))
        self._edits.append((self._lines[line - 1] + column, end, new))

    def text(self) -> str:
        result = self._bytes
        for start, end, new in sorted(set(self._edits), reverse=True):
            result = result[:start] + new.encode() + result[end:]
        return result.decode()


# --- names -----------------------------------------------------------------------------------------------------------


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a scope, without the insides of the scopes in it."""
    todo = list(ast.iter_child_nodes(scope))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (*_SCOPES, ast.ClassDef)):
            todo += ast.iter_child_nodes(node)


def bound(scope: ast.AST, but: Collection[ast.alias] = ()) -> set[str]:
    """Return the names that a scope binds itself: parameters, assignments, definitions, imports (`but` some)."""
    found, foreign = set(), set()
    for node in _own(scope):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                found.add(name)
            case ast.alias(name=name, asname=asname) if node not in but:
                found.add(asname or name.partition(".")[0])
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                found.add(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                foreign.update(names)
    return found - foreign


def uses(scope: ast.AST, name: str) -> Iterator[ast.Name]:
    """Yield where `name` of this scope is used in it, and in the scopes within that do not bind the name themselves."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, ast.Name):
            if child.id == name:
                yield child
        elif isinstance(child, _SCOPES) and name in bound(child):
            outside = (getattr(child, "args", None), getattr(child, "returns", None))
            for part in [*getattr(child, "decorator_list", ()), *(one for one in outside if one is not None)]:
                yield from uses(ast.Expression(part), name)
        elif isinstance(child, ast.ClassDef) and name in bound(child):
            for part in [*child.decorator_list, *child.bases]:
                yield from uses(ast.Expression(part), name)
            for method in child.body:
                if isinstance(method, _FUNCTIONS):
                    yield from uses(ast.Module([method], []), name)
        else:
            yield from uses(child, name)


def _scope_of(tree: ast.Module, node: ast.stmt) -> ast.AST:
    """The innermost function around a statement, or the module."""
    around = [
        one
        for one in ast.walk(tree)
        if isinstance(one, _FUNCTIONS) and one.lineno <= node.lineno <= (one.end_lineno or 0) and one is not node
    ]
    return max(around, key=lambda one: one.lineno, default=tree)


def _all_names(tree: ast.Module, but: Collection[ast.alias]) -> set[str]:
    scopes = (node for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.ClassDef, *_SCOPES)))
    return {name for scope in scopes for name in bound(scope, but)}


def renamed(text: str, names: dict[str, str]) -> str:
    """Return the text of a module with globals of it, or imported names, under other names."""
    code = Code(text)
    functions = [node for node in ast.walk(code.tree) if isinstance(node, _FUNCTIONS)]
    for old, new in names.items():
        if any("fixture" in ast.unparse(mark) for one in functions if one.name == old for mark in one.decorator_list):
            for function in functions:  # a test asks for a fixture by the name of a parameter
                for parameter in [*function.args.args, *function.args.kwonlyargs]:
                    if parameter.arg == old:
                        code.replace_start(parameter, old, new)
                        for use in (one for part in function.body for one in uses(part, old)):
                            code.replace(use, new)
        for use in uses(code.tree, old):
            code.replace(use, new)
        for node in _own(code.tree):
            if isinstance(node, (*_FUNCTIONS, ast.ClassDef)) and node.name == old:
                code.replace_name(node, old, new)
            elif isinstance(node, ast.alias) and (node.asname or node.name) == old:
                code.replace(node, f"{node.name} as {new}")
        for node in ast.walk(code.tree):
            if isinstance(node, ast.Global) and old in node.names:
                code.replace(node, f"global {', '.join(new if name == old else name for name in node.names)}")
    return code.text()


# --- imports ---------------------------------------------------------------------------------------------------------


def redirected(text: str, target: Target, divided_module: str = "") -> str:
    """Return the text with each `from ... import` of a name that moves redirected, and the uses of a renamed name.

    Some names of `divided_module` move, others stay.
    """
    code = Code(text)
    nodes = [one for one in ast.walk(code.tree) if isinstance(one, ast.ImportFrom)]
    origins = {alias: (node.module or "", alias.name) for node in nodes for alias in node.names}
    for node in nodes:
        module = node.module or ""
        if all(target(module, one.name) == (module, one.name) for one in node.names) and not any(
            f"{module}.{one.name}" == divided_module for one in node.names
        ):
            continue
        scope = _scope_of(code.tree, node)
        lines: dict[str, list[str]] = {}
        before = [(module, ast.unparse(alias)) for alias in node.names]
        for alias in node.names:
            to, name = target(module, alias.name)
            asname = alias.asname
            if asname is None and name != alias.name:
                if name in _all_names(code.tree, [one for one, origin in origins.items() if origin == (to, name)]):
                    asname = alias.name
                else:
                    for use in uses(scope, alias.name):
                        code.replace(use, name)
            lines.setdefault(to, []).append(f"{name} as {asname}" if asname and asname != name else name)
            for (owner, part), attribute in _parts_that_move(scope, module, alias, target):
                package, _, leaf = owner.rpartition(".")
                if owner == f"{module}.{alias.name}":
                    leaf = asname or name
                else:
                    lines.setdefault(package, []).append(leaf)
                code.replace(attribute, f"{leaf}.{part}")
        if [(to, name) for to, names in lines.items() for name in names] != before:
            inside = code.lines(node.lineno, node.end_lineno or 0).splitlines()[:-1]
            comments = re.findall(r"#.*", "\n".join(inside))
            statements = [f"from {to} import {', '.join(dict.fromkeys(names))}" for to, names in lines.items()]
            code.replace(node, ("\n" + " " * node.col_offset).join([*comments, *statements]))
    return code.text()


def _parts_that_move(
    scope: ast.AST, package: str, alias: ast.alias, target: Target
) -> Iterator[tuple[tuple[str, str], ast.Attribute]]:
    """The uses `module.name` of an imported module that stays while the name moves, and to where."""
    module = f"{package}.{alias.name}"
    if target(package, alias.name) == (package, alias.name):  # the module itself stays
        names = {*uses(scope, alias.asname or alias.name)}
        for node in ast.walk(scope):
            if not isinstance(node, ast.Attribute) or node.value not in names:
                continue
            if (place := target(module, node.attr)) != (module, node.attr):
                yield place, node


def inlined(text: str, module: str) -> str:
    """Return the text without imports of `module`, whose definitions it has or will have: `module.x` becomes `x`."""
    code = Code(text)
    package, _, leaf = module.rpartition(".")
    aliases: dict[str, str] = {}
    attributes = {id(node.value): node for node in ast.walk(code.tree) if isinstance(node, ast.Attribute)}
    for node in [one for one in ast.walk(code.tree) if isinstance(one, ast.ImportFrom)]:
        if node.module == module:
            aliases |= {one.asname: one.name for one in node.names if one.asname and one.asname != one.name}
            code.remove(node)
        elif node.module == package and any(one.name == leaf for one in node.names):
            local = next(one.asname or one.name for one in node.names if one.name == leaf)
            for name in uses(_scope_of(code.tree, node), local):
                if (attribute := attributes.get(id(name))) is None:
                    raise Refused(f"line {name.lineno}: the module {local} is used as an object in the merged module")
                for scope in ast.walk(code.tree):
                    inside = isinstance(scope, _SCOPES) and any(one is name for one in ast.walk(scope))
                    if inside and attribute.attr in bound(scope):
                        raise Refused(f"line {name.lineno}: {local}.{attribute.attr} would be a local name: rename it")
                code.replace(attribute, attribute.attr)
            others = [one for one in node.names if one.name != leaf]
            if others:
                code.replace(node, f"from {package} import {', '.join(map(ast.unparse, others))}")
            else:
                code.remove(node)
    return renamed(code.text(), aliases)


# --- merging ---------------------------------------------------------------------------------------------------------


class Unit(NamedTuple):
    """A statement with the comments before it and the string after it that describes it."""

    nodes: list[ast.stmt]
    text: str

    @property
    def names(self) -> set[str]:
        return bound(ast.Module(self.nodes, []))

    @property
    def dump(self) -> str:
        return ast.dump(self.nodes[0])


class Parts(NamedTuple):
    """A module: its docstring and `from __future__`, imports, imports for type checkers, and all else, in order."""

    head: str
    imports: list[Unit]
    typing: list[ast.Import | ast.ImportFrom]
    body: list[Unit]
    rest: str


def divided(text: str) -> Parts:
    """Divide the text of a module into its parts."""
    code = Code(text)
    head, end = "", 0
    imports, body = list[Unit](), list[Unit]()
    typing: list[ast.Import | ast.ImportFrom] = []
    for place, node in enumerate(code.tree.body):
        segment, end = code.lines(end + 1, node.end_lineno or 0), node.end_lineno or 0
        described = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if (described and not place) or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            head += segment
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            imports.append(Unit([node], segment))
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not node.orelse:
            typing += [one for one in node.body if isinstance(one, (ast.Import, ast.ImportFrom))]
        elif described and body and isinstance(body[-1].nodes[0], (ast.Assign, ast.AnnAssign)):
            body[-1] = Unit([*body[-1].nodes, node], body[-1].text + segment)
        else:
            body.append(Unit([node], segment))
    return Parts(head, imports, typing, body, text.encode()[len(code.lines(1, end).encode()) :].decode())


def origins(imports: Iterable[ast.AST]) -> dict[str, tuple[str, str]]:
    """Where each imported name is from."""
    found = {}
    for node in imports:
        for one in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
            found[one.asname or one.name] = (getattr(node, "module", None) or "", one.name)
    return found


def _when_imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The names that Python looks up while it imports these statements. Annotations are not evaluated."""
    for node in nodes:
        if isinstance(node, (*_FUNCTIONS, ast.Lambda)):
            defaults = [one for one in [*node.args.defaults, *node.args.kw_defaults] if one is not None]
            yield from _when_imported([*getattr(node, "decorator_list", ()), *defaults])
        elif isinstance(node, ast.AnnAssign):
            yield from _when_imported([node.value] if node.value is not None else [])
        elif isinstance(node, ast.Name):
            yield node.id
        else:
            yield from _when_imported(ast.iter_child_nodes(node))


def merged(new_text: str, old_text: str, source: Target = lambda module, name: (module, name)) -> str:
    """Return the text of a module with the definitions of another. Neither text imports the other module.

    A definition that both have word for word stays once. `source` returns which module defines what a module offers.
    Raises Refused for a name with two meanings.
    """
    new, old = divided(new_text), divided(old_text)
    if _marks(new) != _marks(old):  # or the mark of one test file would hold for the tests of the other
        new, old = _with_decorators(new), _with_decorators(old)
    same = {unit.dump for unit in new.body if unit.names}
    body = [unit for unit in old.body if unit.dump not in same]
    exports = [unit for parts in (new.body, body) for unit in parts if "__all__" in unit.names]
    if len(exports) > 1:
        body.remove(exports[1])
    ours, theirs = set().union(*(unit.names for unit in new.body)), set().union(*(unit.names for unit in body))
    from_new = origins([*(unit.nodes[0] for unit in new.imports), *new.typing])
    from_old = origins([*(unit.nodes[0] for unit in old.imports), *old.typing])
    clashes = (ours & theirs) | (ours & from_old.keys()) | (theirs & from_new.keys())
    clashes |= {
        name for name in from_new.keys() & from_old.keys() if source(*from_new[name]) != source(*from_old[name])
    }
    if clashes:
        raise Refused(f"two meanings each, give --rename name=other: {', '.join(sorted(clashes))}")
    had = origins(unit.nodes[0] for unit in new.imports).keys()
    imports = [*new.imports, *(unit for unit in old.imports if not origins(unit.nodes).keys() <= had)]
    first = [Unit(unit.nodes, _with_exports(unit, exports)) for unit in new.body]
    first, second = [*first, Unit([], new.rest)], [Unit([], "\n\n"), *body, Unit([], old.rest)]
    needed = {*_when_imported(node for unit in new.body for node in unit.nodes)}
    if needed & theirs or (new.body and "__name__" in needed and "__main__" in new.body[-1].text):
        first, second = second, first
    return _assembled(Parts(new.head, imports, [*new.typing, *old.typing], [*first, *second], ""))


def _marks(parts: Parts) -> set[str]:
    return {unit.dump for unit in parts.body if "pytestmark" in unit.names}


def _with_decorators(parts: Parts) -> Parts:
    """Mark each test itself instead of all tests of the file by `pytestmark`."""
    marks = [unit for unit in parts.body if "pytestmark" in unit.names]
    values = [node.value for unit in marks for node in unit.nodes if isinstance(node, ast.Assign)]
    each = [one for value in values for one in (value.elts if isinstance(value, ast.List) else [value])]
    decorators = "".join(f"@{ast.unparse(one)}\n" for one in each)
    body = [unit for unit in parts.body if unit not in marks]
    for place, unit in enumerate(body):
        if any(isinstance(node, _FUNCTIONS) and node.name.startswith("test_") for node in unit.nodes):
            text = re.sub(r"^(?=@|def |async def )", decorators, unit.text, count=1, flags=re.MULTILINE)
            body[place] = Unit(unit.nodes, text)
    return parts._replace(body=body)


def _with_exports(unit: Unit, exports: list[Unit]) -> str:
    if len(exports) < 2 or unit is not exports[0]:
        return unit.text
    names = sorted({name for one in exports for name in ast.literal_eval(one.nodes[0].value)})  # type: ignore[attr-defined]
    return f"\n__all__ = {names!r}\n"


def _assembled(parts: Parts) -> str:
    runtime = origins(node for unit in parts.imports for node in unit.nodes)
    typing = []
    for node in parts.typing:
        names = [one for one in node.names if (one.asname or one.name) not in runtime]
        if names:
            module = getattr(node, "module", None)
            start = f"from {module} import " if module else "import "
            typing.append(f"    {start}{', '.join(map(ast.unparse, names))}\n")
    block = "".join(["\nif TYPE_CHECKING:\n", *dict.fromkeys(typing)]) if typing else ""
    return "".join(
        [parts.head, *(unit.text for unit in parts.imports), block, *(unit.text for unit in parts.body), parts.rest]
    )


def cut_out(text: str, module: str, names: Collection[str], to: str) -> tuple[str, str]:
    """Return the text of `module` without the definitions of `names`, which `to` has then, and the text of these."""
    parts = divided(text)
    cut = [unit for unit in parts.body if unit.names & {*names}]
    rest = [unit for unit in parts.body if unit not in cut]
    if missing := {*names} - {name for unit in cut for name in unit.names}:
        raise Refused(f"{module} does not define {', '.join(sorted(missing))}")

    def used(units: list[Unit], found: Iterable[str]) -> list[str]:
        tree = ast.Module([node for unit in units for node in unit.nodes], [])
        return [name for name in sorted(found) if next(uses(tree, name), None) is not None]

    def imports(source: str, found: list[str]) -> list[Unit]:
        text = f"from {source} import {', '.join(found)}\n"
        return [Unit(ast.parse(text).body, text)] if found else []

    taken = [unit for unit in parts.imports if used(cut, origins(unit.nodes))]
    typing = [node for node in parts.typing if used(cut, origins([node]))]
    taken += imports(module, used(cut, {name for unit in rest for name in unit.names}))
    piece = _assembled(Parts(_FUTURE, taken, typing, cut, ""))
    kept = [*parts.imports, *imports(to, used(rest, names))]
    return _assembled(Parts(parts.head, kept, parts.typing, rest, parts.rest)), piece

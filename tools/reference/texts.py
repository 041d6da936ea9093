"""The texts that an expression may have, as patterns: words of the code, and `<names>` where values stand.

Names are followed to what the file assigns to them, and calls to what functions of the package return. A text from
anywhere else is a `<name>`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, product

from streamgroup.text import counted

_DEPTH = 5
_MOST = 4
"""Patterns of one expression; a text that is put together of more has a name in the place of its parts."""
_UNNAMED = "<...>"
_PLACEHOLDER = re.compile(r"<[^<>]*>")
_FIELD = re.compile(r"\{(\w*)[^}]*\}")


def letters(pattern: str) -> int:
    """Return how many letters of a pattern are words of the code."""
    return sum(map(str.isalpha, _PLACEHOLDER.sub("", pattern)))


class Texts:
    """The texts of the expressions in one file."""

    def __init__(
        self, tree: ast.Module, modules: Mapping[str, ast.Module], files: dict[str, Texts] | None = None
    ) -> None:
        """`modules` has the files by the names of their modules: what the file imports is read there.

        `files` keeps the texts of files that others import from.
        """
        self._files = {} if files is None else files
        self._assigned: dict[ast.AST, dict[str, list[tuple[str, ast.expr]]]] = {}
        self._modules = modules
        self._imported: dict[str, str] = {}
        self._functions: dict[str, ast.FunctionDef] = {}
        self._constants: dict[str, ast.expr] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                self._functions.setdefault(node.name, node)
        for statement in tree.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._constants[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self._constants[name] = value
                case ast.ImportFrom(module=str(module), names=names) if module in modules:
                    self._imported |= {name.asname or name.name: module for name in names}

    def of(self, node: ast.expr, function: ast.AST | None, depth: int = _DEPTH) -> list[str]:
        """Return the patterns of `node`, which stands in `function`. A single `<name>` says that it is unknown."""
        for deep in (depth, 0):
            found = list(dict.fromkeys(islice(self._patterns(node, function, deep), _MOST + 1)))
            if 0 < len(found) <= _MOST:
                return found
        return [f"<{name_of(node)}>"]

    def _patterns(self, node: ast.expr, function: ast.AST | None, depth: int) -> Iterator[str]:
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.JoinedStr(values=parts):
                yield from self._joined(parts, function, depth)
            case ast.BinOp(op=ast.Add(), right=ast.Constant(value=int())):
                return  # a number
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                yield from self._joined([left, right], function, depth)
            case ast.FormattedValue(value=value, conversion=-1) if depth:
                yield from self.of(value, function, depth - 1)
            case ast.IfExp(body=first, orelse=second):
                yield from (*self.of(first, function, depth), *self.of(second, function, depth))
            case ast.BoolOp(op=ast.Or(), values=values) | ast.List(elts=values):
                for value in values:
                    yield from self.of(value, function, depth)
            case ast.ListComp(elt=element) | ast.GeneratorExp(elt=element):
                yield from self.of(element, function, depth)
            case ast.Name() | ast.Subscript() | ast.Call() if depth:
                yield from self._followed(node, function, depth - 1)

    def _followed(self, node: ast.expr, function: ast.AST | None, depth: int) -> Iterator[str]:
        """The patterns of a name, an entry of a table, or a call, as far as their texts are in the package."""
        match node:
            case ast.Name(id=name):
                yield from self._named(name, function, depth)
            case ast.Subscript(value=ast.Name(id=name)):
                yield from self._values(name, depth)
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(between)), attr="join"), args=[parts]):
                yield from self._parts(between, parts, function, depth)
            case ast.Call(func=ast.Attribute(value=template, attr="format")):
                yield from (_FIELD.sub(_field, text) for text in self.of(template, function, depth))
            case ast.Call(func=ast.Attribute(value=whole, attr="rstrip" | "removesuffix" | "replace")):
                yield from self.of(whole, function, depth)
            case ast.Call(func=ast.Name(id="host_port"), args=[host, port]):
                yield f"<{name_of(host)}>:<{name_of(port)}>"
            case ast.Call(func=ast.Name(id="first_of")):
                yield _UNNAMED  # names of any number
            case ast.Call(func=ast.Name(id="counted"), args=[count, ast.Constant(value=str(noun))]):
                yield f"<{name_of(count)}> {counted(2, noun).removeprefix('2 ')}"
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in self._functions:
                yield from self._returned(name, depth)
            case ast.Call(func=ast.Name(id=name)) if name in self._imported:
                yield from self._there(name)._returned(name, depth)

    def _joined(self, parts: Iterable[ast.expr], function: ast.AST | None, depth: int) -> Iterator[str]:
        choices = [self._of_part(part, function, depth) for part in parts]
        yield from ("".join(chosen) for chosen in product(*choices))

    def _of_part(self, part: ast.expr, function: ast.AST | None, depth: int) -> list[str]:
        """The patterns of a part. Where nothing is known of its value, the expression has a name."""
        unnamed = f"<{name_of(part)}>"
        return [unnamed if text == _UNNAMED else text for text in self.of(part, function, depth)]

    def _parts(self, between: str, parts: ast.expr, function: ast.AST | None, depth: int) -> Iterator[str]:
        """The parts of a joined text. Of sentences each is a text of its own."""
        match parts:
            case ast.GeneratorExp(elt=element) | ast.ListComp(elt=element) if between.strip() in {";", "", "."}:
                yield from self.of(element, function, depth)
            case ast.Tuple(elts=elements) | ast.List(elts=elements) if between.strip() == "":
                for element in elements:
                    yield from self.of(element, function, depth)

    def _there(self, name: str) -> Texts:
        """The texts of the file that an imported name is from."""
        module = self._imported[name]
        if module not in self._files:
            self._files[module] = Texts(self._modules[module], self._modules, self._files)
        return self._files[module]

    def _assignments(self, function: ast.AST) -> dict[str, list[tuple[str, ast.expr]]]:
        """What a function assigns to each name. Behind a `+=` stands what the name had before."""
        if function not in self._assigned:
            found: dict[str, list[tuple[str, ast.expr]]] = {}
            for node in ast.walk(function):
                match node:
                    case ast.Assign(targets=[ast.Name(id=name)], value=value):
                        found.setdefault(name, []).append(("", value))
                    case ast.AugAssign(target=ast.Name(id=name), value=value):
                        found.setdefault(name, []).append((f"<{name}>", value))
            self._assigned[function] = found
        return self._assigned[function]

    def _values(self, name: str, depth: int) -> Iterator[str]:
        """The texts in a table of texts."""
        match self._constants.get(name):
            case ast.Dict(values=values):
                for value in values:
                    yield from self.of(value, None, depth)

    def _returned(self, name: str, depth: int) -> Iterator[str]:
        function = self._functions.get(name)
        for node in ast.walk(function) if function is not None else ():
            if isinstance(node, ast.Return) and node.value is not None:
                yield from self.of(node.value, function, depth)

    def _named(self, name: str, function: ast.AST | None, depth: int) -> Iterator[str]:
        """The texts of a name. Where its value has no name, its own says more than nothing."""
        unnamed = f"<{name_of(ast.Name(name))}>"
        yield from (unnamed if text == _UNNAMED else text for text in self._of_name(name, function, depth))

    def _of_name(self, name: str, function: ast.AST | None, depth: int) -> Iterator[str]:
        for before, value in self._assignments(function).get(name, ()) if function is not None else ():
            yield from (f"{before}{text}" for text in self.of(value, function, depth))
        match self._constants.get(name):
            case ast.Constant(value=int() | float() as number):
                yield f"{number:g}"
            case ast.expr() as value:
                yield from self.of(value, None, depth)
            case _ if name.isupper() and name in self._imported:
                yield from self._there(name)._named(name, None, depth)


def _field(match: re.Match[str]) -> str:
    return f"<{match[1] or 'value'}>"


def name_of(node: ast.expr) -> str:
    """Return a name for the value of an expression: the last word of it that says something."""
    name = "..."
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            name = name.strip("_").replace("_", " ")
            name = name.lower() if name.isupper() else name
        case (
            ast.FormattedValue(value=inner)
            | ast.Starred(value=inner)
            | ast.Call(func=ast.Attribute(attr="join"), args=[inner, *_])
            | ast.Call(func=ast.Attribute(value=inner, attr="rstrip" | "format" | "strip" | "replace" | "decode"))
            | ast.Subscript(value=inner)
            | ast.GeneratorExp(elt=ast.JoinedStr(), generators=[ast.comprehension(iter=inner), *_])
            | ast.GeneratorExp(elt=inner)
            | ast.ListComp(elt=inner)
            | ast.IfExp(body=inner)
            | ast.BoolOp(values=[inner, *_])
        ):
            name = name_of(inner)
        case ast.Call(func=ast.Name(id="map"), args=[_, inner, *_]):
            name = name_of(inner)
        case ast.Call(func=function, args=arguments):
            spoken = [argument for argument in arguments if not isinstance(argument, ast.Constant)]
            name = name_of(spoken[0] if spoken else function)
        case ast.BinOp(left=left, right=right):
            name = name_of(right if isinstance(left, ast.Constant) else left)
    return name

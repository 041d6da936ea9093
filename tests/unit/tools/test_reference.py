"""The pages of errors have every error that the package raises and what to do, that of commands their options."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import click
import pytest

from streamgroup import errors
from streamgroup.cli.main import main
from tools.reference.advice import ADVICE, ELSEWHERE
from tools.reference.commands import NAME, commands, page
from tools.reference.errors import NAMES, PAGES, advice, entry, texts
from tools.reference.raised import OF_CLICK, Raised, kinds, raised
from tools.reference.texts import Texts, letters

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_page_is_the_one_that_the_code_gives(name: str) -> None:
    assert set(texts()) == NAMES
    assert (DOCS / name).read_text() == texts()[name], "run `make docs`, and read what has changed"


@pytest.mark.slow
def test_every_error_is_on_a_page() -> None:
    rooms = [room for page in PAGES for room in page.rooms]
    assert len(rooms) == len(set(rooms))
    pages = "\n".join(texts().values())
    for error in raised():
        assert error.room in rooms
        assert not error.pattern or entry(error) in pages, error


@pytest.mark.slow
def test_a_text_from_elsewhere_has_a_reason_and_no_reason_is_left_over() -> None:
    """An error whose text the pages cannot show must be listed with where the text comes from."""
    assert {error.file for error in raised() if not error.pattern} == set(ELSEWHERE)


@pytest.mark.slow
def test_every_class_of_the_package_is_known_with_what_to_do() -> None:
    classes = {name for name, one in vars(errors).items() if inspect.isclass(one) and issubclass(one, Exception)}
    assert classes <= set(kinds())
    assert set(ADVICE) <= set(kinds()) | OF_CLICK
    assert advice("TlsError") == ADVICE["AuthError"]
    assert advice("NoSuchTopic") == ADVICE["StreamGroupError"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "known",
    [
        "TLS handshake of host <gethostname> with <noun> <peer> failed",
        "cannot run this query: another live member uses a copy of this query's checkpoint",
        "cannot connect to broker <peer>: its name does not resolve: <error>",
        "cannot run the demo in <",
        "kafka.group.id is required with group.mode=<mode>",
        "(it has '<near>', and names are case-sensitive)",
    ],
)
def test_the_pages_show_what_users_meet(known: str) -> None:
    """Texts at the place of the error, from a function, from another file, from a list of problems."""
    assert known in "\n".join(texts().values())


# --- how texts are found ---------------------------------------------------------------------------------------------


def found(source: str, **modules: str) -> list[str]:
    """The patterns of the argument of the only `raise` in `source`."""
    tree = ast.parse(source)
    function = next((node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "f"), None)
    call = next(node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise))
    assert isinstance(call, ast.Call)
    return Texts(tree, {name: ast.parse(text) for name, text in modules.items()}).of(call.args[0], function)


@pytest.mark.parametrize(
    ("source", "patterns"),
    [
        ("raise E('plain')", ["plain"]),
        ("raise E(f'a {self._peer} b {len(rows)} c {x!r}')", ["a <peer> b <rows> c <x>"]),
        ("raise E(f'a ' + f'b')", ["a b"]),
        ("raise E('yes' if x else 'no')", ["yes", "no"]),
        ("A = 'of a constant'\nraise E(f'text {A}')", ["text of a constant"]),
        ("def f(x):\n    y = 'here' if x else 'there'\n    raise E(f'not {y}')", ["not here", "not there"]),
        ("def g(x):\n    return f'found {x}'\ndef f(x):\n    raise E(g(x))", ["found <x>"]),
        ("A = 'about {group}'\nraise E(A.format(group=g))", ["about <group>"]),
        ("A = {1: 'one', 2: 'two'}\nraise E(A[x])", ["one", "two"]),
        ("raise E('; '.join(f'no topic {t}' for t in ts))", ["no topic <t>"]),
        ("from m import word\nraise E(word(1))", ["a word"]),
        ("raise E(str(error))", ["<error>"]),
        ("raise E(f'step {number + 1} of {total}')", ["step <number> of <total>"]),
        ("raise E(f'leader: {cursor.leader or 1}')", ["leader: <leader>"]),
        ("def g():\n    return 1\nraise E(f'code {g()}')", ["code <g>"]),
        ("raise E(f'no {PARTS} in {map(str, held)}')", ["no <parts> in <held>"]),
        ("raise E(', '.join(f'[{k}]' for k in known))", ["<known>"]),
    ],
)
def test_a_text_is_followed_to_its_words(source: str, patterns: list[str]) -> None:
    assert found(source, m="def word(x):\n    return 'a word'") == patterns


def test_a_number_of_things_and_an_address_are_shown_as_the_code_writes_them() -> None:
    """Both functions are known by their names: what they return has no words of an error."""
    counts = "from streamgroup.text import counted\n"
    assert found(f"{counts}raise E(f\"no room for {{counted(n, 'batch')}} more\")") == ["no room for <n> batches more"]
    assert found(f"{counts}raise E(f\"{{counted(len(self._rows), 'record')}} left\")") == ["<rows> records left"]
    address = "from streamgroup.text import host_port\n"
    assert found(f"{address}raise E('cannot reach ' + host_port(host, port))") == ["cannot reach <host>:<port>"]


def test_a_text_of_too_many_parts_has_names_in_their_places() -> None:
    choices = "\n".join(f"    {name} = 'p' if x else 'q'" for name in "abc")
    assert found(f"def f(x):\n{choices}\n    raise E(f'text {{a}} {{b}} {{c}}')") == ["text <a> <b> <c>"]
    assert letters("ab <cd> e: <f>") == 3, "those outside of the names"


@pytest.mark.slow
def test_an_entry_parts_what_happened_from_what_to_do() -> None:
    text = "cannot reach <peer>: no route to 10.0.0.1. Check the *route* to <peer>"
    shown = "- `cannot reach <peer>: no route to 10.0.0.1` TransportError. Check the \\*route\\* to \\<peer\\>."
    assert entry(Raised("net/a.py", "TransportError", text)) == shown
    assert entry(Raised("net/a.py", "TlsError", "no. <next step>")).endswith(ADVICE["AuthError"].do)
    assert entry(Raised("net/a.py", "TlsError", "no")) == (
        "- `no` TlsError. [security-errors.md](security-errors.md) has cause and remedy."
    )


# --- the options of commands ------------------------------------------------------------------------------------------


def test_the_page_of_commands_is_the_one_that_the_parsers_give() -> None:
    assert (DOCS / NAME).read_text() == page(), "run `make docs`, and read what has changed"


def test_every_option_of_every_command_is_on_the_page() -> None:
    text = (DOCS / NAME).read_text()
    found, names = 0, set()
    for name, command, _ in commands(main, "streamgroup", click.Context(main)):
        names.add(name)
        assert f"\n## {name}\n" in text
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                found += 1
                assert all(spelling in text for spelling in parameter.opts)
    assert found > 100
    assert {"streamgroup kafka up", "streamgroup kafka down", "streamgroup lag"} <= names

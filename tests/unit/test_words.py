"""Pages, and the texts of errors, logs, options and `--help`, use the field's words in place of private ones.

A text of a page is what is outside of code. A message is a string of three words or more in the package, except for
docstrings. The counts only shrink: a new text takes the word on the right.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
GENERATED = re.compile(r"errors(-(?!codes).*)?|options|write-options|cli-(options|screens)|metrics-reference")
"""Pages that hold the messages of the package, or the output of commands."""
ANY = 10**6
"""A word that developers' pages may use: the glossary explains it, or it says where a rule is."""


class Word(NamedTuple):
    pattern: str
    instead: str
    pages: int = 0
    messages: int = 0


WORDS = {
    "anew": Word("anew", "again"),
    "mend": Word("mend(s|ed|ing)?", "fix"),
    "kin": Word("kin", "similar options"),
    "by itself": Word("by (itself|themselves)", "automatically", 1),
    "of its own": Word("of (its|their) own", "its own"),
    "for good": Word("for good", "permanently"),
    "as it is": Word("as (it is|they are)", "unchanged", 5),
    "go on": Word("(go|goes|going|gone|went) on", "continue"),
    "hang up": Word("(hang|hangs|hanging|hung) up", "close the connection"),
    "speak": Word("(speak|speaks|speaking|spoke|spoken)", "support", 2),
    "nobody": Word("nobody('s)?|no one", "no member, no broker, no user", 1),
    "somebody": Word("somebody|someone", "another member, another client"),
    "everybody": Word("everybody|everyone", "every member, all users"),
    "rights": Word("rights", "permissions, ACLs"),
    "behind": Word("behind", "after; lag", 18),
    "beside": Word("beside", "next to, in addition to"),
    "tell": Word("tell|tells|telling|told", "report"),
    "say": Word("say|says|said|saying", "show, report", 97),
    "know": Word("know|knows|knew|known", "support, have", 129, 5),
    "ask": Word("ask|asks|asked|asking", "request", 122, 2),
    "hear": Word("hear|hears|heard|hearing", "receive, get a heartbeat"),
    "is no": Word("(?<!there )(is|are|was|were) no(?! longer| more)", "is not a, invalid"),
    "lie": Word("lie|lies|lay|lying", "be"),
    "stand": Word("(stand|stands|stood|standing)(?!-in| in for| for| out| still)", "be"),
    "walk": Word("walk(s|ed|ing)?", "scan"),
    "that of": Word("(that|those) of", "the noun again", 70),
    "whose": Word("whose", "with, of which", 85, 2),
    "no retry": Word("no retry", "retrying will not help"),
    "patience": Word("patien(ce|t|ts)", "timeout"),
    "twin": Word("twins?", "duplicate"),
    "farewell": Word("farewells?", "the last commit, leave"),
    "vouch": Word("vouch(es|ed)?", "confirm"),
    "sink (verb)": Word("sank|sunk|sinks", "write, complete, confirm", ANY, 2),
    "lineage": Word("lineages?", "checkpoint", ANY),
    "lease": Word("leases?", "session", ANY),
    "founder": Word("found(er|ers|ed|ing)", "first member", ANY, 2),
    "document": Word("documents?", "the batch's offsets", ANY, 10),
    "rule": Word(r"R\d+", "the reason", ANY),
}


def pages() -> Iterator[str]:
    for page in [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        if not GENERATED.fullmatch(page.stem):
            yield re.sub(
                r"^```.*?^```|`[^`\n]*`|(\[[\w.-]+\.md)?\]\([^)\s]*\)",
                "",
                page.read_text(),
                flags=re.MULTILINE | re.DOTALL,
            )


def messages() -> Iterator[str]:
    for path in (path for room in ("streamgroup", "jobs") for path in sorted((ROOT / room).rglob("*.py"))):
        tree = ast.parse(path.read_text())
        alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            match node:
                case ast.Constant(value=str(text)) if text.count(" ") > 1 and id(node) not in alone:
                    yield text


@functools.cache
def texts() -> dict[str, str]:
    return {"pages": "\n".join(pages()), "messages": "\n".join(messages())}


def uses(name: str, text: str) -> list[str]:
    """Where a word is in a text, with what is around it."""
    pattern = WORDS[name].pattern
    found = re.finditer(pattern if pattern.startswith("R") else rf"(?i:\b(?:{pattern})\b)", text)
    return [" ".join(text[max(0, one.start() - 40) : one.end() + 20].split()) for one in found]


@pytest.mark.parametrize("name", WORDS)
def test_a_private_word_becomes_rarer(name: str) -> None:
    word = WORDS[name]
    for where, most in (("pages", word.pages), ("messages", word.messages)):
        found = uses(name, texts()[where])
        more = "\n".join([f"{len(found)} in {where}, more than {most}; write: {word.instead}", *found])
        assert most == ANY or len(found) <= most, more
        assert most == ANY or len(found) == most, f"rarer in {where}: write {len(found)} in place of {most}"

"""Write the pages of errors: `python -m tools.reference.errors docs`, or `make docs`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tools.reference.advice import ADVICE, Advice
from tools.reference.raised import BASE, Raised, kinds, parents, raised
from tools.reference.texts import letters


class Page(NamedTuple):
    """A page of errors: its name, title, first words, and the rooms whose errors it has, each with a heading."""

    name: str
    title: str
    readers: str
    rooms: dict[str, str]


PAGES = (
    Page("errors-options", "Errors of options and job files", "authors of queries and job files", {
        "options": "Options", "coordinator.planning": "Starts, ends and checkpoints", "spark": "Queries",
        "coordinator.run": "Runs",
        "jobs": "Job files and jobs",
    }),
    Page("errors-commands", "Errors of the command line", "operators who use `streamgroup`", {
        "cli": "The command", "monitoring": "The live page",
    }),
    Page("errors-brokers", "Errors of brokers, networks and ZooKeeper", "operators", {
        "kafka.net": "Connections and SASL", "": "Rights and errors in general", "kafka.cluster": "Brokers and topics",
        "zookeeper": "ZooKeeper", "kafka.wire": "Messages of the protocol",
    }),
    Page("errors-groups", "Errors of groups", "operators and authors of queries", {
        "group": "Members and offsets", "coordinator": "The coordinator process", "sql": "Offsets in a database",
    }),
    Page("errors-records", "Errors of records", "operators and authors of queries", {
        "executor": "Tasks", "kafka.producer": "Writes", "spark.parsing": "Values, Avro and Protobuf",
        "kafka.records": "Records and their compression",
    }),
    Page("errors-test-servers", "Errors of test servers", "developers who test with real servers", {
        "testing": "Servers",
    }),
)  # fmt: skip
_ROOMS = {"DeadLetterError": "spark.parsing"}
"""The rooms of errors that their readers look for with others than those of the file that raises them."""
NAMES = frozenset({"errors.md"} | {f"{which.name}.md" for which in PAGES})
_ANSWER = "<name> (<code>): <meaning>"
_FEWEST_LETTERS = 5
"""Fewer letters, beside `<names>`, tell nobody what to do."""
_SENTENCE = re.compile(r"(?<=[^.\s]\.) (?=[A-Z`<])")

_INDEX = """\
# Errors by their messages

For everybody who has an error and wants to know what it means and what to do. After this page you find any message of
streamgroup. `make docs` writes these pages from the code, and a test compares the two.

Search for some words of the message, without names and numbers: in the search of the site, or on a checkout with
`grep -F 'words of the message' docs/errors*.md`. In a pattern, `<name>` stands for a value of yours.

| errors of | are on |
|---|---|
{pages}

A message says what failed, for which group, topic, partition and offset, and why. Its last sentences say what to do
next. Where a message ends with its cause, the class of the error says what to do. Causes with more to say have pages of
their own: [security-errors.md](security-errors.md), [bad-input.md](bad-input.md) for old clusters,
[recover-from-data-loss.md](recover-from-data-loss.md), and [error-codes.md](error-codes.md) for the codes of brokers.

## Classes

All derive from `StreamGroupError` in `streamgroup.errors`, but for the two of the command line. Spark shows the class
before the message, in the trace of the failed query.

| class | it means | what to do |
|---|---|---|
{classes}

Subclasses, with what they say besides:

{subclasses}
"""


def advice(kind: str) -> Advice:
    """Return the advice for a class: its own, or that of the nearest class that it derives from."""
    while kind not in ADVICE:
        kind = parents().get(kind, BASE)
    return ADVICE[kind]


def _plain(text: str) -> str:
    """A sentence outside of code: placeholders stay visible, and nothing in it is taken for Markdown."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([\\<>*_\[\]])", r"\\\1", part) for part in parts)


def _code(text: str) -> str:
    return f"`{text}`" if "`" not in text else f"`` {text} ``"


def entry(error: Raised) -> str:
    """Return the line of one error: what happened, its class, what to do."""
    first, *rest = _SENTENCE.split(error.pattern.replace(f": {_ANSWER}", ""))
    what = first + (f": {_ANSWER}" if _ANSWER in error.pattern else "")
    said = " ".join(rest)
    do = re.sub(r"[^.?:]$", r"\g<0>.", _plain(said)) if letters(said) >= _FEWEST_LETTERS else advice(error.kind).do
    return f"- {_code(what.removesuffix('.'))} {error.kind}. {do}"


def room_of(error: Raised) -> str:
    """Return the room whose heading the error stands under."""
    return _ROOMS.get(error.kind, error.room)


def page(which: Page) -> str:
    """Return the text of a page."""
    return "\n".join(_page(which)) + "\n"


def _page(which: Page) -> Iterator[str]:
    yield f"# {which.title}\n"
    yield f"For {which.readers}, who look up a message. After this page you know what to do about it."
    yield "How to search, and the classes: [errors.md](errors.md). `make docs` writes this page from the code."
    for room, heading in which.rooms.items():
        found = {(one.pattern, one.kind): one for one in raised() if room_of(one) == room and one.pattern}
        if found:
            yield f"\n## {heading}\n"
            yield from dict.fromkeys(entry(one) for _, one in sorted(found.items(), key=_place))


def _place(item: tuple[tuple[str, str], Raised]) -> tuple[str, str]:
    """Errors are in the order of the words that the message begins with."""
    return re.sub(r"<[^>]*>|[^a-z0-9 ]", "", item[0][0].lower()).strip(), item[0][1]


def index() -> str:
    """Return the text of errors.md."""
    pages = (f"| {which.title.removeprefix('Errors of ')} | [{which.name}.md]({which.name}.md) |" for which in PAGES)
    own = (f"| `{kind}` | {said.means} | {said.do} |" for kind, said in ADVICE.items())
    others = sorted(kind for kind in kinds() if kind not in ADVICE and not kind.startswith("_"))
    lines = (f"- `{kind}` (of `{parents()[kind]}`): {kinds()[kind]}" for kind in others)
    return _INDEX.format(pages="\n".join(pages), classes="\n".join(own), subclasses="\n".join(lines))


def texts() -> dict[str, str]:
    """Return the texts of all pages by the names of their files."""
    return {"errors.md": index()} | {f"{which.name}.md": page(which) for which in PAGES}


if __name__ == "__main__":
    for name, text in texts().items():
        (Path(sys.argv[1]) / name).write_text(text)

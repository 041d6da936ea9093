"""The navigation of the site, read from the tables of docs/README.md: the index is the only list of pages.

A table's first heading names a group of pages; a table of `page`s takes the heading of its section.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

PROJECT = ("CONTRIBUTING", "SECURITY", "CHANGELOG", "docker/README")
"""Pages beside docs/ that are in the site."""
_SECTION = re.compile(r"## (?:[^:]*: )?(?:the )?(?P<name>.+)")
_HEAD = re.compile(r"\| (?P<name>[^|\[]+) \|")
_ROW = re.compile(r"\| \[[^\]]+\]\((?P<page>[\w-]+)\.md\) \|")


def groups(index: str) -> dict[str, list[str]]:
    """Return the names of the pages of each group, in the index's order, without directory and suffix."""
    found: dict[str, list[str]] = {}
    section = group = ""
    for line in index.splitlines():
        if (heading := _SECTION.fullmatch(line)) is not None:
            section = heading["name"]
        elif (row := _ROW.match(line)) is not None:
            found.setdefault(group, []).append(row["page"])
        elif (head := _HEAD.match(line)) is not None:
            group = section if head["name"] == "page" else head["name"]
    return found


def toctrees(index: str) -> Iterator[str]:
    """Yield the lines that put all pages into the site's sidebar, in the words of MyST."""
    for name, pages in {"": ["README"], **groups(index)}.items():
        caption = name[:1].upper() + name[1:]
        yield "\n```{toctree}\n:hidden:"
        yield from [f":caption: {caption}"] if caption else []
        yield from ["", *(f"docs/{page}" for page in pages), "```"]
    yield "\n".join(["\n```{toctree}\n:hidden:\n:caption: Project\n", *PROJECT, "```"])

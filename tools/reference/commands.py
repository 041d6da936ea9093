"""Write the page of all options of the command: `python -m tools.reference.commands docs`, or `make docs`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from streamgroup.cli._click import OTHERS
from streamgroup.cli.main import main

NAME = "cli-options.md"
_OF_SEVERAL = 2
"""An option that as many commands have, with the same meaning, is listed once."""
_INTRODUCTION = """\
# All options of the command

For operators and developers. This page has every option of every subcommand, as `--help` shows them, for the search.
[cli.md](cli.md) says how to use the commands, [cli-screens.md](cli-screens.md) shows real output. `make docs` writes
this page from the parsers."""


def commands(
    group: click.Group, path: str, parent: click.Context
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield each subcommand with its whole name and a context, also those of subcommands."""
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        if command is None:
            continue
        context = click.Context(command, parent, name)
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}", context)
        else:
            yield f"{path} {name}", command, context


def _rows(command: click.Command, context: click.Context) -> Iterator[tuple[str, str, str]]:
    """The section, the spelling and the meaning of each option, as its help has them."""
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None and "--help" not in parameter.opts:
            section = getattr(parameter, "section", OTHERS)
            yield section, record[0], " ".join(record[1].split())


def page() -> str:
    """Return the text of the page."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    context = click.Context(main, info_name="streamgroup")
    found = {name: (command, [*_rows(command, own)]) for name, command, own in commands(main, "streamgroup", context)}
    used = Counter(row for _, rows in found.values() for row in rows)
    shared = [row for row, times in used.items() if times >= _OF_SEVERAL]
    yield _INTRODUCTION
    yield "\n## Options of several commands\n\n| option | meaning | commands |\n|---|---|---|"
    for row in shared:
        theirs = (name.removeprefix("streamgroup ") for name, (_, rows) in found.items() if row in rows)
        yield f"{_line(row)} {', '.join(theirs)} |"
    for name, (command, rows) in found.items():
        yield f"\n## {name}\n\n{command.get_short_help_str(200).rstrip('.')}."
        own = sorted((row for row in rows if row not in shared), key=lambda row: row[0] == OTHERS)
        if own:
            yield "\n| option | meaning |\n|---|---|"
        yield from map(_line, own)


def _line(row: tuple[str, str, str]) -> str:
    return f"| `{row[1].replace('|', '/')}` | {_cell(row[2])} |"


def _cell(text: str) -> str:
    for special in "\\|<>*_[]":
        text = text.replace(special, f"\\{special}")
    return text


if __name__ == "__main__":
    (Path(sys.argv[1]) / NAME).write_text(page())

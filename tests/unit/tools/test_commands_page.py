"""The page of the command's options is the one that the parsers give."""

from __future__ import annotations

from pathlib import Path

import click

from streamgroup.cli.main import main
from tools.reference.commands import NAME, commands, page

PAGE = Path(__file__).parents[3] / "docs" / NAME


def test_the_page_is_the_one_that_the_parsers_give() -> None:
    assert PAGE.read_text() == page(), "run `make docs`, and read what has changed"


def test_every_option_of_every_command_is_on_the_page() -> None:
    text = PAGE.read_text()
    found = 0
    for name, command, _ in commands(main, "streamgroup", click.Context(main)):
        assert f"\n## {name}\n" in text
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                found += 1
                assert all(spelling in text for spelling in parameter.opts)
    assert found > 100


def test_subcommands_of_subcommands_have_their_whole_names() -> None:
    names = [name for name, _, _ in commands(main, "streamgroup", click.Context(main))]
    assert {"streamgroup kafka up", "streamgroup kafka down", "streamgroup lag"} <= set(names)

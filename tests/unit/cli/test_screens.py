"""The screens in docs/cli-screens.md have the columns that the commands print."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import click

import streamgroup.cli
from streamgroup.cli._click import Column
from streamgroup.cli.main import main

PAGE = Path(__file__).parents[3] / "docs" / "cli-screens.md"


def titles() -> set[str]:
    """The titles of all columns of all commands."""
    found = set()
    for module in pkgutil.iter_modules(streamgroup.cli.__path__):
        for value in vars(importlib.import_module(f"streamgroup.cli.{module.name}")).values():
            columns = value if isinstance(value, tuple) else (value,)
            found |= {column.title for column in columns if isinstance(column, Column)}
    return found


def test_the_headings_of_the_screens_are_titles_of_columns() -> None:
    headings = re.findall(r"^    ([A-Z]+[A-Z-]*  +[A-Z#].*)$", PAGE.read_text(), re.MULTILINE)
    assert len(headings) >= 9
    known = titles()
    for heading in headings:
        assert set(re.split(r"  +", heading)) <= known, heading


def test_every_command_for_operators_has_a_screen() -> None:
    shown = set(re.findall(r"^    \$ streamgroup (\w+)", PAGE.read_text(), re.MULTILINE))
    names = set(main.list_commands(click.Context(main)))
    assert names - shown == {"produce", "kafka", "demo", "completion"}, "docs/cli.md and their own pages say enough"

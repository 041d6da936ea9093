"""Helpers for the tests of several commands: a partition by its number, and the rows of a printed table."""

from __future__ import annotations

from collections.abc import Iterator

import click

from streamgroup.model import TopicPartition


def orders(partition: int) -> TopicPartition:
    """A partition of the topic that the tests use."""
    return TopicPartition("orders", partition)


def cells(text: str) -> list[str]:
    """Return the rows of a printed table, with one space between two cells."""
    return [" ".join(line.split()) for line in text.splitlines()]


def commands(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield each command that can be run, by the words that run it."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for word in command.list_commands(context):
        found = command.get_command(context, word)
        assert found is not None, word
        yield from commands(found, f"{name} {word}".strip())

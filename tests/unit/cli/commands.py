"""All commands of a group, for tests of what they have in common."""

from __future__ import annotations

from collections.abc import Iterator

import click


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

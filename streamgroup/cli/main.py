"""The `streamgroup` command. A module of this package with a click command of its own name is a subcommand.

Python imports the module of a subcommand only when it runs, so that no subcommand waits for the imports of another.
"""

from __future__ import annotations

import importlib
import pkgutil

import click

import streamgroup
import streamgroup.cli
from streamgroup.errors import StreamGroupError


class CommandsByFile(click.Group):
    """The group of subcommands. It shows an error of streamgroup as one line, without a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the modules. `get_command` returns None for a module without a command."""
        names = (module.name for module in pkgutil.iter_modules(streamgroup.cli.__path__))
        return sorted(name.replace("_", "-") for name in names if name != "main" and not name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with the name of its module: `cli/kafka.py` has `kafka`."""
        if cmd_name not in self.list_commands(ctx):
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(importlib.import_module(f"streamgroup.cli.{name}"), name, None)
        return command if isinstance(command, click.Command) else None

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except StreamGroupError as error:
            from streamgroup.cli._properties import without_prefix  # noqa: PLC0415  (it loads the options)

            raise click.ClickException(without_prefix(str(error))) from error


@click.command(cls=CommandsByFile, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(streamgroup.__version__, prog_name="streamgroup")
def main() -> None:
    """Kafka consumer groups for Spark Structured Streaming: look at clusters, groups and queries, and change them.

    The commands work with every Kafka from 0.7 on. `streamgroup COMMAND --help` shows options and examples.
    """

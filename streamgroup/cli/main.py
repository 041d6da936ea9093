"""The `streamgroup` command: each file of this package that holds a click command of its own name is a subcommand.

A subcommand's module loads when it is used, so that none pays for the imports of another.
"""

from __future__ import annotations

import importlib
import pkgutil

import click

import streamgroup
import streamgroup.cli
from streamgroup.errors import StreamGroupError


class CommandsByFile(click.Group):
    """Finds its subcommands among the modules beside this one and shows our exceptions as one clean error."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the modules; those that hold no command are passed over by `get_command`."""
        names = (module.name for module in pkgutil.iter_modules(streamgroup.cli.__path__))
        return sorted(name.replace("_", "-") for name in names if name != "main" and not name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command named like its file: `cli/kafka.py` has `kafka`."""
        if cmd_name not in self.list_commands(ctx):
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(importlib.import_module(f"streamgroup.cli.{name}"), name, None)
        return command if isinstance(command, click.Command) else None

    def invoke(self, ctx: click.Context) -> object:
        """Run the subcommand; an error of ours is its message and exit code 1, never a traceback."""
        try:
            return super().invoke(ctx)
        except StreamGroupError as error:
            raise click.ClickException(str(error)) from error


@click.command(cls=CommandsByFile, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(streamgroup.__version__, prog_name="streamgroup")
def main() -> None:
    """Kafka consumer groups for Spark Structured Streaming."""

"""`streamgroup completion`: the script by which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_PROGRAM, _VARIABLE = "streamgroup", "_STREAMGROUP_COMPLETE"


@click.command(short_help="Print the script by which bash, zsh or fish completes commands and options.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script by which SHELL completes commands and options.

    \b
    bash: add this line to ~/.bashrc
      eval "$(streamgroup completion bash)"
    zsh: add this line to ~/.zshrc
      eval "$(streamgroup completion zsh)"
    fish: run this once
      streamgroup completion fish > ~/.config/fish/completions/streamgroup.fish
    """
    found = get_completion_class(shell)
    assert found is not None, "click completes for each of the choices"
    click.echo(found(ctx.find_root().command, {}, _PROGRAM, _VARIABLE).source())

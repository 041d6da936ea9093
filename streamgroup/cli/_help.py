"""How `--help` shows a command: its options in sections, and examples at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

OTHERS = "Other options"
"""The section of the options without one, which is the last."""
CONNECTION = "Connection"
OUTPUT = "Output"
_LAST = (OUTPUT, CONNECTION, OTHERS)
_NO_LIMIT = "x>="


class SectionedOption(click.Option):
    """An option of a section."""

    def __init__(self, *names: Any, section: str, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.section = section

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return click's notes on the option. A lower limit alone is left out: the description implies it."""
        extra = super().get_help_extra(ctx)
        if str(extra.get("range", "")).startswith(_NO_LIMIT):
            del extra["range"]
        return extra


class SectionedCommand(click.Command):
    """A command whose help has a section for each group of options: its own first, the connection last.

    `examples` are command lines, with what they do. They stand at the end of the help.
    """

    def __init__(self, *arguments: Any, examples: Mapping[str, str] | None = None, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.examples = dict(examples or {})

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(parameter, "section", OTHERS), []).append(record)
        for title in sorted(sections, key=lambda title: _LAST.index(title) if title in _LAST else -1):
            with formatter.section(title):
                formatter.write_dl(sections[title])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples. A line of the shell is never broken."""
        if not self.examples:
            return
        with formatter.section("Examples"):
            for line, meaning in self.examples.items():
                formatter.write_text(f"# {meaning}")
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def option(section: str, *names: str, **settings: Any) -> Callable[[Any], Any]:
    """Return `click.option(*names, **settings)` for an option of `section`."""
    return click.option(*names, cls=SectionedOption, section=section, **settings)


def flag(section: str, *names: str, **settings: Any) -> Callable[[Any], Any]:
    """Return an option without a value."""
    return option(section, *names, is_flag=True, **settings)


def json_option(text: str) -> Callable[[Any], Any]:
    """Return `--json`, whose help is `text`."""
    return flag(OUTPUT, "--json", "as_json", help=text)

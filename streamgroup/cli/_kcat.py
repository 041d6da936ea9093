"""The common base of the commands with kcat's options."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import click

from streamgroup.cli._help import SectionedCommand, flag, option
from streamgroup.cli._output import Notices

Command = TypeVar("Command", bound=Callable[..., Any])
T = TypeVar("T")
_NOTICES = "Notices on standard error"


class KcatCommand(SectionedCommand):
    """A command whose wrong usage has exit code 1, as in kcat, instead of click's 2."""

    def make_context(self, *args: Any, **others: Any) -> click.Context:
        with _usage_is_1():
            return super().make_context(*args, **others)

    def invoke(self, ctx: click.Context) -> Any:
        with _usage_is_1():
            return super().invoke(ctx)


@contextmanager
def _usage_is_1() -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        error.exit_code = 1  # type: ignore[misc]
        raise


_QUIET = flag(_NOTICES, "-q", "--quiet", help="Print only errors.")
_VERBOSE = option(_NOTICES, "-v", "--verbose", count=True, help="Print more notices; -vv prints still more.")


def notice_options(command: Command) -> Command:
    """Add the options that choose the notices to `command`, which gets them as `notices`."""

    @functools.wraps(command)
    def with_notices(*args: Any, quiet: bool, verbose: int, **others: Any) -> Any:
        return command(*args, notices=Notices(0 if quiet else 1 + verbose), **others)

    return cast("Command", _QUIET(_VERBOSE(with_notices)))


def parsed(option: str, parse: Callable[[], T]) -> T:
    """Return what `parse` returns. A ValueError is a wrong use of `option`."""
    try:
        return parse()
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None

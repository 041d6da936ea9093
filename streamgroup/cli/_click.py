"""The parts that commands share: options with sections and units, kcat's exit codes, and tables of columns."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import click

from streamgroup.cli._output import Notices
from streamgroup.coordinator.control import channel
from streamgroup.frozen import frozen
from streamgroup.model import TopicPartition

OTHERS = "Other options"
"""The last section: the options that name no section."""
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
    """A command whose help shows its options in sections: the command's own first, the connection last.

    `examples` maps command lines to descriptions. The help ends with them.
    """

    def __init__(self, *arguments: Any, examples: Mapping[str, str] | None = None, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.examples = dict(examples or {})

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
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
    return option(section, *names, is_flag=True, **settings)


def json_option(text: str) -> Callable[[Any], Any]:
    """Return `--json`, whose help is `text`."""
    return flag(OUTPUT, "--json", "as_json", help=text)


# -- lengths of time ---------------------------------------------------------------------------------------------------

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
"""In milliseconds."""
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)?")
_NAMES = {"ms": "milliseconds", "s": "seconds"}
OR_UNITS = "or with a unit: 500ms, 30s, 5m"

if TYPE_CHECKING:
    _Floats = click.ParamType[float]
else:
    _Floats = click.ParamType  # not generic before click 8.4


class Duration(_Floats):
    """Converts `5000`, `500ms`, `30s`, `5m` and `1h` into a number of `unit`, whole milliseconds or any seconds."""

    name = "duration"

    def __init__(self, unit: str, least: float, most: float | None = None) -> None:
        self._unit, self._least, self._most = unit, least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number. Fails for a text that is not a duration, or one beyond the limits."""
        if isinstance(value, int | float):
            return value
        found = _DURATION.fullmatch(value)
        if found is None:
            self.fail(f"invalid duration {value!r}: expected {_NAMES[self._unit]}, {OR_UNITS}", param, ctx)
        number = float(found[1]) * _UNITS[found[2] or self._unit] / _UNITS[self._unit]
        if number < self._least or (self._most is not None and number > self._most):
            until = "or more" if self._most is None else f"to {self._most}"
            self.fail(f"invalid duration {value!r}: expected {self._least} {until} {_NAMES[self._unit]}", param, ctx)
        return round(number) if self._unit == "ms" or number.is_integer() else number


def timeout_option(default_ms: int, text: str) -> Callable[[Any], Any]:
    """Return `--timeout` in milliseconds. Its help is `text`, followed by the units."""
    return option(
        CONNECTION,
        "--timeout",
        type=Duration("ms", 1),
        default=default_ms,
        show_default=True,
        metavar="MS",
        help=f"{text} In milliseconds, {OR_UNITS}.",
    )


# -- partitions --------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    _Partitions = click.ParamType[TopicPartition]
else:
    _Partitions = click.ParamType  # not generic before click 8.4


class PartitionName(_Partitions):
    """A partition such as `orders-0`."""

    name = "topic-partition"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TopicPartition:
        """Return the partition. Fails for a text that is not a name of one."""
        if isinstance(value, TopicPartition):
            return value
        try:
            return channel.partition_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def partitions_option(text: str) -> Callable[[Any], Any]:
    """Return `--topic-partition`, whose help is `text`."""
    return option(
        "Which partitions",
        "--topic-partition",
        "partitions",
        type=PartitionName(),
        multiple=True,
        metavar="TOPIC-N",
        help=text,
    )


# -- usage and notices as in kcat --------------------------------------------------------------------------------------

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
    """Return what `parse` returns. Raises BadParameter for `option` on a ValueError."""
    try:
        return parse()
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


# -- tables ------------------------------------------------------------------------------------------------------------

_NARROWEST = 12

R = TypeVar("R")

Partition = int | str
"""The number of a partition, or `1-2` for partition 2 of broker 1 in Kafka 0.7."""


@frozen
class Column(Generic[R]):
    """One column: its title, its name in JSON, and its value for a row.

    As text, a `verbose` column is shown only with --verbose, and an `if_any` column only if a row has a value.
    """

    title: str
    name: str
    of: Callable[[R], Any]
    verbose: bool = False
    if_any: bool = False


def table(columns: Sequence[Column[R]], rows: Sequence[R], *, verbose: bool = False, width: int | None = None) -> str:
    """Return the rows below their titles. Scripts may split the lines at white space, as those of Kafka's tools.

    If a line is longer than `width`, the first column is shortened, to 12 characters at least.
    """
    shown = [c for c in columns if _is_shown(c, rows, verbose)]
    cells = [[column.title for column in shown]] + [[_cell(column.of(row)) for column in shown] for row in rows]
    if width is not None:
        _shorten_first(cells, width)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def _shorten_first(cells: list[list[str]], width: int) -> None:
    others = [max(map(len, column)) for column in zip(*cells, strict=True)][1:]
    most = max(_NARROWEST, width - sum(others) - 2 * len(others))
    for line in cells:
        line[0] = line[0] if len(line[0]) <= most else line[0][: most - 1] + "…"


def json_rows(columns: Sequence[Column[R]], rows: Iterable[R]) -> list[dict[str, Any]]:
    return [{column.name: column.of(row) for column in columns} for row in rows]


def _is_shown(column: Column[R], rows: Sequence[R], verbose: bool) -> bool:
    if column.if_any:
        return any(column.of(row) is not None for row in rows)
    return verbose or not column.verbose


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None or value == "" else str(value)

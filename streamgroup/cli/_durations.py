"""Lengths of time on the command line: a number in the option's own unit, or a number with a unit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from streamgroup.cli._help import CONNECTION, option

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
    """Return `--timeout` in milliseconds. Its help is `text` with the units behind it."""
    return option(
        CONNECTION,
        "--timeout",
        type=Duration("ms", 1),
        default=default_ms,
        show_default=True,
        metavar="MS",
        help=f"{text} In milliseconds, {OR_UNITS}.",
    )

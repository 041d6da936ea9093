"""One text that a release writes, and the value that every later release must read from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Case:
    """`write` returns the text as this version writes it, `read` the value that this version reads from a text.

    `write` is None if only earlier releases write such a text.

    `file` is the name of the golden file without its suffix, `name` the key in it.
    """

    file: str
    name: str
    value: Any
    write: Callable[[], str] | None
    read: Callable[[str], Any]

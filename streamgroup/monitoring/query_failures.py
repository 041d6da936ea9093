"""The error that has ended a query: its name and its message, from the text that Spark keeps of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from streamgroup.errors import DrainedError

OTHER = "other"
"""The name of an error without a class of Spark's."""
MOST_CHARACTERS = 600
"""How much of a message is kept."""
_OURS = re.compile(r"^streamgroup(?:\.\w+)*\.(\w+)(?:: *(.*))?$", re.MULTILINE)
"""The last line of a traceback, of an error of ours."""
_RAISED = re.compile(r"^.*Traceback \(most recent call last\):\n(?:[ \t].*\n)+([\w.]+(?:: .*)?)$", re.MULTILINE)
"""The last line of a traceback. Lines before it are indented."""


@dataclass(frozen=True, slots=True)
class QueryFailure:
    """An error that has ended a query at `at`, in seconds since 1970.

    `query` is its name, or else its id. `groups` are those of its batches so far.
    """

    at: float
    query: str
    groups: tuple[str, ...]
    error: str
    text: str


def failure_of(text: str, spark_class: str | None) -> str | None:
    """Return the name of the error in the `text` of an exception: ours, or else Spark's class. None for a drain.

    The text itself is no label: it differs each time.
    """
    ours = _OURS.findall(text)
    if ours:
        name: str = ours[-1][0]
        return None if name == DrainedError.__name__ else name
    return spark_class or OTHER


def is_ours(text: str) -> bool:
    """Return whether the `text` of an exception has an error of streamgroup."""
    return _OURS.search(text) is not None


def message_of(text: str) -> str:
    """Return the message in the `text` of an exception.

    That of our error, or else the last line of the last traceback of Python, or else the first line of the text.
    """
    ours = [message for _, message in _OURS.findall(text) if message]
    raised = _RAISED.findall(text)
    first = next((line for line in text.splitlines() if line.strip()), "")
    found = ours[-1] if ours else raised[-1] if raised else first
    return found.strip()[:MOST_CHARACTERS]

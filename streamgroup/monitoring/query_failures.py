"""Names the error that has ended a query, from the text that Spark keeps of it."""

from __future__ import annotations

import re

from streamgroup.errors import DrainedError

OTHER = "other"
"""The name of an error without a class of Spark's."""
_OURS = re.compile(r"^streamgroup(?:\.\w+)*\.(\w+)(?::|$)", re.MULTILINE)
"""The last line of a traceback."""


def failure_of(text: str, spark_class: str | None) -> str | None:
    """Return the name of the error in the `text` of an exception: ours, or else Spark's class. None for a drain.

    The text itself is no label: it differs each time.
    """
    ours = _OURS.findall(text)
    if ours:
        name: str = ours[-1]
        return None if name == DrainedError.__name__ else name
    return spark_class or OTHER

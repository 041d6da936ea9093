"""Numbers of things in messages."""

from __future__ import annotations

from collections.abc import Sequence

MOST_NAMED = 3
"""How many partitions, topics, brokers or causes a message names: there may be thousands."""
_HISSES = ("s", "x", "ch", "sh")


def counted(count: int, noun: str) -> str:
    """Return `1 record`, `2 records` or `3 batches`. The plural of `noun` must be regular."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}{'es' if noun.endswith(_HISSES) else 's'}"


def first_of(names: Sequence[str], most: int, noun: str, separator: str = ", ") -> str:
    """Return `a, b and 3 more topics`: the first `most` of `names`, and how many more there are."""
    more = len(names) - most
    shown = separator.join(names[:most])
    return f"{shown} and {counted(more, f'more {noun}')}" if more > 0 else shown

"""Numbers of things in messages."""

from __future__ import annotations

_HISSES = ("s", "x", "ch", "sh")


def counted(count: int, noun: str) -> str:
    """Return `1 record`, `2 records` or `3 batches`. The plural of `noun` must be regular."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}{'es' if noun.endswith(_HISSES) else 's'}"

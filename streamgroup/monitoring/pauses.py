"""Which partitions of a group are paused, by the statuses of its members on this machine. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def pauses(statuses: Iterable[Mapping[str, Any]], group: str) -> dict[str, bool]:
    """Return by name whether each partition is paused that a member of `group` holds; others are not known."""
    found: dict[str, bool] = {}
    for status in statuses:
        if status.get("group") == group:
            found.update(dict.fromkeys(status.get("positions") or (), False))
            found.update(dict.fromkeys(status.get("paused") or (), True))
    return found

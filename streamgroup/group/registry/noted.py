"""Texts that were logged already."""

from __future__ import annotations

NOTED_MOST = 1000
"""Texts name nodes and sessions, of which new ones come for ever. When so many are remembered, all are forgotten, and
each that still holds is logged once more."""


class Noted:
    """Remembers texts, so that none is logged twice."""

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: set[str] = set()

    def __len__(self) -> int:
        return len(self._texts)

    def is_new(self, text: str) -> bool:
        """Return whether this text was not logged yet, and remember it."""
        if text in self._texts:
            return False
        if len(self._texts) >= NOTED_MOST:
            self._texts.clear()
        self._texts.add(text)
        return True

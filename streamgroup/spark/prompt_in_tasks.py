"""Readers and writers ask for quick acknowledgements when a task unpickles them."""

from __future__ import annotations

from typing import Any

from streamgroup.net.quick_acknowledgements import acknowledge_at_once


class PromptInTasks:
    """A reader or writer that Spark pickles into tasks.

    When a task unpickles it, the task's input has not all arrived: it asks for quick acknowledgements of the rest.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge_at_once()

"""What the readers and writers of this package do when a task unpickles them."""

from __future__ import annotations

from typing import Any

from streamgroup.net.quick_acknowledgements import acknowledge_at_once


class PromptInTasks:
    """A reader or writer that Spark pickles into tasks. When a task unpickles it, its input has not all arrived."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge_at_once()

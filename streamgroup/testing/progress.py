"""Progress of downloads on standard error: a plain line, and a bar on a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Protocol


class Progress(Protocol):
    """Shows the state of a task."""

    def update(self, step: str, done: int, total: int | None) -> None:
        """Show the current `step`; `total` is None while it is unknown."""


class _NoBar:
    """Shows nothing: standard error is not a terminal."""

    def update(self, step: str, done: int, total: int | None) -> None:
        """Do nothing: a log needs no intermediate states."""


@contextlib.contextmanager
def progress(title: str) -> Iterator[Progress]:
    """Show the progress of `title` for the length of the block."""
    print(f"streamgroup: {title}", file=sys.stderr, flush=True)
    if not sys.stderr.isatty():
        yield _NoBar()
        return
    # Costs 50 ms to import, and most processes never show a bar.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        class _Rich:
            def update(self, step: str, done: int, total: int | None) -> None:
                bar.update(task, description=step, completed=done, total=total)

        yield _Rich()

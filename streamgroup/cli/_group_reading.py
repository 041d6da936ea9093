"""Reads as a member of a consumer group, by the coordinator that a streaming query has.

The coordinator plans batches. A batch is printed whole, then reported as sunk, and the coordinator commits it. A
rebalance waits for the batch in flight, so that partitions are given up with their commits made.
"""

from __future__ import annotations

import time
from typing import Any

from streamgroup.cli._output import Notices, RecordPrinter, StopSignals
from streamgroup.driver.coordinator import Coordinator
from streamgroup.executor.fetcher import read
from streamgroup.model import INITIAL_DOCUMENT, FetchTask
from streamgroup.options.types import LimitOptions, SourceOptions
from streamgroup.planning.document import to_value

PAUSE_S = 0.05
"""Between two looks for records where the last one found none."""
FIRST_BATCH = 1_000
"""Offsets of the first batch."""
LARGEST_BATCH = 1_000_000
SHORT_BATCH_S = 0.1
LONG_BATCH_S = 0.5
"""A rebalance and a signal wait for the batch in flight, so the next batch is smaller after one that took longer."""


class GroupReader:
    """Reads the partitions that the group assigns to this member, and commits what is printed.

    With `until_ends` it ends when the member has read what its partitions held at the beginning.
    """

    def __init__(self, options: SourceOptions, *, until_ends: bool, notices: Notices) -> None:
        assert options.group is not None, "options of a batch read"
        self._options = options
        self._group = options.group
        self._until_ends = until_ends
        self._notices = notices
        self._coordinator = Coordinator(options)
        self._coordinator.listen(lambda: True)  # `sunk` reports each batch
        self._batch = FIRST_BATCH
        self._held: tuple[int, frozenset[str]] = (-1, frozenset())
        """The generation and the partitions that were said last."""

    def run(self, printer: RecordPrinter, signals: StopSignals) -> None:
        """Print and commit batches until the printer is done, the ends are reached, or a signal comes (SystemExit).

        The member then leaves the group. A batch that was not printed whole is not committed.
        """
        try:
            self._run(printer, signals)
        finally:
            with signals.ending():
                self._coordinator.stop(last_word=False)

    def _run(self, printer: RecordPrinter, signals: StopSignals) -> None:
        coordinator = self._coordinator
        start: dict[str, Any] = to_value(INITIAL_DOCUMENT)
        self._notices.say(f"Waiting for group {self._group.group_id} to rebalance")
        if self._until_ends:
            with signals.waiting(coordinator.interrupt):
                coordinator.prepare_available_now()
        while not printer.is_done:
            with signals.waiting(coordinator.interrupt):
                end = coordinator.latest_offset(start, limits=self._limits(printer))
                tasks = [] if end == start else coordinator.partitions(start, end)
            self._say_held()
            if end == start:
                if self._until_ends:
                    self._say_ends()
                    return
                with signals.waiting():
                    time.sleep(PAUSE_S)
                continue
            if not self._print(tasks, printer):
                return
            coordinator.sunk(end, None, {})
            start = end

    def _limits(self, printer: RecordPrinter) -> LimitOptions:
        """Return the limits of the next batch: it holds no more records than are still to be printed."""
        if printer.left is None:
            return LimitOptions(max_offsets_per_trigger=self._batch)
        return LimitOptions(max_offsets_per_trigger=min(self._batch, printer.left), is_strict=True)

    def _print(self, tasks: list[FetchTask], printer: RecordPrinter) -> bool:
        """Print a batch, and return whether all of its records were printed."""
        options, location = self._options, self._group.offset_location
        began = time.monotonic()
        for task in tasks:
            log_format = task.dialect.log_format
            batches = read(
                task,
                options.client,
                options.fetch,
                fail_on_data_loss=options.fail_on_data_loss,
                group=location.group,
                stored_in=location.stored_in,
            )
            for batch in batches:
                if not printer.print(batch, log_format):
                    return False
        took = time.monotonic() - began
        if took < SHORT_BATCH_S:
            self._batch = min(2 * self._batch, LARGEST_BATCH)
        elif took > LONG_BATCH_S:
            self._batch = max(self._batch // 2, 1)
        return True

    def _say_held(self) -> None:
        """Say which partitions the member holds, where that has changed."""
        status = self._coordinator.status()
        held = status["generation"], frozenset(status["positions"])
        if held != self._held and held[0] >= 0:
            names = ", ".join(sorted(held[1])) or "no partitions"
            group, member = self._group.group_id, status["member"]
            self._notices.say(f"Group {group} rebalanced (member {member}): assigned: {names}")
            self._held = held

    def _say_ends(self) -> None:
        for name, offset in self._coordinator.status()["positions"].items():
            self._notices.say(f"Reached end of {name} at offset {offset}")

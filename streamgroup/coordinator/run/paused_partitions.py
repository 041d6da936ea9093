"""Manages the partitions that an operator has paused: the query owns them but reads no records from them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from streamgroup.errors import StreamGroupError
from streamgroup.group.events import INFO, WARNING
from streamgroup.model import LogRange, Position, TopicPartition, name_some
from streamgroup.text import MOST_NAMED, first_of

V = TypeVar("V")


class PauseRefused(StreamGroupError):
    """A partition to pause is not owned, or a partition to resume is not paused."""


class PausedPartitions:
    """The paused partitions of one query. `note(level, line)` writes a log line.

    A restarted query begins without paused partitions. A partition is paused until an operator resumes it, or until an
    assignment lacks it, so that the next owner reads it. A pause of the entire query includes partitions assigned
    later.
    """

    def __init__(self, group: str, note: Callable[[int, str], None]) -> None:
        self._who = f"group {group}" if group else "no group"
        self._note = note
        self._paused: frozenset[TopicPartition] = frozenset()
        self.is_whole = False
        """Whether the entire query is paused."""
        self._reported = ""

    def names(self, held: Collection[TopicPartition]) -> list[str]:
        """Return the names of the owned partitions that are paused, sorted."""
        return [str(tp) for tp in sorted(held) if self._is_paused(tp)]

    def _is_paused(self, tp: TopicPartition) -> bool:
        return self.is_whole or tp in self._paused

    def pause(self, partitions: Collection[TopicPartition] | None, held: Collection[TopicPartition]) -> None:
        """Pause `partitions`, or the entire query for None.

        Raises PauseRefused if the query does not own one of them.
        """
        if partitions is None:
            self.is_whole = True
            self._note(WARNING, f"{self._who}: the query is paused: it plans nothing until it is resumed")
            return
        if unheld := frozenset(partitions) - frozenset(held):
            raise PauseRefused(
                f"cannot pause {name_some(unheld)}: not assigned to this query now. Assigned are "
                f"{name_some(held) or 'none'}"
            )
        self._paused |= frozenset(partitions)
        self._note(WARNING, f"{self._who}: paused {name_some(partitions)}: not read until it is resumed")

    def resume(self, partitions: Collection[TopicPartition] | None) -> None:
        """Resume `partitions`, or everything for None. Raises PauseRefused if one of them was not paused by name."""
        if partitions is None:
            self.is_whole, self._paused = False, frozenset()
            self._note(INFO, f"{self._who}: the query is resumed")
            return
        if self.is_whole:
            raise PauseRefused(
                f"cannot resume {name_some(partitions)}: the entire query is paused. Resume it without a partition"
            )
        if unpaused := frozenset(partitions) - self._paused:
            raise PauseRefused(f"cannot resume {name_some(unpaused)}: not paused. {self._listed()}")
        self._paused -= frozenset(partitions)
        self._note(INFO, f"{self._who}: resumed {name_some(partitions)}")

    def _listed(self) -> str:
        return f"Paused are {name_some(self._paused) or 'none'}"

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Process a completed assignment. As in Java's consumer, the pause of all other partitions ends."""
        if gone := self._paused - frozenset(partitions):
            self._paused -= gone
            self._note(
                WARNING,
                f"{self._who}: this query's new assignment lacks {name_some(gone)}, so the pause there has ended",
            )

    def without(self, logs: Mapping[TopicPartition, V]) -> Mapping[TopicPartition, V]:
        """Return `logs` without paused partitions; the same object if none is paused."""
        if not self.is_whole and not self._paused:
            return logs
        return {tp: log for tp, log in logs.items() if not self._is_paused(tp)}

    def unpaused(self, partitions: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions among `partitions` that are not paused."""
        return frozenset(tp for tp in partitions if not self._is_paused(tp))

    def report_left_out(
        self, positions: Mapping[TopicPartition, Position], logs: Mapping[TopicPartition, LogRange], trigger: str
    ) -> None:
        """Log once which records of paused partitions a query skips whose trigger ends it."""
        left = [
            f"{tp} from {positions[tp].offset} to {logs[tp].latest}"
            for tp in sorted(positions)
            if self._is_paused(tp) and tp in logs and positions[tp].offset < logs[tp].latest
        ]
        names = first_of(left, MOST_NAMED, "partition")
        text = f"{self._who}: {trigger} skips paused partitions: {names}. The query reads them after its next start"
        if left and text != self._reported:
            self._reported = text
            self._note(WARNING, text)

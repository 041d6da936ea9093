"""The partitions that an operator has paused: the run holds and commits them, and plans none of their records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from streamgroup.errors import StreamGroupError
from streamgroup.group.events import INFO, WARNING
from streamgroup.model import LogRange, Position, TopicPartition, name_some
from streamgroup.text import MOST_NAMED, first_of

V = TypeVar("V")


class PauseRefused(StreamGroupError):
    """A partition to pause is not held, or one to resume is not paused."""


class PausedPartitions:
    """The pauses of one run. `note` takes a line for the log with its level.

    A pause belongs to this run: a restarted query begins without one. It lasts until the partition is resumed, or until
    an assignment lacks the partition, so the member that gets it reads it. A pause of the entire query includes
    partitions that it gains.
    """

    def __init__(self, group: str, note: Callable[[int, str], None]) -> None:
        self._who = f"group {group}" if group else "no group"
        self._note = note
        self._paused: frozenset[TopicPartition] = frozenset()
        self.is_whole = False
        """Whether the entire query is paused."""
        self._reported = ""

    def names(self, held: Collection[TopicPartition]) -> list[str]:
        """Return the paused ones of the partitions held, sorted."""
        return [str(tp) for tp in sorted(held) if self._is_paused(tp)]

    def _is_paused(self, tp: TopicPartition) -> bool:
        return self.is_whole or tp in self._paused

    def pause(self, partitions: Collection[TopicPartition] | None, held: Collection[TopicPartition]) -> None:
        """Pause `partitions`, or the entire query for None. Raises PauseRefused if one of them is not held."""
        if partitions is None:
            self.is_whole = True
            self._note(WARNING, f"{self._who}: the query is paused: it plans nothing until it is resumed")
            return
        if unheld := frozenset(partitions) - frozenset(held):
            raise PauseRefused(
                f"cannot pause {name_some(unheld)}: the query does not hold it now. It holds "
                f"{name_some(held) or 'nothing'}"
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
        """Take a completed assignment: pauses of partitions that it lacks end, as in Java's consumer."""
        if gone := self._paused - frozenset(partitions):
            self._paused -= gone
            self._note(
                WARNING,
                f"{self._who}: this query's new assignment lacks {name_some(gone)}, so the pause there has ended",
            )

    def without(self, logs: Mapping[TopicPartition, V]) -> Mapping[TopicPartition, V]:
        """Return `logs` without those of paused partitions; the same object if none is paused."""
        if not self.is_whole and not self._paused:
            return logs
        return {tp: log for tp, log in logs.items() if not self._is_paused(tp)}

    def unpaused(self, partitions: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions among `partitions` that are not paused."""
        return frozenset(tp for tp in partitions if not self._is_paused(tp))

    def report_left_out(
        self, positions: Mapping[TopicPartition, Position], logs: Mapping[TopicPartition, LogRange], trigger: str
    ) -> None:
        """Log once which records of paused partitions a run leaves out whose trigger ends it."""
        left = [
            f"{tp} from {positions[tp].offset} to {logs[tp].latest}"
            for tp in sorted(positions)
            if self._is_paused(tp) and tp in logs and positions[tp].offset < logs[tp].latest
        ]
        names = first_of(left, MOST_NAMED, "partition")
        text = f"{self._who}: {trigger} leaves out paused partitions: {names}. The next run reads them"
        if left and text != self._reported:
            self._reported = text
            self._note(WARNING, text)

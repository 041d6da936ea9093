"""Where batches of Kafka 0.7 may end (R34): what the watcher's cluster finds by walking messages, for the planner."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING

from streamgroup.driver.clusters import LogCluster, kafka07_of
from streamgroup.errors import ConfigError, TransportError
from streamgroup.model import LogRange, OffsetRange, Position, TopicPartition, name07
from streamgroup.planning.batch import backlog_of
from streamgroup.planning.limits import Boundaries, rate_limit, whole_messages

if TYPE_CHECKING:
    from streamgroup.driver.watcher import LogWatcher

log = logging.getLogger("streamgroup")

Walked = dict[TopicPartition, tuple[int, ...]]
Logs = Mapping[TopicPartition, LogRange]

BUDGET_S = 0.8
"""So long messages are walked for one plan: the watcher has others to ask, and a shorter batch is one, too."""
QUESTION_S = 5.0
"""How long a broker's answer counts that comes later than that."""


class BoundaryWalks:
    """Asks, and remembers the answers while their partitions stay where they are. Used by Spark's thread alone."""

    def __init__(self, watcher: LogWatcher) -> None:
        self._watcher = watcher
        self._walked: dict[TopicPartition, tuple[int, tuple[int, ...]]] = {}
        """By partition: the position from which it was walked, and what was found."""
        self._question: tuple[tuple[OffsetRange, ...], Future[Walked]] | None = None

    def ask(
        self,
        positions: Mapping[TopicPartition, Position],
        logs: Logs,
        max_bytes: int,
        targets: Mapping[TopicPartition, int] | None,
        wait: float,
    ) -> None:
        """See to it that limits of `max_bytes` for all can be rounded; waits at most `wait` seconds for the answers.

        What is not known by then is at hand for a later plan. Raises DecodeError where a position is no boundary,
        BrokerError for what a broker refuses.
        """
        self._walked = {
            tp: kept for tp, kept in self._walked.items() if tp in positions and kept[0] == positions[tp].offset
        }
        if self._question is None:
            backlog = backlog_of(positions, {tp: known.latest for tp, known in logs.items()}, targets)
            limits = rate_limit(backlog, max_bytes)
            unknown = whole_messages(backlog, limits, self.known(logs)).unknown
            if unknown:
                self._question = unknown, self._watcher.post(lambda *asked: _walk(unknown, *asked), QUESTION_S)
        if self._question is not None:
            self._collect(*self._question, wait)

    def known(self, logs: Logs) -> Boundaries:
        """What is known, for `whole_messages`."""
        return Boundaries(
            {tp: found.segments for tp, found in logs.items()}, {tp: ends for tp, (_, ends) in self._walked.items()}
        )

    def _collect(self, asked: tuple[OffsetRange, ...], answer: Future[Walked], wait: float) -> None:
        try:
            walked = answer.result(wait)
        except FutureTimeoutError:
            return  # it is still on its way
        except TransportError as error:
            log.debug("walking messages: %s", error)
            walked = {}
        finally:
            if answer.done():
                self._question = None
        starts = {range_.partition: range_.start for range_ in asked}
        self._walked |= {tp: (starts[tp], ends) for tp, ends in walked.items()}


def _walk(wanted: tuple[OffsetRange, ...], cluster: LogCluster, deadline: float) -> Walked:
    return kafka07_of(cluster, deadline).boundaries(wanted, deadline, BUDGET_S)


def require_boundaries(cluster: LogCluster, ranges: Iterable[OffsetRange], logs: Logs, deadline: float) -> None:
    """Raise ConfigError where a range that a user gave begins or ends inside of a message of Kafka 0.7."""
    brokers = kafka07_of(cluster, deadline)
    for range_ in ranges:
        tp = range_.partition
        known = {logs[tp].earliest, logs[tp].latest, *logs[tp].segments}
        for option, position in (("startingOffsets", range_.start), ("endingOffsets", range_.until)):
            if position in known or brokers.begins(tp, position, deadline):
                continue
            segment = max((s for s in known if s < position), default=0)
            walked = brokers.boundaries([OffsetRange(tp, segment, position)], deadline, QUESTION_S)
            before = max((end for end in walked.get(tp, ()) if end < position), default=segment)
            raise ConfigError(
                f"{option}: {position} of {name07(tp)} is no boundary "
                f"of a message: positions of Kafka 0.7 are bytes. A message begins at {before}, before it"
            )

"""Finds message boundaries of Kafka 0.7, at which batches may end (R34), by scanning messages on the brokers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING

from streamgroup.coordinator.planning.batch import backlog_of
from streamgroup.coordinator.planning.limits import Boundaries, rate_limit, whole_messages
from streamgroup.errors import ConfigError, TransportError
from streamgroup.kafka.cluster.interface import Cluster, kafka07_of
from streamgroup.logformat import KAFKA07_LOG
from streamgroup.model import LogRange, OffsetRange, Position, TopicPartition

if TYPE_CHECKING:
    from streamgroup.coordinator.threads.log_watcher import LogWatcher

log = logging.getLogger("streamgroup")

Scanned = dict[TopicPartition, tuple[int, ...]]
Logs = Mapping[TopicPartition, LogRange]

BUDGET_S = 0.8
"""Seconds of one scan. Other callers need the watcher, and a shorter batch is good enough."""
CHECK_TIMEOUT_S = 30.0
"""How long a position is checked before the planner uses it unchecked."""
CHECK_EVERY_S = 2.0
"""How often a position is checked again: each check takes the watcher's time."""
RETRY_BACKOFF_S = 0.1
"""Wait between two scans if the broker has closed the connection at once."""
SCAN_TIMEOUT_S = 5.0
"""How long a broker's answer to a scan is awaited. It may arrive after the call that asked for it has returned."""


class _Scans:
    """Sends scan requests to the log watcher's cluster, one at a time."""

    def __init__(self, watcher: LogWatcher, *, is_checked: bool = False) -> None:
        self._watcher = watcher
        self._is_checked = is_checked
        self._asked: tuple[OffsetRange, ...] = ()
        self._answer: Future[Scanned] | None = None

    @property
    def is_free(self) -> bool:
        """Whether no scan is pending."""
        return self._answer is None

    def ask(self, wanted: tuple[OffsetRange, ...]) -> None:
        """Scan each range from its start, which must be a boundary, to its end."""
        self._asked = wanted
        checked = self._is_checked
        self._answer = self._watcher.post(lambda *asked: _scan(wanted, *asked, checked=checked), SCAN_TIMEOUT_S)

    def answers(self, wait: float) -> dict[TopicPartition, tuple[int, tuple[int, ...]]]:
        """Return by partition the start of the scan and the boundaries found; empty if it takes longer than `wait` s.

        Raises DecodeError, BrokerError.
        """
        answer = self._answer
        if answer is None:
            return {}
        try:
            scanned = answer.result(wait)
        except FutureTimeoutError:
            return {}  # the scan is still pending
        except TransportError as error:
            log.debug("cannot scan for message boundaries: %s", error)
            return {}
        finally:
            if answer.done():
                self._answer = None
        starts = {range_.partition: range_.start for range_ in self._asked}
        return {tp: (starts[tp], ends) for tp, ends in scanned.items()}


class BoundaryScans:
    """Finds boundaries at which a limited batch may end, and caches them while the positions do not change.

    Only Spark's thread uses it.
    """

    def __init__(self, watcher: LogWatcher) -> None:
        self._scans = _Scans(watcher)
        self._scanned: dict[TopicPartition, tuple[int, tuple[int, ...]]] = {}
        """By partition: the position at which the scan began, and the boundaries found."""

    def ask(
        self,
        positions: Mapping[TopicPartition, Position],
        logs: Logs,
        max_bytes: int,
        targets: Mapping[TopicPartition, int] | None,
        wait: float,
    ) -> None:
        """Scan far enough to round limits of `max_bytes` for all partitions down to boundaries.

        Waits at most `wait` seconds; later results serve a later plan. Raises DecodeError if a position is not a
        boundary, BrokerError if a broker refuses the request.
        """
        self._scanned = {
            tp: kept for tp, kept in self._scanned.items() if tp in positions and kept[0] == positions[tp].offset
        }
        if self._scans.is_free:
            backlog = backlog_of(positions, {tp: known.latest for tp, known in logs.items()}, targets)
            limits = rate_limit(backlog, max_bytes)
            unknown = whole_messages(backlog, limits, self.known(logs)).unscanned
            if unknown:
                self._scans.ask(unknown)
        self._scanned |= self._scans.answers(wait)

    def known(self, logs: Logs) -> Boundaries:
        """Return the segment starts and the boundaries found, for `whole_messages`."""
        return Boundaries(
            {tp: found.segments for tp, found in logs.items()}, {tp: ends for tp, (_, ends) in self._scanned.items()}
        )


class PositionChecks:
    """Checks that a message begins at each position that this query has not planned itself.

    A committed offset or a starting offset may be any number. Every later position is the end of a batch, which is a
    boundary. Only Spark's thread uses it.
    """

    def __init__(self, watcher: LogWatcher, clock: Callable[[], float] = time.monotonic) -> None:
        self._scans = _Scans(watcher, is_checked=True)
        self._clock = clock
        self._sound: dict[TopicPartition, int] = {}
        """By partition: a position known to be a boundary, or the end of the last plan. Each `ask` drops partitions
        that are not held any more."""
        self._since: dict[TopicPartition, float] = {}
        """By partition whose position is not known to be a boundary: when its check began."""
        self._again_at = 0.0

    def ask(self, positions: Mapping[TopicPartition, Position], logs: Logs, wait: float) -> None:
        """Check the positions that are not known to be boundaries.

        Waits at most `wait` seconds. If other positions can be planned, it waits only at the first check of a position.
        Raises DecodeError if a position is not a boundary, BrokerError if a broker refuses the request.
        """
        at = {tp: position.offset for tp, position in positions.items()}
        self._sound = {tp: sound for tp, sound in self._sound.items() if at.get(tp) == sound}
        for tp, known in logs.items():
            if at[tp] in (known.earliest, known.latest, *known.segments):
                self._sound[tp] = at[tp]
        deadline = self._clock() + wait
        asked_before = frozenset(self._since)
        while unsound := self._tried(positions, logs):
            now = self._clock()
            if self._scans.is_free and now >= self._again_at:
                self._scans.ask(tuple(OffsetRange(tp, at[tp], at[tp] + 1) for tp in sorted(unsound)))
                self._again_at = now + CHECK_EVERY_S
            is_waited_for = len(unsound) == len(logs) or not unsound <= asked_before
            left = deadline - now if is_waited_for else 0.0
            answers = self._scans.answers(max(0.0, left)).items()
            self._sound |= {tp: start for tp, (start, _) in answers if at.get(tp) == start}
            if left <= 0.0:
                return
            if self._scans.is_free and not answers:
                time.sleep(min(left, RETRY_BACKOFF_S))  # the broker may close every connection at once

    def planned(self, ranges: Iterable[OffsetRange]) -> None:
        """Take note that `ranges` are planned: their ends are boundaries."""
        self._sound |= {range_.partition: range_.until for range_ in ranges}

    def unsound(self, positions: Mapping[TopicPartition, Position], logs: Logs) -> frozenset[TopicPartition]:
        """Return the partitions whose position is within the log and is not known to be a boundary."""
        return frozenset(
            tp
            for tp, known in logs.items()
            if tp in positions and tp not in self._sound and known.earliest < positions[tp].offset < known.latest
        )

    def _tried(self, positions: Mapping[TopicPartition, Position], logs: Logs) -> frozenset[TopicPartition]:
        """Return the unconfirmed partitions whose check continues.

        After CHECK_TIMEOUT_S a position is used unchecked: the task that reads it reports the broker's error.
        """
        now = self._clock()
        unsound = self.unsound(positions, logs)
        self._since = {tp: self._since.get(tp, now) for tp in unsound}
        for tp in sorted(tp for tp, since in self._since.items() if now - since >= CHECK_TIMEOUT_S):
            log.warning(
                "%s: cannot check whether a message begins at position %d: no broker responded within %g s. The "
                "batch is planned from that position, and its task fails if no message begins there",
                KAFKA07_LOG.name(tp),
                positions[tp].offset,
                CHECK_TIMEOUT_S,
            )
            self._sound[tp] = positions[tp].offset
        return self.unsound(positions, logs)


def _scan(wanted: tuple[OffsetRange, ...], cluster: Cluster, deadline: float, *, checked: bool) -> Scanned:
    return kafka07_of(cluster, deadline).boundaries(wanted, deadline, BUDGET_S, check_crc=checked)


def require_boundaries(cluster: Cluster, ranges: Iterable[OffsetRange], logs: Logs, deadline: float) -> None:
    """Raise ConfigError if a range that a user gave begins or ends inside a message of Kafka 0.7."""
    brokers = kafka07_of(cluster, deadline)
    for range_ in ranges:
        tp = range_.partition
        known = {logs[tp].earliest, logs[tp].latest, *logs[tp].segments}
        for option, position in (("startingOffsets", range_.start), ("endingOffsets", range_.until)):
            if position in known or brokers.is_message_start(tp, position, deadline):
                continue
            segment = max((s for s in known if s < position), default=0)
            scanned = brokers.boundaries([OffsetRange(tp, segment, position)], deadline, SCAN_TIMEOUT_S)
            before = max((end for end in scanned.get(tp, ()) if end < position), default=segment)
            raise ConfigError(
                f"invalid {option}: no message begins at position {position} of {KAFKA07_LOG.name(tp)} (positions of "
                f"Kafka 0.7 are bytes). The message before it begins at {before}"
            )

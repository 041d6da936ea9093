"""Sends requests to leaders about positions: leader epochs (R8, KIP-320), message boundaries (R34), sizes of records.

A position contains the leader epoch under which it was taken. When a newer epoch appears, the partition is *suspect*
until its leader has returned where the old epoch ends: the log may have been truncated below the position. That takes
one round trip for each partition and election.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError

from streamgroup.advice import OffsetLocation, how_to_reset
from streamgroup.coordinator.planning.limits import Boundaries, smaller
from streamgroup.coordinator.planning.memo import Memo
from streamgroup.coordinator.planning.packing import RecordSizes
from streamgroup.coordinator.threads.boundaries import BoundaryScans, PositionChecks
from streamgroup.coordinator.threads.log_watcher import LogWatcher
from streamgroup.errors import DecodeError, StreamGroupError, TransportError
from streamgroup.kafka.cluster.interface import kafka_of
from streamgroup.kafka.cluster.requests import EpochCheck, EpochEnd
from streamgroup.kafka.cluster.samples import LogSample
from streamgroup.model import UNKNOWN_EPOCH, LogRange, OffsetRange, Position, TopicPartition
from streamgroup.options.types import LimitOptions

log = logging.getLogger("streamgroup")

Suspects = Mapping[TopicPartition, EpochCheck]

EPOCH_TIMEOUT_S = 1.0
"""Timeout of a request to a leader; the next plan sends it again. Other requests of the log watcher wait meanwhile."""


class EpochChecks:
    """Requests from leaders where old leader epochs end, and caches the responses while partitions are suspect.

    Only Spark's thread uses it.
    """

    def __init__(self, watcher: LogWatcher) -> None:
        self._watcher = watcher
        self._answers: dict[TopicPartition, tuple[EpochCheck, EpochEnd]] = {}
        self._suspects: Memo[dict[TopicPartition, EpochCheck]] = Memo()
        self._question: tuple[Suspects, Future[dict[TopicPartition, EpochEnd]]] | None = None

    def suspects(self, positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, EpochCheck]:
        """Return the positions taken under an epoch that is not the newest.

        A position without an epoch is never suspect.

        The caller must not change `positions` in place.
        """
        return self._suspects.get(lambda: self._find(positions), positions, *self._watcher.known_since)

    def _find(self, positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, EpochCheck]:
        epochs = self._watcher.leader_epochs(positions)
        return {
            tp: EpochCheck(position.leader_epoch, epochs[tp])
            for tp, position in positions.items()
            if UNKNOWN_EPOCH < position.leader_epoch < epochs.get(tp, UNKNOWN_EPOCH)
        }

    def ask(self, positions: Mapping[TopicPartition, Position], wait: float) -> None:
        """Send requests to the leaders of suspect partitions, and wait at most `wait` seconds for the responses.

        Raises BrokerError if a leader refuses, for example because a topic is not authorized.
        """
        suspects = self.suspects(positions)
        known = self.ends(suspects)
        self._answers = {tp: answer for tp, answer in self._answers.items() if tp in known}
        leader = self._watcher.snapshot.leader
        wanted = {tp: check for tp, check in suspects.items() if tp not in known and leader(tp) is not None}
        if wanted and self._question is None:
            log.debug("cannot check the leader epochs of %d partitions: %s", len(wanted), wanted)
            answer = self._watcher.post(lambda cluster, deadline: cluster.epoch_ends(wanted, deadline), EPOCH_TIMEOUT_S)
            self._question = wanted, answer
        if self._question is not None:
            self._collect(*self._question, wait)

    def _collect(self, asked: Suspects, answer: Future[dict[TopicPartition, EpochEnd]], wait: float) -> None:
        try:
            ends = answer.result(wait)
        except FutureTimeoutError:
            return  # the answer is still pending
        except TransportError:
            ends = {}
        finally:
            if answer.done():
                self._question = None
        self._answers |= {tp: (asked[tp], end) for tp, end in ends.items()}

    def ends(self, suspects: Suspects) -> dict[TopicPartition, EpochEnd]:
        """Return the ends of the suspects' epochs. A partition whose leader has not responded is absent."""
        answers = {tp: self._answers[tp] for tp in suspects if tp in self._answers}
        return {tp: end for tp, (check, end) in answers.items() if check == suspects[tp]}


# --- all checks of one run -------------------------------------------------------------------------------------------

Logs = Mapping[TopicPartition, LogRange]
Positions = Mapping[TopicPartition, Position]


class LogChecks:
    """All checks of one query's positions; it implements the planner's `LogCheckResults`.

    `ask` is called without the coordinator's lock, all other methods with it.
    """

    def __init__(
        self, watcher: LogWatcher, location: OffsetLocation, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._watcher = watcher
        self._location = location
        self.epochs = EpochChecks(watcher)
        self._scans = BoundaryScans(watcher)
        self._sizes = SizeSamples(watcher)
        self._checks = PositionChecks(watcher, clock)

    def ask(
        self,
        positions: Positions,
        logs: Logs,
        limits: LimitOptions,
        targets: Mapping[TopicPartition, int] | None,
        wait: float,
    ) -> None:
        """Ask the brokers, and wait at most `wait` seconds for the answers.

        Raises BrokerError, and DecodeError if a position is not a boundary (R34).
        """
        self.epochs.ask(positions, wait)
        if not self._watcher.snapshot.log_format.has_boundaries:
            if limits.max_bytes_per_trigger is not None:
                self._sizes.ask(positions, logs, wait)
            return
        try:
            self._checks.ask(positions, logs, wait)
            max_bytes = smaller(limits.max_offsets_per_trigger, limits.max_bytes_per_trigger)
            if max_bytes is not None:
                unsound = self._checks.unsound(positions, logs)
                sound = {tp: position for tp, position in positions.items() if tp not in unsound}
                self._scans.ask(sound, logs, max_bytes, targets, wait)
        except DecodeError as error:
            raise self._no_position(error) from error

    def _no_position(self, error: DecodeError) -> DecodeError:
        """Return `error` with the group and the way to set its offset."""
        group, how = self._location.group, how_to_reset(self._location)
        named = type(error)(f"group {group}: {error}: {how}" if group and how else str(error))
        named.base_offset, named.next_offset = error.base_offset, error.next_offset
        return named

    def suspects(self, positions: Positions) -> Mapping[TopicPartition, EpochCheck]:
        return self.epochs.suspects(positions)

    def epoch_ends(self, suspects: Mapping[TopicPartition, EpochCheck]) -> Mapping[TopicPartition, EpochEnd]:
        return self.epochs.ends(suspects)

    def unsound(self, positions: Positions, logs: Logs) -> frozenset[TopicPartition]:
        if not self._watcher.snapshot.log_format.has_boundaries:
            return frozenset()
        return self._checks.unsound(positions, logs)

    def boundaries(self, logs: Logs) -> Boundaries | None:
        return self._scans.known(logs) if self._watcher.snapshot.log_format.has_boundaries else None

    def densities(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._sizes.densities(partitions)

    def planned(self, ranges: Iterable[OffsetRange]) -> None:
        self._checks.planned(ranges)


# --- sizes of records ------------------------------------------------------------------------------------------------

SAMPLE_TIMEOUT_S = 2.0
"""Timeout of a request to leaders; the next plan sends it again. Other requests of the log watcher wait meanwhile."""

Samples = dict[TopicPartition, LogSample]


class SizeSamples:
    """Requests samples of record sizes from leaders, one request at a time. Only Spark's thread uses it."""

    def __init__(self, watcher: LogWatcher) -> None:
        self._watcher = watcher
        self._sizes = RecordSizes()
        self._question: tuple[Mapping[TopicPartition, int], Future[Samples]] | None = None

    def ask(
        self, positions: Mapping[TopicPartition, Position], logs: Mapping[TopicPartition, LogRange], wait: float
    ) -> None:
        """Sample the logs that have records at `positions`, and wait at most `wait` seconds for the answers."""
        wanted = self._sizes.wanted({tp: position.offset for tp, position in positions.items()})
        wanted = {tp: at for tp, at in wanted.items() if tp in logs and logs[tp].earliest <= at < logs[tp].latest}
        if wanted and self._question is None:
            answer = self._watcher.post(
                lambda cluster, deadline: kafka_of(cluster, deadline).samples(wanted, deadline), SAMPLE_TIMEOUT_S
            )
            self._question = wanted, answer
        if self._question is not None:
            self._collect(*self._question, wait)

    def _collect(self, asked: Mapping[TopicPartition, int], answer: Future[Samples], wait: float) -> None:
        try:
            samples = answer.result(wait)
        except FutureTimeoutError:
            return  # the answer is still pending
        except StreamGroupError:
            samples = {}  # the estimate does without them: the tasks of the batch report a damaged log
        finally:
            if answer.done():
                self._question = None
        for tp, (size, offsets) in samples.items():
            self._sizes.add(tp, asked[tp], size, offsets)

    def densities(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._sizes.densities(partitions)

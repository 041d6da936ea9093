"""Asks about logs beyond their ends: leader epochs (R8), message boundaries of Kafka 0.7 (R34), sizes of records."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping

from streamgroup.cluster.requests import EpochCheck, EpochEnd
from streamgroup.driver.logs.boundaries import BoundaryScans, PositionChecks
from streamgroup.driver.logs.epochs import EpochChecks
from streamgroup.driver.logs.sizes import SizeSamples
from streamgroup.driver.logs.watcher import LogWatcher
from streamgroup.errors import DecodeError
from streamgroup.model import LogRange, OffsetRange, Position, TopicPartition
from streamgroup.options.types import LimitOptions
from streamgroup.planning.limits import Boundaries, smaller
from streamgroup.remediation import OffsetLocation, how_to_reset

Logs = Mapping[TopicPartition, LogRange]
Positions = Mapping[TopicPartition, Position]


class LogChecks:
    """The checks of one run. `ask` is called without the coordinator's lock, everything else with it."""

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
        """Return the positions taken under a leader epoch that is not the newest."""
        return self.epochs.suspects(positions)

    def epoch_ends(self, suspects: Mapping[TopicPartition, EpochCheck]) -> Mapping[TopicPartition, EpochEnd]:
        """Return where the epochs of these suspects end, as far as the leaders have answered."""
        return self.epochs.ends(suspects)

    def unsound(self, positions: Positions, logs: Logs) -> frozenset[TopicPartition]:
        """Return the positions not yet known to be message boundaries; none if every offset is a boundary."""
        if not self._watcher.snapshot.log_format.has_boundaries:
            return frozenset()
        return self._checks.unsound(positions, logs)

    def boundaries(self, logs: Logs) -> Boundaries | None:
        """Return where messages end, as far as known; None if every offset is a boundary."""
        return self._scans.known(logs) if self._watcher.snapshot.log_format.has_boundaries else None

    def densities(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the estimated bytes of `record_sizes.UNIT` offsets of each partition."""
        return self._sizes.densities(partitions)

    def planned(self, ranges: Iterable[OffsetRange]) -> None:
        """Take note that `ranges` are planned: they end at boundaries."""
        self._checks.planned(ranges)

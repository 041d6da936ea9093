"""What the next batch takes: positions held against the logs (R8), then limits, targets, the document (R1-R3, R11)."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from streamgroup.advice import KeptOffsets, reset
from streamgroup.driver.logs.boundaries import BoundaryWalks, PositionChecks
from streamgroup.driver.logs.epochs import EpochChecks
from streamgroup.driver.logs.watcher import LogWatcher
from streamgroup.driver.trouble import Loss, Troubles
from streamgroup.errors import DecodeError
from streamgroup.group.ledger import Ledger
from streamgroup.model import UNKNOWN_EPOCH, Dialect, Document, LogRange, Position, TopicPartition
from streamgroup.options.types import LimitOptions
from streamgroup.planning import loss
from streamgroup.planning.batch import available_now_done, empty_document, next_document
from streamgroup.planning.limits import least_wanted

log = logging.getLogger("streamgroup")

Logs = Mapping[TopicPartition, LogRange]


class Judged(NamedTuple):
    """What can be planned from, and where the data-loss policy moved positions."""

    logs: Logs
    moved: dict[TopicPartition, int]


class Planner:
    """Plans for one run. Called by Spark's thread, under the coordinator's lock."""

    def __init__(
        self,
        ledger: Ledger,
        watcher: LogWatcher,
        troubles: Troubles,
        *,
        kept: KeptOffsets,
        fail_on_data_loss: bool,
        limits: LimitOptions | None = None,
        documents_positions: bool = False,
    ) -> None:
        self._ledger = ledger
        self._watcher = watcher
        self._troubles = troubles
        self._kept = kept
        self._fail_on_data_loss = fail_on_data_loss
        self._limits = limits or LimitOptions()
        self._documents_positions = documents_positions
        self._planned_at: float | None = None
        self._rechecking: dict[TopicPartition, float] = {}
        self.deleted: frozenset[TopicPartition] = frozenset()
        """Partitions held that do not exist any more, and whose loss has been told."""
        self.untold: frozenset[TopicPartition] = frozenset()
        """Partitions held, of which nothing could be planned at the last look: their brokers had not told enough."""
        self.epochs = EpochChecks(watcher)
        self._walks = BoundaryWalks(watcher)
        self._checks = PositionChecks(watcher)
        self.targets: Mapping[TopicPartition, int] | None = None
        """R11: AvailableNow's snapshot of the ends; None under every other trigger."""

    def judge(self, logs: Logs) -> Judged:
        """Hold the positions against the logs. Raises DataLossError where records are gone and failOnDataLoss is on."""
        snapshot = self._watcher.snapshot
        topics = snapshot.topics
        logs = self._watcher.known(logs)  # once more: with the snapshot they may have become another topic's
        self.deleted = frozenset(tp for tp in self.deleted if snapshot.partition(tp) is None)
        positions = {tp: p for tp, p in self._ledger.positions().items() if tp not in self.deleted}
        watermarks = self._watcher.watermarks(logs)
        refreshed = {tp for tp, since in self._rechecking.items() if self._watcher.metadata_at >= since}
        suspects = self.epochs.suspects(positions)
        answers = self.epochs.ends(suspects)
        watermarks = {tp: known for tp, known in watermarks.items() if tp not in suspects or tp in answers}
        ends = {tp: end.end_offset for tp, end in answers.items() if end.known}
        come_and_go = snapshot.dialect is Dialect.KAFKA07
        verdicts = loss.judge(positions, watermarks, topics, refreshed=False, epoch_ends=ends, come_and_go=come_and_go)
        in_doubt = {tp for tp, verdict in verdicts.items() if isinstance(verdict, loss.Recheck)}
        again = {tp: positions[tp] for tp in in_doubt & refreshed}
        verdicts |= loss.judge(again, watermarks, topics, refreshed=True, epoch_ends=ends)
        self._troubles.lost_records(self._losses(verdicts), failed=self._fail_on_data_loss)
        settlement = loss.settle(positions, verdicts, kept=self._kept, fail_on_data_loss=self._fail_on_data_loss)
        self.deleted = self.deleted.union(settlement.deleted)
        self._recheck(settlement.recheck)
        sound = {tp: positions[tp] for tp in watermarks if isinstance(verdicts.get(tp), loss.Keep)}
        # An end that a log has reached was written under no newer epoch than the one known: that is the epoch of a
        # position below it that came without any.
        new = {tp for tp, p in sound.items() if p.leader_epoch == UNKNOWN_EPOCH and p.offset <= watermarks[tp].latest}
        self._ledger.vouched(
            self._watcher.leader_epochs(new) | {tp: suspects[tp].current for tp in answers.keys() & sound.keys()}
        )
        unsound = self._checks.unsound(positions, logs) if come_and_go else frozenset()
        plannable = settlement.positions.keys() & watermarks.keys() - unsound
        self.untold = frozenset(positions.keys() - plannable)
        return Judged(
            {tp: known for tp, known in logs.items() if tp in plannable},
            {tp: p.offset for tp, p in settlement.positions.items() if p.offset != positions[tp].offset},
        )

    def again(self, start: Document) -> Document | None:
        """The document in flight, where Spark asks again for what it was already given."""
        flight = self._ledger.flight
        if flight is None or not flight.planned_here or flight.document == start or flight.handed is not None:
            return None
        return flight.document if flight.document.sequence > start.sequence else None

    def _losses(self, verdicts: Mapping[TopicPartition, loss.Verdict]) -> list[Loss]:
        group = self._ledger.group
        losses = []
        for tp, verdict in sorted(verdicts.items(), key=lambda item: item[0]):
            match verdict:
                case loss.Moved(cause, was, to, lost):
                    text = loss.describe(tp, verdict, group=group)
                    losses.append(Loss(tp, text, cause.value, was.offset, to.offset, lost))
                case loss.Deleted(was):
                    text = loss.describe(tp, verdict, group=group)
                    losses.append(Loss(tp, text, loss.Cause.DELETED.value, was.offset))
        return losses

    def _recheck(self, partitions: tuple[TopicPartition, ...]) -> None:
        """It is loss only when it is still so after a metadata refresh (R8)."""
        new = [tp for tp in partitions if tp not in self._rechecking]
        if new:
            self._watcher.forget(new)
            self._watcher.refresh_metadata()
        now = time.monotonic()
        self._rechecking = {tp: self._rechecking.get(tp, now) for tp in partitions}

    def miss(self, gone: Mapping[TopicPartition, Position]) -> None:
        """These positions of the checkpoint are of partitions that do not exist any more. Raises DataLossError.

        In Kafka 0.7 only their brokers are away.
        """
        if self._watcher.snapshot.dialect is Dialect.KAFKA07:
            return
        verdicts: dict[TopicPartition, loss.Verdict] = {tp: loss.Deleted(position) for tp, position in gone.items()}
        self._troubles.lost_records(self._losses(verdicts), failed=self._fail_on_data_loss)
        loss.settle(gone, verdicts, kept=self._kept, fail_on_data_loss=self._fail_on_data_loss)

    def ask(self, positions: Mapping[TopicPartition, Position], logs: Logs, max_rows: int | None, wait: float) -> None:
        """Ask what `next` needs to know beyond the ends of the logs, and wait for answers, at most `wait` seconds.

        To be called without the lock. Raises BrokerError, DecodeError where a position is no boundary (R34).
        """
        self.epochs.ask(positions, wait)
        if self._watcher.snapshot.dialect is not Dialect.KAFKA07:
            return
        try:
            self._checks.ask(positions, logs, wait)
            if max_rows is not None:
                unsound = self._checks.unsound(positions, logs)
                sound = {tp: position for tp, position in positions.items() if tp not in unsound}
                self._walks.ask(sound, logs, max_rows, self.targets, wait)
        except DecodeError as error:
            raise self._no_position(error) from error

    def _no_position(self, error: DecodeError) -> DecodeError:
        """`error` with whose offset it is, and how it is set."""
        group, how = self._ledger.group, reset(self._kept)
        named = type(error)(f"group {group}: {error}: {how}" if group and how else str(error))
        named.base_offset, named.next_offset = error.base_offset, error.next_offset
        return named

    def next(
        self, previous: Document, logs: Logs, max_rows: int | None, *, now: float, once: bool = False
    ) -> Document | None:
        """The next document, or None where nothing is new, or too little (`minOffsetsPerTrigger`).

        A position that no group keeps is told by a document at once, if need be one without ranges (R6): one that
        startingOffsets gave would be another at the next start.
        """
        document = self._batch(previous, logs, max_rows, least=self._least_wanted(now, once))
        if document is not None:
            self._planned_at = now
            self._checks.planned(document.ranges)
        elif self._documents_positions and not self._ledger.positions().keys() <= previous.positions.keys():
            return self.empty(previous)
        return document

    def _least_wanted(self, now: float, once: bool) -> int:
        """Triggers that end have nothing to wait for: they take what there is."""
        if once or self.targets is not None:
            return 1
        waited = None if self._planned_at is None else now - self._planned_at
        return least_wanted(self._limits.min_offsets_per_trigger, waited, self._limits.max_trigger_delay_ms / 1000)

    def _batch(self, previous: Document, logs: Logs, max_rows: int | None, least: int) -> Document | None:
        document = next_document(
            previous,
            group=self._ledger.group,
            lineage=self._ledger.lineage,
            run=self._ledger.run,
            positions=self._ledger.positions(),
            ends={tp: known.latest for tp, known in logs.items()},
            max_offsets=max_rows,
            min_offsets=least,
            targets=self.targets,
            boundaries=self._walks.known(logs) if self._watcher.snapshot.dialect is Dialect.KAFKA07 else None,
        )
        return None if document is None else self._carried(document, previous)

    def _carried(self, document: Document, previous: Document) -> Document:
        """`document` with the positions that `previous` has of partitions whose broker is away (Kafka 0.7).

        Where no group keeps positions they would be forgotten otherwise, and the broker's logs be read again.
        """
        snapshot = self._watcher.snapshot
        if not self._documents_positions or snapshot.dialect is not Dialect.KAFKA07:
            return document
        away = {
            tp: position
            for tp, position in previous.positions.items()
            if tp.topic in snapshot.topics and snapshot.partition(tp) is None
        }
        return replace(document, positions={**away, **document.positions})

    def empty(self, previous: Document) -> Document:
        """R10: a document without ranges, for AvailableNow while the group rebalances."""
        document = empty_document(
            previous,
            group=self._ledger.group,
            lineage=self._ledger.lineage,
            run=self._ledger.run,
            positions=self._ledger.positions(),
        )
        return self._carried(document, previous)

    def reached_targets(self, logs: Logs) -> bool:
        """R11: whether every partition held has reached its end; `logs` were listed after the snapshot."""
        ends = {tp: known.latest for tp, known in logs.items()}
        existing = {tp: p for tp, p in self._ledger.positions().items() if tp not in self.deleted}
        return available_now_done(existing, self.targets or {}, ends)

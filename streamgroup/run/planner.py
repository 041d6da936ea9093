"""Plans the next batch: checks positions against logs (R8), then applies limits and targets (R1-R3, R11)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from streamgroup.group.ledger import Ledger
from streamgroup.model import UNKNOWN_EPOCH, ClusterSnapshot, Document, LogRange, OffsetRange, Position, TopicPartition
from streamgroup.planning import loss
from streamgroup.planning.batch import backlog_of, below_targets, empty_document, next_document
from streamgroup.planning.limits import Boundaries, min_offsets_now
from streamgroup.planning.memo import Memo
from streamgroup.planning.suspicions import Suspicions
from streamgroup.remediation import OffsetLocation
from streamgroup.run.run_events import Loss, RunEvents

if TYPE_CHECKING:
    from streamgroup.cluster.requests import EpochCheck, EpochEnd
    from streamgroup.options.types import LimitOptions

Logs = Mapping[TopicPartition, LogRange]
Positions = Mapping[TopicPartition, Position]


class Judged(NamedTuple):
    """The logs that a batch may be planned from, and the offsets to which the data-loss policy moved positions."""

    logs: Logs
    moved: Mapping[TopicPartition, int]


class LogView(Protocol):
    """What is known of the cluster's logs. Nothing here asks a broker."""

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The newest metadata."""

    @property
    def metadata_at(self) -> float:
        """When the metadata was read, monotonic seconds."""

    @property
    def known_since(self) -> tuple[object, object]:
        """Two objects that show by identity whether anything has changed that the methods answer from."""

    def known(self, partitions: Collection[TopicPartition]) -> Logs:
        """Return the ranges last listed of `partitions`."""

    def watermarks(self, logs: Logs) -> Logs:
        """Return the same logs up to their high watermarks."""

    def leader_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the newest leader epoch of each partition, where one is known."""

    def doubt(self, partitions: Collection[TopicPartition]) -> None:
        """Read the metadata and the ranges of these logs anew soon."""


class LogChecks(Protocol):
    """What the brokers have told of positions; asked for by the question `CheckPositions`."""

    def suspects(self, positions: Positions) -> Mapping[TopicPartition, EpochCheck]:
        """Return the positions taken under a leader epoch that is not the newest."""

    def epoch_ends(self, suspects: Mapping[TopicPartition, EpochCheck]) -> Mapping[TopicPartition, EpochEnd]:
        """Return where the epochs of `suspects` end, as far as their leaders have answered."""

    def unsound(self, positions: Positions, logs: Logs) -> frozenset[TopicPartition]:
        """Return the partitions whose position is not yet known to be a message boundary."""

    def boundaries(self, logs: Logs) -> Boundaries | None:
        """Return where messages end, as far as known; None where every offset is a boundary."""

    def planned(self, ranges: Collection[OffsetRange]) -> None:
        """Take note that `ranges` are planned."""


class Planner:
    """Plans for one run. `warn` takes lines for the log."""

    def __init__(
        self,
        ledger: Ledger,
        logs: LogView,
        checks: LogChecks,
        events: RunEvents,
        *,
        location: OffsetLocation,
        fail_on_data_loss: bool,
        warn: Callable[[str], None],
        documents_positions: bool = False,
        is_subscribed: Callable[[TopicPartition], bool] = lambda tp: True,
    ) -> None:
        self._ledger = ledger
        self._logs = logs
        self._checks = checks
        self._events = events
        self._location = location
        self._fail_on_data_loss = fail_on_data_loss
        self._warn = warn
        self._documents_positions = documents_positions
        self._is_subscribed = is_subscribed
        self._planned_at: float | None = None
        self._suspicions = Suspicions()
        self._absences = Suspicions()
        self._gone: frozenset[TopicPartition] = frozenset()
        self._missed: frozenset[TopicPartition] = frozenset()
        """Partitions of the checkpoint that did not exist any more when the run began."""
        self.deleted: frozenset[TopicPartition] = frozenset()
        """Partitions held that do not exist any more, and whose loss has been told."""
        self.unjudged: frozenset[TopicPartition] = frozenset()
        """Partitions held, of which nothing could be planned at the last look: their brokers had not told enough."""
        self.targets: Mapping[TopicPartition, int] | None = None
        """R11: AvailableNow's snapshot of the ends; None under every other trigger."""
        self._judged: Memo[Judged] = Memo()
        self._any_backlog: Memo[bool] = Memo()
        self._any_undocumented: Memo[bool] = Memo()

    def judge(self, logs: Logs, now: float) -> Judged:
        """Hold the positions against the logs. Raises DataLossError where records are gone and failOnDataLoss is on.

        While neither positions nor logs nor metadata have changed the last judgement stands, unless something was in
        doubt: then time alone may change it. `logs` are those that `ListEnds` was answered with.
        """
        facts = logs, self._ledger.positions(), *self._logs.known_since
        judged = self._judged.find(*facts)
        if judged is None:
            if self.deleted:  # those that are held no more are forgotten, or a month of deleted topics would pile up
                self.deleted = self.deleted.intersection(facts[1])
            deleted = self.deleted
            judged = self._judge(logs, now)
            if not judged.moved and self.deleted == deleted and self._is_beyond_doubt(facts[1]):
                self._judged.keep(judged, *facts)
        return judged

    def _is_beyond_doubt(self, positions: Mapping[TopicPartition, Position]) -> bool:
        """Whether the same facts, `positions` among them, would give the same judgement again."""
        known = self._ledger.positions()
        in_doubt = self._suspicions or self._checks.suspects(known) or self._logs.snapshot.log_format.is_broker_bound
        return known is positions and not in_doubt

    def _judge(self, logs: Logs, now: float) -> Judged:
        metadata_at = self._logs.metadata_at  # before the snapshot, which may be replaced by a newer one meanwhile
        snapshot = self._logs.snapshot
        logs = self._logs.known(logs)  # once more: with the snapshot they may have become another topic's
        self.deleted = frozenset(tp for tp in self.deleted if snapshot.partition(tp) is None)
        positions = {tp: p for tp, p in self._ledger.positions().items() if tp not in self.deleted}
        watermarks = self._logs.watermarks(logs)
        suspects = self._checks.suspects(positions)
        answers = self._checks.epoch_ends(suspects)
        watermarks = {tp: known for tp, known in watermarks.items() if tp not in suspects or tp in answers}
        ends = {tp: end.end_offset for tp, end in answers.items() if end.known}
        log_format = snapshot.log_format
        verdicts = self._suspicions.judge(
            positions,
            watermarks,
            snapshot.topics,
            now=now,
            metadata_at=metadata_at,
            epoch_ends=ends,
            log_format=log_format,
        )
        self._events.lost_records(self._losses(verdicts), failed=self._fail_on_data_loss)
        settlement = loss.settle(
            positions,
            verdicts,
            location=self._location,
            fail_on_data_loss=self._fail_on_data_loss,
            log_format=log_format,
        )
        self.deleted = self.deleted.union(settlement.deleted)
        if suspected := self._suspicions.due(now, metadata_at):
            self._logs.doubt(suspected)
        sound = {tp: positions[tp] for tp in watermarks if isinstance(verdicts.get(tp), loss.Keep)}
        # An end that a log has reached was written under no newer epoch than the one known: that is the epoch of a
        # position below it that came without any.
        new = {tp for tp, p in sound.items() if p.leader_epoch == UNKNOWN_EPOCH and p.offset <= watermarks[tp].latest}
        self._ledger.vouched(
            self._logs.leader_epochs(new) | {tp: suspects[tp].current for tp in answers.keys() & sound.keys()}
        )
        unsound = self._checks.unsound(positions, logs)
        plannable = settlement.positions.keys() & watermarks.keys() - unsound
        self.unjudged = frozenset(positions.keys() - plannable)
        return Judged(
            {tp: known for tp, known in logs.items() if tp in plannable},
            {tp: p.offset for tp, p in settlement.positions.items() if p.offset != positions[tp].offset},
        )

    def absent(self, known: Collection[TopicPartition], now: float) -> frozenset[TopicPartition]:
        """Return those of `known` that the metadata lacks, until that is believed (R8); then log that they are gone.

        A run that ends must not take a topic for read that a lagging broker has left out of the metadata: nobody holds
        its partitions then, so no position of them is judged. In Kafka 0.7 partitions come and go with their brokers.
        """
        metadata_at = self._logs.metadata_at
        snapshot = self._logs.snapshot
        if snapshot.log_format.is_broker_bound:
            return frozenset()
        lacking = {tp: Position(0) for tp in known if snapshot.partition(tp) is None}
        verdicts = self._absences.judge(lacking, {}, snapshot.topics, now=now, metadata_at=metadata_at, epoch_ends={})
        if suspected := self._absences.due(now, metadata_at):
            self._logs.doubt(suspected)
        gone = frozenset(tp for tp, verdict in verdicts.items() if isinstance(verdict, loss.Deleted))
        if new := gone - self._gone:
            group, names = self._ledger.group or "no group", ", ".join(map(str, sorted(new)))
            self._warn(f"{group}: {names} existed when the run began and are deleted; they are not read any further")
        self._gone = gone
        return frozenset(lacking.keys() - gone)

    def _losses(self, verdicts: Mapping[TopicPartition, loss.Verdict]) -> list[Loss]:
        group, log_format = self._ledger.group, self._logs.snapshot.log_format
        losses = []
        for tp, verdict in sorted(verdicts.items(), key=lambda item: item[0]):
            match verdict:
                case loss.Moved(cause, was, to, lost):
                    text = loss.describe(tp, verdict, group=group, log_format=log_format)
                    losses.append(Loss(tp, text, cause.value, was.offset, to.offset, lost))
                case loss.Deleted(was):
                    text = loss.describe(tp, verdict, group=group)
                    losses.append(Loss(tp, text, loss.Cause.DELETED.value, was.offset))
        return losses

    def miss(self, gone: Mapping[TopicPartition, Position]) -> None:
        """These positions of the checkpoint are of partitions that do not exist any more. Raises DataLossError.

        In Kafka 0.7 only their brokers are away.
        """
        if self._logs.snapshot.log_format.is_broker_bound:
            return
        self._missed |= gone.keys()
        verdicts: dict[TopicPartition, loss.Verdict] = {tp: loss.Deleted(position) for tp, position in gone.items()}
        self._events.lost_records(self._losses(verdicts), failed=self._fail_on_data_loss)
        loss.settle(gone, verdicts, location=self._location, fail_on_data_loss=self._fail_on_data_loss)

    def next(
        self, previous: Document, logs: Logs, limits: LimitOptions, *, now: float, once: bool = False
    ) -> Document | None:
        """The next document, or None where nothing is new, or too little (`minOffsetsPerTrigger`).

        A position that no group keeps is told by a document at once, if need be one without ranges (R6): one that
        startingOffsets gave would be another at the next start.
        """
        document = None
        if self._has_backlog(logs):
            document = self._batch(previous, logs, limits, min_offsets=self._min_offsets(limits, now, once))
        if document is not None:
            self._planned_at = now
            self._checks.planned(document.ranges)
        elif self._documents_positions and self._tells_more(previous):
            return self.empty(previous)
        return document

    def _has_backlog(self, logs: Logs) -> bool:
        """Whether there is anything to read; `logs` are those of `judge`."""
        positions, targets = self._ledger.positions(), self.targets
        return self._any_backlog.get(
            lambda: bool(backlog_of(positions, {tp: known.latest for tp, known in logs.items()}, targets)),
            *(logs, positions, targets),
        )

    def _tells_more(self, previous: Document) -> bool:
        """Whether a position is held that `previous` does not tell."""
        positions = self._ledger.positions()
        return self._any_undocumented.get(
            lambda: not positions.keys() <= previous.positions.keys(), positions, previous
        )

    def _min_offsets(self, limits: LimitOptions, now: float, once: bool) -> int:
        """Return the fewest offsets of a batch planned now.

        Trigger.Once and Trigger.AvailableNow end after the backlog, so a delay would only prolong the query.
        """
        if once or self.targets is not None:
            return 1
        waited_s = None if self._planned_at is None else now - self._planned_at
        return min_offsets_now(limits.min_offsets_per_trigger, waited_s, limits.max_trigger_delay_ms / 1000)

    def _batch(self, previous: Document, logs: Logs, limits: LimitOptions, min_offsets: int) -> Document | None:
        document = next_document(
            previous,
            group=self._ledger.group,
            lineage=self._ledger.lineage,
            run=self._ledger.run,
            positions=self._ledger.positions(),
            ends={tp: known.latest for tp, known in logs.items()},
            max_offsets=limits.max_offsets_per_trigger,
            min_offsets=min_offsets,
            targets=self.targets,
            boundaries=self._checks.boundaries(logs),
        )
        return None if document is None else self._carried(document, previous)

    def _carried(self, document: Document, previous: Document) -> Document:
        """Return `document` with the positions that `previous` has of partitions that the metadata lacks.

        Where no group keeps positions they would be forgotten otherwise, and the logs be read again when a lagging
        broker has caught up, or when the partitions' broker is back (Kafka 0.7). Deleted ones are left out.
        """
        snapshot = self._logs.snapshot
        if not self._documents_positions:
            return document
        left_out = self.deleted | self._gone | self._missed
        away = {
            tp: position
            for tp, position in previous.positions.items()
            if snapshot.partition(tp) is None and tp not in left_out and self._is_subscribed(tp)
        }
        return replace(document, positions={**away, **document.positions})

    def empty(self, previous: Document) -> Document:
        """Return a document without ranges, for AvailableNow while the group rebalances (R10).

        Where no position is known it repeats those of `previous`. A restart would forget them otherwise, and take the
        query for one that has never read anything, for which startingOffsets are meant (R7).
        """
        document = empty_document(
            previous,
            group=self._ledger.group,
            lineage=self._ledger.lineage,
            run=self._ledger.run,
            positions=self._ledger.positions() or previous.positions,
        )
        return self._carried(document, previous)

    def unread(self, logs: Logs) -> frozenset[TopicPartition]:
        """Return the partitions held that have not reached their ends of AvailableNow's snapshot (R11).

        `logs` were listed after the snapshot.
        """
        ends = {tp: known.latest for tp, known in logs.items()}
        existing = {tp: p for tp, p in self._ledger.positions().items() if tp not in self.deleted}
        return below_targets(existing, self.targets or {}, ends)

"""Plans the next batch: compares positions with the logs (R8), then applies limits and targets (R1-R3, R11)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from streamgroup.advice import OffsetLocation
from streamgroup.coordinator.planning import loss
from streamgroup.coordinator.planning.batch import (
    backlog_of,
    below_targets,
    empty_document,
    founded_document,
    next_document,
)
from streamgroup.coordinator.planning.limits import Boundaries, min_offsets_now, size_of, smaller
from streamgroup.coordinator.planning.loss import Suspicions
from streamgroup.coordinator.planning.memo import Memo
from streamgroup.coordinator.run.run_events import LostRecords, RunEvents
from streamgroup.group.events import WARNING
from streamgroup.group.ledger import Ledger
from streamgroup.model import (
    INITIAL_DOCUMENT,
    UNKNOWN_EPOCH,
    ClusterSnapshot,
    Document,
    LogRange,
    OffsetRange,
    Position,
    TopicPartition,
    name_some,
)

if TYPE_CHECKING:
    from streamgroup.kafka.cluster.requests import EpochCheck, EpochEnd
    from streamgroup.options.types import LimitOptions

Logs = Mapping[TopicPartition, LogRange]
Positions = Mapping[TopicPartition, Position]


class PlannableLogs(NamedTuple):
    """The logs from which a batch may be planned, and the positions that the data-loss policy has moved."""

    logs: Logs
    moved: Mapping[TopicPartition, int]


class LogView(Protocol):
    """The brokers' latest responses about logs and metadata. No method sends a request."""

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The newest metadata."""

    @property
    def metadata_at(self) -> float:
        """Monotonic time of the last metadata refresh."""

    @property
    def known_since(self) -> tuple[object, object]:
        """Two objects. If the identity of one changes, the results of the other methods may have changed."""

    def known(self, partitions: Collection[TopicPartition]) -> Logs:
        """Return the ranges last listed of `partitions`."""

    def watermarks(self, logs: Logs) -> Logs:
        """Return `logs` with their high watermarks as ends."""

    def leader_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the newest leader epoch of each partition, if one is known."""

    def doubt(self, partitions: Collection[TopicPartition], now: float) -> None:
        """Schedule a refresh of the metadata and ranges of these logs; the data known at `now` may be outdated."""


class LogCheckResults(Protocol):
    """The brokers' responses about positions, which the request `CheckPositions` fetches."""

    def suspects(self, positions: Positions) -> Mapping[TopicPartition, EpochCheck]:
        """Return the positions taken under a leader epoch that is not the newest."""

    def epoch_ends(self, suspects: Mapping[TopicPartition, EpochCheck]) -> Mapping[TopicPartition, EpochEnd]:
        """Return the end offsets of the epochs of `suspects`. A partition whose leader has not responded is absent."""

    def unsound(self, positions: Positions, logs: Logs) -> frozenset[TopicPartition]:
        """Return the partitions whose position is not yet known to be a message boundary."""

    def boundaries(self, logs: Logs) -> Boundaries | None:
        """Return the known ends of messages; None if every offset is a boundary."""

    def densities(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the estimated bytes of `packing.UNIT` offsets of each partition."""

    def planned(self, ranges: Collection[OffsetRange]) -> None:
        """Record that `ranges` are planned."""


class Planner:
    """Plans the batches of one query, as offset documents."""

    def __init__(
        self,
        ledger: Ledger,
        logs: LogView,
        checks: LogCheckResults,
        events: RunEvents,
        *,
        location: OffsetLocation,
        fail_on_data_loss: bool,
        documents_positions: bool = False,
        is_subscribed: Callable[[TopicPartition], bool] = lambda tp: True,
    ) -> None:
        self._ledger = ledger
        self._logs = logs
        self._checks = checks
        self._events = events
        self._location = location
        self._fail_on_data_loss = fail_on_data_loss
        self._documents_positions = documents_positions
        self._is_subscribed = is_subscribed
        self._planned_at: float | None = None
        self._suspicions = Suspicions()
        self._absences = Suspicions()
        self._gone: frozenset[TopicPartition] = frozenset()
        self._missed: frozenset[TopicPartition] = frozenset()
        """Partitions of the checkpoint that did not exist any more when the run began."""
        self.deleted: frozenset[TopicPartition] = frozenset()
        """Deleted partitions that are still owned and whose loss was reported."""
        self.unjudged: frozenset[TopicPartition] = frozenset()
        """Owned partitions that the last call of `judge` could not judge from the brokers' responses."""
        self.targets: Mapping[TopicPartition, int] | None = None
        """The log ends up to which AvailableNow reads (R11); None under every other trigger."""
        self._judged: Memo[PlannableLogs] = Memo()
        self._any_backlog: Memo[bool] = Memo()
        self._any_undocumented: Memo[bool] = Memo()

    def judge(self, logs: Logs, now: float) -> PlannableLogs:
        """Compare the positions with `logs`, the result of `ListEnds`. Return the logs that can be planned.

        Raises DataLossError if records are lost and failOnDataLoss is on. While positions, logs and metadata stay the
        same, the last result is reused, unless a loss was suspected: a suspicion may end with time.
        """
        facts = logs, self._ledger.positions(), *self._logs.known_since
        judged = self._judged.find(*facts)
        if judged is None:
            if self.deleted:  # keep only those held: deleted topics would pile up in a long query
                self.deleted = self.deleted.intersection(facts[1])
            deleted = self.deleted
            judged = self._judge(logs, now)
            if not judged.moved and self.deleted == deleted and self._is_beyond_doubt(facts[1]):
                self._judged.keep(judged, *facts)
        return judged

    def _is_beyond_doubt(self, positions: Mapping[TopicPartition, Position]) -> bool:
        """Return whether the same positions, logs and metadata would give the same result again."""
        known = self._ledger.positions()
        in_doubt = self._suspicions or self._checks.suspects(known) or self._logs.snapshot.log_format.is_broker_bound
        return known is positions and not in_doubt

    def _judge(self, logs: Logs, now: float) -> PlannableLogs:
        metadata_at = self._logs.metadata_at  # read before the snapshot: another thread may replace both
        snapshot = self._logs.snapshot
        logs = self._logs.known(logs)  # again: with a new snapshot they may belong to a recreated topic
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
            self._logs.doubt(suspected, now)
        sound = {tp: positions[tp] for tp in watermarks if isinstance(verdicts.get(tp), loss.Keep)}
        # Records below a known log end have at most the epoch known now. It becomes the epoch of a
        # position below that end that has none.
        new = {tp for tp, p in sound.items() if p.leader_epoch == UNKNOWN_EPOCH and p.offset <= watermarks[tp].latest}
        self._ledger.vouched(
            self._logs.leader_epochs(new) | {tp: suspects[tp].current for tp in answers.keys() & sound.keys()}
        )
        unsound = self._checks.unsound(positions, logs)
        plannable = settlement.positions.keys() & watermarks.keys() - unsound
        self.unjudged = frozenset(positions.keys() - plannable)
        return PlannableLogs(
            {tp: known for tp, known in logs.items() if tp in plannable},
            {tp: p.offset for tp, p in settlement.positions.items() if p.offset != positions[tp].offset},
        )

    def absent(self, known: Collection[TopicPartition], now: float) -> frozenset[TopicPartition]:
        """Return the partitions of `known` that the metadata lacks. Once they count as deleted (R8), that is logged.

        The metadata of a lagging broker may lack a topic. No member owns its partitions then, and none judges them, so
        AvailableNow would treat the topic as read. In Kafka 0.7, partitions exist only while their brokers are
        registered.
        """
        metadata_at = self._logs.metadata_at
        snapshot = self._logs.snapshot
        if snapshot.log_format.is_broker_bound:
            return frozenset()
        lacking = {tp: Position(0) for tp in known if snapshot.partition(tp) is None}
        verdicts = self._absences.judge(lacking, {}, snapshot.topics, now=now, metadata_at=metadata_at, epoch_ends={})
        if suspected := self._absences.due(now, metadata_at):
            self._logs.doubt(suspected, now)
        gone = frozenset(tp for tp, verdict in verdicts.items() if isinstance(verdict, loss.Deleted))
        if new := gone - self._gone:
            group, names = self._ledger.group or "no group", name_some(new)
            text = f"{group}: {names} existed when the query began and were deleted; the query reads no more of them"
            self._events.write(WARNING, text)
        self._gone = gone
        return frozenset(lacking.keys() - gone)

    def _losses(self, verdicts: Mapping[TopicPartition, loss.Verdict]) -> list[LostRecords]:
        group, log_format = self._ledger.group, self._logs.snapshot.log_format
        losses = []
        for tp, verdict in sorted(verdicts.items(), key=lambda item: item[0]):
            match verdict:
                case loss.Moved(cause, was, to, lost):
                    text = loss.describe(tp, verdict, group=group, log_format=log_format)
                    losses.append(LostRecords(tp, text, cause.value, was.offset, to.offset, lost))
                case loss.Deleted(was):
                    text = loss.describe(tp, verdict, group=group)
                    losses.append(LostRecords(tp, text, loss.Cause.DELETED.value, was.offset))
        return losses

    def miss(self, gone: Mapping[TopicPartition, Position]) -> None:
        """Report that the partitions of the checkpoint positions `gone` were deleted. Raises DataLossError.

        In Kafka 0.7 only their brokers are offline, and nothing is reported.
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
        """Return the next document; None if no record is new, or a minimum or a rate does not allow a batch yet.

        If no group stores a position, it goes into a document at once, even into one without ranges (R6):
        startingOffsets may resolve to another position at the next start.
        """
        document = None
        if self._has_backlog(logs) and not limits.is_spent:
            document = self._batch(previous, logs, limits, min_offsets=self._min_offsets(limits, now, once))
        if document is not None:
            self._planned_at = now
            self._checks.planned(document.ranges)
        elif self._documents_positions and self._has_new_position(previous):
            return self.empty(previous)
        return document

    def _has_backlog(self, logs: Logs) -> bool:
        """Return whether there is anything to read. `logs` are those of `judge`."""
        positions, targets = self._ledger.positions(), self.targets
        return self._any_backlog.get(
            lambda: bool(backlog_of(positions, {tp: known.latest for tp, known in logs.items()}, targets)),
            *(logs, positions, targets),
        )

    def _has_new_position(self, previous: Document) -> bool:
        """Return whether an owned partition has a position that `previous` lacks."""
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
        boundaries = self._checks.boundaries(logs)
        max_offsets, max_bytes = limits.max_offsets_per_trigger, limits.max_bytes_per_trigger
        if boundaries is not None:  # offsets are bytes
            max_offsets, max_bytes = smaller(max_offsets, max_bytes), None
        document = next_document(
            previous,
            group=self._ledger.group,
            lineage=self._ledger.lineage,
            run=self._ledger.run,
            positions=self._ledger.positions(),
            ends={tp: known.latest for tp, known in logs.items()},
            max_offsets=max_offsets,
            max_bytes=max_bytes,
            densities=None if max_bytes is None else self._checks.densities(logs),
            is_strict=limits.is_strict,
            min_offsets=min_offsets,
            targets=self.targets,
            boundaries=boundaries,
        )
        return None if document is None else self._carried(document, previous)

    def size_of(self, document: Document, limits: LimitOptions) -> int:
        """Return the estimated bytes of a document's ranges; 0 if no limit counts bytes."""
        if self._logs.snapshot.log_format.has_boundaries:
            return sum(map(len, document.ranges))
        if limits.max_bytes_per_trigger is None:
            return 0
        return size_of(document.ranges, self._checks.densities([r.partition for r in document.ranges]))

    def _carried(self, document: Document, previous: Document) -> Document:
        """Return `document` plus the positions in `previous` of partitions that the metadata lacks.

        If no group stores positions, only documents do. Without these positions the logs would be read again when a
        lagging broker has caught up, or when the partitions' broker is back (Kafka 0.7). Deleted partitions are not
        added.
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

    def founded(self, previous: Document) -> Document | None:
        """Return the document of a query that found no partition, so that its next start detects this (R7).

        Returns None if an earlier document records it or has positions, or if partitions have appeared meanwhile.
        """
        ledger = self._ledger
        if ledger.checkpoint != INITIAL_DOCUMENT or ledger.positions():
            return None
        return founded_document(previous, group=ledger.group, lineage=ledger.lineage, run=ledger.run)

    def empty(self, previous: Document) -> Document:
        """Return a document without ranges, for AvailableNow while the group rebalances (R10).

        If no position is known, it repeats those of `previous`. Without them a restart would treat the query as
        a new one, to which startingOffsets applies (R7).
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
        """Return the owned partitions that AvailableNow has not read up to its targets (R11).

        `logs` were listed after the targets.
        """
        ends = {tp: known.latest for tp, known in logs.items()}
        existing = {tp: p for tp, p in self._ledger.positions().items() if tp not in self.deleted}
        return below_targets(existing, self.targets or {}, ends)

"""What the run of a simulated process needs beside its member: a planner over the simulated logs, and reports.

`SimPlanner` mirrors `driver/planner.py` without leader epochs, message boundaries and limits in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from streamgroup.logformat import KAFKA_LOG
from streamgroup.model import CommittedOffset, Document, LogRange, OffsetRange, Position, TopicPartition
from streamgroup.options.types import LimitOptions
from streamgroup.planning import loss
from streamgroup.planning.batch import below_targets, empty_document, next_document
from streamgroup.planning.suspicions import Suspicions
from streamgroup.remediation import OffsetLocation, StoredIn
from streamgroup.run.machine import Judged
from streamgroup.run.steps import Steps
from tests.sim.settings import GROUP_ID

if TYPE_CHECKING:
    from tests.sim.process import Process

Logs = Mapping[TopicPartition, LogRange]


class SimPlanner:
    """See the module."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._ledger = process.ledger
        self._suspicions = Suspicions()
        self.metadata_at = 0.0
        """When the metadata was last read."""
        self.targets: Mapping[TopicPartition, int] | None = None
        self.unjudged: frozenset[TopicPartition] = frozenset()

    def judge(self, logs: Logs) -> Judged:
        """The partitions whose positions fit their logs. Raises DataLossError."""
        process, positions, now = self._process, self._ledger.positions(), self._process.kernel.now
        registry = process.settings.registry
        verdicts = self._suspicions.judge(
            positions,
            logs,
            process.world.logs.topics(),
            now=now,
            metadata_at=self.metadata_at,
            epoch_ends={},
            log_format=KAFKA_LOG if registry is None else registry.dialect.log_format,
        )
        location = OffsetLocation(GROUP_ID, StoredIn.KAFKA)
        settled = loss.settle(positions, verdicts, location=location, fail_on_data_loss=True)
        if self._suspicions.due(now, self.metadata_at):
            process.refresh()
        plannable = settled.positions.keys() & logs.keys()
        self.unjudged = frozenset(positions.keys() - plannable)
        process.world.checker.looked(process, positions)
        return Judged({tp: known for tp, known in logs.items() if tp in plannable}, {})

    def next(
        self, previous: Document, logs: Logs, limits: LimitOptions, *, now: float, once: bool = False
    ) -> Document | None:
        process = self._process
        planned = next_document(
            previous,
            group=GROUP_ID,
            lineage=self._ledger.lineage,
            run=self._ledger.run,
            positions=self._ledger.positions(),
            ends={tp: known.latest for tp, known in logs.items()},
            max_offsets=limits.max_offsets_per_trigger,
            targets=self.targets,
        )
        if planned is not None:
            process.kernel.note(process.name, f"plans {planned.sequence}: {text_of(planned.ranges)}")
            process.world.checker.planned(process, planned)
        return planned

    def empty(self, previous: Document) -> Document:
        document = empty_document(
            previous,
            group=GROUP_ID,
            lineage=self._ledger.lineage,
            run=self._ledger.run,
            positions=self._ledger.positions() or previous.positions,
        )
        self._process.world.checker.documented(self._process, document)
        return document

    def unread(self, logs: Logs) -> frozenset[TopicPartition]:
        ends = {tp: known.latest for tp, known in logs.items()}
        return below_targets(self._ledger.positions(), self.targets or {}, ends)

    def absent(self, known: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        return frozenset()  # no topic is ever deleted here

    def miss(self, gone: Mapping[TopicPartition, Position]) -> None:
        assert not gone


class SimStartup:
    """`driver/startup.py`: the member starts with what is known of the topics."""

    def __init__(self, join: Callable[[], None]) -> None:
        self._join = join
        self.there: frozenset[TopicPartition] = frozenset()
        self.has_joined = False

    def gone(self, checkpoint: Document) -> Mapping[TopicPartition, Position]:
        return {}

    def join(self, now: float) -> None:
        self.has_joined = True
        self._join()


class SimOfflineBrokers:
    """A trigger that ends waits for every partition here: brokers of 0.7 only ever come."""

    def left_out(self, unjudged: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        return frozenset()

    def wait_for_brokers(self, ranges: Iterable[OffsetRange], is_over: Callable[[], bool]) -> Steps[None]:
        return
        yield


class SimEvents:
    """Tells the trace and the checker."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.filter: Mapping[TopicPartition, CommittedOffset] = {}
        """What the group had committed when a replay asked for it."""

    def replaying(self, document: Document, ranges: Iterable[OffsetRange]) -> None:
        process, ranges = self._process, tuple(ranges)
        process.kernel.note(process.name, f"replays {document.sequence} of {document.run}: {text_of(ranges)}")
        process.world.checker.replayed(process, ranges, self.filter)
        process.license()

    def skipped(self, document: Document) -> None:
        self._process.kernel.note(self._process.name, f"the sink skipped {document.sequence}")


def text_of(ranges: Iterable[OffsetRange]) -> str:
    """Ranges as the trace shows them."""
    return ", ".join(map(str, ranges)) or "nothing"

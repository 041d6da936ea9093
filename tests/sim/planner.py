"""The parts of a simulated run beside its member: the real planner over simulated logs, and reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from streamgroup.coordinator.run.planner import PlannableLogs, Planner
from streamgroup.coordinator.run.run_events import RunEvents
from streamgroup.group import events as ev
from streamgroup.group.holdings import InFlightBatch
from streamgroup.group.member import Member, MemberAction, Resolve
from streamgroup.group.start_positions import Origin
from streamgroup.model import (
    CommittedOffset,
    Document,
    LogRange,
    OffsetRange,
    TopicPartition,
)
from streamgroup.options.types import GroupMode
from tests.sim.settings import GROUP_ID

if TYPE_CHECKING:
    from streamgroup.options.types import LimitOptions
    from tests.sim.process import Process
    from tests.sim.watcher import SimWatcher

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
Logs = Mapping[TopicPartition, LogRange]


class SimPlanner(Planner):
    """The real planner, which tells the trace and the checker what it decides."""

    def __init__(self, process: Process, logs: SimWatcher, events: RunEvents) -> None:
        super().__init__(
            process.ledger,
            logs,
            process.checks,
            events,
            location=process.settings.location,
            fail_on_data_loss=True,
            documents_positions=process.settings.mode is GroupMode.OFF,
        )
        self._process = process

    def judge(self, logs: Logs, now: float) -> PlannableLogs:
        judged = super().judge(logs, now)
        self._process.world.checker.looked(self._process, self._ledger.positions())
        return judged

    def next(
        self, previous: Document, logs: Logs, limits: LimitOptions, *, now: float, once: bool = False
    ) -> Document | None:
        process, planned = self._process, super().next(previous, logs, limits, now=now, once=once)
        if planned is not None:
            process.clock.note(process.name, f"plans {planned.sequence}: {text_of(planned.ranges)}")
            process.world.checker.planned(process, planned)
        return planned

    def empty(self, previous: Document) -> Document:
        document = super().empty(previous)
        self._process.world.checker.documented(self._process, document)
        return document


class SimMember(Member):
    """The real member, which tells the checker where partitions start."""

    def __init__(self, process: Process, *parts: Any, **others: Any) -> None:
        super().__init__(*parts, **others)
        self._process = process
        self.wanted: Mapping[int, Mapping[TopicPartition, Origin]] = {}
        """The partitions whose starts the newest generations look up."""

    def resolved(self, generation: int, offsets: Mapping[TopicPartition, int], now: float) -> list[MemberAction]:
        process = self._process
        for tp, offset in offsets.items():
            starting = self.wanted[generation][tp] is Origin.STARTING
            held = self.ledger.held.get(tp)
            epoch = generation if held is None or process.settings.consumers is None else held.epoch
            process.world.checker.resolved(process, epoch, tp, offset, starting=starting)
        process.clock.note(process.name, "starts at " + ", ".join(f"{tp}: {at}" for tp, at in offsets.items()))
        return super().resolved(generation, offsets, now)


class SimEvents(RunEvents):
    """Tells the checker, too. The lines are actions of the run, which the trace has."""

    def __init__(self, process: Process) -> None:
        super().__init__(GROUP_ID, process.name)
        self._process = process
        self.filter: Mapping[TopicPartition, CommittedOffset] = {}
        """The offsets that the group had committed when a replay asked for them."""

    def on_action(self, action: object, flight: InFlightBatch | None) -> None:
        process = self._process
        match action:
            case Resolve(generation, partitions):
                # An epoch may have several assignments. A look-up of an earlier one is answered all the same.
                wanted = {**process.member.wanted.get(generation, {}), **partitions}
                process.member.wanted = {**process.member.wanted, generation: wanted}
            case ev.Fail(error):
                process.clock.note(process.name, f"fails: {error}"[:160])
            case ev.Lost(reason):
                process.world.checker.lost(process, reason)
            case ev.Joining():
                process.joins(action)
            case ev.GaveUp():
                process.gave_up()
            case ev.Released(partitions):
                process.releases(partitions)
            case ev.Assigned():
                process.is_assigned(action)
            case ev.Left():
                process.has_left()
        super().on_action(action, flight)

    def replaying(self, document: Document, ranges: Iterable[OffsetRange]) -> None:
        process, ranges = self._process, tuple(ranges)
        process.clock.note(process.name, f"replays {document.sequence} of {document.run}: {text_of(ranges)}")
        process.world.checker.replayed(process, ranges, self.filter)
        process.license()
        super().replaying(document, ranges)

    def skipped(self, document: Document) -> None:
        self._process.world.checker.noticed(self._process)
        super().skipped(document)


def text_of(ranges: Iterable[OffsetRange]) -> str:
    """Ranges as the trace shows them."""
    return ", ".join(map(str, ranges)) or "nothing"

"""Worlds of one query that is not a member: `group.mode=commit` and `off`, and what their checker holds it to.

Nobody else takes its partitions, so the checker can be exact: a batch begins where the newest document in Spark's
`offsets` ends, and a replay is that document whole. In mode `commit` an operator's reset comes before (R5).
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from streamgroup.coordinator.planning.document import from_value
from streamgroup.group.offsets.store import MemoryOffsetStore
from streamgroup.group.standalone import StandaloneMember
from streamgroup.model import INITIAL_DOCUMENT, CommittedOffset, Document, OffsetRange, Position, TopicPartition
from streamgroup.options.types import GroupMode
from tests.sim import settings as drawn
from tests.sim.checker import (
    DUPLICATE,
    ENDED_EARLY,
    LOST,
    NON_MONOTONIC,
    SKIPPED,
    STUCK,
    Checker,
)
from tests.sim.clock import SimulatedClock, Sleep, Steps
from tests.sim.lines import GroupLines
from tests.sim.settings import JOIN_TIMEOUT_S, Settings

if TYPE_CHECKING:
    from tests.sim.broker import Logs, SimBroker
    from tests.sim.network import Network
    from tests.sim.process import Process
    from tests.sim.spark import Checkpoint
    from tests.sim.world import Query, World


def draw(chance: random.Random) -> Settings:
    """The settings of a seed of one query that is not a member."""
    settings = drawn.draw(chance)
    query = replace(settings.queries[0], instance_id=None)
    return replace(settings, queries=(query,), mode=chance.choice((GroupMode.COMMIT, GroupMode.COMMIT, GroupMode.OFF)))


def lone_backend(process: Process, network: Network, broker: SimBroker) -> tuple[StandaloneMember, GroupLines]:
    """Return the member that holds all partitions for a process, and the lines for its commits.

    Mirrors `modes.py` of the driver.
    """
    settings = process.settings
    lines = GroupLines(process, network, broker) if settings.group_id else _NoGroup(process, network, broker)
    config = settings.member_config(None)
    return StandaloneMember(config, process.query.chance, members_timeout_s=JOIN_TIMEOUT_S), lines


class _NoGroup(GroupLines):
    """Mode `off`: nothing is sent."""

    def __init__(self, process: Process, network: Network, broker: SimBroker) -> None:
        super().__init__(process, network, broker)
        self.store = MemoryOffsetStore()

    def committed(self, stable: Collection[TopicPartition] = ()) -> Steps:
        yield Sleep(0.0)
        return {}


class LoneChecker(Checker):
    """Holds one query that is not a member to its checkpoint."""

    def __init__(self, clock: SimulatedClock, logs: Logs, mode: GroupMode) -> None:
        super().__init__(clock, logs)
        self._commits = mode is GroupMode.COMMIT
        self._checkpoint: Checkpoint | None = None
        self._founder: Process | None = None
        """The process that committed first: `startingOffsets` applies to the starts that it looked up before (R7)."""
        self._operated = False
        """An operator has written the group's offsets."""
        self._looked: tuple[Process | None, Mapping[TopicPartition, int]] = (None, {})
        """The positions of the last plan."""
        self._bound: dict[TopicPartition, int] = {}
        """Where partitions start that no document tells, as the query has answered that nothing is new."""
        self._reset: dict[TopicPartition, bool] = {}
        """Partitions that an operator has reset; True: a document with records from there is in `offsets`. A commit of
        the query ends it."""
        self._skipped: tuple[Process | None, Sequence[OffsetRange]] = (None, ())
        """The batch that the sink has skipped, and whose run has told nobody."""
        self._noticed: Process | None = None
        self._rewound: set[TopicPartition] = set()
        """Partitions whose commit may go back once: the query has another checkpoint."""

    # -- the checkpoint -----------------------------------------------------------------------------------------------

    def _newest(self, query: Query) -> Document:
        """The newest document in Spark's `offsets`."""
        offsets = query.checkpoint.offsets
        newest = from_value(json.loads(offsets[-1])) if offsets else INITIAL_DOCUMENT
        if query.checkpoint is not self._checkpoint:
            if self._checkpoint is not None:
                self._begin_anew(newest)
            self._checkpoint = query.checkpoint
        return newest

    def _begin_anew(self, newest: Document) -> None:
        """The query has another checkpoint: what it reads again is licensed, and where it starts is looked up anew.

        A checkpoint from before a reset undoes it.
        """
        self._clock.note("checker", "another checkpoint")
        self._bound.clear()
        self._rewound = set(self._logs.ends)
        for tp in self._logs.ends:
            self.track(tp).deliveries.clear()
        for tp, position in newest.positions.items():
            self.track(tp).mark(0, position.offset)

    def _check_start(self, process: Process, before: Document, tp: TopicPartition, offset: int, what: str) -> None:
        """Whether reading goes on at `offset` after the document `before`."""
        self._look_for_skipped(process)
        track = self.track(tp)
        if tp in self._reset:
            least, most = track.committed or 0, track.frontier
        elif tp in before.positions:
            least = most = before.positions[tp].offset
        elif track.committed is not None:
            least = most = track.committed
        else:
            least = most = self._bound.get(tp, track.starts.get(process, 0))
        if not least <= offset <= most:
            word = DUPLICATE if offset < least else SKIPPED
            raise self._violated(word, f"{process.name} {what} {tp} from {offset} on, expected {least} to {most}")

    # -- positions and plans ------------------------------------------------------------------------------------------

    def resolved(self, process: Process, generation: int, tp: TopicPartition, offset: int, *, starting: bool) -> None:
        """`startingOffsets` is licensed for a query that has no document yet, in a group that nobody else founded."""
        track = self.track(tp)
        founds = not self._operated and self._founder in {None, process}
        # Under AvailableNow there may be a document that tells no position (R10).
        is_new = not self._newest(process.query).positions
        track.starts[process] = offset if starting and founds and is_new else 0

    def assigned(self, process: Process, generation: int, partitions: Collection[TopicPartition]) -> None:
        """Nobody shares the partitions."""

    def looked(self, process: Process, positions: Mapping[TopicPartition, Position]) -> None:
        self._looked = process, {tp: position.offset for tp, position in positions.items()}

    def documented(self, process: Process, document: Document) -> None:
        """It counts once Spark has logged it."""

    def idled(self, process: Process) -> None:
        """In mode `off` only documents keep positions: where reading starts stands in one by now (R6)."""
        before = self._newest(process.query)
        planner, positions = self._looked
        if not self._commits and planner is process:
            for tp in positions.keys() - before.positions.keys() - self._bound.keys():
                self._bound[tp] = positions[tp]
                self.track(tp).mark(0, positions[tp])

    def planned(self, process: Process, document: Document) -> None:
        before = self._newest(process.query)
        for r in document.ranges:
            self._check_start(process, before, r.partition, r.start, "plans")

    def logged(self, process: Process, document: Document) -> None:
        before = self._newest(process.query)
        begins = {r.partition: r.start for r in document.ranges}
        for tp, position in document.positions.items():
            start = begins.get(tp, position.offset)
            if tp in self._reset and tp not in begins:
                continue
            self._check_start(process, before, tp, start, "logs")
            if tp not in before.positions:
                self.track(tp).mark(0, start)
            if tp in self._reset:
                self._reset[tp] = True

    def replayed(
        self, process: Process, ranges: Sequence[OffsetRange], seen: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """A replay is the newest document whole, less what an operator has passed over (R13)."""
        for r in ranges:
            if r.partition in self._reset and r.start < (self.track(r.partition).committed or 0):
                raise self._violated(DUPLICATE, f"{process.name} replays {r}, which an operator has passed over")
        kept = {r for r in self._newest(process.query).ranges if r.partition not in self._reset}
        if kept != {r for r in ranges if r.partition not in self._reset}:
            raise self._violated(LOST, f"{process.name} replays {ranges}, the document has {sorted(kept)}")

    # -- sinks --------------------------------------------------------------------------------------------------------

    def delivered(self, process: Process, number: int, range_: OffsetRange) -> None:
        track = self.track(range_.partition)
        track.mark(range_.start, range_.until)
        for offset in range(range_.start, range_.until):
            for before, batch in track.deliveries.get(offset, ()):
                if (before, batch) == (process, number):
                    continue
                self.duplicates += 1
                if batch not in before.licensed:
                    text = f"{process.name} reads offset {offset} of {range_.partition} again, after batch {batch} of"
                    raise self._violated(DUPLICATE, f"{text} {before.name}, which nothing had interrupted")
            track.deliveries[offset] = [(process, number)]

    def sink_skipped(self, process: Process, document: Document) -> None:
        """Spark's checkpoint has the batch as done. A run that dies before it has told the group so, by a commit
        without a lineage, leaves its successor to go on behind (R5, R17). So does one that dies before its batch, whose
        replay is then skipped: nobody can tell that from a batch that has sunk. Mode `off` tells nobody."""
        self._skipped = process, document.ranges
        if not self._commits or document.run != process.ledger.run:
            self._license_skip()

    def noticed(self, process: Process) -> None:
        """The run has noticed that the sink has skipped its batch: its next commit says so."""
        self._noticed = process

    def _look_for_skipped(self, process: Process) -> None:
        if self._skipped[0] is not process:
            self._license_skip()

    def _license_skip(self) -> None:
        _, ranges = self._skipped
        self._skipped = None, ()
        for r in ranges:
            self.track(r.partition).mark(r.start, r.until)

    # -- commits ------------------------------------------------------------------------------------------------------

    def committed(
        self,
        process: Process,
        member_id: str,
        generation: int,
        offsets: Mapping[TopicPartition, int],
        founding: int | None = None,
    ) -> None:
        self._note_commit(process.name, offsets)
        self._look_for_skipped(process)
        runs = process is process.query.process
        before = self._newest(process.query) if runs else INITIAL_DOCUMENT
        for tp, offset in offsets.items():
            track = self.track(tp)
            if track.committed is None and track.starts.get(process) == offset:
                track.mark(0, offset)
            if offset < (track.committed or 0) and not (runs and tp in self._rewound):
                raise self._violated(NON_MONOTONIC, f"{process.name} commits {tp} at {offset} after {track.committed}")
            self._check_sunk(process.name, tp, offset)
            track.committed = offset
            if runs:
                self._rewound.discard(tp)
            if self._reset.get(tp) and tp in before.positions and before.positions[tp].offset == offset:
                del self._reset[tp]
        if self._commits and process is self._noticed is self._skipped[0]:
            self._skipped = None, ()
            self._reset |= dict.fromkeys(offsets, False)
        self._founder = self._founder or process

    def reset(self, tp: TopicPartition, was: CommittedOffset | None, offset: int) -> None:
        if self._commits:
            super().reset(tp, was, offset)
            self._operated = True
            self._reset[tp] = False

    # -- the end ------------------------------------------------------------------------------------------------------

    def ended(self, process: Process) -> None:
        if self._commits:
            super().ended(process)
            return
        positions = self._newest(process.query).positions
        for tp, target in (process.targets or {}).items():
            at = positions[tp].offset if tp in positions else 0
            if at < min(target, self._logs.ends[tp]):
                raise self._violated(ENDED_EARLY, f"{process.name} ends with {tp} at {at}, to be read to {target}")

    def at_rest(self) -> bool:
        if self._commits:
            return super().at_rest()
        return all(self.track(tp).frontier == end for tp, end in self._logs.ends.items())

    def finish(self, world: World) -> None:
        for tp, end in self._logs.ends.items():
            track = self.track(tp)
            if track.frontier < end:
                raise self._violated(LOST, f"{tp}: offset {track.frontier} of {end} never sank")
            if self._commits and track.committed != end:
                raise self._violated(STUCK, f"{tp}: all has sunk, but committed is {track.committed} of {end}")

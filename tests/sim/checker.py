"""What a run has to keep, in Jepsen's words; what it may do all the same stands in `docs/simulation.md`.

Everything is counted by offsets: which records have sunk, which the group's commit has passed, who delivered what. The
checker believes the brokers and the sinks, never a member's own account of itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from streamgroup.errors import ConfigError, FencedError
from streamgroup.model import CommittedOffset, Document, OffsetRange, Position, TopicPartition
from tests.sim.group import DYNAMIC
from tests.sim.kernel import Kernel

if TYPE_CHECKING:
    from tests.sim.broker import Logs
    from tests.sim.process import Process
    from tests.sim.world import Query, World

LOST = "lost"
DUPLICATE = "duplicate"
SKIPPED = "skipped"
NON_MONOTONIC = "non-monotonic commit"
TWO_OWNERS = "two owners"
BEYOND_SUNK = "committed beyond sunk"
STUCK = "stuck"
FAILED = "failed"

Batch = tuple[str, int]
"""A delivery: the process that read it and Spark's number of the batch."""


class Violation(Exception):
    """A promise was broken; `word` is Jepsen's."""

    def __init__(self, word: str, time: float, text: str) -> None:
        super().__init__(f"{word} at {time:.3f}: {text}")
        self.word = word


class Track:
    """One partition's records, since the operator's last reset of it."""

    __slots__ = ("committed", "deliveries", "frontier", "owner", "starts", "sunk")

    def __init__(self) -> None:
        self.sunk = bytearray()
        """1 where a record has sunk, or where its being skipped is licensed."""
        self.frontier = 0
        """All records below have sunk (or are licensed)."""
        self.deliveries: dict[int, list[tuple[Process, int]]] = {}
        """By offset: who has delivered the records that the commit has not passed."""
        self.committed: int | None = None
        self.owner: tuple[int, str] | None = None
        """The generation and the member id of the last accepted commit."""
        self.starts: dict[Process, int] = {}
        """Where `startingOffsets` let a process of the founding generation start."""

    def mark(self, start: int, until: int) -> None:
        if len(self.sunk) < until:
            self.sunk.extend(bytes(until - len(self.sunk)))
        self.sunk[start:until] = b"\1" * (until - start)
        while self.frontier < len(self.sunk) and self.sunk[self.frontier]:
            self.frontier += 1

    def begin_again(self, offset: int) -> None:
        """From `offset` on nothing has sunk: it has to be delivered (again)."""
        self.mark(0, offset)
        self.sunk[offset:] = b""
        self.frontier = self.committed = offset
        self.deliveries.clear()
        self.owner = None


class Checker:
    """Told of everything that counts; raises Violation."""

    def __init__(self, kernel: Kernel, logs: Logs) -> None:
        self._kernel = kernel
        self._logs = logs
        self._tracks: dict[TopicPartition, Track] = {}
        self._founding: int | None = None
        self._surplus: dict[Process, set[int]] = {}
        self.duplicates = 0

    def track(self, tp: TopicPartition) -> Track:
        track = self._tracks.get(tp)
        if track is None:
            track = self._tracks[tp] = Track()
        return track

    def _violated(self, word: str, text: str) -> Violation:
        return Violation(word, self._kernel.now, text)

    # -- positions and plans ------------------------------------------------------------------------------------------

    def resolved(self, process: Process, generation: int, tp: TopicPartition, offset: int, *, starting: bool) -> None:
        """Where a gained partition starts was looked up. `startingOffsets` (`starting`) is licensed while nothing is
        committed, and in the founding generation (R7); any other look-up voids what it had given and nobody committed.
        """
        starts = self.track(tp).starts
        starts.pop(process, None)
        if starting and self._founding in {None, generation}:
            starts[process] = offset

    def looked(self, process: Process, positions: Mapping[TopicPartition, Position]) -> None:
        """A plan is made from these positions: where nothing is committed yet, the partition has its start (R6)."""
        for tp in positions:
            self._start(self.track(tp), process)

    def _start(self, track: Track, process: Process) -> None:
        if track.committed is None and process in track.starts:
            track.mark(0, track.starts[process])
            track.committed = track.starts[process]

    def planned(self, process: Process, document: Document) -> None:
        """A document was planned: neither below what is committed nor beyond what has sunk."""
        for r in document.ranges:
            track = self.track(r.partition)
            if r.start > track.frontier:
                raise self._violated(
                    SKIPPED, f"{process.name} plans {r}, but only the records below {track.frontier} have sunk"
                )
            if r.start < (track.committed or 0) and not self._is_zombie(process):
                raise self._violated(
                    DUPLICATE, f"{process.name} plans {r}, but the group has committed {track.committed}"
                )

    def _is_zombie(self, process: Process) -> bool:
        """Somebody else has its place, or a late request of its own has put it out: it cannot know yet."""
        return process.query.is_haunted or process.is_replaced

    def filtered(self, process: Process, seen: Mapping[TopicPartition, CommittedOffset]) -> None:
        """A replay has asked what is committed."""
        for tp, commit in seen.items():
            if self.track(tp).committed != commit.offset:
                raise self._violated(FAILED, f"the offset store tells {commit.offset} of {tp}")

    def replayed(
        self, process: Process, ranges: Sequence[OffsetRange], seen: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """A replay: nothing below what was committed when it was asked (R13)."""
        for r in ranges:
            commit = seen.get(r.partition)
            if commit is not None and r.start < commit.offset:
                raise self._violated(DUPLICATE, f"{process.name} replays {r}, but the commit was {commit.offset}")

    # -- sinks --------------------------------------------------------------------------------------------------------

    def delivered(self, process: Process, number: int, range_: OffsetRange) -> None:
        """The records of `range_` are in the sink, as part of this batch."""
        track = self.track(range_.partition)
        track.mark(range_.start, range_.until)
        committed = track.committed or 0
        if range_.start < committed:
            self._surplus.setdefault(process, set()).add(number)
            self.duplicates += min(committed, range_.until) - range_.start
        for offset in range(max(range_.start, committed), range_.until):
            track.deliveries.setdefault(offset, []).append((process, number))

    # -- commits ------------------------------------------------------------------------------------------------------

    def committed(
        self, process: Process, member_id: str, generation: int, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """The coordinator accepts a commit."""
        if self._kernel.trace is not None:
            text = ", ".join(f"{tp}: {offset}" for tp, offset in offsets.items())
            self._kernel.note("broker", f"accepts of {process.name}, generation {generation}: {text}")
        for tp, offset in offsets.items():
            track = self.track(tp)
            self._check_owner(tp, track, member_id, generation)
            self._start(track, process)
            if track.committed is not None and offset < track.committed:
                raise self._violated(NON_MONOTONIC, f"{process.name} commits {tp} at {offset} after {track.committed}")
            if offset > min(track.frontier, self._logs.ends[tp]):
                raise self._violated(
                    BEYOND_SUNK,
                    f"{process.name} commits {tp} at {offset}; the records below {track.frontier} have sunk",
                )
            self._settle(track, process, track.committed or 0, offset)
            track.committed = offset
        if self._founding is None:
            self._founding = generation

    def _check_owner(self, tp: TopicPartition, track: Track, member_id: str, generation: int) -> None:
        """Member ids end in numbers, in the order in which they were given: a static member's successor has a later."""
        if track.owner is not None:
            before, owner = track.owner
            (place, number), (old_place, old_number) = member_id.split("-"), owner.split("-")
            successor = place == old_place != DYNAMIC and int(number) > int(old_number)
            if generation < before or (generation == before and member_id != owner and not successor):
                raise self._violated(
                    TWO_OWNERS,
                    f"{member_id} commits {tp} in generation {generation} after {owner} in {before}",
                )
        track.owner = (generation, member_id)

    def _settle(self, track: Track, process: Process, start: int, until: int) -> None:
        """One delivery of each record counts, the committing query's last; the others are surplus."""
        for offset in range(start, until):
            deliveries = track.deliveries.pop(offset, None)
            if deliveries is None or len(deliveries) == 1:
                continue
            own = [d for d in deliveries if d[0].query is process.query]
            counts = own[-1] if own else deliveries[-1]
            for delivery in deliveries:
                if delivery is not counts:
                    self.duplicates += 1
                    self._surplus.setdefault(delivery[0], set()).add(delivery[1])

    def reset(self, tp: TopicPartition, was: CommittedOffset | None, offset: int) -> None:
        """An operator resets the group: what lies between is skipped by his will, the rest has to come again."""
        self._kernel.note("operator", f"resets {tp} from {was.offset if was else None} to {offset}")
        self.track(tp).begin_again(offset)

    # -- who may repeat -----------------------------------------------------------------------------------------------

    def lost(self, process: Process, reason: str) -> None:
        """A member believes its membership lost. It licenses a repeated batch only where it is."""
        unknown = self._is_put_out(process)
        silent = self._kernel.now - process.last_alive_at >= process.settings.session_s - 1e-6
        self._kernel.note(process.name, f"lost its membership: {reason}")
        if unknown or silent:
            process.license()

    def _is_put_out(self, process: Process) -> bool:
        """Whether the coordinator knows the member no more, or not in its generation."""
        ledger, group = process.ledger, process.world.broker.group
        return bool(group.check(ledger.member_id, process.query.instance_id, ledger.generation))

    def failed(self, query: Query, error: BaseException) -> None:
        """A query has failed by itself."""
        skipped = isinstance(error, ConfigError) and query.settings.file_sink
        fenced = isinstance(error, FencedError) and query.instance_id is not None
        if not (skipped or fenced):
            raise self._violated(FAILED, f"{query.name}: {error!r}")

    # -- the end ------------------------------------------------------------------------------------------------------

    def at_rest(self) -> bool:
        """Whether everything has sunk and is committed."""
        return all(
            self.track(tp).committed == end and self.track(tp).frontier == end for tp, end in self._logs.ends.items()
        )

    def finish(self, world: World) -> None:
        """All is calm: everything must have sunk and be committed, and no more repeated than is licensed."""
        for tp, end in self._logs.ends.items():
            track = self.track(tp)
            if track.frontier < end:
                holders = [q.name for q in world.queries if q.process and tp in q.process.ledger.held]
                raise self._violated(
                    LOST, f"{tp}: offset {track.frontier} of {end} never sank; held by {holders or 'nobody'}"
                )
            if track.committed != end:
                raise self._violated(STUCK, f"{tp}: all has sunk, but committed is {track.committed} of {end}")
        for query in world.queries:
            if query.process is not None and self._is_put_out(query.process):
                query.process.license()  # cut off until now, it has not heard of it yet
        for process, batches in self._surplus.items():
            again = sorted(batches - process.licensed)
            if again:
                raise self._violated(
                    DUPLICATE,
                    f"{process.name}: batches {again} were delivered again although nothing had interrupted them "
                    f"(interrupted: {sorted(process.licensed)})",
                )

"""The conditions that a run has to keep, in Jepsen's words. Its licences stand in `docs/simulation.md`.

Everything is counted by offsets: which records have sunk, which the group's commit has passed, who delivered what. The
checker believes the brokers and the sinks, never a member's own account of itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from streamgroup.errors import ConfigError, DataLossError, FencedError
from streamgroup.group.commits import FIRST_EPOCH, NOT_FOUNDED
from streamgroup.logformat import KAFKA07_LOG
from streamgroup.model import CommittedOffset, Document, OffsetRange, Position, TopicPartition
from tests.fakes.group import DYNAMIC
from tests.sim.clock import SimulatedClock
from tests.sim.lineages import is_refusal
from tests.sim.silence import missing

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
ENDLESS = "endless"

OFFLINE_KNOWN_S = 15.0
"""For so long a run may take a broker for away that is back: its metadata is older."""
ENDED_EARLY = "ended early"
UNASKED = "read from before the start"
SILENT = "silent member"
TWINS = "two of one lineage"
INSIDE = "inside of a message"
UNFENCED = "unfenced"
UNSTORED = "offset without its records"

Batch = tuple[str, int]
"""A delivery: the process that read it and Spark's number of the batch."""


class Violation(BaseException):
    """A promise was broken; `word` is Jepsen's. Not an Exception: a run makes those errors of its query."""

    def __init__(self, word: str, time: float, text: str) -> None:
        super().__init__(f"{word} at {time:.3f}: {text}")
        self.word = word


class Track:
    """One partition's records, since the operator's last reset of it."""

    __slots__ = ("committed", "deliveries", "disowned", "documented", "frontier", "owner", "starts", "sunk", "unfenced")

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
        self.unfenced = False
        """The commit that stands is of a real consumer that did not own the partition (any more)."""
        self.disowned: set[Process] = set()
        """Whose owner node a real consumer has deleted, and who has yet to hear of it."""
        self.starts: dict[Process, int] = {}
        """Where `startingOffsets` let a process of the founding generation start."""
        self.documented: set[int] = set()
        """Such starts that an empty document has told before the group's commit did: a restart takes them from it."""

    def is_disturbed(self, process: Process) -> bool:
        """Whether a real consumer has meddled: this process may be below what is committed."""
        return self.unfenced or process in self.disowned

    def mark(self, start: int, until: int) -> None:
        if len(self.sunk) < until:
            self.sunk.extend(bytes(until - len(self.sunk)))
        self.sunk[start:until] = b"\1" * (until - start)
        unsunk = self.sunk.find(0, self.frontier)
        self.frontier = len(self.sunk) if unsunk < 0 else unsunk

    def begin_again(self, offset: int) -> None:
        """From `offset` on nothing has sunk: it has to be delivered (again)."""
        self.mark(0, offset)
        self.sunk[offset:] = b""
        self.frontier = self.committed = offset
        self.deliveries.clear()
        self.documented.clear()
        self.owner = None
        self.unfenced = False


class Checker:
    """Told of everything that counts; raises Violation."""

    def __init__(self, clock: SimulatedClock, logs: Logs) -> None:
        self._clock = clock
        self._logs = logs
        self._tracks: dict[TopicPartition, Track] = {}
        self._founding: int | None = None
        self._found_nothing: set[Process] = set()
        self._founders: dict[tuple[int, TopicPartition], Process] = {}
        """The processes assigned a partition in a generation, of queries that start from nothing."""
        self._excused: set[Process] = set()
        """Founders that lost their membership, or were waited for as long as the group does."""
        self._surplus: dict[Process, set[int]] = {}
        self._cut: set[TopicPartition] = set()
        """Logs that were cut, and whose loss nobody has told yet."""
        self.duplicates = 0

    def track(self, tp: TopicPartition) -> Track:
        track = self._tracks.get(tp)
        if track is None:
            track = self._tracks[tp] = Track()
        return track

    def _violated(self, word: str, text: str) -> Violation:
        return Violation(word, self._clock.now, text)

    # -- positions and plans ------------------------------------------------------------------------------------------

    def resolved(self, process: Process, generation: int, tp: TopicPartition, offset: int, *, starting: bool) -> None:
        """Where a gained partition starts was looked up. `startingOffsets` (`starting`) is licensed while nothing is
        committed, or was when the process asked, and in the founding generation (R7); any other look-up voids what it
        had given and nobody committed.
        """
        starts = self.track(tp).starts
        starts.pop(process, None)
        if starting and (self._is_founding(generation) or process in self._found_nothing):
            starts[process] = offset
        if not starting:
            self._check_founder(process, generation, tp)

    def _is_founding(self, generation: int) -> bool:
        """Whether what was assigned in this generation, or epoch, is of the founding. Under the consumer protocol a
        member that has yet to give partitions up stays in its epoch, and one of a later epoch may commit first. What
        the former had by then is not new: it existed before the group's first commit, and no member has read it.
        """
        founding = self._founding
        return founding is None or generation == founding or FIRST_EPOCH <= generation <= founding

    def assigned(self, process: Process, generation: int, partitions: Collection[TopicPartition]) -> None:
        """A query that starts from nothing was assigned these: where that founds the group, they start for it (R7)."""
        self._founders |= {(generation, tp): process for tp in partitions}

    def _check_founder(self, process: Process, generation: int, tp: TopicPartition) -> None:
        """The founder of the group commits where its partitions start, unless it dies or is put out (R6, R7)."""
        founded_in = self._founding
        founder = None if founded_in in {None, generation} else self._founders.get((founded_in or 0, tp))
        if founder is not None and founder not in self._excused and founder.is_in_the_group:
            text = f"{process.name} starts {tp} at its earliest offset, though {founder.name} has founded the group"
            raise self._violated(UNASKED, f"{text} with it in generation {founded_in}")

    def excuse(self, process: Process) -> None:
        """A founder need not commit any more where its partitions start."""
        self._excused.add(process)

    def told(self, process: Process, *, nothing: bool) -> None:
        """A member was told what is committed: perhaps nothing. In ZooKeeper, and under the consumer protocol, founders
        are not all of one generation."""
        (self._found_nothing.add if nothing else self._found_nothing.discard)(process)

    def looked(self, process: Process, positions: Mapping[TopicPartition, Position]) -> None:
        """A plan is made from these positions: where nothing is committed yet, the partition has its start (R6)."""
        for tp, position in positions.items():
            self._start(self.track(tp), process, position.offset)

    def documented(self, process: Process, document: Document) -> None:
        """An empty document was made, with positions whose commit may not have been answered yet."""
        for tp, position in document.positions.items():
            if self.track(tp).starts.get(process) == position.offset:
                self.track(tp).documented.add(position.offset)

    def _start(self, track: Track, process: Process, offset: int) -> None:
        if track.committed is None and (process in track.starts or offset in track.documented):
            start = track.starts.get(process, offset)
            track.mark(0, start)
            track.committed = start

    def planned(self, process: Process, document: Document) -> None:
        """A document was planned: neither below what is committed nor beyond what has sunk."""
        for r in document.ranges:
            self._check_boundaries(f"{process.name} plans {r}", r.partition, r.start, r.until)
            track = self.track(r.partition)
            if r.start > track.frontier:
                raise self._violated(
                    SKIPPED, f"{process.name} plans {r}, but only the records below {track.frontier} have sunk"
                )
            if r.start < (track.committed or 0) and not track.is_disturbed(process) and not self._is_zombie(process):
                raise self._violated(
                    DUPLICATE, f"{process.name} plans {r}, but the group has committed {track.committed}"
                )

    def _check_boundaries(self, what: str, tp: TopicPartition, *offsets: int) -> None:
        """A broker of Kafka 0.7 does not notice a position inside of a message: it sends bytes from there (R34)."""
        inside = [offset for offset in offsets if not self._logs.is_boundary(tp, offset)]
        if inside:
            raise self._violated(INSIDE, f"{what}, and no message of {tp} begins at {inside[0]}")

    def _is_zombie(self, process: Process) -> bool:
        """Somebody else has its place, or a late request of its own has put it out: it cannot know yet."""
        return process.query.is_haunted or process.world.keeper.is_replaced(process)

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
            self._check_boundaries(f"{process.name} replays {r}", r.partition, r.start, r.until)
            commit = seen.get(r.partition)
            if commit is not None and r.start < commit.offset:
                raise self._violated(DUPLICATE, f"{process.name} replays {r}, but the commit was {commit.offset}")

    # -- Spark, for the checker of a query that is not a member -------------------------------------------------------

    def logged(self, process: Process, document: Document) -> None:
        """Spark is about to write `offsets/N`."""

    def idled(self, process: Process) -> None:
        """`latestOffset` has returned `start`: nothing is new."""

    def sink_skipped(self, process: Process, document: Document) -> None:
        """The file sink has skipped the batch of `document`, as it has that number (R17)."""

    def noticed(self, process: Process) -> None:
        """The run has noticed that its batch was skipped."""

    # -- sinks --------------------------------------------------------------------------------------------------------

    def delivered(self, process: Process, number: int, range_: OffsetRange) -> None:
        """The records of `range_` are in the sink, as part of this batch."""
        tp = range_.partition
        self._check_boundaries(f"{process.name} reads {range_}", tp, range_.start, range_.until)
        track = self.track(tp)
        track.mark(range_.start, range_.until)
        committed = track.committed or 0
        if range_.start < committed and not track.is_disturbed(process):
            self._surplus.setdefault(process, set()).add(number)
            self.duplicates += len(self._logs.records(range_.partition, range_.start, min(committed, range_.until)))
        if process in track.disowned:
            return
        for offset in self._logs.records(range_.partition, max(range_.start, committed), range_.until):
            track.deliveries.setdefault(offset, []).append((process, number))

    # -- commits ------------------------------------------------------------------------------------------------------

    def committed(
        self,
        process: Process,
        member_id: str,
        generation: int,
        offsets: Mapping[TopicPartition, int],
        founding: int | None = None,
    ) -> None:
        """The coordinator accepts a commit. Its metadata name `founding` as the first generation; None: this one."""
        self._note_commit(f"{process.name}, generation {generation}", offsets)
        for tp, offset in offsets.items():
            self._check_owner(tp, self.track(tp), member_id, generation)
            self._accept(process, tp, offset)
        if self._founding is None:
            self._founding = generation if founding is None else founding

    def registered(
        self,
        process: Process,
        offsets: Mapping[TopicPartition, int],
        owned: Collection[TopicPartition],
        stands: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """ZooKeeper accepts a commit; `owned` are the partitions whose owner nodes are this session's. `stands` is what
        a fetch finds now, where Kafka has the offsets, too."""
        self._note_commit(process.name, offsets)
        for tp, offset in offsets.items():
            track = self.track(tp)
            if tp not in owned and process not in track.disowned:
                raise self._violated(TWO_OWNERS, f"{process.name} commits {tp} at {offset}, which is not its own")
            self._accept(process, tp, offset)
            track.unfenced = tp not in owned
            if stands is not None and stands[tp] != offset:
                track.committed, track.unfenced = stands[tp], True  # Kafka is ahead, until this commit is there
        if self._founding is None:
            self._founding = process.ledger.generation

    def stored(
        self,
        process: Process,
        offsets: Mapping[TopicPartition, int],
        stands: Mapping[TopicPartition, int],
        *,
        owned: Collection[TopicPartition],
        fenced: Collection[TopicPartition],
    ) -> None:
        """Kafka accepts a commit of a group in ZooKeeper; `stands` is what a fetch finds then.

        Kafka fences nobody: a commit may come late, and pass (R35). It has to have been `fenced` before it was sent.
        """
        self._note_commit(f"{process.name}, to Kafka", offsets)
        for tp, offset in offsets.items():
            track = self.track(tp)
            if tp not in fenced and process not in track.disowned:
                text = f"{process.name} commits {tp} at {offset} to Kafka, and ZooKeeper has not shown that it may"
                raise self._violated(TWO_OWNERS, text)
            if tp in owned:
                self._accept(process, tp, stands[tp])
            else:
                self._start(track, process, offset)
                self._check_sunk(process.name, tp, offset)
                self._settle(tp, track, process.query, track.committed or 0, stands[tp], late_from=process)
                track.committed = stands[tp]
            track.unfenced = tp not in owned or offset != stands[tp]
        if self._founding is None:
            self._founding = process.ledger.generation

    def _accept(self, process: Process, tp: TopicPartition, offset: int) -> None:
        track = self.track(tp)
        self._start(track, process, offset)
        if track.committed is not None and offset < track.committed and not track.is_disturbed(process):
            raise self._violated(NON_MONOTONIC, f"{process.name} commits {tp} at {offset} after {track.committed}")
        self._check_sunk(process.name, tp, offset)
        self._settle(tp, track, process.query, track.committed or 0, offset)
        track.committed, track.unfenced = offset, False

    def _check_sunk(self, name: str, tp: TopicPartition, offset: int) -> None:
        self._check_boundaries(f"{name} commits {tp} at {offset}", tp, offset)
        frontier = self.track(tp).frontier
        if offset > min(frontier, self._logs.ends[tp]):
            text = f"{name} commits {tp} at {offset}; the records below {frontier} have sunk"
            raise self._violated(BEYOND_SUNK, text)

    def _note_commit(self, who: str, offsets: Mapping[TopicPartition, int]) -> None:
        if self._clock.trace is not None:
            text = ", ".join(f"{tp}: {offset}" for tp, offset in offsets.items())
            self._clock.note("broker", f"accepts of {who}: {text}")

    def _check_owner(self, tp: TopicPartition, track: Track, member_id: str, generation: int) -> None:
        """Report a commit in an older generation or epoch than the last one, or in the same one by another member."""
        if track.owner is not None:
            before, owner = track.owner
            is_same = member_id == owner or _is_successor(member_id, owner)
            if generation < before or (generation == before and not is_same):
                raise self._violated(
                    TWO_OWNERS,
                    f"{member_id} commits {tp} in generation {generation} after {owner} in {before}",
                )
        track.owner = (generation, member_id)

    def _settle(
        self,
        tp: TopicPartition,
        track: Track,
        query: Query | None,
        start: int,
        until: int,
        *,
        late_from: Process | None = None,
    ) -> None:
        """One delivery of each record counts, the committing query's last; the others are surplus.

        `late_from` commits records of a partition that it does not own any more. Where another query has delivered the
        same records, that delivery counts: the owner cannot know of a commit that came after its fetch.
        """
        for offset in self._logs.records(tp, start, until):
            deliveries = track.deliveries.pop(offset, None)
            if not deliveries or len(deliveries) == 1:
                continue
            if late_from is not None:
                own = [d for d in deliveries if d[0] is not late_from]
            else:
                own = [d for d in deliveries if d[0].query is query]
            counts = own[-1] if own else deliveries[-1]
            for delivery in deliveries:
                if delivery is not counts:
                    self.duplicates += 1
                    self._surplus.setdefault(delivery[0], set()).add(delivery[1])

    # -- real consumers -----------------------------------------------------------------------------------------------

    def disowned(self, process: Process, tp: TopicPartition) -> None:
        """A real consumer has deleted an owner node that another has made since it lost its own: it looks at no owner,
        and who has lost the node hears of it later. Others may read its records of that time again."""
        track = self.track(tp)
        track.disowned.add(process)
        for offset, deliveries in track.deliveries.items():
            track.deliveries[offset] = [d for d in deliveries if d[0] is not process]

    def gives_up(self, process: Process) -> None:
        """A member claims anew: it looks at who owns what."""
        for track in self._tracks.values():
            track.disowned.discard(process)

    def consumed(self, range_: OffsetRange) -> None:
        """A real consumer has handed these records on. It may: how often is its own affair."""
        self.track(range_.partition).mark(range_.start, range_.until)

    def committed_by_consumer(self, name: str, offsets: Mapping[TopicPartition, int], *, owns: bool) -> None:
        """A real consumer has written its offset, forwards or backwards: nothing fences it."""
        self._note_commit(name if owns else f"{name}, who does not own it", offsets)
        if self._founding is None:
            self._founding = NOT_FOUNDED
        for tp, offset in offsets.items():
            track = self.track(tp)
            self._check_sunk(name, tp, offset)
            self._settle(tp, track, None, track.committed or 0, offset)
            track.committed, track.unfenced = offset, not owns

    def reset(self, tp: TopicPartition, was: CommittedOffset | None, offset: int) -> None:
        """An operator resets the group: what lies between is skipped by his will, the rest has to come again."""
        self._clock.note("operator", f"resets {tp} from {was.offset if was else None} to {offset}")
        if self._founding is None:
            self._founding = NOT_FOUNDED
        self.track(tp).begin_again(offset)

    def group_deleted(self) -> None:
        """The group and its offsets have expired in Kafka."""
        raise AssertionError("only the offset table is left of a group that was deleted")

    def cut(self, tp: TopicPartition) -> None:
        """A log was lost: what it holds now are other records, and none of them has sunk. The commit stands."""
        self._clock.note("checker", f"{tp} is cut at {self._logs.ends[tp]}")
        track = self.track(tp)
        track.sunk, track.frontier = bytearray(), 0
        track.deliveries.clear()
        self._cut.add(tp)

    def has_told(self, tp: TopicPartition) -> bool:
        """Whether a query has failed with the loss of a log that was cut."""
        return tp not in self._cut

    def ended(self, process: Process) -> None:
        """AvailableNow ends, as it has read all there was at its start: its partitions' commits must say so (R11)."""
        if self._is_zombie(process):
            return
        for tp, position in process.ledger.positions().items():
            end, committed = self._logs.ends[tp], self.track(tp).committed
            if position.offset > end:
                raise self._violated(
                    LOST, f"{process.name} ends at position {position.offset} of {tp}, whose log ends at {end}"
                )
            target = min(end, (process.targets or {}).get(tp, 0))
            if target > (committed or 0):
                raise self._violated(
                    ENDED_EARLY, f"{process.name} ends with {tp} at {committed}, to be read to {target}"
                )

    # -- who may repeat -----------------------------------------------------------------------------------------------

    def lost(self, process: Process, reason: str) -> None:
        """A member believes its membership lost. It licenses a repeated batch only where it is."""
        unknown = process.world.keeper.is_put_out(process)
        silent = self._clock.now - process.last_alive_at >= process.settings.session_s - 1e-6
        self._clock.note(process.name, f"lost its membership: {reason}")
        self.gives_up(process)
        if unknown or silent:
            process.license()
            self.excuse(process)

    def failed(self, query: Query, error: BaseException) -> None:
        """A query has failed by itself."""
        refused = is_refusal(error)
        if refused and not query.world.lineages.may_refuse(query.process):
            raise self._violated(FAILED, f"{query.name}: no live member of its lineage goes before it: {error}")
        skipped = isinstance(error, ConfigError) and query.settings.file_sink
        fenced = isinstance(error, FencedError) and query.instance_id is not None
        if "UNRELEASED_INSTANCE_ID" in str(error) and query.process is not None:
            fenced = query.process.was_replaced
        lost = isinstance(error, DataLossError) and any(str(tp) in str(error) for tp in self._cut)
        if lost:
            self._cut.clear()
        if not (refused or skipped or fenced or lost or self._is_offline(query, error)):
            raise self._violated(FAILED, f"{query.name}: {error!r}")

    def stays_silent(self, process: Process) -> None:
        """The group hears a member, though Spark has been silent or stopped for too long (R27)."""
        raise self._violated(SILENT, f"{process.name} is in the group, and nobody asks it for its partitions")

    def has_twins(self, one: Process, other: Process) -> None:
        """Two live members of one lineage stay beside each other for longer than R28 lets them."""
        raise self._violated(TWINS, f"{one.name} and {other.name} read with copies of one checkpoint")

    def _is_offline(self, query: Query, error: BaseException) -> bool:
        """Whether a run that ends reports partitions of brokers of 0.7 that were away: it may know so for a while."""
        ends = query.settings.once or query.settings.available_now
        if not ends or not isinstance(error, DataLossError) or "this query has not read" not in str(error):
            return False
        named = [tp for tp in self._logs.ends if re.search(rf"\b{KAFKA07_LOG.name(tp)}\b", str(error))]
        return all(self._logs.was_away(tp, self._clock.now - OFFLINE_KNOWN_S) for tp in named) and bool(named)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _is_set_back(self, world: World, tp: TopicPartition, end: int) -> bool:
        """Whether the commit that stands is of one who did not own the partition, and its owner has read everything.

        Nothing fences a real consumer, and no store tells the owner. It commits with its next records, or after an hour
        (R7), and that is longer than a world lasts.
        """
        processes = [query.process for query in world.queries if query.process is not None]
        positions = [process.ledger.positions().get(tp) for process in processes]
        return self.track(tp).unfenced and any(
            position is not None and position.offset == end for position in positions
        )

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
            if track.committed != end and not self._is_set_back(world, tp, end):
                raise self._violated(STUCK, f"{tp}: all has sunk, but committed is {track.committed} of {end}")
        if behind := world.keeper.behind():
            raise self._violated(STUCK, f"{', '.join(map(str, behind))}: one store has a commit that the other lacks")
        if away := missing(world):
            raise self._violated(STUCK, f"{away} left while Spark was silent, and did not join again")
        for query in world.queries:
            if query.process is not None and world.keeper.is_put_out(query.process):
                query.process.license()  # cut off until now, it has not heard of it yet
        for process, batches in self._surplus.items():
            again = sorted(batches - process.licensed)
            if again:
                raise self._violated(
                    DUPLICATE,
                    f"{process.name}: batches {again} were delivered again although nothing had interrupted them "
                    f"(interrupted: {sorted(process.licensed)})",
                )


def _is_successor(member_id: str, owner: str) -> bool:
    """Whether a member may be the next process of a static one.

    The ids that a broker gives end in numbers, in their order. Under the consumer protocol an id ends with the run,
    whose first part is the name of the query.
    """
    if ":" in member_id:
        return _query_of(member_id) == _query_of(owner)
    (place, number), (old_place, old_number) = member_id.split("-"), owner.split("-")
    return place == old_place != DYNAMIC and int(number) > int(old_number)


def _query_of(member_id: str) -> str:
    return member_id.rpartition(":")[2].partition(".")[0].rstrip("'")

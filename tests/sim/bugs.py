"""Bugs to plant: each breaks one rule in one place of the real code (or of the simulated broker), and must be caught.

A simulation that finds nothing proves something only if it would have found these. How each is caught stands beside it:
by random seeds (`seeds`: a range that is known to hold one), or, where chance is too rare, by a directed scenario.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from streamgroup.coordinator.planning.batch import replay_ranges
from streamgroup.coordinator.run import spark_calls
from streamgroup.coordinator.run.spark_calls import SparkCalls
from streamgroup.group import ledger as ledger_module
from streamgroup.group import membership, rejoining, start_positions
from streamgroup.group.assignment import HeldAssignment, read_overview
from streamgroup.group.commits import Commit
from streamgroup.group.holdings import Held, InFlightBatches
from streamgroup.group.ledger import Ledger
from streamgroup.group.member import Member
from streamgroup.group.membership import Membership
from streamgroup.group.start_positions import StartPosition
from streamgroup.model import INITIAL_DOCUMENT, CommittedOffset, Document, OffsetRange, TopicPartition
from tests.fakes.group_coordinator import GroupCoordinator
from tests.sim import checker as words
from tests.sim.settings import Kind

MOST_SEEDS = 1_000
"""Within so many seeds, at most, chance has to catch what no scenario does."""

Plant = Callable[[ExitStack], None]


@dataclass(frozen=True)
class Bug:
    """A bug: which rule it breaks, what it does, which of the checker's words it may be caught under."""

    rule: str
    what: str
    plant: Plant
    words: frozenset[str]
    known: tuple[int, ...] = ()
    """Random seeds that caught it when they were last looked for. Any change of the code may move them."""
    scenario: str | None = None
    """The directed scenario that catches it, where chance is too rare."""
    kind: Kind = Kind.KAFKA
    """In which worlds it is looked for."""

    @property
    def seeds(self) -> Iterator[int]:
        """The seeds to look for it in, the likely ones first; none where there is a scenario."""
        if self.scenario is None:
            yield from dict.fromkeys((*self.known, *range(MOST_SEEDS)))

    @contextmanager
    def planted(self) -> Iterator[None]:
        with ExitStack() as stack:
            self.plant(stack)
            yield


def replace(stack: ExitStack, owner: Any, name: str, new: Any) -> None:
    stack.enter_context(patch.object(owner, name, new))


# -- committing --------------------------------------------------------------------------------------------------------


def commit_before_sink(stack: ExitStack) -> None:
    real = Ledger.handed_out

    def handed_out(self: Ledger, document: Document) -> tuple[OffsetRange, ...]:
        ranges = real(self, document)
        for r in ranges:
            if r.partition in self.held:
                self.held[r.partition].move(r.until)
        return ranges

    replace(stack, Ledger, "handed_out", handed_out)


def commit_what_is_not_held(stack: ExitStack) -> None:
    """Every position that this run ever had is committed with the others."""
    real = Ledger.commit_due
    had: WeakKeyDictionary[Ledger, dict[TopicPartition, CommittedOffset]] = WeakKeyDictionary()

    def commit_due(self: Ledger, now: float, *, everything: bool = False) -> Commit | None:
        commit = real(self, now, everything=everything)
        if commit is None:
            return None
        all_of_them = had.setdefault(self, {})
        all_of_them |= commit.offsets
        return dataclasses.replace(commit, offsets=dict(all_of_them))

    replace(stack, Ledger, "commit_due", commit_due)


def accept_old_generations(stack: ExitStack) -> None:
    """The broker asks only who commits, not under which generation."""

    def refusal_of_commit(self: GroupCoordinator, request: Any) -> int:
        return self.group.check_member(request.member_id, request.group_instance_id)

    replace(stack, GroupCoordinator, "refusal_of_commit", refusal_of_commit)


def range_end_off_by_one(stack: ExitStack) -> None:
    real = Held.move

    def sank(self: Ledger, held: Held, handed: OffsetRange, flight: Any) -> None:
        before = held.position
        real_sank(self, held, handed, flight)
        if held.position != before and held.position is not None:
            real(held, held.position + 1)

    real_sank = Ledger._sank
    replace(stack, Ledger, "_sank", sank)


def believe_skipped_batches(stack: ExitStack) -> None:
    real = InFlightBatches.complete

    def complete(self: InFlightBatches, start: Document) -> Any:
        flight = self.in_flight
        if flight is not None and flight.document == start and flight.planned_ranges is None:
            flight.planned_ranges = start.ranges
        return real(self, start)

    replace(stack, InFlightBatches, "complete", complete)


def end_unjudged(stack: ExitStack) -> None:
    """AvailableNow ends where every position is at its target or above, however its log looks."""
    replace(stack, SparkCalls, "_unjudged", lambda self, now: frozenset())


def end_where_nothing_can_be_planned(stack: ExitStack) -> None:
    """AvailableNow is given its start again while a commit is unanswered or the group rebalances."""
    real = SparkCalls._plan

    def plan(self: SparkCalls, document: Document, limits: Any, *, once: bool) -> Any:
        planned = yield from real(self, document, limits, once=once)
        return document if planned is None else planned

    replace(stack, SparkCalls, "_plan", plan)


# -- positions ---------------------------------------------------------------------------------------------------------


def ahead_without_the_run(stack: ExitStack) -> None:
    def proven(checkpoint: Document, run: str, metadata: Any) -> bool:
        same = metadata.lineage == checkpoint.lineage
        asked = checkpoint.run == run or metadata.asked == checkpoint.sequence
        return same and metadata.sequence < checkpoint.sequence and asked

    replace(stack, start_positions, "_proven", proven)


def ahead_from_the_logged_end(stack: ExitStack) -> None:
    """The checkpoint is taken to be at the end of the batch that is only being replayed."""
    real = InFlightBatches.replayed

    def replayed(self: InFlightBatches, start: Document, end: Document, *rest: Any) -> None:
        real(self, start, end, *rest)
        self.checkpoint = end

    replace(stack, InFlightBatches, "replayed", replayed)


def ahead_without_having_asked(stack: ExitStack) -> None:
    """A checkpoint counts as sunk although nobody ever asked for the data of its last batch."""

    def proven(checkpoint: Document, run: str, metadata: Any) -> bool:
        same = metadata.lineage == checkpoint.lineage and metadata.run == checkpoint.run
        return bool(same and metadata.sequence < checkpoint.sequence)

    replace(stack, start_positions, "_proven", proven)


def no_commit_at_once(stack: ExitStack) -> None:
    real = Held.move

    def move(self: Held, *where: Any) -> None:
        first = self.position is None
        real(self, *where)
        if first:
            self.committed = self.position

    replace(stack, StartPosition, "commit_at_once", property(lambda self: False))
    replace(stack, Held, "move", move)


def starting_offsets_for_all(stack: ExitStack) -> None:
    replace(
        stack,
        ledger_module,
        "applies_starting_offsets",
        lambda checkpoint, founding, generation: checkpoint == INITIAL_DOCUMENT,
    )


def fresh_initial_offset(stack: ExitStack) -> None:
    """Batch 0 is replayed from what `startingOffsets` means now, not from where it was planned."""
    real = replay_ranges

    def replay(document: Document, committed: Mapping[TopicPartition, CommittedOffset]) -> list[OffsetRange]:
        ranges = real(document, committed)
        return [] if document.sequence == 1 else ranges

    replace(stack, spark_calls, "replay_ranges", replay)


# -- planning ----------------------------------------------------------------------------------------------------------


def plan_while_a_commit_is_unanswered(stack: ExitStack) -> None:
    def settled(self: Ledger) -> bool:
        return all(held.position is not None for held in self.held.values())

    replace(stack, Ledger, "settled", property(settled))


def plan_without_a_lease(stack: ExitStack) -> None:
    """A member that has not been heard of for a session plans all the same."""

    def may_plan(self: Member, now: float) -> bool:
        return self.membership.can_plan and self.ledger.settled and self.ledger.idle

    replace(stack, Member, "may_plan", may_plan)


def replay_only_what_is_held(stack: ExitStack) -> None:
    """R13's filter drops what has moved away."""
    real_replay, real_ranges = SparkCalls._replay, replay_ranges
    held: set[TopicPartition] = set()

    def replay(document: Document, committed: Mapping[TopicPartition, CommittedOffset]) -> list[OffsetRange]:
        return [r for r in real_ranges(document, committed) if r.partition in held]

    def filtered(self: SparkCalls, *rest: Any) -> Any:
        held.clear()
        held.update(self._ledger.held)
        return real_replay(self, *rest)

    replace(stack, SparkCalls, "_replay", filtered)
    replace(stack, spark_calls, "replay_ranges", replay)


def undo_resets(stack: ExitStack) -> None:
    replace(stack, Held, "found_as_seen", lambda self, seen: True)


# -- rebalancing -------------------------------------------------------------------------------------------------------


def keep_across_a_missed_generation(stack: ExitStack) -> None:
    replace(stack, HeldAssignment, "precedes", lambda self, member_id, generation: member_id == self.member_id)


def believe_stale_answers(stack: ExitStack) -> None:
    """An OffsetFetch of an earlier generation counts."""
    real_forget, real_found = Member._forget_requests, Ledger.offsets_found

    def forget_requests(self: Member) -> None:
        fetching = self._fetching
        real_forget(self)
        self._fetching = fetching

    def offsets_found(self: Ledger, member_id: str, generation: int, *rest: Any) -> Any:
        return real_found(self, self.member_id, self.generation, *rest)

    replace(stack, Member, "_forget_requests", forget_requests)
    replace(stack, Ledger, "offsets_found", offsets_found)


def restarted_leader_does_not_watch(stack: ExitStack) -> None:
    real = Membership._assigned

    def assigned(self: Membership, *rest: Any) -> None:
        self._joined_anew = False
        real(self, *rest)

    replace(stack, Membership, "_assigned", assigned)


def rejoin_before_the_starts_are_committed(stack: ExitStack) -> None:
    replace(stack, Ledger, "settling", lambda self, topics: False)


def count_the_wait_from_the_batch(stack: ExitStack) -> None:
    """A batch that runs longer than any before it is given up as soon as a rebalance is announced."""

    def rejoin_due(
        rejoin_asked_at: float, asked_at: float | None, longest: float | None, wait: float, most: float, **_: bool
    ) -> float:
        latest = rejoin_asked_at + rejoining.rejoin_timeout_s(most)
        return latest if asked_at is None or longest is None else min(asked_at + longest + wait, latest)

    replace(stack, rejoining, "rejoin_due", rejoin_due)


def release_early(stack: ExitStack) -> None:
    """A cooperative member gives up what was revoked without waiting for its batch."""
    replace(stack, Ledger, "in_use", lambda self, partitions: False)


def forget_what_a_predecessor_held(stack: ExitStack) -> None:
    """A follower takes it that every partition has an owner, though some are on their way to another member."""
    real = read_overview

    def without_withheld(*given: Any, **named: Any) -> Any:
        overview = real(*given, **named)
        return None if overview is None else dataclasses.replace(overview, withheld=0)

    replace(stack, membership, "read_overview", without_withheld)


_BEYOND, _TWICE, _LOST = words.BEYOND_SUNK, words.DUPLICATE, words.LOST

BUGS: Mapping[str, Bug] = {
    "commit-before-sink": Bug("R15", "committed when handed out", commit_before_sink, frozenset({_BEYOND}), known=(5,)),
    "batch-0-fresh": Bug(
        "R1",
        "batch 0 replayed from a fresh start",
        fresh_initial_offset,
        frozenset({_LOST, _BEYOND}),
        known=(148,),
    ),
    "commit-not-held": Bug(
        "R16",
        "a partition committed that is no longer held",
        commit_what_is_not_held,
        frozenset({words.NON_MONOTONIC, words.TWO_OWNERS}),
        known=(3, 5),
    ),
    "old-generation": Bug(
        "C3",
        "a commit under an old generation accepted",
        accept_old_generations,
        frozenset({words.TWO_OWNERS, words.NON_MONOTONIC}),
        scenario="commit-stalls",
    ),
    "r5a-without-run": Bug(
        "R5",
        "(a) without the run",
        ahead_without_the_run,
        frozenset({_BEYOND, words.SKIPPED}),
        scenario="copies-and-reset",
    ),
    "r5a-logged-end": Bug(
        "R5", "(a) from the logged end", ahead_from_the_logged_end, frozenset({_BEYOND}), known=(93, 148, 198)
    ),
    "r6-removed": Bug(
        "R6",
        "a position is not committed at once",
        no_commit_at_once,
        frozenset({_LOST, _BEYOND, words.SKIPPED}),
        scenario="founder-dies",
    ),
    "r7-not-founding": Bug(
        "R7", "startingOffsets for all", starting_offsets_for_all, frozenset({_BEYOND}), known=(27,)
    ),
    "r9-unanswered": Bug(
        "R9",
        "plans while a commit is unanswered",
        plan_while_a_commit_is_unanswered,
        frozenset({_TWICE}),
        known=(58, 64, 68),
    ),
    "r11-unjudged": Bug(
        "R11",
        "AvailableNow ends with a position above its log's end",
        end_unjudged,
        frozenset({_LOST}),
        scenario="log-lost",
    ),
    "r10-start-again": Bug(
        "R10",
        "AvailableNow ends where nothing can be planned yet",
        end_where_nothing_can_be_planned,
        frozenset({words.ENDED_EARLY, words.LOST}),
        known=(94,),
    ),
    "r13-moved-away": Bug(
        "R13",
        "a replay drops what moved away",
        replay_only_what_is_held,
        frozenset({_LOST, _BEYOND}),
        known=(148, 198),
    ),
    "r16-reset-undone": Bug(
        "R16", "a reset undone by an old document", undo_resets, frozenset({_BEYOND}), scenario="reset-into-a-replay"
    ),
    "r17-believed": Bug(
        "R17", "a skipped batch believed", believe_skipped_batches, frozenset({_BEYOND}), known=(43, 94)
    ),
    "r18-missed-generation": Bug(
        "R18",
        "positions kept across a missed generation",
        keep_across_a_missed_generation,
        frozenset({words.NON_MONOTONIC, _TWICE}),
        scenario="generation-missed",
    ),
    "r18-stale-answers": Bug(
        "R18",
        "stale answers believed",
        believe_stale_answers,
        frozenset({_TWICE, words.NON_MONOTONIC}),
        scenario="old-answer",
    ),
    "r23-static-leader": Bug(
        "R23",
        "a restarted static leader misses new partitions",
        restarted_leader_does_not_watch,
        frozenset({_LOST}),
        scenario="static-leader",
    ),
    "r9-no-lease": Bug("R9", "plans without a lease", plan_without_a_lease, frozenset({_TWICE}), scenario="asleep"),
    "r20-not-asked": Bug(
        "R20", "(a) of a batch nobody asked for", ahead_without_having_asked, frozenset({_BEYOND}), known=(124, 165)
    ),
    "r6-rejoins-first": Bug(
        "R6",
        "a founder rejoins before its starts are committed",
        rejoin_before_the_starts_are_committed,
        frozenset({words.UNASKED}),
        scenario="founders-and-a-third",
    ),
    "r22-from-the-batch": Bug(
        "R22",
        "the wait for a batch is counted from its start",
        count_the_wait_from_the_batch,
        frozenset({_TWICE}),
        scenario="long-batch",
    ),
    "r25-released-early": Bug(
        "R25", "gives up before its batch has sunk", release_early, frozenset({_TWICE}), known=(5, 11)
    ),
    "r25-static-successor": Bug(
        "R25",
        "a static member's successor keeps what its predecessor was to give up",
        forget_what_a_predecessor_held,
        frozenset({_LOST}),
        scenario="successor",
    ),
    "off-by-one": Bug("C4", "a range's end off by one", range_end_off_by_one, frozenset({_BEYOND}), known=(0, 1)),
}

"""The ledger against a model of a broker, of Spark and of other members, in any order of events.

The model knows of each partition how far it has been sunk. Under any events no commit that the broker accepts, and no
position, is beyond that; nothing is planned before its start is committed; late answers change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamgroup.coordinator.planning.batch import replay_ranges
from streamgroup.errors import ConfigError
from streamgroup.group.commits import Commit, CommitMetadata, CommitVerdict
from streamgroup.group.holdings import summary_of
from streamgroup.group.ledger import Ledger
from streamgroup.model import INITIAL_DOCUMENT, CommittedOffset, Document, OffsetRange, Position, TopicPartition
from tests.unit.group.ledgers import A, B, C, document, ours, topics

PARTITIONS = (A, B, C)
TOPICS = topics()
BEFORE, LOGGED = document(4, "before", a=(90, 90), b=(40, 40)), document(5, "before", a=(90, 100), b=(40, 60))
some = st.just(frozenset(PARTITIONS)) | st.sets(st.sampled_from(PARTITIONS)).map(frozenset)


@dataclass
class OnItsWay:
    commit: Commit
    applied: bool


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store: dict[TopicPartition, CommittedOffset] = {}
        self.sunk = dict.fromkeys(PARTITIONS, 0)
        self.apart: dict[TopicPartition, list[tuple[int, int]]] = {tp: [] for tp in PARTITIONS}
        """The offsets that have sunk beyond records that have not."""
        self.start = INITIAL_DOCUMENT
        self.to_replay: Document | None = None
        self.flying: Document | None = None
        self.handed: tuple[OffsetRange, ...] | None = None
        self.void: set[TopicPartition] = set()
        self.replaying = False
        self.runs = 0
        self.generation = 0
        self.members = 0
        self.now = 0.0
        self.join_lost()

    def join_lost(self) -> None:
        self.runs += 1
        self.ledger = Ledger("g", f"run-{self.runs}", "lineage")
        self.in_group = False
        self.fetches: list[tuple[str, int, dict[TopicPartition, CommittedOffset]]] = []
        self.commits: list[OnItsWay] = []

    # -- how a query starts -------------------------------------------------------------------------------------------

    @initialize(case=st.sampled_from(["fresh", "replay", "sunk", "skipped"]))
    def begin(self, case: str) -> None:
        if case != "fresh":
            asked = 4 if case == "skipped" else 5
            self.store = {A: ours(90, asked=asked), B: ours(40, asked=asked)}
            self.sunk |= {A: 100, B: 60} if case == "sunk" else {A: 90, B: 40}
            self.start = BEFORE if case == "replay" else LOGGED
            self.to_replay = LOGGED if case == "replay" else None

    @rule(farewell=st.booleans())
    def restart(self, farewell: bool) -> None:
        if farewell and self.in_group:
            commit = self.ledger.commit_due(self.now, everything=True)
            if commit is not None:
                self.arrive(commit)
        if self.flying is not None and self.start != self.flying:
            self.to_replay = self.flying
        self.flying, self.handed, self.replaying = None, None, False
        self.void.clear()
        self.join_lost()

    # -- the group ----------------------------------------------------------------------------------------------------

    @rule(partitions=some, keep=st.booleans(), abandoned=st.booleans(), cooperative=st.booleans())
    def assign(self, partitions: frozenset[TopicPartition], keep: bool, abandoned: bool, cooperative: bool) -> None:
        held = frozenset(self.ledger.held) if self.in_group and keep else frozenset()
        kept, revoked = held & partitions, held - partitions if cooperative else frozenset()
        if abandoned and not cooperative:
            self.ledger.abandoned()
        if not self.in_group or not keep:
            self.members += 1
        self.generation += 1
        self.in_group = True
        self.ledger.assigned(f"member-{self.members}", self.generation, sorted(partitions), kept, revoked)
        assert self.ledger.positions().keys() <= partitions, "what is to be given up is planned no more"

    @rule(proven=st.booleans())
    def give_up(self, proven: bool) -> None:
        """R25: when it has sunk and is committed, or (R22) when nobody tells so."""
        leaving = [tp for tp, held in self.ledger.held.items() if held.leaving]
        if not proven or not self.ledger.in_use(leaving):
            self.ledger.give_up(leaving)

    @rule()
    def lose(self) -> None:
        self.ledger.lost()
        self.in_group = False

    @rule(tp=st.sampled_from(PARTITIONS), count=st.integers(0, 15))
    def another_member_reads_and_leaves(self, tp: TopicPartition, count: int) -> None:
        if tp in self.ledger.held:
            return
        at = self.store[tp].offset if tp in self.store else 0
        self.sank(tp, at, at + count)
        text = CommitMetadata("other", "other", 3, 3, 1, "id").text()
        self.store[tp] = CommittedOffset(at + count, text)

    @precondition(lambda self: not self.in_group and not self.replaying)
    @rule(tp=st.sampled_from(PARTITIONS), by=st.integers(-30, 15))
    def an_operator_resets(self, tp: TopicPartition, by: int) -> None:
        """Only a group without members takes it. Reports about older documents do not count from here on."""
        offset = max(0, by + (self.store[tp].offset if tp in self.store else 0))
        self.store[tp] = CommittedOffset(offset)
        self.sunk[tp], self.apart[tp] = offset, []
        if self.flying is not None:
            self.void.add(tp)

    @precondition(lambda self: self.in_group)
    @rule(
        event=st.sampled_from(["nothing", "another member", "an operator"]),
        tp=st.sampled_from((A, B)),
        by=st.integers(0, 9),
    )
    def the_session_expires_and_it_joins_again(self, event: str, tp: TopicPartition, by: int) -> None:
        self.lose()
        if event == "another member":
            self.another_member_reads_and_leaves(tp, by)
        elif event == "an operator" and not self.replaying:
            self.an_operator_resets(tp, by)
        self.assign(frozenset(PARTITIONS), False, False, False)
        self.all_goes_well()

    # -- answers, in any order ----------------------------------------------------------------------------------------

    @precondition(lambda self: self.ledger.offsets_wanted(TOPICS))
    @rule()
    def fetch(self) -> None:
        self.fetches.append((self.ledger.member_id, self.ledger.generation, dict(self.store)))

    @precondition(lambda self: self.fetches)
    @rule(data=st.data())
    def fetched(self, data: Any) -> None:
        at = data.draw(st.integers(0, len(self.fetches) - 1))
        member_id, generation, commits = self.fetches.pop(at)
        before = repr(self.ledger.held)
        starts = self.ledger.offsets_found(member_id, generation, commits, TOPICS)
        if (member_id, generation) != (self.ledger.member_id, self.ledger.generation):
            assert starts == {}
            assert repr(self.ledger.held) == before

    @rule()
    def the_log_tells(self) -> None:
        self.ledger.resolved(self.generation - 1, dict.fromkeys(PARTITIONS, 10**6))
        self.ledger.resolved(self.generation, dict.fromkeys(self.ledger.unresolved, 0))

    @precondition(lambda self: self.in_group)
    @rule(arrives=st.booleans())
    def commit(self, arrives: bool) -> None:
        commit = self.ledger.commit_due(self.now)
        if commit is None:
            return
        assert commit.offsets.keys() <= self.ledger.held.keys()
        if arrives:
            self.arrive(commit)
        self.commits.append(OnItsWay(commit, arrives))

    @precondition(lambda self: self.in_group)
    @rule()
    def all_goes_well(self) -> None:
        """Each question is answered at once."""
        ledger = self.ledger
        if ledger.offsets_wanted(TOPICS):
            ledger.offsets_found(ledger.member_id, ledger.generation, dict(self.store), TOPICS)
        self.the_log_tells()
        commit = ledger.commit_due(self.now)
        if commit is not None:
            self.arrive(commit)
            ledger.answered(commit, CommitVerdict.ACCEPTED, self.now)

    def arrive(self, commit: Commit) -> None:
        assert (commit.member_id, commit.generation) == (f"member-{self.members}", self.generation)
        for tp, offset in commit.offsets.items():
            assert offset.offset <= self.sunk[tp], f"{tp}: committed {offset.offset}, sunk {self.sunk[tp]}"
        self.store |= commit.offsets

    @precondition(lambda self: self.commits)
    @rule(data=st.data())
    def committed(self, data: Any) -> None:
        sent = self.commits.pop(data.draw(st.integers(0, len(self.commits) - 1)))
        stale = (sent.commit.member_id, sent.commit.generation) != (self.ledger.member_id, self.ledger.generation)
        before = repr(self.ledger.held), self.ledger.commit_pending
        self.ledger.answered(sent.commit, CommitVerdict.ACCEPTED if sent.applied else CommitVerdict.RETRY, self.now)
        if stale or not self.in_group:
            assert (repr(self.ledger.held), self.ledger.commit_pending) == before

    # -- Spark --------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.to_replay is None)
    @rule(counts=st.lists(st.integers(0, 20), min_size=3, max_size=3))
    def latest_offset(self, counts: list[int]) -> None:
        if self.flying is not None and self.start != self.flying:
            return
        self.ledger.complete_batch(self.start)
        self.flying, self.handed = None, None
        self.void.clear()
        if not (self.in_group and self.ledger.settled and self.ledger.idle):
            return
        positions = self.ledger.positions()
        for tp, position in positions.items():
            assert self.store[tp].offset == position.offset, "planned from a position that is not committed (R6, R9)"
        wanted = zip(positions.items(), counts, strict=False)
        ranges = tuple(OffsetRange(tp, p.offset, p.offset + count) for (tp, p), count in wanted if count)
        if ranges:
            after = {r.partition: Position(r.until, "id") for r in ranges}
            self.flying = Document(
                "g", self.ledger.lineage, self.ledger.run, self.start.sequence + 1, ranges, positions | after
            )
            self.ledger.emitted(self.flying)
            self.replaying = False

    @precondition(lambda self: self.in_group and self.to_replay is None)
    @rule(sinks=st.booleans())
    def a_batch_goes_out(self, sinks: bool) -> None:
        self.all_goes_well()
        self.latest_offset([10, 10, 10])
        if self.flying is not None and self.handed is None:
            self.partitions()
            if sinks:
                self.sink()

    @precondition(lambda self: self.flying is not None and self.handed is None)
    @rule()
    def partitions(self) -> None:
        assert self.flying is not None
        assert self.ledger.is_planned_here(self.flying)
        self.handed = self.ledger.handed_out(self.flying)

    @precondition(lambda self: self.to_replay is not None)
    @rule()
    def partitions_of_a_replay(self) -> None:
        assert self.to_replay is not None
        self.flying, self.to_replay, self.replaying = self.to_replay, None, True
        self.handed = tuple(replay_ranges(self.flying, self.store))
        self.ledger.replayed(self.start, self.flying, self.handed, self.store)

    @precondition(lambda self: self.handed is not None and self.start != self.flying)
    @rule()
    def sink(self) -> None:
        assert self.flying is not None
        for r in self.handed or ():
            if r.partition not in self.void:
                self.sank(r.partition, r.start, r.until)
        self.start = self.flying

    def sank(self, tp: TopicPartition, start: int, until: int) -> None:
        self.apart[tp].append((start, until))
        for first, end in sorted(self.apart[tp]):
            if first <= self.sunk[tp]:
                self.sunk[tp] = max(self.sunk[tp], end)

    @precondition(lambda self: self.flying is not None and self.handed is None)
    @rule(farewell=st.booleans())
    def the_sink_skips_the_batch(self, farewell: bool) -> None:
        assert self.flying is not None
        self.start = self.flying
        with pytest.raises(ConfigError, match="skipped"):
            self.ledger.complete_batch(self.start)
        self.restart(farewell)

    # -- always -------------------------------------------------------------------------------------------------------

    @invariant()
    def no_position_is_beyond_what_has_sunk(self) -> None:
        for tp, position in self.ledger.positions().items():
            assert position.offset <= self.sunk[tp], f"{tp}: at {position.offset}, sunk {self.sunk[tp]}"

    @invariant()
    def what_is_kept_of_the_partitions_is_what_they_are(self) -> None:
        """The ledger answers from a summary: no change of a partition may leave an old one behind."""
        held = self.ledger.held
        assert self.ledger.partitions() == tuple(sorted(held))
        assert self.ledger.positions() == summary_of(held).positions
        assert self.ledger.commit_pending == (self.ledger.commits.unfinished or any(one.dirty for one in held.values()))
        assert self.ledger.settled == (
            all(h.position is not None for h in held.values()) and not self.ledger.commit_pending
        )
        awaiting = [tp for tp, one in held.items() if one.origin is None]
        assert self.ledger.offsets_wanted(TOPICS) == (bool(awaiting) and self.ledger.started)

    @rule(epoch=st.integers(0, 3))
    def the_logs_are_checked(self, epoch: int) -> None:
        self.ledger.vouched(dict.fromkeys(PARTITIONS, epoch))


TestLedger = pytest.mark.slow(LedgerMachine.TestCase)
TestLedger.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

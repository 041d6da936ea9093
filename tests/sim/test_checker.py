"""The checker is not blind: what each of its words means, shown to it directly."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, cast

import pytest

from streamgroup.group.commits import FIRST_EPOCH
from streamgroup.model import CommittedOffset, Document, OffsetRange, Position, TopicPartition
from tests.sim import checker as words
from tests.sim.broker import Logs
from tests.sim.checker import Checker, Violation
from tests.sim.clock import SimulatedClock
from tests.sim.settings import QuerySettings

TP = TopicPartition("a", 0)


class FakeQuery:
    def __init__(self, name: str) -> None:
        self.name = name
        self.settings = QuerySettings(name)
        self.instance_id = None
        self.is_haunted = False
        self.process = None


class FakeKeeper:
    def is_replaced(self, process: Any) -> bool:
        return False

    def behind(self) -> list[TopicPartition]:
        return []

    def is_put_out(self, process: Any) -> bool:
        return False


class FakeWorld:
    keeper = FakeKeeper()


class FakeSilence:
    is_missing = False


class FakeProcess:
    world = FakeWorld()
    silence = FakeSilence()

    def __init__(self, name: str) -> None:
        self.name = name
        self.query = FakeQuery(name)
        self.licensed: set[int] = set()
        self.is_in_the_group = True


class Play:
    """A story told to the checker."""

    def __init__(self, end: int = 100) -> None:
        self.logs = Logs({"a": 1})
        self.logs.produce(TP, end)
        self.checker = Checker(SimulatedClock(), self.logs)
        self.p, self.q = cast(Any, FakeProcess("p")), cast(Any, FakeProcess("q"))

    def plan(self, process: Any, start: int, until: int) -> None:
        self.checker.looked(process, {TP: Position(start)})
        document = Document("g", "l", "r", 1, (OffsetRange(TP, start, until),), {TP: Position(until)})
        self.checker.planned(process, document)

    def sink(self, process: Any, number: int, start: int, until: int) -> None:
        self.checker.delivered(process, number, OffsetRange(TP, start, until))

    def commit(self, process: Any, offset: int, generation: int = 1, member_id: str = "m-1") -> None:
        self.checker.committed(process, member_id, generation, {TP: offset})

    def finish(self, *running: Any) -> None:
        """All is calm, and these processes run."""
        for process in running:
            process.query.process = process
        queries = [process.query for process in running]
        self.checker.finish(cast(Any, type("World", (), {"queries": queries, "keeper": FakeKeeper()})))


def violated(word: str) -> Any:
    return pytest.raises(Violation, match=f"^{word}")


def test_what_has_sunk_may_be_committed_and_no_more() -> None:
    play = Play()
    play.plan(play.p, 0, 10)
    play.sink(play.p, 0, 0, 10)
    play.commit(play.p, 10)
    with violated(words.BEYOND_SUNK):
        play.commit(play.p, 11)


def test_a_hole_counts_however_much_has_sunk_above_it() -> None:
    play = Play()
    play.sink(play.p, 0, 0, 4)
    play.sink(play.p, 0, 5, 10)
    with violated(words.BEYOND_SUNK):
        play.commit(play.p, 10)


def test_a_commit_never_goes_back() -> None:
    play = Play()
    play.sink(play.p, 0, 0, 10)
    play.commit(play.p, 10)
    with violated(words.NON_MONOTONIC):
        play.commit(play.p, 9)


@pytest.mark.parametrize(("generation", "member_id"), [(2, "m-2"), (1, "m-1"), (1, "m-9")])
def test_one_owner_a_generation_and_none_of_an_older_one(generation: int, member_id: str) -> None:
    play = Play()
    play.commit(play.p, 0, 2, "m-1")
    with violated(words.TWO_OWNERS):
        play.commit(play.q, 0, generation, member_id)


def test_a_static_members_successor_owns_what_it_owned_but_not_the_other_way_round() -> None:
    play = Play()
    play.commit(play.p, 0, 1, "s-1")
    play.commit(play.q, 0, 1, "s-2")
    with violated(words.TWO_OWNERS):
        play.commit(play.p, 0, 1, "s-1")


def test_a_plan_below_the_commit_is_a_duplicate_and_one_beyond_what_has_sunk_skips() -> None:
    play = Play()
    play.sink(play.p, 0, 0, 10)
    play.commit(play.p, 10)
    with violated(words.DUPLICATE):
        play.plan(play.p, 9, 12)
    with violated(words.SKIPPED):
        play.plan(play.p, 11, 12)


def test_a_batch_delivered_again_needs_an_interruption() -> None:
    for licensed in (False, True):
        play = Play(10)
        play.sink(play.p, 7, 0, 10)
        play.sink(play.q, 1, 0, 10)
        play.commit(play.q, 10)
        if licensed:
            play.p.licensed.add(7)
            play.finish()
            assert play.checker.duplicates == 10
        else:
            with violated(words.DUPLICATE):
                play.finish()


def test_a_batch_that_sinks_after_its_records_were_committed_by_another_is_repeated() -> None:
    play = Play(10)
    play.sink(play.q, 0, 0, 10)
    play.commit(play.q, 10)
    play.sink(play.p, 3, 5, 10)
    with violated(words.DUPLICATE):
        play.finish()


def test_what_never_sinks_is_lost_and_what_is_never_committed_stuck() -> None:
    play = Play(10)
    play.sink(play.p, 0, 0, 9)
    with violated(words.LOST):
        play.finish()
    play.sink(play.p, 0, 9, 10)
    with violated(words.STUCK):
        play.finish()


def test_starting_at_latest_is_licensed_while_nothing_is_committed() -> None:
    play = Play()
    play.checker.resolved(play.p, 1, TP, 60, starting=True)
    play.commit(play.p, 60)
    assert play.checker.track(TP).frontier == 60


def test_starting_at_latest_is_not_licensed_in_a_later_generation() -> None:
    play = Play()
    other = TopicPartition("a", 1)
    play.logs.add_partitions("a", 1)
    play.checker.committed(play.q, "m-1", 1, {other: 0})
    play.checker.resolved(play.p, 2, TP, 60, starting=True)
    with violated(words.BEYOND_SUNK):
        play.commit(play.p, 60, 2)


@pytest.mark.parametrize(("since", "licensed"), [(1, True), (3, True), (4, False)])
def test_starting_at_latest_is_licensed_for_what_a_member_had_before_the_first_commit(
    since: int, licensed: bool
) -> None:
    """Another member, of epoch 3, is the first to commit. This one has had its partition since epoch `since`."""
    play = Play()
    play.logs.add_partitions("a", 1)
    play.checker.committed(play.q, "m-2", 3, {TopicPartition("a", 1): 0}, FIRST_EPOCH + 3)
    play.checker.resolved(play.p, FIRST_EPOCH + since, TP, 60, starting=True)
    with nullcontext() if licensed else violated(words.BEYOND_SUNK):
        play.checker.committed(play.p, "m-1", 3, {TP: 60}, FIRST_EPOCH + since)


def test_a_founder_that_is_still_in_the_group_commits_where_its_partitions_start() -> None:
    play, other = Play(), TopicPartition("a", 1)
    play.logs.add_partitions("a", 1)
    play.checker.assigned(play.p, 1, [TP])
    play.checker.resolved(play.q, 1, TP, 0, starting=False)  # nothing is founded yet
    play.checker.committed(play.q, "m-1", 1, {other: 0})
    with violated(words.UNASKED):
        play.checker.resolved(play.q, 2, TP, 0, starting=False)
    play.p.is_in_the_group = False
    play.checker.resolved(play.q, 2, TP, 0, starting=False)
    play.p.is_in_the_group = True
    play.checker.excuse(play.p)
    play.checker.resolved(play.q, 2, TP, 0, starting=False)


def test_a_group_that_an_operators_reset_has_founded_has_no_founder() -> None:
    play, other = Play(), TopicPartition("a", 1)
    play.logs.add_partitions("a", 1)
    play.checker.assigned(play.p, 1, [TP])
    play.checker.reset(other, None, 0)
    play.checker.committed(play.q, "m-1", 1, {other: 0})
    play.checker.resolved(play.p, 2, TP, 0, starting=False)


def test_who_plans_has_fixed_the_start_for_all() -> None:
    play = Play()
    play.checker.resolved(play.p, 1, TP, 50, starting=True)
    play.plan(play.p, 50, 60)
    play.checker.resolved(play.q, 2, TP, 60, starting=True)
    with violated(words.SKIPPED):
        play.plan(play.q, 60, 70)


@pytest.mark.parametrize("to", [3, 30])
def test_after_a_reset_everything_from_there_on_has_to_come(to: int) -> None:
    play = Play()
    play.sink(play.p, 0, 0, 20)
    play.commit(play.p, 10)
    play.checker.reset(TP, CommittedOffset(10), to)
    with violated(words.BEYOND_SUNK):
        play.commit(play.q, to + 1)
    play.sink(play.q, 1, to, to + 1)
    play.commit(play.q, to + 1)


def test_a_start_that_was_never_committed_is_void_when_the_partition_is_looked_up_anew() -> None:
    play = Play()
    play.checker.resolved(play.p, 1, TP, 60, starting=True)
    play.checker.resolved(play.p, 3, TP, 0, starting=False)
    play.commit(play.p, 0, 3)
    with pytest.raises(Violation, match=words.BEYOND_SUNK):
        play.commit(play.p, 60, 3)


def test_a_violation_is_not_taken_for_an_error_of_the_query() -> None:
    """The run makes every Exception that is raised in its tasks the error of the query."""
    assert not issubclass(Violation, Exception)


def test_a_silent_member_and_two_of_one_lineage_are_violations() -> None:
    play = Play()
    with violated(words.SILENT):
        play.checker.stays_silent(play.p)
    with violated(words.TWINS):
        play.checker.has_twins(play.p, play.q)

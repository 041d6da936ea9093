"""The checker of a group in ZooKeeper: real consumers may do what our members may not."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.model import OffsetRange, Position
from tests.sim import checker as words
from tests.sim.checker import Violation
from tests.sim.test_checker import TP, Play, violated


class RegistryPlay(Play):
    """A story of a group in ZooKeeper."""

    def __init__(self) -> None:
        super().__init__()
        for process in (self.p, self.q):
            process.ledger = type("Ledger", (), {"generation": 1})()

    def commit_in_zookeeper(self, process: Any, offset: int, *, owned: bool = True) -> None:
        self.checker.registered(process, {TP: offset}, {TP} if owned else set())

    def consume(self, start: int, until: int) -> None:
        self.checker.consumed(OffsetRange(TP, start, until))

    def commit_of_consumer(self, offset: int, *, owns: bool = True) -> None:
        self.checker.committed_by_consumer("c", {TP: offset}, owns=owns)


def test_only_the_owner_commits() -> None:
    play = RegistryPlay()
    play.sink(play.p, 0, 0, 10)
    play.commit_in_zookeeper(play.p, 5)
    with violated(words.TWO_OWNERS):
        play.commit_in_zookeeper(play.p, 10, owned=False)


def test_whose_owner_node_a_real_consumer_has_deleted_may_commit_until_it_claims_anew() -> None:
    play = RegistryPlay()
    play.sink(play.p, 0, 0, 10)
    play.checker.disowned(play.p, TP)
    play.commit_in_zookeeper(play.p, 10, owned=False)
    play.checker.gives_up(play.p)
    with violated(words.TWO_OWNERS):
        play.commit_in_zookeeper(play.p, 10, owned=False)


def test_what_a_real_consumer_hands_on_has_sunk_and_may_be_handed_on_again() -> None:
    play = RegistryPlay()
    play.consume(0, 60)
    play.consume(30, 100)
    play.commit_of_consumer(100)
    play.finish()
    assert not play.checker.duplicates


def test_a_real_consumer_may_commit_backwards_and_a_member_goes_on_from_there() -> None:
    play = RegistryPlay()
    play.consume(0, 50)
    play.commit_of_consumer(50)
    play.commit_of_consumer(30)
    play.plan(play.p, 30, 100)
    play.sink(play.p, 0, 30, 100)
    play.commit_in_zookeeper(play.p, 100)
    play.finish()


def test_a_real_consumer_may_not_commit_beyond_what_has_sunk() -> None:
    play = RegistryPlay()
    play.consume(0, 50)
    with violated(words.BEYOND_SUNK):
        play.commit_of_consumer(51)


def test_a_member_does_not_commit_backwards_by_itself() -> None:
    play = RegistryPlay()
    play.consume(0, 50)
    play.commit_of_consumer(50)
    with violated(words.NON_MONOTONIC):
        play.commit_in_zookeeper(play.p, 40)


def test_below_what_a_real_consumer_commits_that_owns_nothing_the_owner_may_plan_and_commit() -> None:
    play = RegistryPlay()
    play.consume(0, 80)
    play.commit_of_consumer(80, owns=False)
    play.plan(play.p, 50, 60)
    play.sink(play.p, 0, 50, 60)
    play.commit_in_zookeeper(play.p, 60)
    with violated(words.NON_MONOTONIC):
        play.commit_in_zookeeper(play.p, 50)


def test_an_offset_that_another_sets_back_stays_while_its_owner_has_nothing_to_commit() -> None:
    play = RegistryPlay()
    play.sink(play.p, 0, 0, 100)
    play.commit_in_zookeeper(play.p, 100)
    play.commit_of_consumer(60, owns=False)
    with violated(words.STUCK):
        play.finish()
    play.p.ledger.positions = lambda: {TP: Position(100)}
    play.finish(play.p)
    play.commit_of_consumer(60)
    with violated(words.STUCK):
        play.finish(play.p)


def test_a_members_batch_that_another_member_repeats_counts_beside_what_real_consumers_repeat() -> None:
    play = RegistryPlay()
    play.sink(play.p, 0, 0, 100)
    play.consume(0, 100)
    play.sink(play.q, 7, 0, 100)
    play.commit_in_zookeeper(play.q, 100)
    with violated(words.DUPLICATE):
        play.finish()


@pytest.mark.parametrize("is_licensed", [True, False])
def test_of_a_late_commit_to_kafka_the_batch_of_its_sender_is_the_repeated_one(is_licensed: bool) -> None:
    """The owner fetched the offsets before that commit came. The sender has lost the partition with its batch (R35)."""
    play = RegistryPlay()
    play.sink(play.p, 3, 0, 12)
    play.sink(play.q, 2, 0, 100)
    play.checker.stored(play.p, {TP: 12}, {TP: 12}, owned=(), fenced={TP})
    play.checker.stored(play.q, {TP: 100}, {TP: 100}, owned={TP}, fenced={TP})
    if is_licensed:
        play.p.licensed.add(3)
        play.finish()
    else:
        with pytest.raises(Violation, match=r"^duplicate at .* p: batches \[3\] were delivered again"):
            play.finish()


def test_a_start_at_the_end_is_licensed_for_a_member_that_found_no_commit() -> None:
    play = RegistryPlay()
    for process in (play.p, play.q):
        process.ledger.generation = 1 if process is play.p else 2
        play.checker.told(process, nothing=process is play.p)
        play.checker.resolved(process, process.ledger.generation, TP, 100, starting=process is play.p)
    play.commit_in_zookeeper(play.p, 100)
    play.finish()


def test_a_start_at_the_end_of_a_later_generation_loses_what_is_below() -> None:
    play = RegistryPlay()
    play.consume(0, 10)
    play.commit_of_consumer(10)
    play.checker.told(play.q, nothing=False)
    play.checker.resolved(play.q, 2, TP, 100, starting=True)
    with violated(words.SKIPPED):
        play.plan(play.q, 100, 100)

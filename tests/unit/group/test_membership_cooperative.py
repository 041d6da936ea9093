"""One cooperative member (R25): what it keeps on with while it joins, and when it stops to. How long a member waits."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.errors import ErrorCode, FencedError
from streamgroup.group import events as ev
from streamgroup.group.rejoining import BatchTimes, RejoinWait, gave_up_waiting, rejoin_due
from streamgroup.group.state_machine import State
from streamgroup.kafka.wire.consumer import ConsumerSubscription, decode_subscription, each_partition
from streamgroup.kafka.wire.messages.group import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse
from streamgroup.model import TopicPartition
from tests.unit.group.drivers import Driver, assignment_of, coordinator_is, group_of, subscription_of, topics, tps


class Cooperative(Driver):
    """A machine that offers nothing but cooperative-sticky."""

    strategy = "cooperative-sticky"

    def __init__(self, **config: Any) -> None:
        super().__init__(strategies=(self.strategy,), **config)

    def told(self) -> ConsumerSubscription:
        (protocol,) = self.request("JoinGroup").protocols
        return decode_subscription(protocol.metadata)

    def owned(self) -> tuple[tuple[TopicPartition, ...], int]:
        return each_partition(self.told().owned_partitions), self.told().generation_id


def holding(*numbers: int, generation: int = 4) -> Cooperative:
    """It holds these of topic t, and its first heartbeat was accepted."""
    d = Cooperative()
    d.stable(tps("t", *numbers), generation=generation)
    d.beat()
    return d


def rejoining(*numbers: int) -> Cooperative:
    d = holding(*numbers)
    d.step(ev.Planned())
    d.tick(3)
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    return d


def synced(d: Cooperative, *numbers: int) -> ev.Assigned:
    d.answer(SyncGroupResponse(assignment=assignment_of(tps("t", *numbers))))
    assigned = d.only(ev.Assigned)
    assert isinstance(assigned, ev.Assigned)
    return assigned


# -- joining ----------------------------------------------------------------------------------------------------------


def test_asked_to_rejoin_in_a_batch_it_joins_at_once_and_keeps_on_with_what_it_holds() -> None:
    d = rejoining(0, 1)
    assert d.only(ev.Joining) == ev.Joining("the group rebalances", abandoned=False, keeps=True)
    assert d.owned() == (tuple(tps("t", 0, 1)), 4)
    assert d.machine.can_plan
    assert d.machine.may_commit
    assert d.machine.lease_at == d.now - 3, "being told to rejoin proves nothing (R9)"
    d.joined(5)
    assert (d.machine.can_plan, d.machine.may_commit) == (True, False), "commits wait for the assignment"
    assigned = synced(d, 0, 1, 2)
    assert (assigned.kept, assigned.revoked) == (frozenset(tps("t", 0, 1)), frozenset())
    assert d.machine.lease_at == d.now - 3, "still the same membership"
    assert d.machine.can_plan


def test_a_heartbeat_that_was_out_when_it_joined_still_counts() -> None:
    d = holding(0)
    d.tick(3)
    sent_at = d.now
    d.step(ev.CommitRefused(ErrorCode.REBALANCE_IN_PROGRESS, "me", 4, d.now), after=1)
    assert d.machine.state is State.JOINING
    d.beat(after=1)
    assert d.machine.lease_at == sent_at


def test_a_heartbeat_of_the_generation_before_says_nothing_about_the_next_one() -> None:
    d = holding(0)
    d.tick(3)
    old = d.out["Heartbeat"]
    d.step(ev.CommitRefused(ErrorCode.REBALANCE_IN_PROGRESS, "me", 4, d.now))
    d.joined(5)
    before = d.machine.lease_at
    for code in (0, ErrorCode.ILLEGAL_GENERATION):
        d.step(ev.RequestAnswered(old.token, type("Beat", (), {"error_code": code})(), 4))
    assert (d.machine.state, d.machine.lease_at) == (State.SYNCING, before)


def test_a_commit_accepted_while_the_group_gathers_proves_the_membership() -> None:
    d = rejoining(0)
    d.step(ev.CommitAccepted("me", 4, d.now - 1))
    assert d.machine.lease_at == d.now - 1
    d.step(ev.CommitAccepted("me", 3, d.now))
    assert d.machine.lease_at == d.now - 1


@pytest.mark.parametrize(
    "code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID]
)
def test_a_commit_refused_while_it_joins_is_for_the_join_group_to_tell(code: int) -> None:
    d = rejoining(0)
    d.step(ev.CommitRefused(code, "me", 4, d.now))
    assert d.machine.state is State.JOINING
    assert not d.has(ev.Lost)


def test_no_heartbeats_are_sent_while_the_join_group_is_out() -> None:
    """As in Java: the coordinator keeps a member alive whose JoinGroup it holds."""
    d = rejoining(0)
    for _ in range(40):
        d.tick(5)
        assert not d.has(ev.Send)


# -- giving up --------------------------------------------------------------------------------------------------------


def test_what_is_revoked_is_given_up_when_its_batch_is_done_and_then_it_joins_again() -> None:
    d = rejoining(0, 1, 2)
    d.joined(5)
    assigned = synced(d, 0, 1)
    assert assigned.revoked == d.machine.revoking == frozenset(tps("t", 2))
    assert assigned.line("g").endswith(": keeps 2, gains 0, gives up 1 after its batch")
    d.step(ev.Idle())
    assert not d.has(ev.Joining), "what is in use only the ledger knows"
    d.step(ev.RevocationCompleted())
    gives_up = frozenset(tps("t", 2))
    assert d.only(ev.Joining) == ev.Joining(
        "gives up t-2", abandoned=False, keeps=True, gives_up=gives_up, cause=ev.JoinCause.REVOKED
    )
    assert d.owned() == (tuple(tps("t", 0, 1)), 5)
    d.joined(6)
    assert synced(d, 0, 1).kept == set(tps("t", 0, 1))


def test_asked_to_rejoin_before_the_batch_is_done_it_still_owns_what_it_is_to_give_up() -> None:
    d = rejoining(0, 1)
    d.joined(5)
    synced(d, 0)
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert d.only(ev.Joining).gives_up == frozenset()
    assert d.owned() == (tuple(tps("t", 0, 1)), 5)
    assert d.machine.revoking == frozenset()
    d.step(ev.RevocationCompleted())
    assert d.machine.state is State.JOINING
    d.joined(6)
    assert synced(d, 0).revoked == set(tps("t", 1))


def test_without_proof_it_gives_up_after_as_long_as_it_would_wait_to_rejoin() -> None:
    d = rejoining(0, 1)
    d.step(ev.Asked())
    d.joined(5)
    synced(d, 0)
    d.beat()
    for _ in range(98):
        d.tick(3)
        d.beat()
    assert d.machine.revoking
    d.tick(1.1)
    assert d.only(ev.Joining).gives_up == set(tps("t", 1))
    assert not d.only(ev.Joining).abandoned, "what is kept goes on"


# -- when it stops ----------------------------------------------------------------------------------------------------


def test_a_join_group_without_an_answer_may_have_been_heard() -> None:
    d = rejoining(0)
    d.fail("JoinGroup")
    assert (d.machine.can_plan, d.machine.lease_at) == (False, None)
    assert not d.has(ev.Lost)
    d.tick(0.2)
    d.answer(coordinator_is(3))
    assert d.owned() == (tuple(tps("t", 0)), 4)
    d.joined(5)
    assert synced(d, 0).kept == set(tps("t", 0)), "the generation directly after, the same member (R18)"


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_join_group_that_was_refused_was_not_heard_and_it_goes_on(code: int) -> None:
    d = rejoining(0)
    d.answer(JoinGroupResponse(error_code=code, protocol_name=""))
    assert d.machine.can_plan
    assert d.machine.may_commit


@pytest.mark.parametrize("generation", [6, 9])
def test_after_a_missed_generation_it_stops_and_gains_everything(generation: int) -> None:
    d = rejoining(0, 1)
    d.joined(generation)
    assert not d.machine.can_plan
    assigned = synced(d, 0)
    assert (assigned.kept, assigned.revoked) == (frozenset(), frozenset())
    assert d.machine.lease_at is None
    reason = d.only(ev.Joining).reason
    assert "other members wait for 1 partition" in reason, "the leader keeps what was claimed from them"
    assert d.owned() == (tuple(tps("t", 0)), generation)


def test_a_sync_group_that_came_too_late_stops_it_but_loses_nothing_yet() -> None:
    d = rejoining(0)
    d.joined(5)
    d.answer(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    assert d.only(ev.Joining) == ev.Joining("REBALANCE_IN_PROGRESS", abandoned=False)
    assert not d.machine.can_plan
    d.tick(0.2)
    assert d.owned() == (tuple(tps("t", 0)), 4), "as of the generation in which it got them"
    d.joined(6)
    assert synced(d, 0).kept == frozenset()


@pytest.mark.parametrize("to", ["JoinGroup", "SyncGroup"])
def test_put_out_of_the_group_while_it_joins_it_loses_everything(to: str) -> None:
    d = rejoining(0)
    if to == "JoinGroup":
        d.answer(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, protocol_name=""))
    else:
        d.joined(5)
        d.answer(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    assert d.only(ev.Lost).reason == "UNKNOWN_MEMBER_ID"
    assert not d.machine.can_plan
    d.tick(0.2)
    assert d.owned() == ((), -1)
    assert d.request("JoinGroup").member_id == ""


@pytest.mark.parametrize("how", ["heartbeat", "session"])
def test_lost_while_stable_it_owns_nothing_when_it_joins(how: str) -> None:
    d = holding(0)
    if how == "heartbeat":
        d.tick(3)
        d.beat(ErrorCode.ILLEGAL_GENERATION)
    else:
        d.tick(45)
    assert d.has(ev.Lost)
    assert d.only(ev.Joining).keeps is False
    assert d.owned() == ((), -1)


def test_fenced_while_it_joins_the_query_ends() -> None:
    d = Cooperative(instance_id="node-1")
    d.stable(tps("t", 0))
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    d.answer(JoinGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, protocol_name=""))
    assert isinstance(d.only(ev.Fail).error, FencedError)
    assert (d.machine.can_plan, d.machine.may_commit) == (False, False)


def test_stopped_while_it_joins_it_leaves() -> None:
    d = rejoining(0)
    d.step(ev.Stop())
    assert d.actions[0] == ev.ResetConnection(ev.Lane.JOIN)
    assert d.only(ev.Send).api.NAME == "LeaveGroup"
    assert not d.machine.can_plan


# -- a static member that comes back ----------------------------------------------------------------------------------


@pytest.mark.parametrize("withheld", [False, True])
def test_back_in_a_stable_group_it_joins_once_more_if_its_predecessor_was_to_give_something_up(withheld: bool) -> None:
    d = Cooperative(instance_id="i")
    d.found()
    d.joined(5, leader="my-predecessor")
    d.step(ev.MetadataRefreshed(topics(t=[0, 0]), frozenset({"t"})))
    d.group = group_of(me=tps("t", 0), other=[] if withheld else tps("t", 1))
    d.answer(SyncGroupResponse(assignment=assignment_of(tps("t", 0))))
    assert d.has(ev.Joining) is withheld
    if withheld:
        assert d.only(ev.Joining).keeps
        assert d.owned() == (tuple(tps("t", 0)), 5), "another claim than before: the coordinator rebalances"
        d.joined(6)
        d.answer(SyncGroupResponse(assignment=assignment_of(tps("t", 0))))
        assert not d.has(ev.Joining), "once: then others are to give up"


# -- leading ----------------------------------------------------------------------------------------------------------


def test_a_leader_that_sees_new_partitions_rejoins_within_its_batch() -> None:
    d = Cooperative()
    d.found()
    d.joined(leader="me", members=(JoinGroupResponseMember(member_id="me", metadata=subscription_of("t")),))
    d.step(ev.MetadataRefreshed(topics(t=[0]), frozenset({"t"})))
    d.answer(SyncGroupResponse(assignment=assignment_of(tps("t", 0))))
    d.step(ev.Planned())
    d.step(ev.MetadataRefreshed(topics(t=[0, 0]), frozenset({"t"})))
    assert d.only(ev.Joining).keeps


# -- how long any member waits for the boundary of its batch (R21, R22) -----------------------------------------------


@pytest.mark.parametrize(
    ("told", "asked", "longest", "due"),
    [
        (100.0, 90.0, 20.0, 140.0),  # the tasks are presumably done at 110
        (100.0, None, 20.0, 395.0),  # planned, but not asked for yet
        (100.0, 90.0, None, 395.0),  # no batch has completed in this run
        (100.0, 90.0, 500.0, 395.0),  # never later than the group's rebalance timeout
        (100.0, 10.0, 5.0, 130.0),  # longer than any before it when told: it may still run
    ],
)
def test_rejoin_due(told: float, asked: float | None, longest: float | None, due: float) -> None:
    assert rejoin_due(told, asked, longest, rebalance_wait_s=30.0, max_poll_s=300.0) == due


@pytest.mark.parametrize(("asked", "longest"), [(90.0, 20.0), (10.0, 5.0), (90.0, None), (None, 20.0)])
def test_with_a_listener_only_the_rebalance_timeout_counts(asked: float | None, longest: float | None) -> None:
    """It tells at once when the batch has sunk, so a batch that it has not told of still runs."""
    due = rejoin_due(100.0, asked, longest, rebalance_wait_s=30.0, max_poll_s=300.0, listened=True)
    assert due == 395.0


def test_a_short_rebalance_timeout_keeps_a_margin_of_its_tenth() -> None:
    assert rejoin_due(0.0, None, None, rebalance_wait_s=30.0, max_poll_s=10.0) == 9.0


def batches(clock: BatchTimes, *spans: tuple[float, float]) -> None:
    for start, end in spans:
        clock.planned(start - 1)
        clock.asked(start)
        clock.asked(start + 1)
        assert (clock.in_flight, clock.flying_s(end)) == (True, end - start + 1)
        clock.idle(end)


def test_the_longest_batch_counts_from_the_first_time_that_it_was_asked_for() -> None:
    clock = BatchTimes()
    batches(clock, (10.0, 17.0), (20.0, 22.0))
    assert (clock.longest_s, clock.in_flight, clock.asked_at, clock.flying_s(30.0)) == (7.0, False, None, 0.0)


def test_a_backlog_read_at_the_start_is_forgotten_in_time() -> None:
    clock = BatchTimes()
    batches(clock, (10.0, 300.0), *((400.0 + 10 * n, 402.0 + 10 * n) for n in range(9)))
    assert clock.longest_s == 290.0
    batches(clock, (500.0, 503.0))
    assert clock.longest_s == 3.0


def test_a_batch_that_was_never_asked_for_has_no_length() -> None:
    clock = BatchTimes()
    clock.planned(40.0)
    clock.idle(50.0)
    assert clock.longest_s is None


def test_what_is_said_when_a_batch_is_waited_for_no_longer_names_the_cause_and_the_way_out() -> None:
    outlasted = gave_up_waiting(400.0, 295.0, 300_000, 30_000)
    assert "planned 400 s ago" in outlasted
    assert "max.poll.interval.ms=300000" in outlasted
    assert "Raise kafka.max.poll.interval.ms" in outlasted
    assert "lower maxOffsetsPerTrigger" in outlasted
    unproven = gave_up_waiting(50.0, 36.0, 300_000, 30_000)
    assert "tasks are presumably done. A rejoin was requested 36 s ago" in unproven
    assert "raise group.rebalanceWait, now 30000 ms" in unproven
    assert all("up to one batch may be repeated" in text for text in (outlasted, unproven))


def test_the_cause_of_a_wait_ends_with_it() -> None:
    wait = RejoinWait(1000, cooperative=False)
    wait.begin("partitions have changed", ev.JoinCause.PARTITIONS, 1.0)
    assert wait.why == ("partitions have changed", ev.JoinCause.PARTITIONS)
    wait.end()
    assert wait.why == ("the group rebalances", ev.JoinCause.GROUP)

"""Every kind of member is a table of transitions: an event without a row, or a step off the table, is an error."""

from __future__ import annotations

import random
from typing import Any, get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamgroup.group import events as ev
from streamgroup.group.consumer_membership import ConsumerMembership
from streamgroup.group.membership import Membership
from streamgroup.group.requests import Purpose, Timer
from streamgroup.group.standalone import StandaloneMember
from streamgroup.group.state_machine import State, on, table_of
from streamgroup.group.timing import MemberConfig
from streamgroup.kafka.wire.messages.group import (
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from streamgroup.model import PartitionInfo, TopicInfo, TopicPartition
from tests.unit.group.drivers import assignment_of, subscription_of

TABLE = Membership.TABLE
MOST_ACTIONS = 14
"""Of one step; more would be a storm."""


@pytest.mark.parametrize("machine", [Membership, StandaloneMember])
def test_every_event_has_a_row_in_every_state_but_a_second_start(machine: type[Membership | StandaloneMember]) -> None:
    plain = [event for event in get_args(ev.Event) if event not in {ev.RequestAnswered, ev.RequestFailed}]
    missing = {(state, event) for state in State for event in plain if (state, event) not in machine.TABLE}
    assert missing == {(state, ev.Start) for state in State if state not in {State.UNJOINED, State.LEFT}}


def test_every_request_may_be_answered_or_fail_in_the_states_that_wait_for_it() -> None:
    waits = {
        Purpose.FIND: {State.FINDING, State.STABLE},
        Purpose.JOIN: {State.JOINING},
        Purpose.SYNC: {State.SYNCING},
        Purpose.HEARTBEAT: {State.JOINING, State.SYNCING, State.STABLE},  # asked before it joined (R25)
        Purpose.LEAVE: {State.LEAVING},
    }
    for purpose, states in waits.items():
        for outcome in (ev.RequestAnswered, ev.RequestFailed):
            assert {state for state in State if (state, (purpose, outcome)) in TABLE} == states
            if purpose is Purpose.FIND:
                assert all((state, (purpose, outcome)) in StandaloneMember.TABLE for state in states)


@pytest.mark.parametrize("state", [s for s in State if s not in {State.UNJOINED, State.LEFT}])
def test_a_second_start_is_rejected_clearly(state: State) -> None:
    machine = Membership(MemberConfig("g"), random.Random(0))
    machine._state = state
    with pytest.raises(ValueError, match=f"group g: Start has no place in state {state.name}"):
        machine.step(ev.Start(("t",)), 0.0)


def test_a_transition_that_the_table_does_not_name_is_rejected_at_run_time() -> None:
    """A method that leads to another state than its row says is a bug: the query fails instead of going on."""
    machine = Membership(MemberConfig("g"), random.Random(0))
    machine.step(ev.Start(("t",)), 0.0)
    machine._row = TABLE[State.FINDING, ev.CoordinatorGone]
    with pytest.raises(
        RuntimeError, match="group g: FINDING -> STABLE is not a legal transition after CoordinatorGone"
    ):
        machine._transition_to(State.STABLE)
    assert machine.state is State.FINDING


def test_two_rows_for_the_same_event_in_the_same_state_are_rejected() -> None:
    rows = [*on(ev.Tick, (State.LEFT,), Membership._stop), *on(ev.Tick, (State.LEFT,), Membership._start)]
    with pytest.raises(ValueError, match="a member has two rows for 'Tick' in state left"):
        table_of(rows)


CODES = st.sampled_from([0] * 12 + [14, 15, 16, 22, 25, 27, 79])


class AnyWorld(RuleBasedStateMachine):
    """Any events and answers at any time: the table holds, waits end, and what is stale changes nothing."""

    strategy = "range"

    def __init__(self) -> None:
        super().__init__()
        config = MemberConfig("g", session_timeout_ms=10_000, strategies=(self.strategy,))
        self.cooperative = config.cooperative
        self.machine = Membership(config, random.Random(1))
        self.now = 50.0
        self.out: dict[int, ev.Send] = {}
        self.old: list[ev.Send] = []
        self.wake: float | None = None
        self.generation = 0
        self.held: frozenset[TopicPartition] = frozenset()
        self.held_in = -1
        """The generation of the last assignment: what is kept of it is committed in it while the group rebalances."""
        self.step(ev.Start(("t",), settles=True))

    def step(self, event: ev.Event) -> list[ev.Action]:
        actions = self.machine.step(event, self.now)
        assert len(actions) <= MOST_ACTIONS, actions
        self.wake = next((a.time for a in actions if isinstance(a, ev.WakeAt)), None)
        assert not any(isinstance(a, ev.WakeAt) for a in actions[:-1])
        for action in actions:
            match action:
                case ev.Send():
                    self.out[action.token] = action
                case ev.Assigned(partitions=partitions, kept=kept, revoked=revoked):
                    self.held_in = action.generation
                    assert kept <= self.held & set(partitions)
                    assert revoked <= self.held - set(partitions) if self.cooperative else not revoked
                    self.held = frozenset(partitions) | revoked
                case ev.Joining(keeps=keeps, gives_up=gives_up):
                    assert self.cooperative or not keeps
                    assert gives_up <= self.held
                    self.held -= gives_up
                case ev.Left() | ev.Lost():
                    self.held = frozenset()
                    assert self.machine.lease_at is None
        return actions

    @rule(seconds=st.floats(0.01, 12.0))
    def time_goes_on(self, seconds: float) -> None:
        self.now += seconds
        self.step(ev.Tick())

    @rule()
    def wake_up(self) -> None:
        if self.wake is not None:
            self.now = max(self.now, self.wake)
            self.step(ev.Tick())

    @precondition(lambda self: self.out)
    @rule(code=CODES, data=st.data())
    def answer(self, code: int, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.out)))
        send = self.out.pop(token)
        self.step(
            ev.RequestAnswered(token, self.response(send, code, data), 0 if send.api.NAME == "FindCoordinator" else 9)
        )
        self.old.append(send)

    @rule(data=st.data())
    def all_goes_well(self, data: st.DataObject) -> None:
        """Straight to an assignment, for what is interesting happens there."""
        for _ in range(10):
            if self.machine.state in {State.STABLE, State.LEAVING, State.LEFT, State.FATAL}:
                return
            self.wake_up()
            for token in sorted(self.out):
                send = self.out.pop(token)
                version = 0 if send.api.NAME == "FindCoordinator" else 9
                self.step(ev.RequestAnswered(token, self.response(send, 0, data), version))
                self.old.append(send)
            self.metadata(2)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.out)))
        self.old.append(self.out.pop(token))
        self.step(ev.RequestFailed(token, "connection reset"))

    def response(self, send: ev.Send, code: int, data: st.DataObject) -> Any:
        match send.api.NAME:
            case "FindCoordinator":
                return FindCoordinatorResponse(error_code=code, node_id=1, host="h", port=9)
            case "JoinGroup":
                self.generation += 0 if code else data.draw(st.integers(0, 2))
                me = send.build(9).member_id or f"m{self.now}"
                member = JoinGroupResponseMember(member_id=me, metadata=subscription_of("t"))
                leads = data.draw(st.booleans())
                return JoinGroupResponse(
                    error_code=code,
                    generation_id=self.generation,
                    protocol_name=self.strategy,
                    member_id=me,
                    leader=me if leads else "other",
                    members=(member,) if leads else (),
                )
            case "SyncGroup":
                share = [TopicPartition("t", n) for n in data.draw(st.sets(st.integers(0, 3)))]
                return SyncGroupResponse(error_code=code, assignment=assignment_of(share))
            case "Heartbeat":
                return HeartbeatResponse(error_code=code)
            case _:
                return LeaveGroupResponse(error_code=code)

    @precondition(lambda self: self.old)
    @rule(code=st.sampled_from([0, 22, 25, 82]), data=st.data())
    def a_stale_answer_changes_nothing(self, code: int, data: st.DataObject) -> None:
        send = data.draw(st.sampled_from(self.old))
        before = self.seen()
        actions = self.step(ev.RequestAnswered(send.token, HeartbeatResponse(error_code=code), 4))
        if not any(isinstance(a, ev.Send | ev.Lost | ev.Joining | ev.Fail) for a in actions):  # no timer was due
            assert self.seen() == before
        assert not any(isinstance(a, ev.Fail) for a in actions)

    @rule(code=st.sampled_from([22, 25, 27, 82]), off=st.sampled_from([-1, 1]))
    def a_commit_of_another_generation_changes_nothing(self, code: int, off: int) -> None:
        before = self.seen()
        generation = self.machine.generation + off
        self.machine.step(ev.CommitRefused(code, self.machine.member_id, generation, self.now), self.now)
        if generation != self.held_in:
            self.machine.step(ev.CommitAccepted(self.machine.member_id, generation, self.now), self.now)
        self.step(ev.CommitRefused(code, self.machine.member_id + "x", self.machine.generation, self.now))
        assert self.seen() == before

    def seen(self) -> tuple[Any, ...]:
        return (self.machine.state, self.machine.member_id, self.machine.generation, self.machine.lease_at)

    @rule(event=st.sampled_from([ev.Planned(), ev.Asked(), ev.Idle(), ev.RevocationCompleted(), ev.Settled()]))
    def news(self, event: ev.Event) -> None:
        self.step(event)

    @rule()
    def coordinator_gone(self) -> None:
        self.step(ev.CoordinatorGone("reset"))

    @rule(count=st.integers(0, 3))
    def metadata(self, count: int) -> None:
        info = TopicInfo("t", tuple(PartitionInfo(p, 1) for p in range(count)))
        self.step(ev.MetadataRefreshed({"t": info} if count else {}, frozenset({"t"})))

    @rule(topics=st.sampled_from([("t",), ("t", "u"), ()]))
    def subscribe(self, topics: tuple[str, ...]) -> None:
        self.step(ev.Subscribed(topics))

    @rule(code=st.sampled_from([22, 25, 27, 15, 14]))
    def own_commit_refused(self, code: int) -> None:
        self.step(ev.CommitRefused(code, self.machine.member_id, self.machine.generation, self.now))

    @invariant()
    def something_is_waited_for_until_it_is_over(self) -> None:
        if self.machine.state not in {State.LEFT, State.FATAL}:
            assert self.wake is not None
            assert self.wake > self.now - 1e-9
        else:
            assert self.wake is None

    @invariant()
    def the_properties_fit_the_state(self) -> None:
        if self.machine.state is not State.STABLE:
            assert self.machine.lease_at is None or self.machine.can_plan
            assert not self.machine.rebalance_wanted
            assert not self.machine.revoking
            assert not self.machine.settling
        assert self.machine.revoking <= self.held
        if not self.cooperative:
            assert not self.machine.can_plan or self.machine.state is State.STABLE
            assert self.machine.may_commit is (self.machine.state is State.STABLE)

    @rule()
    def start_again(self) -> None:
        if self.machine.state is State.LEFT:
            self.step(ev.Start(("t",)))
            assert self.machine.member_id == ""

    @rule(chance=st.integers(0, 19))
    def stop(self, chance: int) -> None:
        if chance == 0:
            self.step(ev.Stop())
            assert self.machine.state in {State.LEAVING, State.LEFT}


class AnyCooperativeWorld(AnyWorld):
    strategy = "cooperative-sticky"


TestAnyWorld = pytest.mark.slow(AnyWorld.TestCase)
TestAnyCooperativeWorld = pytest.mark.slow(AnyCooperativeWorld.TestCase)
TestAnyWorld.settings = TestAnyCooperativeWorld.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None
)


def test_every_timer_is_heard_somewhere() -> None:
    tables = (TABLE, ConsumerMembership.TABLE)
    assert {cue for table in tables for _, cue in table if isinstance(cue, Timer)} == set(Timer)

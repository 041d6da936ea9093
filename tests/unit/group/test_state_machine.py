"""Every kind of member is a table of transitions: an event without a row, or a step off the table, is an error."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar, get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamgroup.errors import ErrorCode, StreamGroupError
from streamgroup.group import events as ev
from streamgroup.group.membership import Membership
from streamgroup.group.registry.registration import RegistryPurpose, RegistryTimer
from streamgroup.group.requests import Purpose, Timer
from streamgroup.group.state_machine import (
    GRACE_S,
    BrokerMachine,
    PendingRequest,
    RequestsAndTimers,
    State,
    StateMachine,
    Table,
    on,
    table_of,
)
from streamgroup.group.timing import MemberConfig
from streamgroup.kafka.wire.consumer import (
    ConsumerAssignment,
    ConsumerSubscription,
    by_topic,
    encode_assignment,
    encode_subscription,
)
from streamgroup.kafka.wire.messages.coordinator import FindCoordinatorResponse, FoundCoordinator
from streamgroup.kafka.wire.messages.group import (
    HeartbeatResponse,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from streamgroup.model import Broker, PartitionInfo, TopicInfo, TopicPartition
from tests.unit.group.drivers import Even


class Asks(Enum):
    """The purposes of the machine's requests."""

    NAME = "name"

    def __str__(self) -> str:
        return self.value


class Alarm(Enum):
    """The machine's timers, in the order in which due ones are handled."""

    FIRST = "first due"
    SECOND = "second due"
    RETRY = "retry due"


class Machine(StateMachine[Any, Asks, Alarm]):
    """The smallest machine that uses all that `StateMachine` offers. A test hands it what to do at a `Tick`."""

    TABLE: ClassVar[Table]

    def __init__(self, **config: Any) -> None:
        super().__init__(MemberConfig("g", **config), Even(), Alarm)
        self.on_tick: Callable[[Machine], None] = lambda _: None
        self.heard: list[Any] = []

    def start(self, event: ev.Start) -> None:
        self._transition_to(State.JOINING)

    def tick(self, event: ev.Tick) -> None:
        self.on_tick(self)

    def answered(self, event: Any, pending: PendingRequest[Asks]) -> None:
        self.heard.append((event, pending.sent_at))

    def first(self) -> None:
        self.heard.append(Alarm.FIRST)

    def second(self) -> None:
        self.heard.append(Alarm.SECOND)

    def retry(self) -> None:
        self.on_tick(self)

    def ask(self, overdue_at: float | None = None) -> int:
        return self._requests.add(Asks.NAME, self._now, overdue_at)

    def alarms(self, **due: float) -> None:
        for name, at in due.items():
            self._requests.set(Alarm[name], at)

    def enter(self, state: State) -> None:
        self._transition_to(state)

    def back_off(self, reason: str = "no broker") -> None:
        self._back_off(Alarm.RETRY, "cannot ask", reason)

    def succeed(self) -> None:
        self._attempts = 0

    def rejoin_later(self) -> None:
        self._wait.begin("the group rebalances", ev.JoinCause.GROUP, self._now)

    def rejoin(self) -> None:
        self._wait.end()

    def forget_identity(self) -> None:
        self._forget_identity()

    @property
    def identity(self) -> bytes:
        return self._identity

    def _fail(self, error: StreamGroupError) -> None:
        raise error


STATES = [State.UNJOINED, State.JOINING]
Machine.TABLE = table_of(
    [
        *on(ev.Start, [State.UNJOINED], Machine.start, State.JOINING),
        *on(ev.Tick, STATES, Machine.tick),
        *on(ev.Subscribed, STATES, Machine._subscribed),
        *on(ev.UserDataChanged, STATES, Machine._user_data_changed),
        *on((Asks.NAME, ev.RequestAnswered), STATES, Machine.answered),
        *on((Asks.NAME, ev.RequestFailed), [State.UNJOINED], Machine.answered),
        *on(Alarm.FIRST, STATES, Machine.first),
        *on(Alarm.SECOND, STATES, Machine.second),
        *on(Alarm.RETRY, STATES, Machine.retry),
    ]
)


def does(machine: Machine, what: Callable[[Machine], Any], now: float = 100.0) -> list[Any]:
    """The machine does this at a tick; its actions."""
    machine.on_tick = what
    return machine.step(ev.Tick(), now)


def test_an_event_without_a_row_in_this_state_is_the_callers_mistake() -> None:
    machine = Machine()
    machine.step(ev.Start(("t",)), 100.0)
    with pytest.raises(ValueError, match=r"^group g: Start has no place in state JOINING$"):
        machine.step(ev.Start(("t",)), 101.0)
    assert machine.state is State.JOINING


def test_an_answer_without_a_row_in_this_state_names_its_request() -> None:
    machine = Machine()
    tokens: list[int] = []
    does(machine, lambda m: tokens.append(m.ask()))
    machine.step(ev.Start(("t",)), 100.0)
    with pytest.raises(ValueError, match=r"^group g: name failed has no place in state JOINING$"):
        machine.step(ev.RequestFailed(tokens[0], "connection reset"), 101.0)


@pytest.mark.parametrize(
    ("state", "allowed"),
    [(State.UNJOINED, True), (State.FATAL, True), (State.JOINING, False), (State.STABLE, False)],
)
def test_a_row_leads_to_the_states_that_it_names_stays_or_fails(state: State, allowed: bool) -> None:
    machine = Machine()
    if allowed:
        does(machine, lambda m: m.enter(state))
        assert machine.state is state
        return
    message = f"^group g: UNJOINED -> {state.name} is not a legal transition after Tick$"
    with pytest.raises(RuntimeError, match=message):
        does(machine, lambda m: m.enter(state))
    assert machine.state is State.UNJOINED


def test_a_transition_outside_a_step_is_rejected() -> None:
    with pytest.raises(RuntimeError, match="UNJOINED -> JOINING is not a legal transition after nothing"):
        Machine().enter(State.JOINING)


def test_an_answer_reaches_its_request_once_and_an_unknown_token_is_ignored() -> None:
    machine = Machine()
    tokens: list[int] = []
    does(machine, lambda m: tokens.append(m.ask()), 100.0)
    answer = ev.RequestAnswered(tokens[0], "orders", 1)
    assert machine.step(ev.RequestAnswered(tokens[0] + 1, "other", 1), 101.0) == []
    machine.step(answer, 102.0)
    machine.step(answer, 103.0)
    assert machine.heard == [(answer, 100.0)]


def test_due_timers_are_handled_in_their_order_whatever_was_set_first() -> None:
    machine = Machine()
    actions = does(machine, lambda m: m.alarms(SECOND=101.0, FIRST=102.0))
    assert actions == [ev.WakeAt(101.0)]
    assert does(machine, lambda _: None, 100.9) == [ev.WakeAt(101.0)]
    assert machine.heard == []
    assert does(machine, lambda _: None, 102.0) == [], "nothing is pending any more"
    assert machine.heard == [Alarm.FIRST, Alarm.SECOND]


def test_a_step_wants_to_be_woken_for_the_next_timer_or_overdue_request() -> None:
    machine = Machine()
    assert does(machine, lambda m: m.alarms(FIRST=130.0))[-1] == ev.WakeAt(130.0)
    assert does(machine, lambda m: m.ask(overdue_at=110.0))[-1] == ev.WakeAt(110.0)


def test_of_repeated_failures_the_attempts_1_2_4_and_8_are_logged() -> None:
    machine = Machine()
    logged = []
    for attempt in range(1, 11):
        actions = does(machine, Machine.back_off)
        if notes := [action for action in actions if isinstance(action, ev.Note)]:
            assert notes == [ev.Note(ev.INFO, f"group g: cannot ask: no broker; trying again (attempt {attempt})")]
            logged.append(attempt)
    assert logged == [1, 2, 4, 8]
    assert machine.retries == 10


def test_failures_that_last_are_warnings_with_the_usual_cause_and_a_success_ends_them() -> None:
    machine = Machine()

    def fail(now: float) -> list[ev.Note]:
        actions = does(machine, lambda m: m.back_off("COORDINATOR_NOT_AVAILABLE"), now)
        return [action for action in actions if isinstance(action, ev.Note)]

    early = [fail(100.0 + second) for second in range(8)]
    assert {note.level for notes in early for note in notes} == {ev.INFO}
    late = [note for second in range(8, 16) for note in fail(100.0 + second)]
    assert [(note.level, note.text[:60]) for note in late] == [
        (ev.WARNING, "group g: cannot ask: COORDINATOR_NOT_AVAILABLE (usually the ")
    ]
    assert "offsets.topic.replication.factor" in late[0].text
    assert machine.trouble in late[0].text
    machine.succeed()
    assert machine.trouble == ""
    assert [note.level for note in fail(200.0)] == [ev.INFO]


def test_the_backoff_doubles_up_to_its_maximum() -> None:
    machine = Machine(retry_backoff_ms=100, retry_backoff_max_ms=500)
    waits = [does(machine, Machine.back_off)[-1].time - 100.0 for _ in range(5)]
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.5, 0.5])


def test_a_subscription_is_sorted_and_names_each_topic_once() -> None:
    machine = Machine()
    assert not machine.topics
    machine.step(ev.Subscribed(("u", "t", "u")), 100.0)
    assert machine.topics == ("t", "u")
    machine.step(ev.Subscribed(()), 101.0)
    assert not machine.topics


def test_after_a_loss_the_member_sends_the_newest_identity_that_lasts() -> None:
    machine = Machine()
    for data, lasts in ((b"first", True), (b"second", True), (b"while a member", False)):
        machine.step(ev.UserDataChanged(data, lasts=lasts), 100.0)
        assert machine.identity == data
    machine.forget_identity()
    assert machine.identity == b"second"


def test_a_member_that_has_not_joined_has_no_generation_and_gives_nothing_up() -> None:
    machine = Machine()
    assert (machine.state, machine.generation, machine.revoking) == (State.UNJOINED, -1, frozenset())
    assert (machine.settling, machine.rebalance_wanted, machine.retries) == (False, False, 0)


def test_while_a_rejoin_waits_for_the_boundary_of_a_batch_nothing_new_may_be_planned() -> None:
    machine = Machine()
    does(machine, Machine.rejoin_later)
    assert machine.rebalance_wanted
    does(machine, Machine.rejoin)
    assert not machine.rebalance_wanted


TABLE = Membership.TABLE
MOST_ACTIONS = 14
"""Of one step; more would be a storm."""


def test_every_event_has_a_row_in_every_state_but_a_second_start() -> None:
    plain = [event for event in get_args(ev.Event) if event not in {ev.RequestAnswered, ev.RequestFailed}]
    missing = {(state, event) for state in State for event in plain if (state, event) not in TABLE}
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
    with pytest.raises(ValueError, match="two rows for Tick in state LEFT"):
        table_of(rows)


CODES = st.sampled_from([0] * 12 + [14, 15, 16, 22, 25, 27, 79])


def subscription() -> bytes:
    return encode_subscription(ConsumerSubscription(topics=("t",)))


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
                member = JoinGroupResponseMember(member_id=me, metadata=subscription())
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
                return SyncGroupResponse(
                    error_code=code,
                    assignment=encode_assignment(ConsumerAssignment(assigned_partitions=by_topic(share))),
                )
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
    assert {cue for _, cue in TABLE if isinstance(cue, Timer)} == set(Timer)


def test_every_request_has_a_token_of_its_own_and_is_answered_once() -> None:
    requests: RequestsAndTimers[RegistryPurpose, RegistryTimer] = RequestsAndTimers(RegistryTimer)
    look, claim = requests.add(RegistryPurpose.LOOK, 1.0), requests.add(RegistryPurpose.CLAIM, 2.0)
    assert look != claim
    pending = requests.take(claim)
    assert pending is not None
    assert (pending.purpose, pending.sent_at) == (RegistryPurpose.CLAIM, 2.0)
    assert requests.take(claim) is None
    assert requests.is_pending(RegistryPurpose.LOOK, RegistryPurpose.CLAIM)
    assert not requests.is_pending(RegistryPurpose.CLAIM)


def test_a_heartbeat_is_not_counted_among_the_other_pending_requests() -> None:
    requests: RequestsAndTimers[RegistryPurpose, RegistryTimer] = RequestsAndTimers(RegistryTimer)
    requests.add(RegistryPurpose.HEARTBEAT, 0.0)
    assert not requests.is_pending_beside(RegistryPurpose.HEARTBEAT)
    requests.add(RegistryPurpose.CONFIRM, 0.0)
    assert requests.is_pending_beside(RegistryPurpose.HEARTBEAT)
    requests.forget(RegistryPurpose.CONFIRM)
    assert not requests.is_pending_beside(RegistryPurpose.HEARTBEAT)


def test_timers_are_due_in_their_order_and_once() -> None:
    requests: RequestsAndTimers[RegistryPurpose, RegistryTimer] = RequestsAndTimers(RegistryTimer)
    requests.set(RegistryTimer.HEARTBEAT, 5.0)
    requests.set(RegistryTimer.REJOIN, 6.0)
    requests.set(RegistryTimer.RETRY, 9.0)
    assert requests.wake_at == 5.0
    assert requests.take_due(4.9) is None
    assert [requests.take_due(8.0) for _ in range(3)] == [RegistryTimer.REJOIN, RegistryTimer.HEARTBEAT, None]
    requests.clear(RegistryTimer.RETRY)
    assert requests.wake_at is None


def test_only_a_request_with_a_deadline_can_be_overdue() -> None:
    requests: RequestsAndTimers[RegistryPurpose, RegistryTimer] = RequestsAndTimers(RegistryTimer)
    requests.add(RegistryPurpose.LOOK, 1.0)
    late = requests.add(RegistryPurpose.CLAIM, 1.0, overdue_at=3.0)
    assert (requests.wake_at, requests.overdue(2.9)) == (3.0, [])
    assert [pending.token for pending in requests.overdue(3.0)] == [late]


def test_a_reset_gives_up_all_but_the_purposes_named() -> None:
    requests: RequestsAndTimers[RegistryPurpose, RegistryTimer] = RequestsAndTimers(RegistryTimer)
    kept, given_up = requests.add(RegistryPurpose.HEARTBEAT, 0.0), requests.add(RegistryPurpose.LOOK, 0.0)
    requests.set(RegistryTimer.RETRY, 1.0)
    requests.reset(RegistryPurpose.HEARTBEAT)
    assert requests.take(given_up) is None
    assert requests.take(kept) is not None
    assert requests.at(RegistryTimer.RETRY) is None


TIMEOUT_S = 30.0


class Finder(BrokerMachine):
    """The smallest machine: every start looks for the coordinator."""

    TABLE: ClassVar[Table]

    def __init__(self, *, optional: bool = False) -> None:
        super().__init__(MemberConfig("g", request_timeout_ms=int(TIMEOUT_S * 1000)), Even(), Timer)
        self.optional = optional
        self.found: list[Broker | int] = []
        self.failures: list[str] = []

    def start(self, event: ev.Start) -> None:
        self._find(optional=self.optional)

    def answered(self, event: ev.RequestAnswered, pending: PendingRequest[Purpose]) -> None:
        self.found.append(self._coordinator_in(event))

    def failed(self, event: ev.RequestFailed, pending: PendingRequest[Purpose]) -> None:
        self.failures.append(event.reason)

    def ticked(self, event: ev.Tick) -> None:
        """Only the time counts."""

    def _fail(self, error: StreamGroupError) -> None:
        raise error


Finder.TABLE = table_of(
    [
        *on(ev.Start, [State.UNJOINED], Finder.start),
        *on(ev.Tick, [State.UNJOINED], Finder.ticked),
        *on((Purpose.FIND, ev.RequestAnswered), [State.UNJOINED], Finder.answered),
        *on((Purpose.FIND, ev.RequestFailed), [State.UNJOINED], Finder.failed),
    ]
)


def sent(actions: list[ev.Action]) -> ev.Send:
    (send,) = (action for action in actions if isinstance(action, ev.Send))
    return send


@pytest.mark.parametrize("optional", [True, False])
def test_the_coordinator_is_asked_for_on_any_broker_within_the_request_timeout(optional: bool) -> None:
    send = sent(Finder(optional=optional).step(ev.Start(("t",)), 100.0))
    assert (send.lane, send.api.NAME, send.timeout_ms) == (ev.Lane.ANY, "FindCoordinator", 30_000)
    assert send.optional is optional
    assert (send.build(3).key, send.build(3).coordinator_keys) == ("g", ())
    assert (send.build(4).key, send.build(4).coordinator_keys) == ("", ("g",))


@pytest.mark.parametrize(
    ("version", "response", "found"),
    [
        (3, FindCoordinatorResponse(node_id=2, host="kafka-2", port=9092), Broker(2, "kafka-2", 9092)),
        (3, FindCoordinatorResponse(error_code=16), ErrorCode.NOT_COORDINATOR),
        (
            4,
            FindCoordinatorResponse(
                coordinators=(
                    FoundCoordinator(key="other", node_id=1, host="kafka-1", port=9092),
                    FoundCoordinator(key="g", node_id=2, host="kafka-2", port=9092),
                )
            ),
            Broker(2, "kafka-2", 9092),
        ),
        (4, FindCoordinatorResponse(coordinators=(FoundCoordinator(key="g", error_code=30),)), 30),
        (
            4,
            FindCoordinatorResponse(coordinators=(FoundCoordinator(key="other"),)),
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ),
        (4, FindCoordinatorResponse(), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_an_answer_names_the_coordinator_or_the_error_and_an_answer_without_the_group_is_an_error(
    version: int, response: FindCoordinatorResponse, found: Broker | int
) -> None:
    machine = Finder()
    send = sent(machine.step(ev.Start(("t",)), 100.0))
    machine.step(ev.RequestAnswered(send.token, response, version), 101.0)
    assert machine.found == [found]


def test_a_second_request_for_a_purpose_replaces_the_first_whose_answer_counts_for_nothing() -> None:
    machine = Finder()
    first, second = (sent(machine.step(ev.Start(("t",)), now)).token for now in (100.0, 101.0))
    answer = FindCoordinatorResponse(node_id=2, host="kafka-2", port=9092)
    machine.step(ev.RequestAnswered(first, answer, 3), 102.0)
    assert machine.found == []
    machine.step(ev.RequestAnswered(second, answer, 3), 102.0)
    assert machine.found == [Broker(2, "kafka-2", 9092)]


def test_a_request_that_the_driver_never_reports_is_given_up_a_little_after_its_timeout() -> None:
    machine = Finder()
    started: list[Any] = machine.step(ev.Start(("t",)), 100.0)
    due = 100.0 + TIMEOUT_S + GRACE_S
    assert started[-1] == ev.WakeAt(due)
    assert machine.step(ev.Tick(), due - 0.1) == [ev.WakeAt(due)]
    assert machine.failures == []
    assert machine.step(ev.Tick(), due) == [ev.ResetConnection(ev.Lane.ANY)], (
        "the late answer must not arrive on the connection"
    )
    assert machine.failures == ["no answer to FindCoordinator in time"]


def test_a_request_that_the_driver_reports_as_failed_resets_no_connection() -> None:
    machine = Finder()
    send = sent(machine.step(ev.Start(("t",)), 100.0))
    assert machine.step(ev.RequestFailed(send.token, "connection reset"), 101.0) == []
    assert machine.failures == ["connection reset"]

"""Every kind of member is a table of transitions: an event without a row, or a step off the table, is an error."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar

import pytest

from streamgroup.errors import StreamGroupError
from streamgroup.group import events as ev
from streamgroup.group.pending import PendingRequest
from streamgroup.group.state_machine import StateMachine
from streamgroup.group.table import State, Table, on, table_of
from streamgroup.group.timing import MemberConfig
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

"""A member or a lone query sends at most one request for each purpose, and finds the coordinator of its group."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from streamgroup.errors import ErrorCode, StreamGroupError
from streamgroup.group import events as ev
from streamgroup.group.broker_machine import GRACE_S, BrokerMachine
from streamgroup.group.pending import PendingRequest
from streamgroup.group.requests import Purpose, Timer
from streamgroup.group.table import State, Table, on, table_of
from streamgroup.group.timing import MemberConfig
from streamgroup.model import Broker
from streamgroup.wire.messages.coordinator import Coordinator, FindCoordinatorResponse
from tests.unit.group.drivers import Even

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
                    Coordinator(key="other", node_id=1, host="kafka-1", port=9092),
                    Coordinator(key="g", node_id=2, host="kafka-2", port=9092),
                )
            ),
            Broker(2, "kafka-2", 9092),
        ),
        (4, FindCoordinatorResponse(coordinators=(Coordinator(key="g", error_code=30),)), 30),
        (4, FindCoordinatorResponse(coordinators=(Coordinator(key="other"),)), ErrorCode.COORDINATOR_NOT_AVAILABLE),
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
    assert machine.step(ev.Tick(), due) == [ev.Reset(ev.Lane.ANY)], "the late answer must not arrive on the connection"
    assert machine.failures == ["no answer to FindCoordinator in time"]


def test_a_request_that_the_driver_reports_as_failed_resets_no_connection() -> None:
    machine = Finder()
    send = sent(machine.step(ev.Start(("t",)), 100.0))
    assert machine.step(ev.RequestFailed(send.token, "connection reset"), 101.0) == []
    assert machine.failures == ["connection reset"]

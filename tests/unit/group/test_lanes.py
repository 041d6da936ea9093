"""The connections of a member: where a lane connects, what is given up, and which requests fail with it."""

from __future__ import annotations

import math

import pytest

from streamgroup.group import events as ev
from streamgroup.group.events import Lane, Send
from streamgroup.group.lanes import RequestLanes
from streamgroup.kafka.wire.messages.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest
from streamgroup.model import Broker

ONE, TWO = Broker(1, "one", 9092), Broker(2, "two", 9092)
GONE = "connection reset by peer"


def send(token: int, lane: Lane = Lane.COORDINATOR, api: type = HeartbeatRequest, timeout_ms: int = 1_000) -> Send:
    return Send(token, lane, api, lambda version: api(), timeout_ms)


@pytest.fixture
def lanes() -> RequestLanes[str]:
    """With connections that are ready to two lanes of the coordinator."""
    made: RequestLanes[str] = RequestLanes()
    made.found(ONE)
    made.opened(Lane.COORDINATOR, "first", is_ready=True)
    made.opened(Lane.JOIN, "second", is_ready=True)
    return made


def put(lanes: RequestLanes[str], request: Send, now: float = 0.0, version: int = 3) -> None:
    assert lanes.add(request, now)
    lanes.sent(request, request.token + 100, version)


def failed(*tokens: int, reason: str = GONE) -> list[ev.Event]:
    return [ev.RequestFailed(token, reason) for token in tokens]


def test_only_requests_for_the_coordinator_go_to_the_coordinator(lanes: RequestLanes[str]) -> None:
    assert lanes.broker_of(Lane.ANY) is None
    assert lanes.broker_of(Lane.JOIN) == lanes.broker_of(Lane.COORDINATOR) == ONE
    fresh: RequestLanes[str] = RequestLanes()
    assert fresh.broker_of(Lane.COORDINATOR) is None


def test_connections_to_the_coordinator_before_are_given_up(lanes: RequestLanes[str]) -> None:
    assert lanes.found(ONE) == ()
    assert lanes.found(TWO) == (Lane.COORDINATOR, Lane.JOIN)
    assert lanes.broker_of(Lane.JOIN) == TWO
    assert lanes.found(Broker(2, "two", 9093)) == (Lane.COORDINATOR, Lane.JOIN), "it has moved to another port"


def test_requests_wait_for_the_handshake_in_their_order(lanes: RequestLanes[str]) -> None:
    lanes.opened(Lane.ANY, "third")
    waiting = [send(1, Lane.ANY), send(2, Lane.ANY)]
    assert [lanes.add(each, 0.0) for each in waiting] == [False, False]
    assert lanes.ready(Lane.ANY) == waiting
    assert lanes.add(send(3, Lane.ANY), 0.0)


def test_a_response_is_that_of_its_request_once(lanes: RequestLanes[str]) -> None:
    put(lanes, heartbeat := send(1), version=4)
    assert lanes.answered(Lane.JOIN, 101) is None
    assert lanes.answered(Lane.COORDINATOR, 101) == (heartbeat, 4)
    assert lanes.answered(Lane.COORDINATOR, 101) is None
    assert lanes.next_due == math.inf


def test_all_requests_of_a_broken_connection_fail_and_no_others(lanes: RequestLanes[str]) -> None:
    put(lanes, send(1))
    put(lanes, send(2, Lane.JOIN, JoinGroupRequest))
    unwritten = send(3)
    assert lanes.add(unwritten, 0.0)
    lanes.not_sent(unwritten)
    assert lanes.broken(Lane.COORDINATOR, GONE) == failed(1, 3)
    assert not lanes.is_open(Lane.COORDINATOR)
    assert lanes.lane_of("first") is None
    assert lanes.lane_of("second") is Lane.JOIN
    assert lanes.closed(Lane.COORDINATOR, GONE) == []
    assert lanes.answered(Lane.JOIN, 102) is not None


def test_only_the_end_of_an_idle_heartbeat_connection_reports_the_coordinator_gone(lanes: RequestLanes[str]) -> None:
    assert lanes.broken(Lane.JOIN, GONE) == []
    assert lanes.broken(Lane.COORDINATOR, GONE) == [ev.CoordinatorGone(GONE)]
    assert not lanes.is_open(Lane.COORDINATOR)
    lanes.opened(Lane.COORDINATOR, "third", is_ready=True)
    assert lanes.closed(Lane.COORDINATOR, "given up") == [], "who gives it up knows"


def test_a_request_that_nothing_answers_is_never_overdue(lanes: RequestLanes[str]) -> None:
    request = send(1, timeout_ms=10)
    assert lanes.add(request, 0.0)
    assert lanes.next_due == 0.01
    lanes.forget(request)
    assert lanes.next_due == math.inf
    assert list(lanes.overdue(1.0)) == []


def test_lanes_with_an_overdue_request_are_to_be_reset(lanes: RequestLanes[str]) -> None:
    put(lanes, send(1, timeout_ms=500), now=10.0)
    put(lanes, send(2, api=LeaveGroupRequest, timeout_ms=2_000), now=10.0)
    put(lanes, send(3, Lane.JOIN, JoinGroupRequest, timeout_ms=60_000), now=10.0)
    assert lanes.next_due == 10.5
    assert list(lanes.overdue(10.4)) == []
    for lane, names in lanes.overdue(10.5):
        assert (lane, names) == (Lane.COORDINATOR, ["Heartbeat"])
        assert lanes.broken(lane, GONE) == failed(1, 2)
    assert lanes.next_due == 70.0


def test_a_lane_that_was_made_anew_meanwhile_is_not_overdue(lanes: RequestLanes[str]) -> None:
    put(lanes, send(1, timeout_ms=5))
    put(lanes, send(2, Lane.JOIN, timeout_ms=5))
    found = []
    for lane, _ in lanes.overdue(1.0):
        found.append(lane)
        lanes.broken(lane, GONE)
        assert lanes.closed(Lane.JOIN, "given up") == failed(2, reason="given up")
        lanes.opened(Lane.JOIN, "third", is_ready=True)
        put(lanes, send(3, Lane.JOIN), now=1.0)
    assert found == [Lane.COORDINATOR]
    assert lanes.handle(Lane.JOIN) == "third"

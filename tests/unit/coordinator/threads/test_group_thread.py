"""The group's thread with a member that a test scripts, over a scripted poller and over a real one."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from streamgroup.coordinator.threads import group_thread
from streamgroup.coordinator.threads.group_thread import GroupThread
from streamgroup.errors import ConfigError, StreamGroupError, TlsError, TransportError
from streamgroup.group import events as ev
from streamgroup.group.events import Lane, Send
from streamgroup.kafka.net.poller import ConnectionIdle, ConnectionLost, ConnectionReady, ResponseReceived
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest
from streamgroup.kafka.wire.messages.group import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    JoinGroupRequest,
)
from streamgroup.kafka.wire.messages.offsets import OffsetFetchRequest
from streamgroup.kafka.wire.versions import BrokerVersions
from streamgroup.model import Broker, ClusterSnapshot
from streamgroup.options.types import ClientOptions
from tests.fakes.answers import api_versions
from tests.fakes.broker import SILENCE, FakeBroker
from tests.unit.coordinator.shells import SOON, VERSIONS, FakeInbox, ScriptedPoller, client, until

GONE = TransportError("gone")
HOME = Broker(7, "home", 9092)
Start = Callable[..., "Group"]
CLOSED = "connection closed before the response"


class Group(FakeInbox):
    """A GroupThread that runs, with what a test needs around it."""

    thread: GroupThread

    def __init__(self, options: ClientOptions, snapshot: ClusterSnapshot | None = None) -> None:
        super().__init__()
        self.snapshot = snapshot or ClusterSnapshot({}, {})
        self.thread = GroupThread(self, options, "g", lambda: self.snapshot)

    def carried_out(self) -> None:
        """Wait until the loop has taken what was delivered and wanted before: it does so in every turn."""
        self.wake_at = 0.0
        ticks = self.heard.count(ev.Tick())
        self.thread.wake()
        self.until(lambda: self.heard.count(ev.Tick()) > ticks)


@pytest.fixture
def poller(monkeypatch: pytest.MonkeyPatch) -> ScriptedPoller:
    made = ScriptedPoller()
    monkeypatch.setattr(group_thread, "Poller", lambda options: made)
    return made


@pytest.fixture
def group() -> Iterator[Start]:
    made: list[Group] = []

    def start(options: ClientOptions | None = None, snapshot: ClusterSnapshot | None = None) -> Group:
        made.append(Group(options or client(), snapshot))
        made[-1].thread.start()
        return made[-1]

    yield start
    for each in made:
        each.thread.stop(SOON)


def send(token: int, lane: Lane = Lane.COORDINATOR, timeout_ms: int = 30_000) -> Send:
    request = HeartbeatRequest(group_id="g", generation_id=token, member_id="m")
    return Send(token, lane, HeartbeatRequest, lambda version: request, timeout_ms)


def find(token: int, timeout_ms: int = 30_000) -> Send:
    request = FindCoordinatorRequest(coordinator_keys=("g",))
    return Send(token, Lane.ANY, FindCoordinatorRequest, lambda version: request, timeout_ms)


def connected(poller: ScriptedPoller, tag: str, number: int = 0) -> ConnectionReady:
    return ConnectionReady(poller.handle(tag, number), VERSIONS)


def broken(poller: ScriptedPoller, tag: str, number: int = 0) -> ConnectionLost:
    return ConnectionLost(poller.handle(tag, number), GONE, ())


# -- sending ----------------------------------------------------------------------------------------------------------


def test_requests_wait_for_the_handshake_and_go_out_in_order(poller: ScriptedPoller, group: Start) -> None:
    run = group()
    run.want(ev.CoordinatorFound(HOME), send(1), send(2))
    assert (poller.handle("coordinator").host, poller.sent) == ("home", [])
    poller.deliver(connected(poller, "coordinator"))
    assert [poller.request(n).request.generation_id for n in (0, 1)] == [1, 2]
    assert poller.request(0).version == HeartbeatRequest.VERSIONS[1]
    handle = poller.handle("coordinator")
    poller.deliver(
        ResponseReceived(handle, 1, "second"),
        ResponseReceived(handle, 0, "first"),
        ResponseReceived(handle, 0, "again"),
    )
    version = HeartbeatRequest.VERSIONS[1]
    run.hears(ev.RequestAnswered(2, "second", version), ev.RequestAnswered(1, "first", version))


@pytest.mark.parametrize(
    ("api", "release", "words"),
    [
        (FindCoordinatorRequest, "0.8.1", "cannot find the group coordinator of group g: the broker is Kafka 0.8.1"),
        (JoinGroupRequest, "0.8.2", "cannot join group g: the broker is Kafka 0.8.2"),
    ],
)
def test_a_group_that_the_brokers_are_too_old_for_is_shown_the_ways_out(
    api: Any, release: str, words: str, poller: ScriptedPoller, group: Start
) -> None:
    run = group()
    run.want(replace(send(1), api=api))
    poller.deliver(ConnectionReady(poller.handle("coordinator"), BrokerVersions("old", {}, release)))
    run.until(lambda: bool(run.failures))
    assert isinstance(run.failures[0], ConfigError)
    for part in ("group g", words, "zookeeper.connect", "group.mode=commit"):
        assert part in str(run.failures[0])


def test_the_member_learns_what_the_broker_does_not_speak(poller: ScriptedPoller, group: Start) -> None:
    run = group()
    run.want(replace(send(1), optional=True))
    poller.deliver(ConnectionReady(poller.handle("coordinator"), BrokerVersions("old", {}, "0.8.1")))
    run.until(lambda: any(isinstance(event, ev.RequestFailed) for event in run.heard))
    (failed,) = [event for event in run.heard if isinstance(event, ev.RequestFailed)]
    assert failed.unsupported
    assert not run.failures


def test_no_version_above_the_ceiling_is_sent(poller: ScriptedPoller, group: Start) -> None:
    run = group()
    run.want(replace(send(1), api=OffsetFetchRequest, ceiling=0, build=lambda version: version))
    versions = BrokerVersions("b", {OffsetFetchRequest.API_KEY: (0, 5)})
    poller.deliver(ConnectionReady(poller.handle("coordinator"), versions))
    run.until(lambda: bool(poller.sent))
    assert poller.sent[0].request == 0


# -- where to ----------------------------------------------------------------------------------------------------------


def test_find_coordinator_goes_on_to_the_next_address_of_the_list(poller: ScriptedPoller, group: Start) -> None:
    run = group(client(("dead", 1), ("alive", 2)))
    run.script = lambda event: [find(event.token + 1)] if isinstance(event, ev.RequestFailed) else []
    run.want(find(1))
    poller.deliver(broken(poller, "any", 0))
    assert poller.handle("any", 1).host == "alive"
    poller.deliver(broken(poller, "any", 1))
    assert poller.handle("any", 2).host == "dead", "over and over"


def test_brokers_that_are_known_are_asked_before_the_bootstrap_list(poller: ScriptedPoller, group: Start) -> None:
    run = group(client(("dead", 1), ("home", 9092)), ClusterSnapshot({7: HOME}, {}))
    run.script = lambda event: [find(event.token + 1)] if isinstance(event, ev.RequestFailed) else []
    run.want(find(1))
    poller.deliver(broken(poller, "any", 0))
    poller.handle("any", 1)
    assert [(h.host, h.port) for h in poller.handles] == [("home", 9092), ("dead", 1)]


ASK = FindCoordinatorRequest(key="g")


@contextmanager
def broker_that_answers(answer: object) -> Iterator[FakeBroker]:
    """A broker on a real socket, asked for the group's coordinator."""
    broker = FakeBroker(
        {
            ApiVersionsRequest: lambda request, version: api_versions(findcoordinator=(3, 3), apiversions=(0, 3)),
            FindCoordinatorRequest: lambda request, version: answer,
        }
    )
    try:
        yield broker
    finally:
        broker.stop()


def test_a_dead_bootstrap_server_is_passed_over_on_real_sockets(group: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = closed.getsockname()[1]
    found = FindCoordinatorResponse(node_id=1, host="localhost", port=9092)
    request = Send(1, Lane.ANY, FindCoordinatorRequest, lambda version: ASK, 5_000)
    with broker_that_answers(found) as alive:
        run = group(client(("127.0.0.1", dead), ("127.0.0.1", alive.port)))
        run.script = lambda event: [request] if isinstance(event, ev.RequestFailed) else []
        run.want(request)
        run.until(lambda: len(run.heard) >= 2)
    failed, answered = run.heard[:2]
    assert isinstance(failed, ev.RequestFailed)
    assert f"127.0.0.1:{dead}" in failed.reason
    assert answered == ev.RequestAnswered(1, found, 3)


@pytest.mark.parametrize("error", [TlsError("untrusted"), ConfigError("no such file")])
def test_a_broker_to_which_no_retry_connects_fails_the_query(
    error: StreamGroupError, poller: ScriptedPoller, group: Start
) -> None:
    run = group()
    run.want(find(1))
    poller.deliver(ConnectionLost(poller.handle("any"), error, ()))
    run.until(lambda: run.failures == [error])


def test_another_coordinator_ends_the_connections_to_the_old_one_and_the_same_one_does_not(
    poller: ScriptedPoller, group: Start
) -> None:
    run = group()
    run.want(ev.CoordinatorFound(HOME), send(1), send(2, Lane.JOIN), find(3))
    lanes = [poller.handle(tag) for tag in ("coordinator", "join", "any")]
    poller.deliver(*[ConnectionReady(handle, VERSIONS) for handle in lanes])
    poller.request(2)
    run.want(ev.CoordinatorFound(HOME))
    run.carried_out()
    assert poller.dropped == []
    run.want(ev.CoordinatorFound(Broker(8, "other", 9092)), send(4))
    run.hears(*(ev.RequestFailed(n, f"{lanes[n - 1]}: {CLOSED}", moved=True) for n in (1, 2)))
    assert poller.dropped == [(lanes[0], True), (lanes[1], True)]
    assert poller.handle("coordinator", 1).host == "other"


# -- connections that end ---------------------------------------------------------------------------------------------


def test_a_send_on_a_lane_that_breaks_later_in_the_same_list_fails_and_is_tried_again(
    poller: ScriptedPoller, group: Start
) -> None:
    run = group()
    run.want(send(1), send(2, Lane.JOIN))
    poller.deliver(connected(poller, "coordinator"), connected(poller, "join"))
    asked = {sent.handle.tag: sent for sent in (poller.request(0), poller.request(1))}

    def script(event: ev.Event) -> list[Any]:
        match event:
            case ev.RequestAnswered(1):
                return [send(3, Lane.JOIN)]  # its connection is gone, which nobody has told yet
            case ev.RequestFailed(3):
                return [send(4, Lane.JOIN)]
        return []

    run.script = script
    first = asked["coordinator"]
    poller.deliver(ResponseReceived(first.handle, first.correlation_id, "x"), broken(poller, "join"))
    version = HeartbeatRequest.VERSIONS[1]
    run.hears(ev.RequestAnswered(1, "x", version), ev.RequestFailed(2, "gone"), ev.RequestFailed(3, "gone"))
    poller.deliver(connected(poller, "join", 1))
    assert poller.request(2).request.generation_id == 4
    assert run.failures == [], "nothing has failed for good"


@pytest.mark.parametrize("lane", list(Lane))
def test_a_connection_that_was_closed_as_idle_is_no_loss_and_is_opened_again(
    poller: ScriptedPoller, group: Start, lane: Lane
) -> None:
    run = group()
    run.want(send(1, lane))
    poller.deliver(connected(poller, lane.value))
    handle = poller.request(0).handle
    poller.deliver(ResponseReceived(handle, 0, "x"), ConnectionIdle(poller.handle(lane.value)))
    run.carried_out()
    run.hears(ev.RequestAnswered(1, "x", HeartbeatRequest.VERSIONS[1]))
    run.want(send(2, lane))
    assert poller.handle(lane.value, 1), "the next request has a connection of its own"


def test_a_reset_fails_what_is_out_and_takes_no_answer_any_more(poller: ScriptedPoller, group: Start) -> None:
    run = group()
    run.want(send(1, Lane.JOIN))
    handle = poller.handle("join")
    poller.deliver(ConnectionReady(handle, VERSIONS))
    poller.request(0)
    run.want(ev.ResetConnection(Lane.JOIN), ev.ResetConnection(Lane.ANY))
    run.hears(ev.RequestFailed(1, f"{handle}: {CLOSED}"))
    poller.deliver(ResponseReceived(handle, 0, "late"))
    run.carried_out()
    assert poller.dropped == [(handle, True)]
    closed = ev.RequestFailed(1, f"{handle}: {CLOSED}")
    assert [event for event in run.heard if event != ev.Tick()] == [closed]


# -- time -------------------------------------------------------------------------------------------------------------


def test_an_overdue_request_resets_its_connection_and_fails_all_that_was_on_it(
    poller: ScriptedPoller, group: Start
) -> None:
    run = group()
    run.want(send(1), find(3))
    coordinator = poller.handle("coordinator")
    poller.deliver(ConnectionReady(coordinator, VERSIONS), connected(poller, "any"))
    poller.request(1)
    run.want(send(2, timeout_ms=20))
    reason = f"{coordinator}: no response to Heartbeat within the timeout"
    run.hears(ev.RequestFailed(1, reason), ev.RequestFailed(2, reason))
    assert poller.dropped == [(coordinator, True)], "the other lane is not concerned"


def test_on_real_sockets_an_overdue_request_ends_in_a_reset(group: Start) -> None:
    with broker_that_answers(SILENCE) as broker:
        run = group(client(("127.0.0.1", broker.port)))
        # Not as short as could be: the handshake must be over before, for the broker to have the request.
        run.want(Send(1, Lane.ANY, FindCoordinatorRequest, lambda version: ASK, 300))
        run.until(lambda: bool(run.heard))
        broker.wait_for(lambda b: b.resets == 1)
    assert broker.asked("FindCoordinator") == [ASK]
    assert "no response to FindCoordinator within the timeout" in run.heard[0].reason  # type: ignore[union-attr]


def test_lanes_overdue_together_where_the_first_failure_gives_the_second_up(
    poller: ScriptedPoller, group: Start
) -> None:
    run = group()

    def script(event: ev.Event) -> list[Any]:
        return [ev.ResetConnection(Lane.JOIN), send(3, Lane.JOIN)] if event.token == 1 else []  # type: ignore[union-attr]

    run.script = script
    run.want(send(1, timeout_ms=5), send(2, Lane.JOIN, timeout_ms=5))
    coordinator, join = poller.handle("coordinator"), poller.handle("join")
    run.hears(
        ev.RequestFailed(1, f"{coordinator}: no response to Heartbeat within the timeout"),
        ev.RequestFailed(2, f"{join}: {CLOSED}"),
    )
    poller.deliver(connected(poller, "join", 1))
    assert poller.request(0).request.generation_id == 3
    assert run.failures == []


def test_whatever_the_member_raises_fails_the_query(
    poller: ScriptedPoller, group: Start, caplog: pytest.LogCaptureFixture
) -> None:
    run = group()

    def script(event: ev.Event) -> list[Any]:
        raise KeyError("a defect")

    run.script = script
    with run.changed:
        run.wake_at = 0.0
    poller.wake()
    run.until(lambda: bool(run.failures))
    assert "a defect" in str(run.failures[0])
    until(lambda: poller.closed, "closed")


def test_stop_ends_the_thread_and_closes_its_connections(poller: ScriptedPoller, group: Start) -> None:
    run = group()
    run.want(Send(1, Lane.JOIN, JoinGroupRequest, lambda version: None, 30_000))
    poller.handle("join")
    run.thread.stop(SOON)
    assert poller.closed
    assert run.heard == []

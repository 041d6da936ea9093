"""The peers of the coordinator's threads, in memory: pollers, the inbox of a run; and the options that they take.

Every wait has a deadline.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from streamgroup.coordinator.run.interface import ThreadFailed
from streamgroup.coordinator.threads.group_backend import ActionExecutor
from streamgroup.group import events as ev
from streamgroup.kafka.net.poller import ConnectionLost, ConnectionReady, Event, Handle, ResponseReceived
from streamgroup.kafka.wire.messages.admin import DescribeGroupsRequest
from streamgroup.kafka.wire.messages.cluster import MetadataRequest
from streamgroup.kafka.wire.messages.group import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from streamgroup.kafka.wire.versions import BrokerVersions
from streamgroup.model import EARLIEST, ConfiguredOffsets
from streamgroup.options.types import (
    ClientOptions,
    FetchOptions,
    GroupOptions,
    LimitOptions,
    SourceOptions,
    SplitOptions,
    Subscription,
)
from tests.fakes.group_coordinator import ScriptedCoordinator, through_bytes
from tests.waiting import wait_until

SOON = 60.0
"""Seconds that nothing here may take."""

_APIS = (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    MetadataRequest,
    SyncGroupRequest,
)
_OFFSET_APIS = (OffsetCommitRequest, OffsetFetchRequest)
VERSIONS = BrokerVersions(
    "fake", {a.API_KEY: a.VERSIONS for a in _APIS} | {a.API_KEY: (a.VERSIONS[0], 9) for a in _OFFSET_APIS}
)
"""Offsets by name: the coordinator in memory knows no topic ids."""


def client(*servers: tuple[str, int], **others: Any) -> ClientOptions:
    shorter = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 10, "default_api_timeout_ms": 60_000}
    return ClientOptions(bootstrap_servers=servers or (("127.0.0.1", 9092),), **{**shorter, **others})


def source(
    starting: int = EARLIEST, *, group: GroupOptions | None = None, topics: tuple[str, ...] = ("t",), **others: Any
) -> SourceOptions:
    given = {
        "client": client(),
        "subscription": Subscription(topics=topics),
        "starting": ConfiguredOffsets(starting),
        "ending": None,
        "fetch": FetchOptions(),
        "limits": LimitOptions(),
        "split": SplitOptions(),
        "group": group or GroupOptions("g"),
        "fetch_offset_retry_interval_ms": 5,
    }
    return SourceOptions(**{**given, **others})


def until(condition: Callable[[], bool], what: str = "") -> None:
    """`wait_until` with the timeout of a unit test, which looks often."""
    wait_until(condition, what, SOON, every=0.002)


@contextmanager
def running(target: Callable[[], Any]) -> Iterator[threading.Thread]:
    """A thread that has ended when the block has."""
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    yield thread
    thread.join(SOON)
    assert not thread.is_alive(), f"{target} has not ended"


@dataclass(frozen=True)
class Sent:
    handle: Handle
    correlation_id: int
    request: Any
    version: int


class ScriptedPoller:
    """As `Poller`: what happens on its connections is said by `deliver`, one list of events for one `wait`."""

    def __init__(self, _options: ClientOptions | None = None) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.handles: list[Handle] = []
        self.sent: list[Sent] = []
        self.dropped: list[tuple[Handle, bool]] = []
        self.closed = False
        self._live: dict[Handle, BrokerVersions | None] = {}
        self._pending: list[Event] = []
        self._woken = False

    def connect(self, host: str, port: int, tag: str = "") -> Handle:
        with self.changed:
            handle = Handle(len(self.handles), host, port, tag)
            self.handles.append(handle)
            self._live[handle] = None
            self.changed.notify_all()
            return handle

    def send(self, handle: Handle, request: Any, version: int | None = None, _ceiling: int | None = None) -> int:
        with self.changed:
            assert self._live[handle] is not None, "sent before it was connected"
            assert version is not None
            self.sent.append(Sent(handle, len(self.sent), request, version))
            self.changed.notify_all()
            return self.sent[-1].correlation_id

    def versions(self, handle: Handle) -> BrokerVersions | None:
        return self._live[handle]

    def drop(self, handle: Handle, *, reset: bool) -> None:
        with self.changed:
            if self._live.pop(handle, None) is not None or handle not in {h for h, _ in self.dropped}:
                self.dropped.append((handle, reset))
            self._pending = [event for event in self._pending if event.handle != handle]
            self.changed.notify_all()

    def wake(self) -> None:
        with self.changed:
            self._woken = True
            self.changed.notify_all()

    def wait(self, timeout: float | None) -> list[Event]:
        with self.changed:
            self.changed.wait_for(lambda: bool(self._pending) or self._woken, timeout)
            self._woken = False
            events, self._pending = self._pending, []
            for event in events:  # as in the real one: when the list is returned all of it has happened
                if isinstance(event, ConnectionReady) and event.handle in self._live:
                    self._live[event.handle] = event.versions
                elif isinstance(event, ConnectionLost):
                    self._live.pop(event.handle, None)
            return events

    def close(self, *, reset: bool = False) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    # -- the test's side ----------------------------------------------------------------------------------------------

    def deliver(self, *events: Event) -> None:
        with self.changed:
            self._pending += events
            self.changed.notify_all()

    def handle(self, tag: str, number: int = 0) -> Handle:
        """The connection number `number` of that lane, as soon as it is there."""
        self._until(lambda: len(self._tagged(tag)) > number, f"connection {number} of {tag}")
        return self._tagged(tag)[number]

    def request(self, number: int) -> Sent:
        self._until(lambda: len(self.sent) > number, f"request {number}")
        return self.sent[number]

    def _tagged(self, tag: str) -> list[Handle]:
        return [handle for handle in self.handles if handle.tag == tag]

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, SOON), f"it never came to {what}: {self.handles}, {self.sent}"


class GroupPoller(ScriptedPoller):
    """Connects at once, and a coordinator in memory answers. `held` are APIs whose requests wait for `release`."""

    def __init__(self, coordinator: ScriptedCoordinator, held: set[type[Any]]) -> None:
        super().__init__()
        self.coordinator = coordinator
        self.held = held
        self.waiting: list[Sent] = []

    def connect(self, host: str, port: int, tag: str = "") -> Handle:
        handle = super().connect(host, port, tag)
        self.deliver(ConnectionReady(handle, VERSIONS))
        return handle

    def send(self, handle: Handle, request: Any, version: int | None = None, _ceiling: int | None = None) -> int:
        with self.changed:
            correlation_id = super().send(handle, request, version)
            if type(request) in self.held:
                self.waiting.append(self.sent[-1])
            else:
                self._handle(self.sent[-1])
            return correlation_id

    def release(self) -> None:
        """Answer the requests that were held back, and hold nothing back any more."""
        with self.changed:
            self.held.clear()
            waiting, self.waiting = self.waiting, []
            for sent in waiting:
                self._handle(sent)

    def asked(self, api: type[Any]) -> int:
        with self.changed:
            return sum(isinstance(sent.request, api) for sent in self.sent)

    def _handle(self, sent: Sent) -> None:
        answered = lambda response: self.deliver(ResponseReceived(sent.handle, sent.correlation_id, response))  # noqa: E731
        through_bytes(self.coordinator, sent.request, sent.version, answered)


class FakeInbox:
    """`script` gives the actions that follow from an event."""

    def __init__(self) -> None:
        self.thread: ActionExecutor | None = None
        self.changed = threading.Condition(threading.RLock())
        self.heard: list[Any] = []
        self.failures: list[Exception] = []
        """The errors that fail the query."""
        self.script: Callable[[Any], list[Any]] = lambda event: []
        self.wake_at: float | None = None

    def post(self, event: Any) -> None:
        with self.changed:
            if isinstance(event, ThreadFailed):
                self.failures.append(event.error)
            else:
                self.heard.append(event)
                if isinstance(event, ev.Tick):
                    self.wake_at = None
                self.want(*self.script(event))
            self.changed.notify_all()

    def tick(self, now: float) -> None:
        if self.wake_at is not None and now >= self.wake_at:
            self.post(ev.Tick())

    def want(self, *actions: Any) -> None:
        assert self.thread is not None
        for action in actions:
            self.thread.carry_out(action)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SOON
        with self.changed:
            while not condition():
                assert time.monotonic() < deadline, f"heard {self.heard}, failed by {self.failures}"
                self.changed.wait(0.005)  # what a poller or a session does notifies nobody here

    def hears(self, *events: Any) -> None:
        """All of these, in this order, and nothing else but ticks."""

        def heard() -> list[Any]:
            return [event for event in self.heard if not isinstance(event, ev.Tick)]

        self.until(lambda: len(heard()) >= len(events))
        assert heard() == list(events)

"""The group thread: sends the member's requests on its own connections, and checks the query's timers.

Only its loop uses these sockets. It passes responses and lost connections to the query's inbox.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from streamgroup.coordinator.run.interface import ThreadFailed
from streamgroup.coordinator.threads.group_backend import RunInbox
from streamgroup.errors import AuthError, ConfigError, StreamGroupError, TransportError, UnsupportedVersionError
from streamgroup.group import events as ev
from streamgroup.group.events import Lane, Send
from streamgroup.group.lanes import RequestLanes
from streamgroup.group.member import MemberAction
from streamgroup.group.requests import not_spoken
from streamgroup.kafka.net.poller import (
    ConnectionIdle,
    ConnectionLost,
    ConnectionReady,
    Handle,
    Poller,
    ResponseReceived,
)
from streamgroup.kafka.net.poller import Event as PollerEvent
from streamgroup.model import ClusterSnapshot
from streamgroup.options.types import ClientOptions

log = logging.getLogger("streamgroup")

LONGEST_WAIT_S = 5.0


class GroupThread:
    """Sends the requests of the member of `group` to brokers. Implements `ActionExecutor`."""

    def __init__(
        self, inbox: RunInbox, options: ClientOptions, group: str, snapshot: Callable[[], ClusterSnapshot]
    ) -> None:
        self._inbox = inbox
        self._options = options
        self._group = group
        self._snapshot = snapshot
        self._poller = Poller(options)
        self._outbox: deque[MemberAction] = deque()
        """Actions that wait for the loop. Any thread may append one."""
        self._received: list[PollerEvent] = []
        """Events of the poller that wait for the loop."""
        self._lanes: RequestLanes[Handle] = RequestLanes()
        self._addresses = self._any_addresses()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="streamgroup-group", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        self._stopping = True
        self._poller.wake()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def carry_out(self, action: MemberAction) -> None:
        self._outbox.append(action)
        self.wake()

    def wake(self) -> None:
        if threading.get_ident() != self._thread.ident:
            self._poller.wake()

    # --- the loop ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn(time.monotonic())
        except Exception as error:
            log.exception("group %s: the thread for requests to the group coordinator has failed", self._group)
            text = f"group {self._group}: the thread for requests to the group coordinator has failed: {error!r}"
            self._inbox.post(ThreadFailed(StreamGroupError(text)))
        finally:
            self._poller.close()

    def _turn(self, now: float) -> None:
        """Handle events, actions and timers that are due. Wait only if there are none: `now` is too old after it."""
        received, self._received = self._received, []
        is_idle = not received and not self._outbox and self._wait_for(now) > 0
        for event in self._translate(received, now):
            self._inbox.post(event)
            self._perform(now)
        self._inbox.tick(now)
        self._perform(now)
        self._received = self._poller.wait(self._wait_for(now) if is_idle else 0.0)

    def _wait_for(self, now: float) -> float:
        times = [now + LONGEST_WAIT_S, self._lanes.next_due]
        if (wake_at := self._inbox.wake_at) is not None:
            times.append(wake_at)
        return max(0.0, min(times) - now)

    def _translate(self, received: list[PollerEvent], now: float) -> Iterator[ev.Event]:
        """Translate the poller's events to the member's."""
        for event in received:
            lane = self._lanes.lane_of(event.handle)
            if lane is None:
                continue
            match event:
                case ConnectionReady():
                    for send in self._lanes.ready(lane):
                        self._put(send)
                case ResponseReceived():
                    answered = self._lanes.answered(lane, event.correlation_id)
                    if answered is not None:
                        send, version = answered
                        yield ev.RequestAnswered(send.token, event.response, version)
                case ConnectionLost():
                    if isinstance(event.error, AuthError | ConfigError):  # retrying will not help
                        self._inbox.post(ThreadFailed(event.error))
                    yield from self._lanes.broken(lane, str(event.error))
                case ConnectionIdle():  # the next request of the lane connects again
                    yield from self._lanes.closed(lane, "idle")
        for lane, names in self._lanes.overdue(now):
            handle = self._drop(lane)
            yield from self._lanes.broken(lane, f"{handle}: no response to {', '.join(names)} within the timeout")

    # --- actions -----------------------------------------------------------------------------------------------------

    def _perform(self, now: float) -> None:
        while self._outbox:
            action = self._outbox.popleft()
            match action:
                case Send():
                    self._send(action, now)
                case ev.ResetConnection(lane):
                    self._reset(lane)
                case ev.CoordinatorFound(broker):
                    for lane in self._lanes.found(broker):
                        self._reset(lane, moved=True)
                case _:
                    raise AssertionError(f"the group's thread cannot carry out {action}")

    def _reset(self, lane: Lane, *, moved: bool = False) -> None:
        """Close a lane's connection; its pending requests fail."""
        if self._lanes.is_open(lane):
            handle = self._drop(lane)
            for event in self._lanes.closed(lane, f"{handle}: connection closed before the response", moved=moved):
                self._inbox.post(event)

    def _drop(self, lane: Lane) -> Handle:
        """Reset a lane's connection, so that no response arrives on it any more (R18)."""
        handle = self._lanes.handle(lane)
        assert handle is not None
        self._poller.drop(handle, reset=True)
        return handle

    def _send(self, send: Send, now: float) -> None:
        if not self._lanes.is_open(send.lane):
            self._lanes.opened(send.lane, self._connect(send.lane))
        if self._lanes.add(send, now):
            self._put(send)

    def _connect(self, lane: Lane) -> Handle:
        broker = self._lanes.broker_of(lane)
        host, port = next(self._addresses) if broker is None else (broker.host, broker.port)
        return self._poller.connect(host, port, lane.value)

    def _any_addresses(self) -> Iterator[tuple[str, int]]:
        """Yield the brokers to ask for the group coordinator: the known ones, then the bootstrap list, endlessly."""
        for turn in itertools.count():
            known = [(b.host, b.port) for b in self._snapshot().brokers.values()]
            candidates = list(dict.fromkeys([*known, *self._options.bootstrap_servers]))
            yield candidates[turn % len(candidates)]

    def _put(self, send: Send) -> None:
        handle = self._lanes.handle(send.lane)
        assert handle is not None
        try:
            versions = self._poller.versions(handle)
            assert versions is not None
            try:
                version = versions.highest(send.api, send.ceiling)
            except UnsupportedVersionError as error:
                self._unsupported(send, versions.release, error)
                return
            correlation_id = self._poller.send(handle, send.build(version), version)
        except (KeyError, TransportError):  # the connection broke: its event follows in the list
            self._lanes.not_sent(send)
        except StreamGroupError as error:
            self._lanes.forget(send)
            self._inbox.post(ThreadFailed(error))
        else:
            self._lanes.sent(send, correlation_id, version)

    def _unsupported(self, send: Send, release: str, error: UnsupportedVersionError) -> None:
        self._lanes.forget(send)
        if send.optional:
            self._inbox.post(ev.RequestFailed(send.token, str(error), unsupported=True))
        else:
            self._inbox.post(ThreadFailed(not_spoken(self._group, send.api, release, error)))

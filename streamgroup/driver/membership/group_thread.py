"""The group's thread: carries out the member's requests on connections of its own, and keeps the run's timers.

Only its loop uses these sockets. It leaves what it receives in the run's inbox.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from streamgroup.driver.membership.executor import RunInbox
from streamgroup.errors import AuthError, ConfigError, StreamGroupError, TransportError, UnsupportedVersionError
from streamgroup.group import events as ev
from streamgroup.group.events import Lane, Send
from streamgroup.group.member import MemberAction
from streamgroup.group.requests import not_spoken
from streamgroup.model import Broker, ClusterSnapshot
from streamgroup.net.poller import Broken, Connected, Handle, Poller, ResponseReceived
from streamgroup.options.types import ClientOptions
from streamgroup.run.interface import ThreadFailed

log = logging.getLogger("streamgroup")

LONGEST_WAIT_S = 5.0


@dataclass(slots=True)
class _Line:
    """The connection of one lane, with requests that wait for its handshake and requests without a response."""

    handle: Handle
    ready: bool = False
    waiting: list[Send] = field(default_factory=list)
    unanswered: dict[int, tuple[Send, int]] = field(default_factory=dict)
    """By correlation id: the request and the version in which it was sent."""


class GroupThread:
    """Carries out requests of the member of `group` at brokers."""

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
        self._received: list[Connected | ResponseReceived | Broken] = []
        """Events of the poller that wait for the loop."""
        self._lines: dict[Lane, _Line] = {}
        self._due: dict[int, float] = {}  # by token; a response, a broken connection or the timeout removes each entry
        self._coordinator: Broker | None = None
        self._addresses = self._any_addresses()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="streamgroup-group", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Close the connections in order and end the thread."""
        self._stopping = True
        self._poller.wake()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def carry_out(self, action: MemberAction) -> None:
        """Leave an action with this thread."""
        self._outbox.append(action)
        self.wake()

    def wake(self) -> None:
        """Have the loop look at the run's timers again."""
        if threading.get_ident() != self._thread.ident:
            self._poller.wake()

    # --- the loop ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn(time.monotonic())
        except Exception as error:
            log.exception("group %s: the thread for requests to the coordinator has failed", self._group)
            text = f"group {self._group}: the thread for requests to the coordinator has failed: {error!r}"
            self._inbox.post(ThreadFailed(StreamGroupError(text)))
        finally:
            self._poller.close()

    def _turn(self, now: float) -> None:
        """Handle what has come and what is due. Wait only if that is nothing: `now` would be too old after it."""
        received, self._received = self._received, []
        is_idle = not received and not self._outbox and self._wait_for(now) > 0
        for event in self._translate(received, now):
            self._inbox.post(event)
            self._perform(now)
        self._inbox.tick(now)
        self._perform(now)
        self._received = self._poller.wait(self._wait_for(now) if is_idle else 0.0)

    def _wait_for(self, now: float) -> float:
        times = [now + LONGEST_WAIT_S, *self._due.values()]
        if (wake_at := self._inbox.wake_at) is not None:
            times.append(wake_at)
        return max(0.0, min(times) - now)

    def _translate(self, received: list[Connected | ResponseReceived | Broken], now: float) -> Iterator[ev.Event]:
        """Translate the poller's events to the member's."""
        for event in received:
            lane = next((lane for lane, line in self._lines.items() if line.handle == event.handle), None)
            if lane is None:
                continue
            match event:
                case Connected():
                    self._connected(lane)
                case ResponseReceived():
                    answered = self._lines[lane].unanswered.pop(event.correlation_id, None)
                    if answered is not None and self._due.pop(answered[0].token, None) is not None:
                        yield ev.RequestAnswered(answered[0].token, event.response, answered[1])
                case Broken():
                    if isinstance(event.error, AuthError | ConfigError):  # no retry mends it
                        self._inbox.post(ThreadFailed(event.error))
                    yield from self._broken(lane, str(event.error))
        yield from self._overdue(now)

    def _broken(self, lane: Lane, reason: str) -> Iterator[ev.Event]:
        line = self._lines.pop(lane)
        sends = [send for send, _ in line.unanswered.values()] + line.waiting
        # An idle JOIN connection may end: brokers close connections that are idle for long.
        if lane is Lane.COORDINATOR and not sends:
            yield ev.CoordinatorGone(reason)
        for send in sends:
            if self._due.pop(send.token, None) is not None:
                yield ev.RequestFailed(send.token, reason)

    def _overdue(self, now: float) -> Iterator[ev.Event]:
        """Close connections with an overdue response, which must not be taken for a later request's (R18)."""
        late = {token for token, due in self._due.items() if now >= due}
        for lane, line in tuple(self._lines.items()):
            if self._lines.get(lane) is not line:  # the member has reset it on an event of the lane before
                continue
            sends = [*line.waiting, *(send for send, _ in line.unanswered.values())]
            names = [send.api.NAME for send in sends if send.token in late]
            if names:
                self._poller.drop(line.handle, reset=True)
                yield from self._broken(lane, f"{line.handle}: no answer to {', '.join(names)} in time")

    # --- actions -----------------------------------------------------------------------------------------------------

    def _perform(self, now: float) -> None:
        while self._outbox:
            action = self._outbox.popleft()
            match action:
                case Send():
                    self._due[action.token] = now + action.timeout_ms / 1000
                    self._send(action)
                case ev.Reset(lane):
                    self._reset(lane)
                case ev.CoordinatorFound(broker):
                    if self._coordinator != broker:
                        self._coordinator = broker
                        for lane in (Lane.COORDINATOR, Lane.JOIN):
                            self._reset(lane)
                case _:
                    raise AssertionError(f"the group's thread cannot carry out {action}")

    def _reset(self, lane: Lane) -> None:
        """Close a lane's connection; its pending requests fail."""
        line = self._lines.pop(lane, None)
        if line is None:
            return
        self._poller.drop(line.handle, reset=True)
        for send in (*line.waiting, *(send for send, _ in line.unanswered.values())):
            if self._due.pop(send.token, None) is not None:
                self._inbox.post(ev.RequestFailed(send.token, f"{line.handle}: given up"))

    def _send(self, send: Send) -> None:
        line = self._lines.get(send.lane)
        if line is None:
            line = self._lines[send.lane] = _Line(self._connect(send.lane))
        if line.ready:
            self._put(line, send)
        else:
            line.waiting.append(send)

    def _connect(self, lane: Lane) -> Handle:
        if lane is not Lane.ANY and self._coordinator is not None:
            return self._poller.connect(self._coordinator.host, self._coordinator.port, lane.value)
        host, port = next(self._addresses)
        return self._poller.connect(host, port, lane.value)

    def _any_addresses(self) -> Iterator[tuple[str, int]]:
        """Yield the brokers to ask for the coordinator: the known ones, then the bootstrap list, endlessly."""
        for turn in itertools.count():
            known = [(b.host, b.port) for b in self._snapshot().brokers.values()]
            candidates = list(dict.fromkeys([*known, *self._options.bootstrap_servers]))
            yield candidates[turn % len(candidates)]

    def _connected(self, lane: Lane) -> None:
        line = self._lines[lane]
        line.ready = True
        waiting, line.waiting = line.waiting, []
        for send in waiting:
            self._put(line, send)

    def _put(self, line: _Line, send: Send) -> None:
        try:
            versions = self._poller.versions(line.handle)
            assert versions is not None
            try:
                version = versions.highest(send.api, send.ceiling)
            except UnsupportedVersionError as error:
                self._unsupported(send, versions.release, error)
                return
            correlation_id = self._poller.send(line.handle, send.build(version), version)
        except (
            KeyError,
            TransportError,
        ):  # the connection broke: its event follows in the list and fails this request, too
            line.waiting.append(send)
            return
        except StreamGroupError as error:
            self._due.pop(send.token, None)
            self._inbox.post(ThreadFailed(error))
            return
        line.unanswered[correlation_id] = (send, version)

    def _unsupported(self, send: Send, release: str, error: UnsupportedVersionError) -> None:
        self._due.pop(send.token, None)
        if send.optional:
            self._inbox.post(ev.RequestFailed(send.token, str(error), unsupported=True))
        else:
            self._inbox.post(ThreadFailed(not_spoken(self._group, send.api, release, error)))

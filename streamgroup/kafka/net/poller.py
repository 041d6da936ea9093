"""Serves non-blocking connections to many brokers in one thread.

The poller sets no deadline for requests: its caller drops a connection if a response is overdue. The poller itself ends
only a connection setup, after `connection_setup_timeout_ms`.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable
from typing import Any

from streamgroup.errors import StreamGroupError
from streamgroup.frozen import frozen
from streamgroup.kafka.net.link import AnyRequest, Link, Phase
from streamgroup.kafka.net.protocol import CorrelatedResponse
from streamgroup.kafka.wire.versions import BrokerVersions
from streamgroup.model import Dialect
from streamgroup.options.types import ClientOptions
from streamgroup.text import host_port


@frozen
class Handle:
    """Identifies one connection of a poller. Handles are never used again. `tag` is a name that the caller chooses."""

    number: int
    host: str
    port: int
    tag: str

    def __str__(self) -> str:
        return f"{self.tag} {host_port(self.host, self.port)} #{self.number}"


@frozen
class ConnectionReady:
    """The event that the handshake of a connection is done. The poller sends the queued requests."""

    handle: Handle
    versions: BrokerVersions


@frozen
class ResponseReceived:
    """The event that a response has arrived."""

    handle: Handle
    correlation_id: int
    response: Any
    version: int = 0
    """The version of the request."""
    throttle_s: float = 0.0
    """Seconds for which the broker reads no further request of the connection, because of a quota."""


@frozen
class ConnectionLost:
    """The event that a connection failed. Its handle is then invalid.

    The requests in `unanswered` may or may not have taken effect.
    """

    handle: Handle
    error: StreamGroupError
    unanswered: tuple[int, ...]


@frozen
class ConnectionIdle:
    """The event that the poller has closed a connection that was not used for `connections.max.idle.ms`.

    Its handle is then invalid.
    """

    handle: Handle


Event = ConnectionReady | ResponseReceived | ConnectionLost | ConnectionIdle


class Poller:
    """Opens connections, sends requests and returns responses as events. One thread uses it.

    Other threads may only call `wake`.
    """

    def __init__(
        self, options: ClientOptions, clock: Callable[[], float] = time.monotonic, dialect: Dialect = Dialect.KAFKA
    ) -> None:
        self._options = options
        self._clock = clock
        self._dialect = dialect
        self._links: dict[Handle, Link] = {}
        self._next_number = 0
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)

    def connect(self, host: str, port: int, tag: str = "") -> Handle:
        """Start connecting. A later `wait` returns `ConnectionReady` or `ConnectionLost`."""
        handle = Handle(self._next_number, host, port, tag)
        self._next_number += 1
        self._links[handle] = Link(host, port, self._options, self._clock(), self.wake, dialect=self._dialect)
        return handle

    def send(self, handle: Handle, request: AnyRequest, version: int | None = None, ceiling: int | None = None) -> int:
        """Queue `request` and return its correlation id. `wait` sends it once the connection is set up.

        `version` defaults to the highest version that client and broker support, at most `ceiling`. Raises
        UnsupportedVersionError if the connection is ready; before that the error comes in a `ConnectionLost`. Raises
        KeyError for an invalid handle.
        """
        return self._links[handle].send(request, version, ceiling)

    def has(self, handle: Handle) -> bool:
        """Return whether the handle is valid: `wait` has not returned its ConnectionLost or ConnectionIdle."""
        return handle in self._links

    def versions(self, handle: Handle) -> BrokerVersions | None:
        """Return the API versions of the broker; None before `ConnectionReady`. Raises KeyError for invalid handles."""
        return self._links[handle].versions

    def has_sent_all(self, handle: Handle) -> bool:
        """Return whether the socket has accepted all requests of `handle`. Raises KeyError for an invalid handle."""
        return self._links[handle].has_sent_all

    def throttled_s(self, handle: Handle) -> float:
        """Return how many seconds the broker will read no requests because of a quota; 0 for an invalid handle."""
        link = self._links.get(handle)
        return 0.0 if link is None else link.throttled_s(self._clock())

    def drop(self, handle: Handle, *, reset: bool) -> None:
        """Close a connection without any further event. With `reset` no request in transit takes effect later (R18)."""
        link = self._links.pop(handle, None)
        if link is not None:
            link.close(reset=reset)

    def wake(self) -> None:
        """End the current `wait`, or the next one. Any thread may call this, any number of times."""
        with contextlib.suppress(OSError):  # a full pipe ends the wait as well, and a closed poller has none
            self._waker.send(b"\0")

    def wait(self, timeout: float | None) -> list[Event]:
        """Send and receive until there are events, `wake` is called or `timeout` seconds have passed.

        Returns the events, in order for each connection; none after a wake or a timeout. ConnectionIdle events come
        first, so that the caller uses no connection that the poller has closed. If the caller drops a connection while
        it handles the list, later events of that connection are still in the list.
        """
        now = self._clock()
        until = None if timeout is None else now + timeout
        events = self._close_idle(now)
        while True:
            events += self._advance([h for h, link in self._links.items() if _has_work(link)])
            now = self._clock()
            left = 0.0 if events else self._left(now, until)
            ready, woken = self._poll(left)
            now = self._clock()
            events += self._advance(
                [h for h, link in self._links.items() if link.fileno in ready or _is_due(link, now)]
            )
            if events or woken or (until is not None and now >= until):
                return events

    def _close_idle(self, now: float) -> list[Event]:
        idle = [handle for handle, link in self._links.items() if link.is_idle(now)]
        for handle in idle:
            self.drop(handle, reset=False)
        return [ConnectionIdle(handle) for handle in idle]

    def close(self, *, reset: bool = False) -> None:
        """Drop all connections and release the poller's sockets."""
        for handle in tuple(self._links):
            self.drop(handle, reset=reset)
        self._woken.close()
        self._waker.close()

    def _left(self, now: float, until: float | None) -> float | None:
        """Return the seconds until `until`, or until the next connection setup is due; 0 if a link can read at once."""
        if any(link.pending for link in self._links.values()):
            return 0.0
        times = [link.due for link in self._links.values() if link.due is not None]
        if until is not None:
            times.append(until)
        return max(0.0, min(times) - now) if times else None

    def _poll(self, seconds: float | None) -> tuple[frozenset[int | None], bool]:
        """Wait for sockets, and return the ready descriptors and whether `wake` was called.

        Each call makes a new poll object: there are few connections, and no registration can become stale.
        """
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        for link in self._links.values():
            if link.fileno is not None:
                poll.register(link.fileno, link.interest)
        ready = {fd for fd, _ in poll.poll(None if seconds is None else seconds * 1000)}
        woken = self._woken.fileno() in ready
        if woken:
            with contextlib.suppress(BlockingIOError):
                while len(self._woken.recv(4096)) == 4096:
                    pass
        return frozenset(ready), woken

    def _advance(self, handles: list[Handle]) -> list[Event]:
        return [event for handle in handles for event in self._step(handle, self._links[handle])]

    def _step(self, handle: Handle, link: Link) -> list[Event]:
        events: list[Event] = []
        answers: list[CorrelatedResponse] = []
        before, knew = link.phase, link.versions is not None  # a Kafka 0.7 connection knows its versions at once
        error: StreamGroupError | None = None
        try:
            link.advance(self._clock(), answers)
        except StreamGroupError as caught:
            error = caught
        ready = link.phase is Phase.READY or not knew
        if before is not Phase.READY and ready and link.versions is not None:
            events.append(ConnectionReady(handle, link.versions))
        events += [ResponseReceived(handle, *answer) for answer in answers]
        if error is not None:
            del self._links[handle]
            events.append(ConnectionLost(handle, error, link.unanswered))
        return events


def _has_work(link: Link) -> bool:
    """Return whether `link` may advance without a socket event: a look-up, decrypted bytes, or bytes to send."""
    return link.fileno is None or link.pending or bool(link.interest & select.POLLOUT)


def _is_due(link: Link, now: float) -> bool:
    return link.due is not None and now >= link.due

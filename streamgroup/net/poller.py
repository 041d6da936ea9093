"""Many connections in one thread: what the group's thread waits on.

No request has a deadline here: who asks has a clock, and drops a connection whose answer is overdue. Only the setting
up of a connection ends by itself, after `connection_setup_timeout_ms`.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamgroup.errors import StreamGroupError
from streamgroup.model import Dialect
from streamgroup.net.link import AnyRequest, Link, Phase
from streamgroup.net.protocol import Answer
from streamgroup.options.types import ClientOptions
from streamgroup.wire.versions import BrokerVersions


@dataclass(frozen=True, slots=True)
class Handle:
    """Names one connection of a poller; never used twice. `tag` is the caller's own name for it."""

    number: int
    host: str
    port: int
    tag: str

    def __str__(self) -> str:
        return f"{self.tag} {self.host}:{self.port} #{self.number}"


@dataclass(frozen=True, slots=True)
class Connected:
    """The handshake is done: what was sent before goes out now."""

    handle: Handle
    versions: BrokerVersions


@dataclass(frozen=True, slots=True)
class Received:
    """An answer."""

    handle: Handle
    correlation_id: int
    response: Any
    version: int = 0
    """The one that was asked in."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The connection has ended; whether what is `unanswered` has taken effect is unknown. The handle is void."""

    handle: Handle
    error: StreamGroupError
    unanswered: tuple[int, ...]


Event = Connected | Received | Broken


class Poller:
    """Connections that are opened, used and waited for by one thread; only `wake` may be called from others."""

    def __init__(
        self,
        options: ClientOptions,
        clock: Callable[[], float] = time.monotonic,
        dialect: Dialect = Dialect.KAFKA,
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
        """Begin to connect; `wait` tells with `Connected` or `Broken` what came of it."""
        handle = Handle(self._next_number, host, port, tag)
        self._next_number += 1
        self._links[handle] = Link(host, port, self._options, self._clock(), self.wake, dialect=self._dialect)
        return handle

    def send(self, handle: Handle, request: AnyRequest, version: int | None = None, ceiling: int | None = None) -> int:
        """Queue `request`; its correlation id. It goes out in `wait`, at the earliest when connected.

        `version` is the highest that both know, at most `ceiling`, unless given. UnsupportedVersionError is raised
        here once connected; before that it comes as the error of `Broken`. A void handle is a KeyError.
        """
        return self._links[handle].send(request, version, ceiling)

    def versions(self, handle: Handle) -> BrokerVersions | None:
        """What the broker speaks; None before `Connected`. A void handle is a KeyError."""
        return self._links[handle].versions

    def drop(self, handle: Handle, *, reset: bool) -> None:
        """End a connection; no event of it comes any more. With `reset` nothing on its way takes effect later (R18)."""
        link = self._links.pop(handle, None)
        if link is not None:
            link.close(reset=reset)

    def wake(self) -> None:
        """End the wait of the other thread, or its next one. Callable from any thread and any number of times."""
        with contextlib.suppress(
            BlockingIOError, OSError
        ):  # a full pipe wakes as well; a closed poller needs no waking
            self._waker.send(b"\0")

    def wait(self, timeout: float | None) -> list[Event]:
        """Carry bytes until something has happened, `wake` was called or `timeout` seconds have passed.

        The events in the order in which they happened on each connection; none after a wake or a timeout. An event
        of a connection that is dropped while the list is being worked on stays in the list.
        """
        until = None if timeout is None else self._clock() + timeout
        events: list[Event] = []
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

    def close(self, *, reset: bool = False) -> None:
        """Drop all connections and end the poller."""
        for handle in tuple(self._links):
            self.drop(handle, reset=reset)
        self._woken.close()
        self._waker.close()

    def _left(self, now: float, until: float | None) -> float | None:
        """Seconds to wait: until the caller's time, or that of the next connection being set up."""
        times = [link.due for link in self._links.values() if link.due is not None]
        if until is not None:
            times.append(until)
        return max(0.0, min(times) - now) if times else None

    def _poll(self, seconds: float | None) -> tuple[frozenset[int | None], bool]:
        """Wait for descriptors: those that are ready, and whether `wake` was called.

        The poll object is made anew each time: there are few connections, and no state that could go stale.
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
        answers: list[Answer] = []
        before, knew = link.phase, link.versions is not None  # 0.7 has no versions to ask for
        error: StreamGroupError | None = None
        try:
            link.advance(self._clock(), answers)
        except StreamGroupError as caught:
            error = caught
        ready = link.phase is Phase.READY or not knew
        if before is not Phase.READY and ready and link.versions is not None:
            events.append(Connected(handle, link.versions))
        events += [Received(handle, *answer) for answer in answers]
        if error is not None:
            del self._links[handle]
            events.append(Broken(handle, error, link.unanswered))
        return events


def _has_work(link: Link) -> bool:
    """Whether there is something to do before waiting: a name may be resolved, something is to be sent."""
    return link.fileno is None or bool(link.interest & select.POLLOUT)


def _is_due(link: Link, now: float) -> bool:
    return link.due is not None and now >= link.due

"""A blocking connection to one broker: requests are pipelined, and every wait has a deadline.

Deadlines are seconds on the given clock, `time.monotonic` by default. One thread at a time may use a connection.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.kafka.net.link import AnyRequest, Link, Phase
from streamgroup.kafka.net.protocol import CorrelatedResponse
from streamgroup.kafka.wire.schema import Message, Request
from streamgroup.kafka.wire.versions import BrokerVersions
from streamgroup.model import Dialect
from streamgroup.options.types import ClientOptions
from streamgroup.text import host_port

R = TypeVar("R", bound=Message)


class Connection:
    """A connection to the broker at `host:port`. `connect` opens it.

    Errors contain the broker, the pending requests and the time waited. Every error closes the connection, except a
    missed deadline in `receive`: the response may still arrive. After a missed deadline call `receive` again, or
    `abort` the connection; do not send another request.
    """

    def __init__(
        self,
        host: str,
        port: int,
        options: ClientOptions,
        clock: Callable[[], float] = time.monotonic,
        dialect: Dialect = Dialect.KAFKA,
    ) -> None:
        self.host, self.port = host, port
        self.options = options
        self.dialect = dialect
        self._clock = clock
        self._link: Link | None = None
        self._answers: deque[CorrelatedResponse] = deque()
        self._failure: StreamGroupError | None = None

    def __str__(self) -> str:
        return host_port(self.host, self.port)

    @property
    def versions(self) -> BrokerVersions:
        versions = self._open_link().versions
        assert versions is not None
        return versions

    @property
    def open(self) -> bool:
        """Whether the handshake is done, no error has closed the connection, and it was not idle for too long."""
        return self._link is not None and self._link.phase is Phase.READY and not self._link.is_idle(self._clock())

    @property
    def outstanding(self) -> int:
        """The number of requests for which `receive` has not returned a response yet."""
        return 0 if self._link is None else len(self._link.unanswered) + len(self._answers)

    @property
    def idle(self) -> bool:
        """Whether the connection is open, without pending requests and without unread bytes or an end of the stream."""
        return self.open and not self.outstanding and not _readable(self._open_link())

    @property
    def throttled_s(self) -> float:
        """How many seconds the broker will read no requests because of a quota. Requests are sent after that."""
        return 0.0 if self._link is None else self._link.throttled_s(self._clock())

    def connect(self, deadline: float) -> None:
        """Connect and complete the handshake, within `connection_setup_timeout_ms` and before `deadline`.

        Tries each address of the host name. Raises TransportError, or BrokerError if the broker refuses the handshake.
        """
        self.close()
        began = self._clock()
        link = Link(self.host, self.port, self.options, began, dialect=self.dialect)
        self._link = link
        while True:
            now = self._clock()
            link.advance(now, [])
            if self.open:
                return
            if now >= deadline:
                phase = link.phase.name.lower()
                link.close(reset=True)
                raise TransportError(
                    f"cannot connect to broker {self} within {now - began:.1f} s: it is still in the phase {phase}"
                )
            _wait(link, min(deadline, link.due or deadline) - now)

    def send(self, request: AnyRequest, version: int | None = None, ceiling: int | None = None) -> int:
        """Send `request` without waiting for its response, and return its correlation id.

        `version` defaults to the highest version that client and broker support, at most `ceiling`. Bytes that the
        socket does not accept at once are sent during `receive`. A connection that was idle for too long is first
        opened again. Raises TransportError, UnsupportedVersionError.
        """
        link = self._open_link()
        now = self._clock()
        if link.is_idle(now):
            self.connect(now + self.options.connection_setup_timeout_ms / 1000)
            link = self._open_link()
        link.check_session(now)
        correlation_id = link.send(request, version, ceiling)
        link.flush()
        return correlation_id

    def receive(self, deadline: float) -> CorrelatedResponse:
        """Return the next response, in the order of the requests.

        Raises TransportError if none arrives by `deadline`.
        """
        began = self._clock()
        while True:
            now = self._clock()
            if self.arrived():
                return self._answers.popleft()
            link = self._open_link()
            if now >= deadline:
                pending = link.describe_pending() or "nothing"
                error = f"no response from broker {self} within {now - began:.1f} s; pending: {pending}"
                raise TransportError(error + throttled(self.throttled_s))
            _wait(link, min(deadline, link.due or deadline) - now)

    def arrived(self) -> bool:
        """Read the bytes that have arrived, and return whether `receive` can return a response without waiting.

        Raises as `receive`.
        """
        if not self._answers:
            if self._failure is not None:
                raise self._failure
            self._advance(self._open_link())
        return bool(self._answers)

    def call(self, request: Request[R], deadline: float, version: int | None = None, ceiling: int | None = None) -> R:
        """Send `request` and return its response. If `deadline` passes, the connection is aborted."""
        if self.outstanding:
            raise ValueError(f"cannot call broker {self}: {self.outstanding} responses are outstanding")
        self.send(request, version, ceiling)
        try:
            response: R = self.receive(deadline).response
        except BaseException:
            self.abort()
            raise
        return response

    def abort(self) -> None:
        """Reset the connection, so that no request in transit, such as an old commit, takes effect later (R18)."""
        self._end(reset=True)

    def close(self) -> None:
        """Close the connection with FIN."""
        self._end(reset=False)

    def _end(self, *, reset: bool) -> None:
        self._answers.clear()
        self._failure = None
        if self._link is not None:
            self._link.close(reset=reset)

    def _advance(self, link: Link) -> None:
        """Advance `link`.

        An error is raised at once, or after `receive` has returned the responses that came before it.
        """
        received: list[CorrelatedResponse] = []
        try:
            link.advance(self._clock(), received)
        except StreamGroupError as error:
            if not received:
                raise
            self._failure = error
        self._answers.extend(received)

    def _open_link(self) -> Link:
        if self._link is None or self._link.phase is not Phase.READY:
            raise TransportError(f"broker {self} is not connected")
        return self._link


def throttled(seconds: float) -> str:
    """Return the text that an error about a missing response adds if the broker throttles the client."""
    return f". The broker throttles this client, for another {seconds:.1f} s: raise its quota" if seconds > 0 else ""


def _wait(link: Link, seconds: float) -> None:
    """Wait until `link` can be advanced, at most `seconds`."""
    if link.pending:
        return
    if link.background is not None:
        link.background.wait(seconds)
        return
    if link.fileno is None:
        link.resolution.wait(seconds)
        return
    poll = select.poll()
    poll.register(link.fileno, link.interest)
    poll.poll(max(0.0, seconds) * 1000)


def _readable(link: Link) -> bool:
    if link.pending:
        return True
    poll = select.poll()
    poll.register(link.fileno or -1, select.POLLIN)
    return bool(poll.poll(0))

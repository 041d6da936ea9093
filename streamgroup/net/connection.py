"""One connection to one broker, for code that waits: pipelined requests, each wait with its deadline.

Deadlines are seconds on the clock given, `time.monotonic` by default. Used by one thread at a time.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.model import Dialect
from streamgroup.net.link import AnyRequest, Link, Phase
from streamgroup.net.protocol import Answer
from streamgroup.options.types import ClientOptions
from streamgroup.wire.schema import Message, Request
from streamgroup.wire.versions import BrokerVersions

R = TypeVar("R", bound=Message)


class Connection:
    """A connection to `host:port`; not connected before `connect`.

    Errors name the peer, what was asked and how long was waited. After any of them but a missed deadline of `receive`
    the connection is closed. A deadline that was missed while an answer is outstanding leaves that answer to come:
    receive on, or give the connection up with `abort`, never use it for something else.
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
        self._answers: deque[Answer] = deque()
        self._failure: StreamGroupError | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def versions(self) -> BrokerVersions:
        """What the broker speaks, as it said in the handshake."""
        versions = self._live().versions
        assert versions is not None
        return versions

    @property
    def open(self) -> bool:
        """Whether requests can be sent, as far as is known."""
        return self._link is not None and self._link.phase is Phase.READY

    @property
    def outstanding(self) -> int:
        """How many requests have no answer that `receive` has returned."""
        return 0 if self._link is None else len(self._link.unanswered) + len(self._answers)

    @property
    def idle(self) -> bool:
        """Whether the connection is open, nothing is outstanding and nothing has come: not even its end."""
        return self.open and not self.outstanding and not _readable(self._live())

    def connect(self, deadline: float) -> None:
        """Connect and shake hands, within `connection_setup_timeout_ms` and before `deadline`.

        Tries each address of the name. Raises TransportError, or BrokerError where the broker refuses the handshake.
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
                raise TransportError(f"{self}: not connected after {now - began:.1f} s ({phase})")
            _wait(link, min(deadline, link.due or deadline) - now)

    def send(self, request: AnyRequest, version: int | None = None, ceiling: int | None = None) -> int:
        """Send without waiting for the answer; the correlation id that `receive` will return with it.

        `version` is the highest that both know, at most `ceiling`, unless given. Raises UnsupportedVersionError.
        What the socket does not take at once goes out while receiving.
        """
        link = self._live()
        correlation_id = link.send(request, version, ceiling)
        link.flush()
        return correlation_id

    def receive(self, deadline: float) -> Answer:
        """The next answer, in the order of the requests: `(correlation_id, response)`.

        Raises TransportError where there is none before `deadline`.
        """
        began = self._clock()
        while True:
            now = self._clock()
            if self.arrived():
                return self._answers.popleft()
            link = self._live()
            if now >= deadline:
                raise TransportError(
                    f"{self}: no answer after {now - began:.1f} s; asked: {link.describe_pending() or 'nothing'}"
                )
            _wait(link, deadline - now)

    def arrived(self) -> bool:
        """Take in what has come, without waiting: whether `receive` has an answer at once. Raises as it does."""
        if not self._answers:
            if self._failure is not None:
                raise self._failure
            self._advance(self._live())
        return bool(self._answers)

    def call(self, request: Request[R], deadline: float, version: int | None = None, ceiling: int | None = None) -> R:
        """Send `request` and wait for its answer. A missed deadline aborts the connection."""
        if self.outstanding:
            raise ValueError(f"{self}: a call while {self.outstanding} answers are outstanding")
        self.send(request, version, ceiling)
        try:
            response: R = self.receive(deadline).response
        except BaseException:
            self.abort()
            raise
        return response

    def abort(self) -> None:
        """Give the connection up: it is reset, so that nothing on its way takes effect later (R18)."""
        self._end(reset=True)

    def close(self) -> None:
        """End the connection in order."""
        self._end(reset=False)

    def _end(self, *, reset: bool) -> None:
        self._answers.clear()
        self._failure = None
        if self._link is not None:
            self._link.close(reset=reset)

    def _advance(self, link: Link) -> None:
        """Advance `link`. A trouble is raised at once, or where answers came before it, when those are received."""
        arrived: list[Answer] = []
        try:
            link.advance(self._clock(), arrived)
        except StreamGroupError as error:
            if not arrived:
                raise
            self._failure = error
        self._answers.extend(arrived)

    def _live(self) -> Link:
        if self._link is None or self._link.phase is not Phase.READY:
            raise TransportError(f"{self}: not connected")
        return self._link


def _wait(link: Link, seconds: float) -> None:
    """Wait until `link` can be advanced, at most `seconds`."""
    if link.fileno is None:
        link.resolution.wait(seconds)
        return
    poll = select.poll()
    poll.register(link.fileno, link.interest)
    poll.poll(max(0.0, seconds) * 1000)


def _readable(link: Link) -> bool:
    poll = select.poll()
    poll.register(link.fileno or -1, select.POLLIN)
    return bool(poll.poll(0))

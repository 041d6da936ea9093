"""A connection that never waits: a non-blocking socket that carries a `Protocol`.

Name look-up, connecting (each address in turn, within the time for setting up), handshake and traffic are all steps of
`advance`; who owns the link waits, in `Connection` for one, in `Poller` for many, until there is something to advance.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.net.protocol import Answer, Protocol
from streamgroup.net.resolve import Address, Resolution
from streamgroup.options.types import ClientOptions
from streamgroup.wire.schema import Request
from streamgroup.wire.versions import BrokerVersions

_READS = 32
"""How often one `advance` reads at most: other links of the same thread have their turn, too."""
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER, on, 0 s: closing throws away what is unsent and sends RST."""


class Phase(Enum):
    """How far a link has come."""

    RESOLVING = auto()
    CONNECTING = auto()
    HANDSHAKE = auto()
    READY = auto()
    CLOSED = auto()


class Link:
    """One non-blocking connection to `host:port`. Times are seconds on the caller's clock.

    `notify` is called, from another thread, when the name look-up is done and `advance` can go on.
    """

    __slots__ = (
        "_addresses",
        "_attempt_until",
        "_causes",
        "_options",
        "_protocol",
        "_setup_until",
        "_socket",
        "_trying",
        "peer",
        "phase",
        "resolution",
    )

    def __init__(
        self, host: str, port: int, options: ClientOptions, now: float, notify: Callable[[], None] | None = None
    ) -> None:
        self.peer = f"{host}:{port}"
        self.phase = Phase.RESOLVING
        self._options = options
        self._protocol = Protocol(self.peer, options.client_id, options.max_frame_bytes)
        self._setup_until = self._attempt_until = now + options.connection_setup_timeout_ms / 1000
        self._addresses: deque[Address] = deque()
        self._trying = ""
        self._causes: list[str] = []
        self._socket: socket.socket | None = None
        self.resolution = Resolution(host, port, notify)

    @property
    def versions(self) -> BrokerVersions | None:
        """What the broker speaks, once READY."""
        return self._protocol.versions

    @property
    def unanswered(self) -> tuple[int, ...]:
        """The correlation ids of what was asked and not answered, the oldest first."""
        return self._protocol.unanswered

    @property
    def midway(self) -> str:
        """What is outstanding, for error messages."""
        return self._protocol.midway

    @property
    def fileno(self) -> int | None:
        """The socket's descriptor, None where there is none (yet, or any more)."""
        return None if self._socket is None else self._socket.fileno()

    @property
    def interest(self) -> int:
        """What to poll the descriptor for."""
        if self.phase is Phase.CONNECTING:
            return select.POLLOUT
        return select.POLLIN | select.POLLOUT if self._protocol.outgoing() else select.POLLIN

    @property
    def due(self) -> float | None:
        """When `advance` wants to be called though nothing has happened; None once READY."""
        return self._attempt_until if self.phase in _SETTING_UP else None

    def send(self, request: Request[Any], version: int | None = None, ceiling: int | None = None) -> int:
        """Queue a request; its correlation id. `advance` sends it."""
        if self.phase is Phase.CLOSED:
            raise TransportError(f"{self.peer}: {request.NAME} cannot be sent, the connection is closed")
        return self._protocol.send(request, version, ceiling)

    def advance(self, now: float, answers: list[Answer]) -> None:
        """Do all that can be done without waiting; what came in is appended to `answers`.

        Any exception (TransportError, DecodeError, BrokerError, UnsupportedVersionError) leaves the link closed; the
        answers that came before the trouble are in `answers` all the same.
        """
        try:
            if self.phase is Phase.RESOLVING:
                self._resolve(now)
            if self.phase is Phase.CONNECTING:
                self._connect(now)
            if self.phase not in (Phase.HANDSHAKE, Phase.READY):
                return
            self._write()
            self._read(answers)
            if self.phase is Phase.HANDSHAKE:
                self._check_handshake(now)
        except StreamGroupError:
            self.close(reset=True)
            raise

    def flush(self) -> None:
        """Send what the socket takes at once. Raises TransportError, which leaves the link closed."""
        try:
            self._write()
        except TransportError:
            self.close(reset=True)
            raise

    def close(self, *, reset: bool) -> None:
        """End the connection: in order, or with `reset` so that nothing on its way arrives any more (R18)."""
        self.phase = Phase.CLOSED
        if self._socket is None:
            return
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._socket.close()
        self._socket = None

    def _resolve(self, now: float) -> None:
        if not self.resolution.done:
            if now >= self._setup_until:
                raise TransportError(f"{self.peer}: the name was not resolved within {self._setup_seconds}")
            return
        try:
            self._addresses.extend(self.resolution.addresses())
        except OSError as error:
            raise TransportError(f"{self.peer}: the name cannot be resolved: {error}") from error
        self._next_address(now)

    def _next_address(self, now: float) -> None:
        """Begin to connect to the next address, with its share of the time that is left."""
        while self._addresses:
            share = (self._setup_until - now) / len(self._addresses)
            address = self._addresses.popleft()
            self._trying = str(address)
            self._attempt_until = now + share
            self.phase = Phase.CONNECTING
            try:
                self._socket = self._opened(address)
                code = self._socket.connect_ex(address.sockaddr)
            except OSError as error:  # the machine may lack the whole address family
                code = error.errno or errno.EIO
            if code in (0, errno.EINPROGRESS, errno.EINTR):
                return
            self._give_up(os.strerror(code))
        raise TransportError(f"{self.peer}: cannot connect: {'; '.join(self._causes)}")

    def _connect(self, now: float) -> None:
        assert self._socket is not None
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        try:
            remote = self._socket.getpeername()
        except OSError:
            remote = None
        if remote is not None and self._socket.getsockname() == remote:
            # TCP lets a socket connect to itself where the port is free and of the ephemeral range.
            code, remote = errno.ECONNREFUSED, None
        if code == 0 and remote is not None:
            self.phase = Phase.HANDSHAKE
            self._attempt_until = self._setup_until
        elif code or now >= self._attempt_until:
            self._give_up(os.strerror(code or errno.ETIMEDOUT))
            self._next_address(now)

    def _opened(self, address: Address) -> socket.socket:
        opened = socket.socket(address.family, socket.SOCK_STREAM)
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # Before connecting, since the window's scale is settled there; -1 leaves it to the system, as in Kafka.
        if self._options.receive_buffer_bytes > 0:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._options.receive_buffer_bytes)
        if self._options.send_buffer_bytes > 0:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._options.send_buffer_bytes)
        return opened

    def _give_up(self, cause: str) -> None:
        self._causes.append(f"{self._trying}: {cause}")
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _check_handshake(self, now: float) -> None:
        if self._protocol.versions is not None:
            self.phase = Phase.READY
            self._write()  # what waited for the versions
        elif now >= self._setup_until:
            raise TransportError(f"{self.peer}: no answer to the ApiVersions handshake within {self._setup_seconds}")

    def _write(self) -> None:
        assert self._socket is not None
        while outgoing := self._protocol.outgoing():
            try:
                self._protocol.sent(self._socket.send(outgoing))
            except BlockingIOError:
                return
            except OSError as error:
                raise self._lost(error) from error

    def _read(self, answers: list[Answer]) -> None:
        """Receive until an answer is whole or nothing is left."""
        assert self._socket is not None
        before = len(answers)
        for _ in range(_READS):
            space = self._protocol.space()
            try:
                count = self._socket.recv_into(space)
            except BlockingIOError:
                return
            except OSError as error:
                raise self._lost(error) from error
            if count == 0:
                raise TransportError(f"{self.peer}: {self._protocol.cut()}")
            self._protocol.received(count, answers)
            if len(answers) > before or count < len(space):
                return

    def _lost(self, error: OSError) -> TransportError:
        return TransportError(f"{self.peer}: the connection was lost: {error}; unanswered: {self.midway or 'nothing'}")

    @property
    def _setup_seconds(self) -> str:
        return f"{self._options.connection_setup_timeout_ms / 1000:g} s (socket.connection.setup.timeout.ms)"


_SETTING_UP = frozenset({Phase.RESOLVING, Phase.CONNECTING, Phase.HANDSHAKE})

"""A non-blocking connection: a socket and the `Protocol` of the bytes on it.

`advance` performs every step: name look-up, connecting to each address in turn within the setup timeout, TLS and SASL
if the options require them, the handshake, and traffic. The handshake may need several connections to the same address.
The owner waits until the link can be advanced: a `Connection` waits for one link, a `Poller` for many.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from streamgroup.core_files import disable_core_files
from streamgroup.errors import DecodeError, StreamGroupError, TransportError
from streamgroup.kafka.net.connection_totals import TOTALS
from streamgroup.kafka.net.handshake import NOT_A_BROKER_HINT, NOT_TLS_HINT, PROBE_AFTER_S
from streamgroup.kafka.net.protocol import CorrelatedResponse, Protocol
from streamgroup.kafka.net.protocol07 import Protocol07
from streamgroup.kafka.net.resolve import Address, HostLookup
from streamgroup.kafka.net.transport import PROBE_TIMEOUT_S, PlainTransport, Transport, set_user_timeout
from streamgroup.kafka.wire.kafka07 import Request07
from streamgroup.kafka.wire.schema import Request
from streamgroup.kafka.wire.versions import BrokerVersions
from streamgroup.model import Dialect
from streamgroup.options.tls import SASL_SSL, SSL, TlsOptions
from streamgroup.options.types import ClientOptions
from streamgroup.text import host_port

if TYPE_CHECKING:
    from streamgroup.kafka.net.background import Background
    from streamgroup.kafka.net.sasl.mechanisms import Mechanism

log = logging.getLogger("streamgroup")

_READS = 32
"""Reads per `advance` at most, so that one link does not starve the others of its thread."""

_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Seconds and probes, if the system has these options: the kernel notices within 30 s that the other end of an idle
connection is gone. Firewalls and load balancers see traffic and keep the connection."""
_LEAST_USER_TIMEOUT_MS = 30_000
"""TCP_USER_TIMEOUT ends a connection if sent bytes are not acknowledged. It must not be shorter than the keepalive, nor
than the request timeout, since the broker may read late. The throttle time of a broker is added."""

_SESSION_PART = 0.85
"""The part of a session's lifetime after which the client authenticates again. Java takes 0.85 to 0.95 (KIP-368).
The token or ticket for it is newer: it is renewed after `RENEWED_AFTER` of its own lifetime."""
_SHORTEST_SESSION_S = 1.0
"""Seconds from one exchange to the next at least: a broker must not make the client authenticate all the time."""

AnyRequest = Request[Any] | Request07
"""A request of either dialect; a connection takes only requests of its own."""
PROTOCOLS: Final[dict[Dialect, Any]] = {Dialect.KAFKA: Protocol, Dialect.KAFKA07: Protocol07}
"""Both have the same interface, except for the requests that they take."""


def name_of(request: AnyRequest) -> str:
    return request.NAME if isinstance(request, Request) else request.TYPE.name


class Phase(Enum):
    """The phases of a link, in their order."""

    RESOLVING = auto()
    CONNECTING = auto()
    TLS = auto()
    """The handshake of TLS; a plaintext link passes it at once."""
    HANDSHAKE = auto()
    """The handshake of Kafka's protocol, and the exchange of SASL."""
    READY = auto()
    CLOSED = auto()


class _HangUp(TransportError):
    """The broker closed or reset the connection."""


class Link:
    """One non-blocking connection to `host:port`. Times are seconds on the caller's clock.

    When another thread has looked up the host's name, it calls the callback `notify`. The caller then calls `advance`.
    """

    _take: Callable[[Any], None]
    """Passes the result of the work in the background to the protocol."""

    def __init__(
        self,
        host: str,
        port: int,
        options: ClientOptions,
        now: float,
        notify: Callable[[], None] | None = None,
        *,
        dialect: Dialect = Dialect.KAFKA,
    ) -> None:
        if options.tls is not None or options.sasl is not None:
            disable_core_files()
        self.peer = host_port(host, port)
        self._host = host
        self.phase = Phase.RESOLVING
        self._options = options
        sasl = {} if options.sasl is None else {"authenticates": True}
        self._protocol = PROTOCOLS[dialect](self.peer, options.client_id, options.max_frame_bytes, **sasl)
        self._notify = notify
        self._background: Background[Any] | None = None
        """The work of SASL that this link waits for."""
        self._used_at = now
        """When the connection has become ready, or has last sent a request or received a response."""
        self._throttled_until: float | None = None
        """When the broker reads requests again; None while it does not throttle the client."""
        self._session_until: float | None = None
        """When the client authenticates again, because the broker ends the session later."""
        self._setup_until = self._attempt_until = now + options.connection_setup_timeout_ms / 1000
        self._addresses: deque[Address] = deque()
        self._current_address: Address | None = None
        self._set_up = False
        self._causes: list[str] = []
        self._socket: socket.socket | None = None
        """The socket while it connects; afterwards `_transport` has it."""
        self._local_host = ""
        self._transport: Transport | None = None
        self.resolution = HostLookup(host, port, notify)

    @property
    def versions(self) -> BrokerVersions | None:
        """The API versions of the broker. They are known from READY on, also after the connection is closed."""
        versions: BrokerVersions | None = self._protocol.versions
        return versions if self._set_up else None

    @property
    def unanswered(self) -> tuple[int, ...]:
        """The correlation ids of all requests without a response, the oldest first."""
        unanswered: tuple[int, ...] = self._protocol.unanswered
        return unanswered

    def describe_pending(self) -> str:
        """Return the requests without a response as text for error messages."""
        pending: str = self._protocol.describe_pending()
        return pending

    @property
    def fileno(self) -> int | None:
        """The descriptor of the socket; None before it is opened and after it is closed."""
        if self._transport is not None:
            return self._transport.fileno
        return None if self._socket is None else self._socket.fileno()

    @property
    def interest(self) -> int:
        if self._transport is None:
            return select.POLLOUT
        return self._transport.interest(self.phase is not Phase.TLS and bool(self._protocol.unsent))

    @property
    def pending(self) -> bool:
        """Whether `advance` has something to do even if the socket is not readable.

        This is so if decrypted bytes are left, or if the background work is done.
        """
        if self._background is not None and self._background.done:
            return True
        return self._transport is not None and self._transport.pending

    @property
    def background(self) -> Background[Any] | None:
        """The background work that must finish before `advance` can continue; None if it waits for the socket."""
        return self._background

    @property
    def due(self) -> float | None:
        """The time to call `advance` even without a socket event.

        None once READY, unless the SASL session ends or the broker throttles the client.
        """
        if self.phase in _SETTING_UP:
            return self._attempt_until
        return min((at for at in (self._session_until, self._throttled_until) if at is not None), default=None)

    def is_idle(self, now: float) -> bool:
        """Return whether the connection was not used for `connections.max.idle.ms`. It may then be half open."""
        return (
            self.phase is Phase.READY
            and now - self._used_at > self._options.max_idle_s
            and not self._protocol.unsent
            and not self.unanswered
        )

    def throttled_s(self, now: float) -> float:
        """Return how many seconds the broker will read no requests of this connection because of a quota (KIP-219)."""
        return 0.0 if self._throttled_until is None else max(0.0, self._throttled_until - now)

    def _begin_throttling(self, seconds: float, now: float) -> None:
        """Queue requests, as KIP-219 demands: the broker would not read them, and they would time out."""
        self._throttled_until = now + max(seconds, self.throttled_s(now))
        self._protocol.mute()
        if self._transport is not None:
            # The broker leaves requests that were sent before in its socket. Once that is full, the kernel takes the
            # pause for a dead connection.
            self._transport.set_user_timeout(self._user_timeout_ms + round(self.throttled_s(now) * 1000))
        if TOTALS.on_throttled(self.peer, seconds):
            log.warning(
                "broker %s throttles the client %r because of a quota, for %.1f s this time: its requests wait. If "
                "that is too slow, raise the client's quota (consumer_byte_rate, producer_byte_rate, "
                "request_percentage)",
                self.peer,
                self._options.client_id,
                seconds,
            )

    def _end_throttling(self, now: float) -> None:
        if self._throttled_until is not None and now >= self._throttled_until:
            self._throttled_until = None
            self._protocol.unmute()

    def send(self, request: AnyRequest, version: int | None = None, ceiling: int | None = None) -> int:
        """Queue a request and return its correlation id. `advance` sends it."""
        if self.phase is Phase.CLOSED:
            raise TransportError(f"cannot send {name_of(request)} to broker {self.peer}: the connection is closed")
        number: int = self._protocol.send(request, version, ceiling)
        return number

    def check_session(self, now: float) -> None:
        """Authenticate again before further requests if the SASL session ends soon, or has ended on an idle link."""
        if self._session_until is not None and now >= self._session_until:
            self._session_until = None
            self._protocol.expire()

    def advance(self, now: float, answers: list[CorrelatedResponse]) -> None:
        """Do everything that is possible without waiting, and append received responses to `answers`.

        Every exception (TransportError, DecodeError, BrokerError, UnsupportedVersionError) leaves the link closed.
        `answers` then contains the responses that came before the error.
        """
        try:
            if self.phase is Phase.RESOLVING:
                self._resolve(now)
            if self.phase is Phase.CONNECTING:
                self._connect(now)
            if self.phase is Phase.TLS:
                self._secure(now)
            if self.phase is Phase.HANDSHAKE:
                self._shake_hands(now, answers)
            elif self.phase is Phase.READY:
                before = len(answers)
                self._end_throttling(now)
                is_used = bool(self._protocol.unsent)
                self._write()
                self._read(answers)
                if is_used or len(answers) > before:
                    self._used_at = now
                if (throttle_s := max((answer.throttle_s for answer in answers[before:]), default=0.0)) > 0:
                    self._begin_throttling(throttle_s, now)
                self.check_session(now)
                self._authenticate(now)
        except StreamGroupError as error:
            self._fail(error)
            raise

    @property
    def unsent(self) -> int:
        """The number of bytes that the socket has not accepted yet.

        Requests that wait for the handshake do not count.
        """
        unsent: int = self._protocol.unsent
        return unsent

    @property
    def has_sent_all(self) -> bool:
        """Whether the socket has accepted all requests, including those that waited for SASL or because of a quota."""
        return not (self._protocol.unsent or self._protocol.has_held_back)

    def flush(self) -> None:
        """Send the bytes that the socket accepts at once. A TransportError leaves the link closed."""
        try:
            self._write()
        except TransportError as error:
            self._fail(error)
            raise

    def _fail(self, error: StreamGroupError) -> None:
        if isinstance(error, TransportError | DecodeError):
            self._protocol.on_connection_lost()
        self._close(reset=True, has_failed=True)

    def close(self, *, reset: bool) -> None:
        """Close the connection with FIN, or (`reset`) with RST, so that no request in transit takes effect later (R18).

        A reset counts as a failure while the connection is set up or while a request has no response. An idle
        connection is reset when its broker has left the cluster.
        """
        self._close(reset=reset, has_failed=reset and (self.phase in _SETTING_UP or bool(self.unanswered)))

    def _close(self, *, reset: bool, has_failed: bool) -> None:
        if self.phase is Phase.READY:
            TOTALS.on_closed(is_lost=has_failed, unanswered=len(self.unanswered))
        elif has_failed and self.phase is not Phase.CLOSED:
            TOTALS.on_failed()
        self.phase = Phase.CLOSED
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._transport is not None:
            self._transport.close(reset=reset)
            self._transport = None
        self._background = self._session_until = self._throttled_until = None

    def _resolve(self, now: float) -> None:
        if not self.resolution.done:
            if now >= self._setup_until:
                raise TransportError(
                    f"cannot connect to broker {self.peer}: its name was not resolved within {self._setup_seconds}"
                )
            return
        try:
            self._addresses.extend(self.resolution.addresses())
        except OSError as error:
            raise TransportError(f"cannot connect to broker {self.peer}: its name does not resolve: {error}") from error
        self._next_address(now)

    def _next_address(self, now: float) -> None:
        """Start connecting to the next address, with its share of the time left."""
        while self._addresses:
            share = (self._setup_until - now) / len(self._addresses)
            if self._connect_to(self._addresses.popleft(), now + share):
                return
        raise TransportError(f"cannot connect to broker {self.peer}: {'; '.join(self._causes)}")

    def _connect_to(self, address: Address, until: float) -> bool:
        """Start connecting to `address`, and return whether the attempt is pending."""
        self._current_address = address
        self._attempt_until = until
        self.phase = Phase.CONNECTING
        try:
            self._socket = self._open_socket(address)
            code = self._socket.connect_ex(address.sockaddr)
        except OSError as error:  # the machine may lack the address family
            code = error.errno or errno.EIO
        if code in (0, errno.EINPROGRESS, errno.EINTR):
            return True
        self._abandon_address(os.strerror(code))
        return False

    def _connect(self, now: float) -> None:
        assert self._socket is not None
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        try:
            remote = self._socket.getpeername()
        except OSError:
            remote = None
        local = None if remote is None else self._socket.getsockname()
        if local is not None and local == remote:
            # TCP lets a socket connect to itself if the port is free and in the ephemeral range.
            code, local = errno.ECONNREFUSED, None
        if code == 0 and local is not None:
            self._local_host = local[0]
            self._transport = self._transport_over(self._socket)
            self._socket = None
            self.phase = Phase.TLS
        elif code or now >= self._attempt_until:
            self._abandon_address(os.strerror(code or errno.ETIMEDOUT))
            self._next_address(now)

    def _transport_over(self, connected: socket.socket) -> Transport:
        if self._options.security_protocol not in (SSL, SASL_SSL):
            return PlainTransport(connected)
        # Most tasks never need it, and start faster without importing it.
        from streamgroup.kafka.net.tls.transport import TlsTransport  # noqa: PLC0415

        return TlsTransport(connected, self.peer, self._host, self._options.tls or TlsOptions())

    def _secure(self, now: float) -> None:
        assert self._transport is not None
        if self._transport.shake_hands(now):
            self.phase = Phase.HANDSHAKE
            self._attempt_until = min(self._setup_until, now + PROBE_AFTER_S)
        elif now >= self._setup_until:
            raise TransportError(
                f"no response from broker {self.peer} to the TLS handshake within {self._setup_seconds}. {NOT_TLS_HINT}"
            )
        else:
            self._attempt_until = min(self._setup_until, now + PROBE_TIMEOUT_S)

    def _open_socket(self, address: Address) -> socket.socket:
        opened = socket.socket(address.family, socket.SOCK_STREAM)
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        set_user_timeout(opened, self._user_timeout_ms)
        # Set before connecting, which negotiates the window scale; -1 keeps the system's value, as in Kafka.
        if self._options.receive_buffer_bytes > 0:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._options.receive_buffer_bytes)
        if self._options.send_buffer_bytes > 0:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._options.send_buffer_bytes)
        return opened

    def _abandon_address(self, cause: str) -> None:
        self._causes.append(f"{self._current_address}: {cause}")
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _shake_hands(self, now: float, answers: list[CorrelatedResponse]) -> None:
        try:
            self._write()
            self._read(answers)
            self._authenticate(now)
        except StreamGroupError as error:
            self._set_up = self._protocol.is_ready
            if self._set_up or not isinstance(error, _HangUp):
                raise
            if not self._protocol.on_hang_up():
                raise TransportError(f"broker {self.peer} {self._protocol.describe_eof()}") from error
            self._shake_hands_again(now, answers)
            return
        self._set_up = self._protocol.is_ready
        if self._set_up:
            self.phase = Phase.READY
            self._used_at = now
            TOTALS.on_opened(self._local_host)
            self._write()  # the requests that were queued until now
        elif now >= self._setup_until and self._background is not None:
            timeout = self._background.timeout
            raise TransportError(
                f"cannot authenticate to broker {self.peer} by SASL: {timeout.cause} within {self._setup_seconds}. "
                f"{timeout.next_step}"
            )
        elif now >= self._setup_until:
            what = "ApiVersions handshake" if self._protocol.versions is None else "SASL exchange"
            raise TransportError(
                f"no response from broker {self.peer} to the {what} within {self._setup_seconds}; "
                f"pending: {self.describe_pending()}. {NOT_A_BROKER_HINT}"
            )
        elif now >= self._attempt_until:
            self._attempt_until = min(self._setup_until, now + PROBE_AFTER_S)
            self._protocol.on_handshake_timeout()

    def _authenticate(self, now: float) -> None:
        """Continue SASL: begin an exchange if one is due, use the result of its work, schedule the next exchange."""
        if self._background is None:
            if self._protocol.wants_mechanism:
                self._background, self._take = self._begin_mechanism(), self._protocol.authenticate
            elif self._protocol.work is not None:
                self._background, self._take = self._begin_work(self._protocol.work), self._protocol.worked
        if self._background is not None:
            if self._background.done:
                background, self._background = self._background, None
                self._take(background.result())
                self._write()
        elif self._protocol.is_ready and self._session_until is None and self._protocol.session_lifetime_ms > 0:
            lifetime_s = self._protocol.session_lifetime_ms / 1000
            self._session_until = now + max(_SHORTEST_SESSION_S, _SESSION_PART * lifetime_s)

    def _begin_mechanism(self) -> Background[Mechanism]:
        # Most tasks never need it, and start faster without importing it.
        from streamgroup.kafka.net.sasl.credentials import begin_mechanism  # noqa: PLC0415

        assert self._options.sasl is not None
        return begin_mechanism(self._options.sasl, self._options.tls or TlsOptions(), self.peer, self._notify)

    def _begin_work(self, work: Callable[[], Any]) -> Background[Any]:
        from streamgroup.kafka.net.background import Background, WaitTimeout  # noqa: PLC0415 - as above

        timeout = WaitTimeout(
            "the proof of the password was not computed", "Create the user's credential with fewer iterations"
        )
        return Background(work, timeout, self._notify)

    def _shake_hands_again(self, now: float, answers: list[CorrelatedResponse]) -> None:
        assert self._current_address is not None
        self.close(reset=False)
        self._causes.clear()
        self._addresses.clear()
        if not self._connect_to(self._current_address, self._setup_until):
            raise TransportError(f"cannot connect to broker {self.peer}: {'; '.join(self._causes)}")
        self._connect(now)
        if self.phase is Phase.TLS:
            self._secure(now)
        if self.phase is Phase.HANDSHAKE:
            self._shake_hands(now, answers)

    def _write(self) -> None:
        assert self._transport is not None
        while outgoing := self._protocol.outgoing():
            try:
                count = self._transport.send(outgoing)
            except OSError as error:
                raise self._connection_lost(error) from error
            if not count:
                return
            self._protocol.sent(count)

    def _read(self, answers: list[CorrelatedResponse]) -> None:
        """Receive until a response is complete or the socket has no bytes."""
        assert self._transport is not None
        before = len(answers)
        for _ in range(_READS):
            space = self._protocol.space()
            try:
                count = self._transport.receive_into(space)
            except OSError as error:
                raise self._connection_lost(error) from error
            if count is None:
                return
            if count == 0:
                raise _HangUp(f"broker {self.peer} {self._protocol.describe_eof()}")
            self._protocol.received(count, answers)
            if len(answers) > before or count < len(space):
                return

    def _connection_lost(self, error: OSError) -> StreamGroupError:
        """Return the error of a lost connection, or of a refusal that came before the connection was READY."""
        assert self._transport is not None
        refusal = None if self.phase is Phase.READY else self._transport.refusal(error)
        if refusal is not None:
            return refusal
        kind = _HangUp if isinstance(error, ConnectionError) else TransportError
        pending = f"pending: {self.describe_pending() or 'nothing'}{self._protocol.ENDED_BY}"
        return kind(f"lost the connection to broker {self.peer}: {error}; {pending}")

    @property
    def _user_timeout_ms(self) -> int:
        return max(_LEAST_USER_TIMEOUT_MS, self._options.request_timeout_ms)

    @property
    def _setup_seconds(self) -> str:
        return f"{self._options.connection_setup_timeout_ms / 1000:g} s (socket.connection.setup.timeout.ms)"


_SETTING_UP = frozenset({Phase.RESOLVING, Phase.CONNECTING, Phase.TLS, Phase.HANDSHAKE})

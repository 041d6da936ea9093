"""The Kafka protocol of one connection without its socket: requests in, bytes out; bytes in, responses out.

How to use it: send the bytes of `outgoing` and pass their number to `sent`; receive into `space` and pass the number of
bytes to `received`, which appends the responses. Requests are queued until the handshake (`handshake.py`) has
negotiated the versions in which to write them. If the broker closes the connection before that, `on_hang_up` returns
whether the handshake continues on another connection; the queue is kept. A broker answers the requests of a connection
in order. A response with another correlation id than the next one means that the stream is corrupt.

A protocol that `authenticates` also queues requests until the broker has accepted the client: pass it a mechanism
whenever `wants_mechanism` is true. If the next token of a mechanism takes long to compute, `work` is the computation:
run it in another thread, and pass its result to `worked`. After `expire` the protocol finishes the requests that are
sent, and wants a mechanism again (KIP-368). From `mute` to `unmute` it queues requests, too.

After an exception the connection is unusable: close or reset it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias

from streamgroup.errors import (
    AuthenticationError,
    DecodeError,
    ErrorCode,
    TlsError,
    TransportError,
    UnsupportedVersionError,
    error_of,
    may_succeed_later,
)
from streamgroup.kafka.net.frames import SMALLEST, FrameReader, Outgoing, TlsAnswer
from streamgroup.kafka.net.handshake import ALL_HANDSHAKE_REQUESTS, NOT_A_BROKER_HINT, Handshake, HandshakeRequest
from streamgroup.kafka.net.sasl.mechanisms import Mechanism
from streamgroup.kafka.wire.frames import correlation_id_of, decode_response, encode_body, request_pieces
from streamgroup.kafka.wire.messages.cluster import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from streamgroup.kafka.wire.schema import Request
from streamgroup.kafka.wire.versions import BrokerVersions

_LAST_CORRELATION_ID = 2**31 - 1
_WITHOUT_SASL = (
    ", the first request after the handshake. A listener with SASL does so to a client without SASL. If it is one, "
    "set kafka.security.protocol to SASL_SSL, or to SASL_PLAINTEXT without TLS"
)
"""Brokers answer the handshake of every client. On another request they close the connection if the client has not
authenticated."""


class CorrelatedResponse(NamedTuple):
    """A response, the correlation id of its request, and the version of both.

    The version is 0 in Kafka 0.7, which has no versions.
    """

    correlation_id: int
    response: Any
    version: int
    throttle_s: float = 0.0
    """Seconds for which the broker reads no further request of the connection, because of a quota (KIP-219)."""


class _InFlight(NamedTuple):
    correlation_id: int
    request: type[Request[Any]]
    version: int

    def __str__(self) -> str:
        return f"{self.request.NAME} v{self.version} (correlation id {self.correlation_id})"


class _Queued(NamedTuple):
    correlation_id: int
    request: Request[Any]
    version: int | None
    ceiling: int | None


class FramedStream(ABC):
    """The protocol of one connection without its socket: the bytes to send, and the frames that arrive.

    Base class for both dialects: `Protocol` and `Protocol07`.
    """

    ENDED_BY: ClassVar[str] = ""
    """The usual causes of a broker closing the connection, for error messages."""
    HINT: ClassVar[str] = ""
    """The next step for the user if the received bytes are not of this protocol."""

    _out: Outgoing
    _reader: FrameReader

    def __init__(self, peer: str) -> None:
        self.peer = peer

    @property
    def is_ready(self) -> bool:
        """Whether requests are sent at once."""
        return True

    @property
    def wants_mechanism(self) -> bool:
        """Whether a SASL exchange must begin before the queued requests can be sent."""
        return False

    @property
    def work(self) -> Callable[[], SaslStep] | None:
        """The computation of the next SASL token if it takes long, else None."""
        return None

    @property
    def session_lifetime_ms(self) -> int:
        """Milliseconds after which the broker ends the SASL session of the last exchange; 0 for never."""
        return 0

    def outgoing(self) -> list[memoryview]:
        """Return the bytes to send next, in pieces; pass the number of sent bytes to `sent`. Empty if all are sent."""
        return self._out.next()

    @property
    def unsent(self) -> int:
        return len(self._out)

    @property
    def has_held_back(self) -> bool:
        """Whether requests are queued because they may not be sent yet."""
        return False

    def sent(self, count: int) -> None:
        """Remove the first `count` bytes of `outgoing`, which the socket has accepted."""
        self._out.taken(count)

    def space(self) -> memoryview:
        """Return the memory to receive the next bytes into; it is never empty."""
        return self._reader.space()

    def received(self, count: int, answers: list[CorrelatedResponse]) -> None:
        """Take `count` bytes from `space()` and append the responses that they complete to `answers`.

        Raises TooLarge, DecodeError, UnsupportedVersionError, BrokerError if the broker refuses the handshake, or
        TlsError if the server uses TLS.
        """
        try:
            frames = self._reader.received(count)
        except TlsAnswer as error:
            raise TlsError(f"cannot connect to broker {self.peer} without TLS: {error}") from error
        except DecodeError as error:
            pending = self.describe_pending() or "nothing"
            raise type(error)(f"broker {self.peer}: {error}; pending: {pending}{self.HINT}") from error
        for frame in frames:
            self._on_frame(frame, answers)

    @abstractmethod
    def describe_pending(self) -> str:
        """Return the requests without a response as text, for error messages; empty if there are none."""

    @abstractmethod
    def _on_frame(self, frame: memoryview, answers: list[CorrelatedResponse]) -> None:
        """Handle one frame."""


class Protocol(FramedStream):
    """The protocol state of one connection to Kafka 0.8 or later.

    It has the queued and the in-flight requests, the bytes to send, and the incomplete incoming frame.
    """

    _authentication: Authentication | None
    _sasl_sent: tuple[int, SaslRequest] | None
    """The correlation id and the request of the exchange; None after a token without a header."""
    _work: Callable[[], SaslStep] | None
    _has_answered: bool
    """Whether the broker has answered a request after the handshake on this connection."""

    def __init__(self, peer: str, client_id: str, max_frame_bytes: int, *, authenticates: bool = False) -> None:
        super().__init__(peer)
        self._authenticates = authenticates
        self._silent_ends = 0
        """Number of connections that the broker has closed instead of answering a SASL token."""
        self._client_id = client_id
        self._max_frame_bytes = max_frame_bytes
        self._next_id = 0
        self._in_flight: deque[_InFlight] = deque()
        self._queued: deque[_Queued] = deque()
        self._handshake = Handshake(peer)
        self._begin()

    @property
    def versions(self) -> BrokerVersions | None:
        """The API versions of the broker; None before the handshake is done.

        They are known from the start for a broker before 0.10 whose release this process remembers.
        """
        return self._handshake.versions

    @property
    def is_ready(self) -> bool:
        """Whether the versions are known, and the broker has accepted the client."""
        return self.versions is not None and self._is_authenticated

    @property
    def wants_mechanism(self) -> bool:
        """Whether the owner must call `authenticate` before the queued requests can be sent."""
        return (
            self.versions is not None
            and not self._is_authenticated
            and self._authentication is None
            and not self._in_flight
        )

    @property
    def has_held_back(self) -> bool:
        return bool(self._queued)

    @property
    def work(self) -> Callable[[], SaslStep] | None:
        return self._work

    @property
    def session_lifetime_ms(self) -> int:
        return self._session_lifetime_ms

    def authenticate(self, mechanism: Mechanism) -> None:
        """Begin a SASL exchange. Raises AuthenticationError if the broker does not support it."""
        assert self.versions is not None
        self._authentication = Authentication(mechanism, self.versions)
        self._send_sasl(self._authentication.first())

    def worked(self, answer: SaslStep) -> None:
        assert self._authentication is not None
        self._work = None
        self._go_on(self._authentication, answer)

    def expire(self) -> None:
        """Queue all further requests until the broker has accepted the client again."""
        self._is_authenticated = not self._authenticates

    def mute(self) -> None:
        """Queue all further requests until `unmute`."""
        self._is_muted = True

    def unmute(self) -> None:
        """Send the requests that were queued since `mute`."""
        self._is_muted = False
        self._write_queued()

    @property
    def unanswered(self) -> tuple[int, ...]:
        """The correlation ids of all requests without a response, queued ones included, the oldest first."""
        return tuple(a.correlation_id for a in self._in_flight) + tuple(w.correlation_id for w in self._queued)

    def describe_pending(self) -> str:
        asked = [f"{request} (correlation id {correlation_id})" for correlation_id, request in self._handshake_sent]
        if self._authentication is not None:
            asked.append(f"SASL {self._authentication.name}")
        asked += [str(a) for a in self._in_flight] + [f"{w.request.NAME} (not yet sent)" for w in self._queued]
        return ", ".join(asked)

    def send(self, request: Request[Any], version: int | None = None, ceiling: int | None = None) -> int:
        """Queue `request` and return its correlation id.

        `version` defaults to the highest version that client and broker support, at most `ceiling`. Raises
        UnsupportedVersionError if there is none; during the handshake `received` raises it.
        """
        correlation_id = self._next_correlation_id()
        if not self.is_ready or self._is_muted:
            if self.is_ready and version is None:
                assert self.versions is not None
                version = self.versions.highest(type(request), ceiling)
            self._queued.append(_Queued(correlation_id, request, version, ceiling))
        else:
            self._write(correlation_id, request, version, ceiling)
        return correlation_id

    def on_hang_up(self) -> bool:
        """Handle the end of the connection before `is_ready`. Return whether to connect again.

        `outgoing` then returns the first bytes for the new connection. Raises AuthenticationError if the broker has
        closed two connections instead of answering a SASL token. One closed connection proves nothing: the broker may
        be stopping.
        """
        if self._authentication is not None and self._authentication.is_raw:
            self._silent_ends += 1
            if self._silent_ends > 1:
                raise self._authentication.on_silent_end()
        elif self.versions is not None or not self._handshake.on_hang_up():
            return False
        self._begin()
        return True

    def on_handshake_timeout(self) -> None:
        """Handle PROBE_AFTER_S without a response to the handshake: pipeline a probe."""
        more = None if self.versions is not None else self._handshake.pipelined_probe()
        if more is not None:
            self._send_handshake(more)

    def on_connection_lost(self) -> None:
        """Handle a failed connection: forget the broker's release, since it may return with another one."""
        self._handshake.forget_release()

    def describe_eof(self) -> str:
        """Return what the error says about an end of the stream now: `closed the connection; ...`."""
        if self.versions is None:
            return (
                f"closed the connection on each request of the handshake ({ALL_HANDSHAKE_REQUESTS}). "
                f"No Kafka from 0.8 on does that. {NOT_A_BROKER_HINT}"
            )
        half = f", {self._reader.missing} bytes before the end of a frame" if self._reader.missing else ""
        hint = _WITHOUT_SASL if self._may_lack_sasl(self.versions) and not half else ""
        return f"closed the connection{half}; pending: {self.describe_pending() or 'nothing'}{hint}"

    def _may_lack_sasl(self, versions: BrokerVersions) -> bool:
        """Return whether the broker has answered nothing but the handshake to a client without SASL."""
        is_first = bool(self._in_flight) and not self._has_answered
        return is_first and not self._authenticates and versions.supports(SaslHandshakeRequest, 0)

    def _begin(self) -> None:
        """Reset the state for a new connection and queue its first requests."""
        self._reader = FrameReader(self._max_frame_bytes)
        self._out = Outgoing()
        self._authentication = None
        self._sasl_sent = None
        self._work = None
        self._session_lifetime_ms = 0
        self._has_answered = False
        self._is_muted = False
        self._is_authenticated = not self._authenticates
        self._handshake_sent: deque[tuple[int, HandshakeRequest]] = deque()
        for request in self._handshake.first_requests():
            self._send_handshake(request)
        self._write_queued()

    def _send_handshake(self, request: HandshakeRequest) -> None:
        correlation_id = self._next_correlation_id()
        self._out.add(encode_body(request.api, request.version, correlation_id, self._client_id, request.body))
        self._handshake_sent.append((correlation_id, request))

    def _next_correlation_id(self) -> int:
        taken = self._next_id
        self._next_id = 0 if taken == _LAST_CORRELATION_ID else taken + 1
        return taken

    def _write_queued(self) -> None:
        while self._queued and self.is_ready and not self._is_muted:
            self._write(*self._queued[0])
            self._queued.popleft()

    def _write(self, correlation_id: int, request: Request[Any], version: int | None, ceiling: int | None) -> None:
        assert self.versions is not None
        if version is None:
            version = self.versions.highest(type(request), ceiling)
        self._out.add(*request_pieces(request, version, correlation_id, self._client_id))
        if request.is_answered:
            self._in_flight.append(_InFlight(correlation_id, type(request), version))

    def _on_frame(self, frame: memoryview, answers: list[CorrelatedResponse]) -> None:
        if self._handshake_sent:
            self._on_handshake_frame(correlation_id_of(frame), frame)
            return
        if self._authentication is not None:
            self._on_sasl_frame(self._authentication, frame)
            return
        correlation_id = correlation_id_of(frame)
        if not self._in_flight or self._in_flight[0].correlation_id != correlation_id:
            raise self._unexpected(correlation_id, str(self._in_flight[0]) if self._in_flight else "none")
        asked = self._in_flight[0]
        response = self._decoded(asked.request, asked.version, frame, asked)
        self._in_flight.popleft()
        self._has_answered = True
        throttle_ms: int = getattr(response, "throttle_time_ms", 0)
        if throttle_ms and not (self.versions is not None and self.versions.answers_before_throttling):
            throttle_ms = 0
        answers.append(CorrelatedResponse(correlation_id, response, asked.version, throttle_ms / 1000))

    def _unexpected(self, correlation_id: int, expected: str) -> DecodeError:
        return DecodeError(
            f"unexpected response from broker {self.peer} with correlation id {correlation_id}; expected: {expected}"
        )

    def _decoded(self, api: type[Request[Any]], version: int, frame: memoryview, asked: _InFlight | SaslRequest) -> Any:
        """Return the response in `frame`. `asked` names the request in errors."""
        try:
            return decode_response(api, version, frame)[1]
        except DecodeError as error:
            raise type(error)(f"invalid response from broker {self.peer} to {asked}: {error}") from error

    def _on_handshake_frame(self, correlation_id: int, frame: memoryview) -> None:
        """Handle a response of the handshake: continue it, or write the queued requests after its end."""
        expected, request = self._handshake_sent[0]
        if self.versions is not None and correlation_id == expected:  # also the response to the pipelined probe
            self._handshake_sent.popleft()
            return
        if len(self._handshake_sent) > 1 and self._handshake_sent[1][0] == correlation_id and request.may_be_skipped:
            self._handshake_sent.clear()
            self._handshake.on_probe_answered_first()
            self._write_queued()
            return
        if correlation_id != expected and not (correlation_id == 0 and request.may_be_anonymous):
            raise self._unexpected(correlation_id, f"{request} (correlation id {expected}). {NOT_A_BROKER_HINT}")
        more = self._handshake.on_response(request, frame)
        self._handshake_sent.popleft()
        if more is not None:
            self._send_handshake(more)
        self._write_queued()

    def _send_sasl(self, what: SaslRequest | bytes) -> None:
        if isinstance(what, bytes):
            self._reader.smallest = 0  # a token may be empty
            self._sasl_sent = None
            self._out.add(len(what).to_bytes(4, "big") + what)
            return
        correlation_id = self._next_correlation_id()
        self._out.add(*request_pieces(what.request, what.version, correlation_id, self._client_id))
        self._sasl_sent = correlation_id, what

    def _on_sasl_frame(self, authentication: Authentication, frame: memoryview) -> None:
        """Handle an answer of the exchange: continue it, or leave that to `work` if it takes long."""
        step: Callable[[], SaslStep]
        if self._work is not None:
            raise DecodeError(f"broker {self.peer} sent a frame while the client computes its next token of SASL")
        if self._sasl_sent is None:
            step = partial(authentication.on_token, bytes(frame))
        else:
            expected, sent = self._sasl_sent
            correlation_id = correlation_id_of(frame)
            if correlation_id != expected:
                raise self._unexpected(correlation_id, f"{sent} (correlation id {expected})")
            step = partial(authentication.on_response, self._decoded(type(sent.request), sent.version, frame, sent))
        if authentication.takes_long:
            self._work = step
        else:
            self._go_on(authentication, step())

    def _go_on(self, authentication: Authentication, answer: SaslStep) -> None:
        """Send the next token of the exchange, or write the queued requests after its end."""
        if answer is not None:
            self._send_sasl(answer)
        if authentication.done:
            self._authentication = None
            self._reader.smallest = SMALLEST
            self._session_lifetime_ms = authentication.session_lifetime_ms
            self._is_authenticated = True
            self._write_queued()


# -- the exchange of SASL ----------------------------------------------------------------------------------------------


class SaslRequest(NamedTuple):
    """A request of the SASL exchange, and the version to send it in."""

    request: Request[Any]
    version: int

    def __str__(self) -> str:
        return f"{self.request.NAME} v{self.version}"


SaslStep: TypeAlias = SaslRequest | bytes | None
"""The next message of the client: a request, a token without a header, or None if it sends nothing."""


class Authentication:
    """One SASL exchange by `mechanism` with a broker that supports `versions`."""

    def __init__(self, mechanism: Mechanism, versions: BrokerVersions) -> None:
        self._mechanism = mechanism
        self._versions = versions
        self._in_requests = versions.supports(SaslHandshakeRequest, 1) and versions.supports(SaslAuthenticateRequest, 0)
        self.done = self.is_raw = False
        self.session_lifetime_ms = 0
        """Milliseconds after which the broker ends the session unless the client authenticates again; 0 for never."""

    @property
    def name(self) -> str:
        return self._mechanism.name

    @property
    def takes_long(self) -> bool:
        """Whether the next call of `on_response` or `on_token` takes long. It should then run in another thread."""
        return self._mechanism.takes_long

    def first(self) -> SaslRequest:
        """Return the first request. Raises AuthenticationError if the broker does not support SaslHandshake."""
        try:
            self._versions.highest(SaslHandshakeRequest)
        except UnsupportedVersionError:
            raise self._mechanism.error(
                "the broker has no SaslHandshake: Kafka 0.9 has only Kerberos, without a handshake, which this client "
                "does not support",
                "Use a listener of the broker with PLAINTEXT or SSL, or a newer broker",
            ) from None
        return SaslRequest(SaslHandshakeRequest(mechanism=self.name), 1 if self._in_requests else 0)

    def on_response(self, response: SaslHandshakeResponse | SaslAuthenticateResponse) -> SaslStep:
        """Handle a response of the broker. Return the next request, a token to send without a header, or None.

        Raises AuthenticationError if the exchange has failed, TransportError if a retry may succeed.
        """
        if isinstance(response, SaslHandshakeResponse):
            self._check_handshake(response)
            self.is_raw = not self._in_requests
            return self._sent(self._mechanism.first())
        if response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise self._mechanism.rejected(response.error_message or "")
        if response.error_code:
            self._check(response.error_code, response.error_message or "")
        self.session_lifetime_ms = response.session_lifetime_ms
        return self.on_token(bytes(response.auth_bytes))

    def on_token(self, token: bytes) -> SaslStep:
        """Handle a token of the broker. Return and raise as `on_response`."""
        return self._sent(self._mechanism.next(token))

    def on_silent_end(self) -> AuthenticationError | TransportError:
        """Return the error if the broker closes the connection instead of answering a token without a header."""
        return self._mechanism.rejected("it closed the connection without an answer, as brokers before 1.0 do")

    def _sent(self, token: bytes | None) -> SaslStep:
        self.done = token is None or (self.is_raw and self._mechanism.done)
        if token is None or self.is_raw:
            return token
        version = self._versions.highest(SaslAuthenticateRequest)
        return SaslRequest(SaslAuthenticateRequest(auth_bytes=token), version)

    def _check_handshake(self, response: SaslHandshakeResponse) -> None:
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            theirs = ", ".join(response.mechanisms)
            raise self._mechanism.error(
                f"the listener does not have this mechanism, it has: {theirs or 'none'}",
                "Set kafka.sasl.mechanism to one of them, or enable this one in the broker's sasl.enabled.mechanisms",
            )
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise self._mechanism.error(
                "the listener does not use SASL",
                "Set kafka.security.protocol to PLAINTEXT or SSL, or set the port of a listener with SASL",
            )
        if response.error_code:
            self._check(response.error_code, "")

    def _check(self, code: int, message: str) -> None:
        """Raise the error of an answer with an error code that is not about the credentials."""
        reported = f": {self._mechanism.excerpt(message)}" if message else ""
        error = error_of(code)
        if may_succeed_later(code):
            context = f"cannot authenticate to broker {self._versions.broker} by SASL {self.name}{reported}"
            raise TransportError(f"{context}: {error.name}. A retry may succeed")
        # An AuthError ends the query. The group's thread would connect again after a BrokerError.
        raise self._mechanism.error(
            f"the broker answered {error.name} ({code}): {error.text}{reported}", "See the broker's log for the cause"
        )

"""TLS over one connected socket, by Python's `ssl`, without waiting.

OpenSSL may have to write in order to read (a key update), or to read in order to write; `interest` returns the events
to wait for. It decrypts records of up to 16 KiB, so it may hold decrypted bytes although the socket is not readable:
see `pending`.
"""

from __future__ import annotations

import errno
import select
import socket
import ssl
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.kafka.net.handshake import NOT_TLS_HINT
from streamgroup.kafka.net.tls.contexts import CONTEXTS, Contexts
from streamgroup.kafka.net.tls.refusals import plaintext_refusal, refusal, suite_refusal, tls_error
from streamgroup.kafka.net.transport import PROBE_TIMEOUT_S, Transport
from streamgroup.kafka.wire.frames import encode_request
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest
from streamgroup.options.tls import TlsOptions

_RECORD = 16 * 1024
"""The most bytes of one record. A larger write would report its progress only at its end."""
_RECORDS = 256
"""Records for one call of `receive_into` at most, 4 MiB, so that one connection does not starve the others."""

_ENDS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""How `ssl` reports the end of a connection, besides ConnectionError."""


class TlsTransport(Transport):
    """A TLS connection to a broker whose certificate must contain the name `host`. `peer` is `host:port`, for messages.

    Raises ConfigError for keys or certificates that cannot be used.
    """

    _socket: ssl.SSLSocket

    def __init__(
        self, connected: socket.socket, peer: str, host: str, options: TlsOptions, contexts: Contexts = CONTEXTS
    ) -> None:
        self._peer, self._options = peer, options
        # Certificates have names without the final dot of DNS, and addresses of IPv6 without a zone.
        self._host = host.partition("%")[0].removesuffix(".")
        self._awaited = select.POLLOUT
        """The events that the handshake waits for; later those that reading waits for."""
        self._sends_when_readable = False
        self._failure: OSError | None = None
        """An error that came after received bytes; the next call raises it."""
        self._has_ended = False
        """Whether the end of the stream came after received bytes; the next call returns it."""
        self._lost_handshake: TransportError | None = None
        """The error of a connection that ended in the handshake, while a probe without TLS looks for the cause."""
        self._probe: PlaintextProbe | None = None
        context = contexts.get(options)
        try:
            self._family, self._address = connected.family, connected.getpeername()
            self._host.encode("idna")  # wrap_socket encodes it after it has taken the descriptor, and never closes that
            self._socket = context.wrap_socket(connected, server_hostname=self._host, do_handshake_on_connect=False)
        except OSError as error:
            raise TransportError(f"lost the connection to broker {peer} before the TLS handshake: {error}") from error
        except ValueError as error:  # OpenSSL accepts no empty name and none that begins with a dot
            raise tls_error(peer, f"invalid host name {host!r}: {error}", "Correct advertised.listeners") from error

    @property
    def fileno(self) -> int:
        return super().fileno if self._probe is None else self._probe.fileno

    def shake_hands(self, now: float) -> bool:
        if self._probe is None:
            return self._shake_hands(now)
        answer = self._probe.advance(now)
        if answer is None:
            return False
        assert self._lost_handshake is not None
        raise plaintext_refusal(self._peer) if answer else self._lost_handshake

    def _shake_hands(self, now: float) -> bool:
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self._awaited = select.POLLIN
            return False
        except ssl.SSLWantWriteError:
            self._awaited = select.POLLOUT
            return False
        except OSError as error:
            refused = self.refusal(error)
            if refused is not None:
                raise refused from error
            self._look_for_cause(error, now)
            return False
        self._awaited = select.POLLIN
        self._check_suite()
        return True

    def _look_for_cause(self, error: OSError, now: float) -> None:
        """Begin to probe a server that has closed the connection. Raises TransportError if it did something else."""
        lost = TransportError(
            f"lost the connection to broker {self._peer} in the TLS handshake: {error}. {NOT_TLS_HINT}"
        )
        if not isinstance(error, (ConnectionError, *_ENDS)):
            raise lost from error
        try:
            self._probe, self._lost_handshake = PlaintextProbe(self._family, self._address, now), lost
        except OSError:  # no descriptor is left
            raise lost from error

    def interest(self, has_unsent: bool) -> int:
        if self._probe is not None:
            return self._probe.interest
        if has_unsent and not self._sends_when_readable:
            return self._awaited | select.POLLOUT
        return self._awaited

    @property
    def pending(self) -> bool:
        return self._has_ended or self._failure is not None or self._socket.pending() > 0

    def send(self, pieces: Sequence[memoryview]) -> int:
        """Send the pieces, one TLS record at a time: TLS cannot send several pieces at once.

        OpenSSL insists that a refused write is repeated with the same bytes. They may have moved, and more may follow
        them, so it is enough that the caller begins with the first unsent byte.
        """
        sent = 0
        self._sends_when_readable = False
        try:
            for piece in pieces:
                at = 0
                while at < len(piece):
                    count = self._socket.send(piece[at : at + _RECORD])
                    at += count
                    sent += count
        except ssl.SSLWantWriteError:
            return sent
        except ssl.SSLWantReadError:
            self._sends_when_readable = True
            return sent
        except (ConnectionError, *_ENDS) as error:
            raise self._lost(error) from error
        return sent

    def receive_into(self, space: memoryview) -> int | None:
        if self._failure is not None:
            raise self._failure
        if self._has_ended:
            return 0
        received = 0
        self._awaited = select.POLLIN
        try:
            for _ in range(_RECORDS):
                count = self._socket.recv_into(space[received:])
                received += count
                self._has_ended = not count
                if self._has_ended or received == len(space):
                    break
        except ssl.SSLWantReadError:
            return received or None
        except ssl.SSLWantWriteError:
            self._awaited = select.POLLOUT
            return received or None
        except OSError as error:
            failure = ConnectionResetError(str(error)) if isinstance(error, _ENDS) else error
            if not received:
                raise failure from error
            self._failure = failure
        return received

    def close(self, *, reset: bool) -> None:
        """Close the connection, with close_notify before a FIN."""
        if self._probe is not None:
            self._probe.close()
        elif not reset:
            with suppress(OSError, ValueError):  # it does not wait for the broker's close_notify
                self._socket.unwrap()
        super().close(reset=reset)

    def refusal(self, error: OSError) -> StreamGroupError | None:
        return refusal(error, self._peer, self._host, self._options)

    def _check_suite(self) -> None:
        """Refuse a suite that the options do not list: Python offers all suites of TLS 1.3."""
        allowed, chosen = self._options.cipher_suites, self._socket.cipher()
        if allowed is not None and chosen is not None and chosen[0] not in allowed:
            raise suite_refusal(self._peer, chosen[0])

    def _lost(self, error: OSError) -> OSError:
        """Return the alert that the broker has sent before it closed the connection, or else `error`.

        With TLS 1.3 a broker refuses the client's certificate only after the client has begun to send.
        """
        try:
            self._socket.recv(1)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, *_ENDS):
            pass
        except ssl.SSLError as alert:
            return alert
        except OSError:
            pass
        return error if isinstance(error, ConnectionError) else ConnectionResetError(str(error))


_CORRELATION_ID = 0x50726F62
_REQUEST = encode_request(ApiVersionsRequest(), 0, _CORRELATION_ID, None)
"""The request has neither a client id nor credentials: anybody on the way can read it."""
_ANSWER = struct.Struct(">ii")
_SIZES = range(6, 1 << 20)
"""Bytes that the answer may have behind its length: at least a correlation id and an error code."""
_NOT_YET = frozenset({errno.EAGAIN, errno.EINPROGRESS, errno.EINTR, errno.ENOTCONN, errno.EWOULDBLOCK})


class PlaintextProbe:
    """Tries ApiVersions without TLS at `address`, to find out whether the listener is plaintext.

    `now` is in seconds on the caller's clock. An attacker who interrupts TLS and answers the probe can only make the
    client fail: the client sends nothing else without TLS.
    """

    def __init__(self, family: socket.AddressFamily, address: Any, now: float) -> None:
        self._until = now + PROBE_TIMEOUT_S
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._is_sent = False
        self._received = b""
        self._has_failed = self._socket.connect_ex(address) not in (0, *_NOT_YET)

    @property
    def fileno(self) -> int:
        """The descriptor of the socket."""
        return self._socket.fileno()

    @property
    def interest(self) -> int:
        """The events to poll the descriptor for."""
        return select.POLLIN if self._is_sent else select.POLLOUT

    def advance(self, now: float) -> bool | None:
        """Continue without waiting. Return whether a Kafka broker has answered; None if the answer may still come."""
        if self._has_failed or now >= self._until:
            return False
        try:
            return self._exchange()
        except OSError as error:
            return None if error.errno in _NOT_YET else False

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _exchange(self) -> bool | None:
        if not self._is_sent:
            self._is_sent = self._socket.send(_REQUEST) == len(_REQUEST)
        received = self._socket.recv(_ANSWER.size - len(self._received))
        self._received += received
        if len(self._received) < _ANSWER.size:
            return None if received else False
        size, correlation_id = _ANSWER.unpack(self._received)
        return size in _SIZES and correlation_id == _CORRELATION_ID

"""TLS over one connected socket, by Python's `ssl` without waiting.

OpenSSL may have to write in order to read (a key update), or to read in order to write; `interest` returns the events
to wait for. It decrypts records of up to 16 KiB, so it may hold bytes while the descriptor is not readable: `pending`.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress

from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.kafka.net.handshake import NOT_TLS_HINT
from streamgroup.kafka.net.tls.contexts import CONTEXTS, Contexts
from streamgroup.kafka.net.tls.refusals import refusal, suite_refusal, tls_error
from streamgroup.kafka.net.transport import Transport
from streamgroup.options.tls import TlsOptions

_RECORD = 16 * 1024
"""The most bytes of one record. A larger write would report its progress only at its end."""
_RECORDS = 256
"""Records for one call of `receive_into` at most, 4 MiB, so that one connection does not starve the others."""

_ENDS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""How `ssl` reports the end of a connection, besides ConnectionError."""


class TlsTransport(Transport):
    """TLS to `host`, a name that the broker's certificate must have. `peer` is `host:port`, for messages.

    Raises ConfigError for key material that cannot be used.
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
        context = contexts.get(options)
        try:
            self._socket = context.wrap_socket(connected, server_hostname=self._host, do_handshake_on_connect=False)
        except OSError as error:
            raise TransportError(f"lost the connection to broker {peer} before the TLS handshake: {error}") from error
        except ValueError as error:  # OpenSSL accepts no empty name and none that begins with a dot
            raise tls_error(peer, f"invalid host name {host!r}: {error}", "Correct advertised.listeners") from error

    def shake_hands(self) -> bool:
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
            # A broker of Kafka without TLS closes the connection without an answer, and so does one that stops.
            raise TransportError(
                f"lost the connection to broker {self._peer} in the TLS handshake: {error}. {NOT_TLS_HINT}"
            ) from error
        self._awaited = select.POLLIN
        self._check_suite()
        return True

    def interest(self, has_unsent: bool) -> int:
        if has_unsent and not self._sends_when_readable:
            return self._awaited | select.POLLOUT
        return self._awaited

    @property
    def pending(self) -> bool:
        return self._has_ended or self._failure is not None or self._socket.pending() > 0

    def send(self, pieces: Sequence[memoryview]) -> int:
        """Send record by record, since TLS has no way to gather pieces.

        OpenSSL insists that a refused write is repeated with the same bytes. They may have moved, and more may
        follow them, so it is enough that the caller begins with the first unsent byte.
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
        if not reset:
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

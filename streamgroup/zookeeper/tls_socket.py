"""TLS over one connected socket, for kazoo, which neither verifies host names nor looks into OpenSSL's buffers."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import Any

from streamgroup.errors import StreamGroupError
from streamgroup.net.tls.contexts import CONTEXTS, Contexts
from streamgroup.net.tls.refusals import refusal, suite_refusal, tls_error
from streamgroup.options.tls import TlsOptions
from streamgroup.text import host_port

_RECORD = 16 * 1024
"""The most bytes of one record of TLS."""
_PROBE_TIMEOUT_S = 1.0
_FOUR_LETTERS = b"ruok"
_IN_PLAINTEXT = (b"imok", b"ruok is not executed")
"""The answers of a plaintext ZooKeeper to `ruok`, also where its whitelist lacks that command."""


class HandshakeRefused(Exception):
    """A failed handshake that no retry mends, with the error for the user."""

    def __init__(self, error: StreamGroupError) -> None:
        super().__init__(str(error))
        self.error = error


class TlsSocket:
    """A socket with TLS, as kazoo uses sockets. One thread uses it.

    `fill` tells whether decrypted bytes are there. A readable descriptor does not: it may have a part of a record or a
    session ticket. Nor does one that is not readable: OpenSSL may hold decrypted bytes.
    """

    def __init__(self, secured: ssl.SSLSocket, peer: str, host: str, options: TlsOptions) -> None:
        self._socket = secured
        self._peer, self._host, self._options = peer, host, options
        self._buffer = b""
        self._failure: OSError | HandshakeRefused | None = None
        self._has_ended = False
        self._has_received = False

    @classmethod
    def connect(
        cls,
        connected: socket.socket,
        host: str,
        port: int,
        options: TlsOptions,
        timeout_s: float,
        *,
        contexts: Contexts = CONTEXTS,
    ) -> TlsSocket:
        """Return a socket whose server has shown a trusted certificate for `host`, within `timeout_s` seconds.

        Raises HandshakeRefused, and OSError if the connection is lost. Closes `connected` then.
        """
        peer = host_port(host, port)
        # Certificates have names without the final dot of DNS, and addresses of IPv6 without a zone.
        name = host.partition("%")[0].removesuffix(".")
        try:
            context = contexts.get(options)
            connected.settimeout(timeout_s)
            secured = context.wrap_socket(connected, server_hostname=name)
        except StreamGroupError as error:
            connected.close()
            raise HandshakeRefused(error) from error
        except (OSError, ValueError) as error:
            connected.close()
            if isinstance(error, OSError):
                refused = refusal(error, peer, name, options)
            else:  # OpenSSL takes no empty name and none that begins with a dot
                cause, step = f"invalid host name {host!r}: {error}", "Correct zookeeper.connect"
                refused = tls_error(peer, cause, step, options.servers)
            if refused is None:
                raise
            raise HandshakeRefused(refused) from error
        chosen = secured.cipher()
        if options.cipher_suites is not None and chosen is not None and chosen[0] not in options.cipher_suites:
            secured.close()
            raise HandshakeRefused(suite_refusal(peer, chosen[0], options.servers))
        return cls(secured, peer, name, options)

    # -- what kazoo calls ----------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        return self._socket.fileno()

    def setblocking(self, flag: bool) -> None:
        self._socket.setblocking(flag)

    def pending(self) -> int:
        """Return how many bytes `recv` has at once; 1 at least if it has an error or the end of the stream."""
        return len(self._buffer) or int(self._failure is not None or self._has_ended)

    def recv(self, size: int) -> bytes:
        """Return at most `size` bytes; none at the end of the stream.

        Raises SSLWantReadError if there are none yet, OSError if the connection is lost, and HandshakeRefused: with TLS
        1.3 a server refuses the client's certificate after the handshake.
        """
        if not self._buffer and not self.fill():
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "no whole record of TLS has arrived")
        if not self._buffer and self._failure is not None:
            raise self._failure
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def send(self, data: Any) -> int:
        """Send the first bytes of `data`, at most one record, and return their number."""
        return self._socket.send(memoryview(data)[:_RECORD])

    def close(self) -> None:
        """Close the connection, with close_notify before a FIN."""
        with suppress(OSError, ValueError):  # it does not wait for the server's own
            self._socket.unwrap()
        self._socket.close()

    # -- what the handler asks -----------------------------------------------------------------------------------------

    def fill(self) -> bool:
        """Decrypt what has arrived, and return whether `recv` has bytes, an error or the end of the stream."""
        if self.pending():
            return True
        try:
            self._buffer = self._socket.recv(_RECORD)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError as error:
            refused = None if self._has_received else refusal(error, self._peer, self._host, self._options)
            self._failure = error if refused is None else HandshakeRefused(refused)
        else:
            self._has_ended = not self._buffer
            self._has_received = True
        return True


def answers_in_plaintext(address: tuple[str, int]) -> bool:
    """Return whether a ZooKeeper answers a four-letter word at `address` without TLS. A TLS listener never does.

    The question holds neither credentials nor the name of a group.
    """
    try:
        with socket.create_connection(address, _PROBE_TIMEOUT_S) as connection:
            connection.settimeout(_PROBE_TIMEOUT_S)
            connection.sendall(_FOUR_LETTERS)
            return connection.recv(64).startswith(_IN_PLAINTEXT)
    except OSError:
        return False


def answers_in_tls(address: tuple[str, int]) -> bool:
    """Return whether the server at `address` begins a handshake of TLS, whatever certificate it shows."""
    try:
        with (
            socket.create_connection(address, _PROBE_TIMEOUT_S) as connection,
            ssl.create_default_context().wrap_socket(connection, server_hostname=address[0]),
        ):
            return True
    except ssl.SSLCertVerificationError:
        return True
    except (OSError, ValueError):
        return False

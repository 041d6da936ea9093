"""kazoo's client for a single session: no second session, no secret in any log, no retries of operations.

It differs from kazoo's own client in five points:

- **One client, one session.** After an expiry kazoo opens a new session and may send pending operations in it. A commit
  of a member that has lost its session must never be sent. This client therefore never connects again after the end of
  its session.
- **kazoo's log is muted.** At DEBUG kazoo logs requests, credentials included. Its warnings about lost connections
  are left to the callers, who log the consequences.
- **A connection attempt** takes the session timeout divided by the number of servers, as in Java's client: a server
  that drops packets must not use up the session.
- **The negotiated session timeout is kept.** A server may grant a shorter or longer timeout than requested (2 to 20 of
  its ticks). kazoo applies that value but does not expose it, so it is read from the ConnectResponse.
- **TLS is the same as to brokers.** kazoo does not verify host names by default, and reads only PEM. A
  failure for which retrying will not help ends the session, as rejected credentials do.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import SASL, Connect
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from streamgroup.core_files import disable_core_files
from streamgroup.errors import AuthError, StreamGroupError, TlsError, TransportError
from streamgroup.kafka.net.tls.contexts import CONTEXTS, Contexts
from streamgroup.kafka.net.tls.refusals import refusal, suite_refusal, tls_error
from streamgroup.options.tls import TlsOptions
from streamgroup.options.types import ZooKeeperOptions
from streamgroup.text import host_port, host_ports
from streamgroup.znodes import Operation, Refusal, Right, how_to_allow, needed

FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.1, 1.0
"""Seconds between two rounds through all servers: doubled each time, with 40 % jitter."""

_JITTER = 0.4


class _MutedFilter(logging.Filter):
    """A logging filter: kazoo's records up to WARNING become DEBUG, and its own DEBUG records are dropped."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.INFO:
            return False
        if record.levelno <= logging.WARNING:
            record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
        return _log.isEnabledFor(record.levelno)


_log = logging.getLogger("streamgroup.zookeeper.kazoo")
_log.addFilter(_MutedFilter())


class SingleSessionHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads and sockets for one session. After `is_over` is set, they make no connection."""

    def __init__(self, connect_timeout_s: float, tls: TlsOptions | None = None) -> None:
        super().__init__()
        self.is_over = False
        self.connect_timeout_s = connect_timeout_s
        self.tls = tls
        self.refusal: StreamGroupError | None = None
        """The failure for which retrying will not help."""
        self.last_failure = ""
        """Why the last attempt to connect has failed, for messages; empty after a success."""
        self.address = ("", 0)
        """The address of the last attempt to connect, resolved."""
        self.peer = ""
        """The same address as written in the options, for messages."""
        self.on_refused: Callable[[], None] = lambda: None
        """Called by kazoo's thread once `refusal` is set: kazoo reports no end of a session that never started."""
        self.may_probe = True
        """Whether a server that closes the connection may be probed for TLS or plaintext. Not after a server has
        answered: the options are then right, and a server that starts or stops must not look like the other kind."""

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Return a connection to one server. kazoo passes `address`, the IP address and the port, and `hostname`.

        With TLS the certificate must be valid for `hostname`. Raises OSError if no connection can be made or the
        session is over, and AuthFailedError if retrying will not help.
        """
        if self.is_over:
            raise OSError("cannot connect to ZooKeeper: the session has expired or is closed")
        until = time.monotonic() + self.connect_timeout_s
        self.address = (args or (kwargs["address"],))[0][:2]
        self.peer = f"{kwargs.get('hostname', self.address[0])}:{self.address[1]}"
        try:
            connected = super().create_connection(*args, **{**kwargs, "timeout": self.connect_timeout_s})
            if self.tls is None:
                return connected
            return self._secured(connected, kwargs["hostname"], max(0.001, until - time.monotonic()))
        except OSError as error:
            self.last_failure = str(error)
            raise

    def _secured(self, connected: Any, host: str, timeout_s: float) -> TlsSocket:
        assert self.tls is not None
        try:
            return TlsSocket.connect(connected, host, self.address[1], self.tls, timeout_s)
        except HandshakeRefused as refused:
            raise self.refused(refused.error) from refused
        except OSError as error:
            if self.may_probe and answers_in_plaintext(self.address):
                cause = "the listener is plaintext: it answers only without TLS"
                raise self.refused(
                    tls_error(self.peer, cause, self.tls.servers.without_tls, self.tls.servers)
                ) from error
            raise OSError(f"the server closed the connection in the TLS handshake: {error}") from error

    def refused(self, error: StreamGroupError) -> AuthFailedError:
        """Record a failure for which retrying will not help. Return the exception that makes kazoo end the session."""
        self.refusal = error
        self.on_refused()
        return AuthFailedError(str(error))

    def select(self, rlist: Sequence[Any], wlist: Sequence[Any], xlist: Sequence[Any], timeout: float) -> Any:
        """Wait as `select.select`. A TLS socket also counts as readable if it has decrypted bytes."""
        until = time.monotonic() + timeout
        secured = [each for each in rlist if isinstance(each, TlsSocket)]
        while True:
            ready = [each for each in secured if each.pending()]
            left_s = 0.0 if ready else max(0.0, until - time.monotonic())
            readable, writable, failed = super().select(rlist, wlist, xlist, left_s)
            found = [each for each in readable if each not in secured or each.fill()]
            found += [each for each in ready if each not in found]
            if found or writable or failed or time.monotonic() >= until:
                return found, writable, failed


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection to a server. It also keeps the session timeout that the server granted.

    If a server closes the connection, it finds out why. With another version of kazoo `granted_ms` may stay 0.
    """

    granted_ms = 0
    _has_authenticated = False

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        """Authenticate by DIGEST-MD5, and verify the server's proof. Raises AuthFailedError.

        kazoo's own needs another package, which does not verify the proof in constant time and is not maintained.
        """
        exchange = DigestMd5(**self.sasl_options, cnonce=secrets.token_urlsafe(24))
        try:
            answer = exchange.response(self._sasl(b"", 1, timeout))
        except ValueError as error:
            raise self._rejected(str(error)) from error
        try:
            proof = self._sasl(answer, 2, timeout)
        except ConnectionDropped as error:
            if self._has_authenticated:  # with the same password: the server has just stopped
                raise
            raise self._rejected("the server closed the connection") from error
        if not exchange.is_proof(proof):
            raise self._rejected("the server did not prove that it has the password")
        self._has_authenticated = True

    def _sasl(self, token: bytes, xid: int, timeout: float) -> bytes:
        """Send a token, and return the server's."""
        self._submit(SASL(token), timeout, xid)
        header, buffer, offset = self._read_header(timeout)
        if header.err:
            raise self._rejected(f"error {header.err}")
        challenge: bytes = SASL.deserialize(buffer, offset)[0] or b""  # null: the server has no SASL
        return challenge

    def _rejected(self, cause: str) -> AuthFailedError:
        return self.handler.refused(
            CredentialsError(
                f"{self.client.where} rejected the credentials for DIGEST-MD5: {cause}. Check zookeeper.username, "
                "zookeeper.password, and that the servers have a JAAS section Server and authProvider.sasl"
            )
        )

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        try:
            answer = super()._invoke(timeout, request, xid)
        except ConnectionDropped:
            if isinstance(request, Connect):
                self._hung_up()
            raise
        if isinstance(request, Connect):
            self.handler.last_failure, self.handler.may_probe = "", False
        if isinstance(request, Connect) and answer[0].time_out > 0:  # 0 means that the session has expired
            self.granted_ms = answer[0].time_out
            share_s = self.granted_ms / 1000 / len(self.client.hosts)
            self.handler.connect_timeout_s = min(self.handler.connect_timeout_s, share_s)
        return answer

    def _read(self, length: int, timeout: float) -> Any:
        try:
            return super()._read(length, timeout)
        except HandshakeRefused as refused:
            raise self.handler.refused(refused.error) from refused

    def _hung_up(self) -> None:
        """Find the cause if a server closed the connection before it answered."""
        handler: SingleSessionHandler = self.handler
        handler.last_failure = "the server closed the connection before it answered"
        if handler.tls is None and handler.may_probe and answers_in_tls(handler.address):
            raise handler.refused(
                TlsError(
                    f"cannot connect to ZooKeeper server {handler.peer} without TLS: the listener requires TLS. Set "
                    "zookeeper.ssl.client.enable=true, or the port of a plaintext listener (clientPort)"
                )
            )


class SingleSessionClient(KazooClient):  # type: ignore[misc]
    """kazoo's client, changed to have only one session. See the module."""

    _connection: Any

    def __init__(self, where: str, sasl_user: Mapping[str, str] | None, **settings: Any) -> None:
        """`sasl_user` has the user and the password for DIGEST-MD5."""
        super().__init__(**settings)
        self.where = where
        """The name of this ZooKeeper in messages."""
        retry = self._connection.retry_sleeper
        self._connection = _Connection(self, retry, logger=settings["logger"], sasl_options=sasl_user)

    @property
    def granted_ms(self) -> int:
        """The session timeout in ms that the server granted in the last handshake; 0 before the first."""
        granted_ms: int = self._connection.granted_ms
        return granted_ms


def client_of(options: ZooKeeperOptions) -> SingleSessionClient:
    """Return a client that is not started. Raises ConfigError if the password or a certificate cannot be read."""
    if options.tls is not None or options.username:
        disable_core_files()
    if options.tls is not None:
        CONTEXTS.get(options.tls)
    session_s = options.session_timeout_ms / 1000
    auth, sasl_user = None, None
    if options.username:
        password = "" if options.password is None else options.password.reveal("zookeeper.password")
        if options.sasl_mechanism:
            sasl_user = {"user": options.username, "password": password}
        else:
            auth = [("digest", f"{options.username}:{password}")]
    return SingleSessionClient(
        f"ZooKeeper {addresses(options)}{options.chroot}",
        sasl_user,
        hosts=addresses(options) + options.chroot,
        timeout=session_s,
        handler=SingleSessionHandler(session_s / len(options.servers), options.tls),
        auth_data=auth,
        connection_retry=KazooRetry(
            max_tries=-1, delay=FIRST_BACKOFF_S, max_delay=MAX_BACKOFF_S, max_jitter=_JITTER, ignore_expire=False
        ),
        logger=_log,
    )


def addresses(options: ZooKeeperOptions) -> str:
    """Return the servers in the format of `zookeeper.connect`, without the chroot."""
    return host_ports(options.servers)


def acl_of(options: ZooKeeperOptions, path: str) -> list[ACL]:
    """Return the ACL for a new node at `path`.

    Nodes directly below the root, such as `/consumers`, are open to all users, as in Kafka: groups of other users
    register below them too.
    """
    if not options.creator_only or path.count("/") < 2:
        return list(OPEN_ACL_UNSAFE)
    return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]


DIGEST_URI = "zookeeper/zk-sasl-md5"
"""A constant of ZooKeeper in place of the host name."""

_DIRECTIVE = re.compile(r'\s*([A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]+))\s*(?:,|\Z)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_COUNT = "00000001"
_LONGEST = 2047
"""Bytes of a challenge (RFC 2831, section 2.1.1)."""


class DigestMd5:
    """One SASL exchange by DIGEST-MD5 for `user`.

    `cnonce` is a random text without quotes, a new one for each exchange.
    """

    def __init__(self, user: str, password: str, cnonce: str) -> None:
        self._user, self._password, self._cnonce = user, password, cnonce
        self._proof = b""

    def response(self, challenge: bytes) -> bytes:
        """Return the client's answer. Raises ValueError for a challenge that is not one of DIGEST-MD5."""
        if len(challenge) > _LONGEST:
            raise ValueError(f"the challenge has {len(challenge)} bytes, more than {_LONGEST}")
        given = _directives(challenge)
        nonce, realm = given.get("nonce", ""), given.get("realm", "")
        if not nonce or given.get("algorithm") != "md5-sess" or "auth" not in given.get("qop", "auth").split(","):
            raise ValueError("the challenge lacks a nonce, the algorithm md5-sess or the quality auth")
        secret = _md5(f"{self._user}:{realm}:{self._password}".encode())
        session = _md5(secret + f":{nonce}:{self._cnonce}".encode()).hex()
        middle = f"{nonce}:{_COUNT}:{self._cnonce}:auth"

        def proof(of: str) -> str:
            return _md5(f"{session}:{middle}:{_md5(of.encode()).hex()}".encode()).hex()

        self._proof = b"rspauth=" + proof(f":{DIGEST_URI}").encode()
        named = f"username={_quoted(self._user)},realm={_quoted(realm)},nonce={_quoted(nonce)}"
        return (
            f'charset=utf-8,{named},nc={_COUNT},cnonce="{self._cnonce}",digest-uri="{DIGEST_URI}",maxbuf=65536,'
            f"response={proof(f'AUTHENTICATE:{DIGEST_URI}')},qop=auth"
        ).encode()

    def is_proof(self, answer: bytes) -> bool:
        """Return whether `answer` shows that the server knows the password."""
        return bool(self._proof) and hmac.compare_digest(answer, self._proof)


def _directives(challenge: bytes) -> dict[str, str]:
    text = challenge.decode("utf-8", "replace")
    return {
        found[1].lower(): found[3] if found[2] is None else _ESCAPED.sub(r"\1", found[2])
        for found in _DIRECTIVE.finditer(text)
    }


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


_RECORD = 16 * 1024
"""The most bytes of one record of TLS."""
_PROBE_TIMEOUT_S = 1.0
_FOUR_LETTERS = b"ruok"
_IN_PLAINTEXT = (b"imok", b"ruok is not executed")
"""The answers of a plaintext ZooKeeper to `ruok`, with or without that command in its whitelist."""


class HandshakeRefused(Exception):
    """A TLS handshake with ZooKeeper failed and retrying will not help. It contains the error for the user."""

    def __init__(self, error: StreamGroupError) -> None:
        super().__init__(str(error))
        self.error = error


class TlsSocket:
    """A TLS socket with the interface that kazoo needs. One thread uses it.

    `fill` returns whether there are decrypted bytes. The descriptor does not show this: if it is readable, there may be
    only a part of a record or a session ticket; if it is not, OpenSSL may hold decrypted bytes.
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
            name.encode("idna")  # wrap_socket would encode it when it has taken the descriptor, and never close that
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
        """Return how many bytes `recv` can return; at least 1 for an error or the end of the stream."""
        return len(self._buffer) or int(self._failure is not None or self._has_ended)

    def recv(self, size: int) -> bytes:
        """Return at most `size` bytes; none at the end of the stream.

        Raises SSLWantReadError if there are none yet, OSError if the connection is lost, and HandshakeRefused: with TLS
        1.3 a server refuses the client's certificate after the handshake.
        """
        if not self._buffer and not self.fill():
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "no complete TLS record has arrived")
        if not self._buffer and self._failure is not None:
            raise self._failure
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def send(self, data: Any) -> int:
        """Send the first bytes of `data`, at most one record, and return their number."""
        return self._socket.send(memoryview(data)[:_RECORD])

    def close(self) -> None:
        """Close the connection, with close_notify before a FIN."""
        with suppress(OSError, ValueError):  # does not wait for the server's close_notify
            self._socket.unwrap()
        self._socket.close()

    # -- what the handler calls ----------------------------------------------------------------------------------------

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

    The request contains neither credentials nor the name of a group.
    """
    try:
        with socket.create_connection(address, _PROBE_TIMEOUT_S) as connection:
            connection.settimeout(_PROBE_TIMEOUT_S)
            connection.sendall(_FOUR_LETTERS)
            return connection.recv(64).startswith(_IN_PLAINTEXT)
    except OSError:
        return False


def answers_in_tls(address: tuple[str, int]) -> bool:
    """Return whether the server at `address` starts a TLS handshake, with any certificate."""
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


class RefusedError(StreamGroupError):
    """ZooKeeper refused an operation because of the node `path`. Nothing was read or written."""

    def __init__(self, path: str, refusal: Refusal, where: str, asked: Iterable[Operation] = ()) -> None:
        """`asked` has the operations of the transaction. If it is empty, `path` was read."""
        self.path = path
        self.refusal = refusal
        self.advice = _advice(path, refusal, asked)
        """The next step for the user; empty if the refusal comes from a race between members."""
        super().__init__(
            f"operation on {path} refused by {where}: {refusal.value}{'. ' * bool(self.advice)}{self.advice}"
        )


class UnansweredError(TransportError):
    """The deadline passed, or the connection was lost, before a response arrived. A write may have taken effect."""


class SessionOverError(UnansweredError):
    """The session has expired or was closed. Its ephemeral nodes are or will soon be deleted."""


class CredentialsError(AuthError):
    """ZooKeeper rejected the user's credentials."""


def _advice(path: str, refusal: Refusal, asked: Iterable[Operation]) -> str:
    if refusal is Refusal.INVALID_ACL:
        return (
            "With zookeeper.set.acl=true set zookeeper.username and zookeeper.password, or a client certificate that "
            "the server requests (ssl.clientAuth)"
        )
    if refusal is not Refusal.NO_AUTH:
        return ""
    operation = next((each for each in asked if each.path == path), None)
    return how_to_allow(*((path, Right.READ) if operation is None else needed(operation)))

"""kazoo's client for a single session: no second session, no secret in any log, no retries of operations.

It differs from kazoo's own client in four points:

- **One client, one session.** After an expiry kazoo opens a new session and may send pending operations in it. A commit
  of a member that has lost its session must never be sent. This client therefore never connects again after the end of
  its session.
- **kazoo's log is muted.** At DEBUG kazoo logs what it sends, credentials included. Its warnings about lost connections
  are left to the callers, who log the consequences.
- **A connection attempt** takes the session timeout divided by the number of servers, as in Java's client: a server
  that drops packets must not use up the session.
- **The negotiated session timeout is kept.** A server may grant a shorter or longer timeout than requested (2 to 20 of
  its ticks). kazoo applies that value but does not expose it, so it is read from the ConnectResponse.
"""

from __future__ import annotations

import logging
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from streamgroup.options.types import ZooKeeperOptions

FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.1, 1.0
"""Seconds between two rounds through all servers: doubled each time, with 40 % jitter."""

_JITTER = 0.4


class _MutedFilter(logging.Filter):
    """Lowers kazoo's records up to WARNING to DEBUG, and drops its own DEBUG records."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.INFO:
            return False
        if record.levelno <= logging.WARNING:
            record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
        return _log.isEnabledFor(record.levelno)


_log = logging.getLogger("streamgroup.zookeeper.kazoo")
_log.addFilter(_MutedFilter())


class SingleSessionHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads and sockets for one session: once it `is_over`, they make no connection."""

    def __init__(self, connect_timeout_s: float) -> None:
        super().__init__()
        self.is_over = False
        self.connect_timeout_s = connect_timeout_s

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Return a connection to one server. Raises OSError if that fails, or after the session's end."""
        if self.is_over:
            raise OSError("cannot connect to ZooKeeper: the session has expired or is closed")
        return super().create_connection(*args, **{**kwargs, "timeout": self.connect_timeout_s})


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, which keeps the timeout that `_invoke` negotiates.

    Another kazoo may leave `granted_ms` at 0.
    """

    granted_ms = 0

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect) and answer[0].time_out > 0:  # 0 means that the session has expired
            self.granted_ms = answer[0].time_out
            share_s = self.granted_ms / 1000 / len(self.client.hosts)
            self.handler.connect_timeout_s = min(self.handler.connect_timeout_s, share_s)
        return answer


class SingleSessionClient(KazooClient):  # type: ignore[misc]
    """kazoo's client for one session."""

    _connection: Any

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._connection = _Connection(self, self._connection.retry_sleeper, logger=settings["logger"])

    @property
    def granted_ms(self) -> int:
        """The session timeout in ms that the server granted in the last handshake; 0 before the first."""
        granted_ms: int = self._connection.granted_ms
        return granted_ms


def client_of(options: ZooKeeperOptions) -> SingleSessionClient:
    """Return a client that is not started. Raises ConfigError if the password cannot be read."""
    session_s = options.session_timeout_ms / 1000
    auth = None
    if options.username:
        password = "" if options.password is None else options.password.reveal("zookeeper.password")
        auth = [("digest", f"{options.username}:{password}")]
    return SingleSessionClient(
        hosts=addresses(options) + options.chroot,
        timeout=session_s,
        handler=SingleSessionHandler(session_s / len(options.servers)),
        auth_data=auth,
        connection_retry=KazooRetry(
            max_tries=-1, delay=FIRST_BACKOFF_S, max_delay=MAX_BACKOFF_S, max_jitter=_JITTER, ignore_expire=False
        ),
        logger=_log,
    )


def addresses(options: ZooKeeperOptions) -> str:
    """Return the servers in the notation of `zookeeper.connect`, without the chroot."""
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in options.servers)


def acl_of(options: ZooKeeperOptions, path: str) -> list[ACL]:
    """Return the ACL of a node created at `path`.

    Nodes directly below the root, such as `/consumers`, are open to everybody, as in Kafka: groups of other users
    register below them too.
    """
    if not options.creator_only or path.count("/") < 2:
        return list(OPEN_ACL_UNSAFE)
    return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

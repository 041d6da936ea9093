"""kazoo's client, as one session needs it: one session a client, no secret in any log, no retries of its own.

Four things are otherwise than kazoo has them:

- **A client is one session's.** kazoo goes on with a new session after an expiry, and what was asked in between may be
  carried out under the new one. A commit of a member that is none any more must never be: after the end of its session
  a client connects no more.
- **Its log is muted.** At DEBUG kazoo logs what it sends, credentials too; and what it warns of, a lost connection, is
  said by those who know what follows from it.
- **A try to connect** takes the session timeout divided by the number of servers, as Java's client has it: one that
  swallows packets must not use up the session.
- **The granted time is kept.** A server may grant a shorter or longer session than it is asked for (2 to 20 of its
  ticks). kazoo goes by what it was granted, and keeps it to itself: it is read off the answer to the handshake.
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

FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 1.0
"""Between two rounds through all servers: it doubles, spread by 40 % either way."""

_SPREAD = 0.4


class _Muted(logging.Filter):
    """What kazoo says of connections is DEBUG; what it says at DEBUG and below is not said at all."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether `record`, at its new level, is to be written."""
        if record.levelno < logging.INFO:
            return False
        if record.levelno <= logging.WARNING:
            record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
        return _log.isEnabledFor(record.levelno)


_log = logging.getLogger("streamgroup.zookeeper.kazoo")
_log.addFilter(_Muted())


class OneSession(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads and sockets for one session: once it is `over`, nothing connects any more."""

    def __init__(self, connect_timeout_s: float) -> None:
        super().__init__()
        self.over = False
        self.connect_timeout_s = connect_timeout_s

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Return a connection to one server. Raises OSError where none can be made, or is to be made."""
        if self.over:
            raise OSError("this session is over")
        return super().create_connection(*args, **{**kwargs, "timeout": self.connect_timeout_s})


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection; `_invoke` is how it shakes hands. A kazoo that does so otherwise leaves `granted_ms` at 0."""

    granted_ms = 0

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect) and answer[0].time_out > 0:  # else the session has expired
            self.granted_ms = answer[0].time_out
            share_s = self.granted_ms / 1000 / len(self.client.hosts)
            self.handler.connect_timeout_s = min(self.handler.connect_timeout_s, share_s)
        return answer


class OneClient(KazooClient):  # type: ignore[misc]
    """See the module."""

    _connection: Any

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._connection = _Connection(self, self._connection.retry_sleeper, logger=settings["logger"])

    @property
    def granted_ms(self) -> int:
        """How long a session the server has granted at the last handshake; 0 before the first."""
        granted_ms: int = self._connection.granted_ms
        return granted_ms


def client_of(options: ZooKeeperOptions) -> OneClient:
    """Return a client that is not started yet. Raises ConfigError where the password cannot be had."""
    session_s = options.session_timeout_ms / 1000
    auth = None
    if options.username:
        password = "" if options.password is None else options.password.reveal("zookeeper.password")
        auth = [("digest", f"{options.username}:{password}")]
    return OneClient(
        hosts=addresses(options) + options.chroot,
        timeout=session_s,
        handler=OneSession(session_s / len(options.servers)),
        auth_data=auth,
        connection_retry=KazooRetry(
            max_tries=-1, delay=FIRST_WAIT_S, max_delay=LONGEST_WAIT_S, max_jitter=_SPREAD, ignore_expire=False
        ),
        logger=_log,
    )


def addresses(options: ZooKeeperOptions) -> str:
    """Return the servers as an operator writes them, without the chroot."""
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in options.servers)


def acl_of(options: ZooKeeperOptions, path: str) -> list[ACL]:
    """Who may do what with a node made at `path`.

    What lies directly below the root, such as `/consumers`, is everybody's, as Kafka itself has it: groups of other
    users register there too.
    """
    if not options.creator_only or path.count("/") < 2:
        return list(OPEN_ACL_UNSAFE)
    return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

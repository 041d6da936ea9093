"""Connections that are kept between the tasks of one worker process, so that most tasks begin with an open one.

A connection is lent to one reader at a time. The pool takes back only a connection that is open and has no outstanding
request. It lends one again only if that has not been idle for long and has nothing to read: that would be its end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from streamgroup.errors import StreamGroupError
from streamgroup.executor.idle_pool import IdlePool
from streamgroup.model import Dialect
from streamgroup.net.connection import Connection
from streamgroup.options.types import ClientOptions

MAX_KEPT = 64

_Key = tuple[str, int, ClientOptions, Dialect]


class ConnectionPool:
    """Open connections by address, options and protocol. May be used by several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._idle: IdlePool[_Key, Connection] = IdlePool(MAX_KEPT, clock)

    def take(
        self, host: str, port: int, options: ClientOptions, deadline: float, dialect: Dialect = Dialect.KAFKA
    ) -> Connection:
        """Return a connection to `host:port`, kept or new. Raises TransportError where there is none by `deadline`."""
        key = (host, port, options, dialect)
        while (kept := self._idle.take(key)) is not None:
            if kept.idle:
                return kept
            with contextlib.suppress(StreamGroupError):
                kept.arrived()  # reads its end: another broker may have the address by now
            kept.close()
        connection = Connection(host, port, options, self._clock, dialect)
        connection.connect(deadline)
        return connection

    def give_back(self, connection: Connection) -> None:
        """Keep `connection` for the next reader, or reset it where answers are outstanding."""
        if not connection.open or connection.outstanding:
            connection.abort()
            return
        key = (connection.host, connection.port, connection.options, connection.dialect)
        self._idle.keep(key, connection, connection.options.max_idle_s)

    def clear(self) -> None:
        """Close all connections that are kept."""
        self._idle.clear()


POOL = ConnectionPool()
"""The pool of this process."""

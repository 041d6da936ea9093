"""Connections that are kept between the tasks of one worker process, so that most tasks begin with an open one.

A connection is lent to one reader at a time. The pool takes back only a connection that is open and has no outstanding
request. It lends one again only if that has not been idle for long and has nothing to read: that would be its end.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable

from streamgroup.errors import StreamGroupError
from streamgroup.model import Dialect
from streamgroup.net.connection import Connection
from streamgroup.options.types import ClientOptions

MAX_IDLE_S = 240.0
"""Well below the ten minutes after which brokers close idle connections (`connections.max.idle.ms`)."""
MAX_KEPT = 64

_Key = tuple[str, int, ClientOptions, Dialect]


class ConnectionPool:
    """Open connections by address, options and protocol. May be used by several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._idle: list[tuple[_Key, float, Connection]] = []

    def take(
        self, host: str, port: int, options: ClientOptions, deadline: float, dialect: Dialect = Dialect.KAFKA
    ) -> Connection:
        """Return a connection to `host:port`, kept or new. Raises TransportError where there is none by `deadline`."""
        key = (host, port, options, dialect)
        while (kept := self._pop(key)) is not None:
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
        with self._lock:
            self._idle.append((key, self._clock(), connection))
            surplus = self._idle[:-MAX_KEPT]
            del self._idle[:-MAX_KEPT]
        for _, _, oldest in surplus:
            oldest.close()

    def clear(self) -> None:
        """Close all connections that are kept."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, _, connection in idle:
            connection.close()

    def _pop(self, key: _Key) -> Connection | None:
        """Return the connection for `key` that was used last, and close those that have been idle for too long."""
        now = self._clock()
        with self._lock:
            if self._pid != os.getpid():  # forked: the sockets are the parent's as well
                self._pid = os.getpid()
                self._idle = []
            old = [entry for entry in self._idle if now - entry[1] > MAX_IDLE_S]
            self._idle = [entry for entry in self._idle if now - entry[1] <= MAX_IDLE_S]
            found = next((entry for entry in reversed(self._idle) if entry[0] == key), None)
            if found is not None:
                self._idle.remove(found)
        for _, _, connection in old:
            connection.close()
        return None if found is None else found[2]


POOL = ConnectionPool()
"""The pool of this process."""

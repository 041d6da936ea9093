"""Pools of idle connections and producers, which a Python worker process keeps from one task to the next."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from streamgroup.errors import StreamGroupError
from streamgroup.kafka.net.connection import Connection
from streamgroup.model import Dialect
from streamgroup.options.types import ClientOptions


class Closable(Protocol):
    """A connection or a producer that the pool can close."""

    def close(self) -> None: ...


Key = TypeVar("Key")
Kept = TypeVar("Kept", bound=Closable)


class IdlePool(Generic[Key, Kept]):
    """Keeps up to `most` idle objects by key until they are used again. Several threads may use it.

    It closes the oldest objects if there are more than `most`, and those that were idle for too long. `clock` returns
    monotonic seconds.
    """

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._idle: list[tuple[Key, float, Kept]] = []
        """Each object with its key, and with the time until which it is kept."""

    def take(self, key: Key) -> Kept | None:
        """Remove and return the object with `key` that was kept last; None if there is none."""
        now = self._clock()
        with self._lock:
            if self._pid != os.getpid():  # after a fork the sockets and the producer ids belong to the parent
                self._pid, self._idle = os.getpid(), []
            old = [entry for entry in self._idle if now > entry[1]]
            self._idle = [entry for entry in self._idle if now <= entry[1]]
            found = next((entry for entry in reversed(self._idle) if entry[0] == key), None)
            if found is not None:
                self._idle.remove(found)
        _close(old)
        return None if found is None else found[2]

    def keep(self, key: Key, kept: Kept, max_idle_s: float) -> None:
        """Keep an object for `max_idle_s` seconds, until `take` returns it."""
        with self._lock:
            self._idle.append((key, self._clock() + max_idle_s, kept))
            surplus = self._idle[: -self._most]
            del self._idle[: -self._most]
        _close(surplus)

    def clear(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        _close(idle)


def _close(entries: list[tuple[Key, float, Kept]]) -> None:
    for _, _, kept in entries:
        kept.close()


MAX_KEPT_PRODUCERS = 4


class ReusableProducer(Protocol):
    """A producer that several tasks use, one after the other."""

    @property
    def is_usable(self) -> bool:
        """Whether the next task may use this producer."""

    def begin(self) -> None: ...

    def close(self) -> None: ...


ProducerKey = TypeVar("ProducerKey", bound=tuple[ClientOptions, Any])
Lent = TypeVar("Lent", bound=ReusableProducer)


class ProducerPool(Generic[ProducerKey, Lent]):
    """Lends producers to tasks, and keeps idle ones by their options. Several threads may use it.

    `open_producer(key)` makes a producer from its options.
    """

    def __init__(
        self, open_producer: Callable[[ProducerKey], Lent], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._open = open_producer
        self._idle: IdlePool[ProducerKey, Lent] = IdlePool(MAX_KEPT_PRODUCERS, clock)

    @contextmanager
    def lend(self, key: ProducerKey) -> Iterator[Lent]:
        """Lend a producer with the options `key` to one task.

        After the task the producer is kept if all batches were delivered, and closed if not.
        """
        producer = self._idle.take(key)
        if producer is None:
            producer = self._open(key)
        try:
            producer.begin()
            yield producer
        except BaseException:
            producer.close()
            raise
        if producer.is_usable:
            self._idle.keep(key, producer, key[0].max_idle_s)
        else:
            producer.close()

    def clear(self) -> None:
        self._idle.clear()


MAX_KEPT = 64

_Key = tuple[str, int, ClientOptions, Dialect]


class ConnectionPool:
    """Keeps open connections by address, options and protocol for the next tasks. Several threads may use it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._idle: IdlePool[_Key, Connection] = IdlePool(MAX_KEPT, clock)

    def take(
        self, host: str, port: int, options: ClientOptions, deadline: float, dialect: Dialect = Dialect.KAFKA
    ) -> Connection:
        """Return a kept or a new connection to `host:port`.

        Raises TransportError if it cannot be opened by `deadline`.
        """
        key = (host, port, options, dialect)
        while (kept := self._idle.take(key)) is not None:
            if kept.idle:
                return kept
            with contextlib.suppress(StreamGroupError):
                kept.arrived()  # reads the end of the connection: another broker may have the address now
            kept.close()
        connection = Connection(host, port, options, self._clock, dialect)
        connection.connect(deadline)
        return connection

    def give_back(self, connection: Connection) -> None:
        """Keep `connection` for the next reader. A connection with outstanding responses is reset instead."""
        if not connection.open or connection.outstanding:
            connection.abort()
            return
        key = (connection.host, connection.port, connection.options, connection.dialect)
        self._idle.keep(key, connection, connection.options.max_idle_s)

    def clear(self) -> None:
        self._idle.clear()


POOL = ConnectionPool()
"""The pool of this process."""

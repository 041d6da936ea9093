"""Pools of idle connections and producers: a worker process keeps them from one task to the next."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from streamgroup.errors import StreamGroupError
from streamgroup.executor.write.producer import TaskProducer
from streamgroup.kafka.net.connection import Connection
from streamgroup.model import Dialect
from streamgroup.options.types import ClientOptions, ProducerOptions


class Closable(Protocol):
    """A connection or a producer that the pool can close."""

    def close(self) -> None: ...


Key = TypeVar("Key")
Kept = TypeVar("Kept", bound=Closable)


class IdlePool(Generic[Key, Kept]):
    """At most `most` idle objects by their key. `clock` returns monotonic seconds. Several threads may use it.

    It closes the oldest objects above `most`, and those that have been idle for too long.
    """

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._idle: list[tuple[Key, float, Kept]] = []
        """Each object with its key, and with the time until which it is kept."""

    def take(self, key: Key) -> Kept | None:
        """Remove and return the object with `key` that was used last; None without one."""
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
        """Keep an object for the next `take` of its key within `max_idle_s` seconds."""
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
    """A producer that one task after the other uses."""

    @property
    def is_usable(self) -> bool:
        """Whether another task may use it."""

    def begin(self) -> None: ...

    def close(self) -> None: ...


ProducerKey = TypeVar("ProducerKey", bound=tuple[ClientOptions, Any])
Lent = TypeVar("Lent", bound=ReusableProducer)


class ProducerPool(Generic[ProducerKey, Lent]):
    """Idle producers by their options, which `open_producer` takes. Several threads may use it."""

    def __init__(
        self, open_producer: Callable[[ProducerKey], Lent], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._open = open_producer
        self._idle: IdlePool[ProducerKey, Lent] = IdlePool(MAX_KEPT_PRODUCERS, clock)

    @contextmanager
    def lend(self, key: ProducerKey) -> Iterator[Lent]:
        """Lend a producer with these options to one task. Close it unless all batches of the task were delivered."""
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


def _open(key: tuple[ClientOptions, ProducerOptions]) -> TaskProducer:
    return TaskProducer(*key)


PRODUCERS = ProducerPool(_open)
"""The producers of this process for Kafka 0.8 and later."""


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
        """Return a connection to `host:port`, kept or new. Raises TransportError if none is open by `deadline`."""
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
        """Keep `connection` for the next reader, or reset it if responses are outstanding."""
        if not connection.open or connection.outstanding:
            connection.abort()
            return
        key = (connection.host, connection.port, connection.options, connection.dialect)
        self._idle.keep(key, connection, connection.options.max_idle_s)

    def clear(self) -> None:
        self._idle.clear()


POOL = ConnectionPool()
"""The pool of this process."""

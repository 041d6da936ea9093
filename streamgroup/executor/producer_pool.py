"""Producers that are kept between the tasks of one worker process, with connections, metadata and producer ids.

A producer serves one task at a time and never leaves its process. Two tasks that wrote one partition under one producer
id would lose records: a broker takes the batch of the second for a repetition of the first one's, and answers success.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from streamgroup.executor.idle_pool import IdlePool
from streamgroup.executor.producer import TaskProducer
from streamgroup.options.types import ClientOptions, ProducerOptions

MAX_KEPT = 4


class KeptProducer(Protocol):
    """A producer that one task after the other uses."""

    @property
    def is_usable(self) -> bool:
        """Whether another task may go on with it."""

    def begin(self) -> None:
        """Begin a task."""

    def close(self) -> None:
        """Close its connections."""


Key = TypeVar("Key", bound=tuple[ClientOptions, Any])
Kept = TypeVar("Kept", bound=KeptProducer)


class ProducerPool(Generic[Key, Kept]):
    """Idle producers by their options, which `open_producer` takes. Several threads may use it."""

    def __init__(self, open_producer: Callable[[Key], Kept], clock: Callable[[], float] = time.monotonic) -> None:
        self._open = open_producer
        self._idle: IdlePool[Key, Kept] = IdlePool(MAX_KEPT, clock)

    @contextmanager
    def lend(self, key: Key) -> Iterator[Kept]:
        """Lend a producer with these options to one task. It is closed unless every batch of the task was delivered."""
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
        """Close all producers that are kept."""
        self._idle.clear()


def _open(key: tuple[ClientOptions, ProducerOptions]) -> TaskProducer:
    return TaskProducer(*key)


PRODUCERS = ProducerPool(_open)
"""The producers of this process for Kafka 0.8 and later."""

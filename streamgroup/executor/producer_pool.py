"""Producers that are kept between the tasks of one worker process, with connections, metadata and producer ids.

A producer serves one task at a time and never leaves its process. Two tasks that wrote one partition under one producer
id would lose records: a broker takes the batch of the second for a repetition of the first one's, and answers success.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streamgroup.executor.producer import TaskProducer
from streamgroup.options.types import ClientOptions, ProducerOptions

MAX_IDLE_S = 240.0
"""Well below the ten minutes after which brokers close idle connections (`connections.max.idle.ms`)."""
MAX_KEPT = 4

_Key = tuple[ClientOptions, ProducerOptions]


class ProducerPool:
    """Idle producers by their options. Several threads may use it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._idle: list[tuple[_Key, float, TaskProducer]] = []

    @contextmanager
    def lend(self, client: ClientOptions, options: ProducerOptions) -> Iterator[TaskProducer]:
        """Lend a producer to one task. It is closed unless every batch of the task was acknowledged."""
        key = client, options
        producer = self._take(key) or TaskProducer(client, options, self._clock)
        try:
            producer.begin()
            yield producer
        except BaseException:
            producer.close()
            raise
        if producer.is_usable:
            self._keep(key, producer)
        else:
            producer.close()

    def clear(self) -> None:
        """Close all producers that are kept."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, _, producer in idle:
            producer.close()

    def _take(self, key: _Key) -> TaskProducer | None:
        """Return the kept producer for `key`, and close those that have been idle for too long."""
        now = self._clock()
        with self._lock:
            if self._pid != os.getpid():  # forked: the sockets and the producer ids are the parent's
                self._pid, self._idle = os.getpid(), []
            old = [entry for entry in self._idle if now - entry[1] > MAX_IDLE_S]
            self._idle = [entry for entry in self._idle if now - entry[1] <= MAX_IDLE_S]
            found = next((entry for entry in reversed(self._idle) if entry[0] == key), None)
            if found is not None:
                self._idle.remove(found)
        for _, _, producer in old:
            producer.close()
        return None if found is None else found[2]

    def _keep(self, key: _Key, producer: TaskProducer) -> None:
        with self._lock:
            self._idle.append((key, self._clock(), producer))
            surplus = self._idle[:-MAX_KEPT]
            del self._idle[:-MAX_KEPT]
        for _, _, oldest in surplus:
            oldest.close()


PRODUCERS = ProducerPool()
"""The pool of this process."""

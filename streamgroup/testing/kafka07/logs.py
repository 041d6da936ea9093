"""All logs of one broker: found on disk at the start, made by the first PRODUCE."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable
from typing import Final

from streamgroup.errors import StreamGroupError
from streamgroup.testing.kafka07.config import BrokerConfig
from streamgroup.testing.kafka07.log import Log
from streamgroup.wire.kafka07 import RANDOM_PARTITION

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
"""In `log.dir` while a broker that ended in good order is down; without it the logs are recovered."""

_LONGEST_TOPIC = 255
_ILLEGAL = re.compile(r"[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


class IllegalTopic(StreamGroupError):
    """A name that the broker refuses."""


class WrongPartition(StreamGroupError):
    """A number that no partition of the topic has on this broker."""


class Logs:
    """The logs below `log.dir`. `on_new_topic` is called with the name of a topic when its first log is made."""

    def __init__(self, config: BrokerConfig, *, clock: Callable[[], float] = time.time) -> None:
        """Open all that is there. Raises DamagedLog."""
        self.on_new_topic: Callable[[str], None] = lambda topic: None
        self._config: Final = config
        self._clock: Final = clock
        self._lock = threading.Lock()
        self._logs: dict[str, dict[int, Log]] = {}
        config.log_dir.mkdir(parents=True, exist_ok=True)
        self._marker = config.log_dir / CLEAN_SHUTDOWN
        recover = not self._marker.exists()
        self._marker.unlink(missing_ok=True)
        for directory in config.log_dir.iterdir():
            topic, dash, partition = directory.name.rpartition("-")
            if directory.is_dir() and dash and partition.isdecimal():
                self._open(topic, int(partition), recover=recover)

    @property
    def topics(self) -> list[str]:
        """Those that have a log here, in order."""
        with self._lock:
            return sorted(self._logs)

    def find(self, topic: str, partition: int) -> Log | None:
        """Return the log of a partition, None where nothing was produced to it.

        Raises IllegalTopic and WrongPartition.
        """
        self._check(topic, partition)
        with self._lock:
            return self._logs.get(topic, {}).get(partition)

    def find_or_make(self, topic: str, partition: int) -> Log:
        """Return the log of a partition, RANDOM_PARTITION for any. Raises IllegalTopic and WrongPartition."""
        if partition == RANDOM_PARTITION:
            partition = random.randrange(self._config.partitions_of(topic))
        self._check(topic, partition)
        with self._lock:
            is_new = topic not in self._logs
            log = self._logs.get(topic, {}).get(partition) or self._open(topic, partition, recover=False)
        if is_new:
            self.on_new_topic(topic)
        return log

    def flush_due(self) -> None:
        """Flush every log whose last flush is too long ago."""
        for log in self._all():
            log.flush_if_due()

    def clean_up(self) -> int:
        """Remove what is too old or too much of every log; how many segments that were."""
        return sum(log.clean_up() for log in self._all())

    def close(self) -> None:
        """End in good order: all is flushed, and the next start need not look for damage."""
        for log in self._all():
            log.close()
        self._marker.touch()

    def _all(self) -> list[Log]:
        with self._lock:
            return [log for logs in self._logs.values() for log in logs.values()]

    def _open(self, topic: str, partition: int, *, recover: bool) -> Log:
        directory = self._config.log_dir / f"{topic}-{partition}"
        log = Log(directory, topic, self._config, recover=recover, clock=self._clock)
        self._logs.setdefault(topic, {})[partition] = log
        return log

    def _check(self, topic: str, partition: int) -> None:
        if not 0 < len(topic) <= _LONGEST_TOPIC or topic in (".", "..") or _ILLEGAL.search(topic):
            raise IllegalTopic(f"{topic[:_LONGEST_TOPIC]!r} is no name of a topic")
        if not 0 <= partition < self._config.partitions_of(topic):
            count = self._config.partitions_of(topic)
            raise WrongPartition(f"{topic} has {count} partitions here, there is no {partition}")

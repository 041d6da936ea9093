"""All logs of one broker, opened from disk at the start and created by the first PRODUCE."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable
from typing import Final

from streamgroup.errors import StreamGroupError
from streamgroup.kafka.wire.kafka07 import RANDOM_PARTITION
from streamgroup.testing.kafka07.config import BrokerConfig
from streamgroup.testing.kafka07.log import Log
from streamgroup.text import counted

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
"""A marker in `log.dir` after a clean shutdown; without it the broker recovers the logs."""

_LONGEST_TOPIC = 255
_ILLEGAL = re.compile(r"[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


class IllegalTopic(StreamGroupError):
    """An invalid topic name."""


class WrongPartition(StreamGroupError):
    """A partition number that the topic does not have on this broker."""


class Logs:
    """The logs below `log.dir`. `on_new_topic` is called with a topic's name when its first log is created."""

    def __init__(self, config: BrokerConfig, *, clock: Callable[[], float] = time.time) -> None:
        """Open all logs. Raises DamagedLog."""
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
        """The topics with a log, sorted."""
        with self._lock:
            return sorted(self._logs)

    def find(self, topic: str, partition: int) -> Log | None:
        """Return the log of a partition, None if nothing was produced to it. Raises IllegalTopic and WrongPartition."""
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
        """Flush every log whose flush is due."""
        for log in self._all():
            log.flush_if_due()

    def clean_up(self) -> int:
        """Apply retention to every log, and return the number of removed segments."""
        return sum(log.clean_up() for log in self._all())

    def close(self) -> None:
        """Close with a clean shutdown: flush all logs, so that the next start needs no recovery."""
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
            raise IllegalTopic(f"{topic[:_LONGEST_TOPIC]!r} is not a valid topic name")
        if not 0 <= partition < self._config.partitions_of(topic):
            count = self._config.partitions_of(topic)
            raise WrongPartition(
                f"invalid partition {partition}: {topic} has {counted(count, 'partition')} on this broker"
            )

"""The logs of one emulated broker, in the segments that Kafka 0.7 writes.

`<log.dir>/<topic>-<partition>/<start offset, 20 digits>.kafka` has the received bytes from that offset on. Appended
bytes become visible when they are flushed. `Log` is thread-safe.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from streamgroup.errors import ChecksumMismatch, DecodeError, StreamGroupError, TooLarge, Truncated, UnsupportedMagic
from streamgroup.kafka.wire.kafka07 import EARLIEST_TIME, LATEST_TIME, RANDOM_PARTITION
from streamgroup.kafka.wire.primitives import Bytes
from streamgroup.testing.kafka07.codecs import NONE, decompress
from streamgroup.testing.kafka07.config import BrokerConfig
from streamgroup.text import counted

SUFFIX = ".kafka"


class OffsetOutOfRange(StreamGroupError):
    """The log does not hold the offset, or has not flushed it yet."""


class NegativeFetchSize(StreamGroupError):
    """A FETCH with a negative size, which the broker notices only while it sends."""

    def __init__(self, size: int) -> None:
        super().__init__(f"invalid FETCH: its size is {size} bytes")
        self.size = size


class DamagedLog(StreamGroupError):
    """The segments on disk leave a gap, or have an unknown magic: Kafka refuses to start."""


class Segment:
    """One file of `size` written bytes, the first `visible` of them flushed; offsets begin at `start`."""

    __slots__ = ("path", "size", "start", "visible")

    def __init__(self, path: Path, start: int) -> None:
        self.path: Final = path
        self.start: Final = start
        self.size = self.visible = path.stat().st_size

    @property
    def end(self) -> int:
        """The offset behind the visible bytes."""
        return self.start + self.visible

    def modified_ms(self) -> int:
        """Return the time of the last write in ms."""
        return self.path.stat().st_mtime_ns // 1_000_000

    def read(self, offset: int, max_size: int) -> bytes:
        """Read at most `max_size` visible bytes of this segment from `offset` on."""
        if max_size < 0:
            raise NegativeFetchSize(max_size)
        with self.path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), min(max_size, self.end - offset), offset - self.start)


class Log:
    """The segments of one partition, the oldest first. There is at least one, and appends go to the last."""

    def __init__(
        self,
        directory: Path,
        topic: str,
        config: BrokerConfig,
        *,
        recover: bool,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the segments, or create the first.

        `recover` truncates the last segment behind its last valid message.
        """
        self.topic: Final = topic
        self._directory: Final = directory
        self._config: Final = config
        self._clock: Final = clock
        self._lock = threading.Lock()
        self._unflushed = 0
        self._flushed_at = clock()
        directory.mkdir(parents=True, exist_ok=True)
        self._segments = _load(directory)
        if recover:
            _recover(self._segments[-1])
        self._file = self._segments[-1].path.open("ab")

    @property
    def end(self) -> int:
        """The offset behind the visible bytes."""
        with self._lock:
            return self._segments[-1].end

    def append(self, messages: Bytes) -> None:
        """Validate a message set and append its complete messages; drop it if a payload is too large.

        Raises DecodeError, and appends nothing, if any message is damaged.
        """
        checked = check_set(messages, self._config.max_message_size)
        if checked is None:
            return
        with self._lock:
            if self._segments[-1].size > self._config.log_file_size:
                self._roll()
            last = self._segments[-1]
            self._file.write(memoryview(messages)[: checked.valid])
            self._file.flush()
            last.size += checked.valid
            self._unflushed += checked.messages
            if self._unflushed >= self._config.flush_interval:
                self._flush()

    def read(self, offset: int, max_size: int) -> bytes:
        """Read the bytes from `offset` on; empty at the end. Raises OffsetOutOfRange and NegativeFetchSize."""
        with self._lock:
            first, last = self._segments[0], self._segments[-1]
            if not first.start <= offset <= last.end:
                raise OffsetOutOfRange(f"{offset} is not in [{first.start}, {last.end}]")
            if offset == last.end:
                return b""
            segment = next(s for s in reversed(self._segments) if s.start <= offset)
            return segment.read(offset, max_size)

    def offsets(self, at_ms: int, most: int) -> list[int]:
        """Return boundaries as of a time, newest first: the log's end, which counts as new, and the segments' starts.

        Raises ValueError if `most` is negative.
        """
        if most < 0:
            raise ValueError(f"invalid OFFSETS request for {most} offsets")
        with self._lock:
            known = [(segment.start, segment.modified_ms()) for segment in self._segments]
            last = self._segments[-1]
            if last.visible:
                known.append((last.end, int(self._clock() * 1000)))
        if at_ms == EARLIEST_TIME:
            known = known[:1]
        elif at_ms != LATEST_TIME:
            while known and known[-1][1] > at_ms:
                known.pop()
        return [offset for offset, _ in reversed(known)][:most]

    def flush_if_due(self) -> None:
        """Flush if the last flush is older than this topic's interval."""
        interval = self._config.topic_flush_intervals_ms.get(self.topic, self._config.flush_interval_ms)
        with self._lock:
            if (self._clock() - self._flushed_at) * 1000 >= interval:
                self._flush()

    def clean_up(self) -> int:
        """Remove the oldest segments beyond the limits of age and then of size, and return their number."""
        oldest_ms = self._clock() * 1000 - self._config.topic_retention_ms.get(self.topic, self._config.retention_ms)
        with self._lock:
            expired = self._remove_while(lambda segment: segment.modified_ms() < oldest_ms)
            most = self._config.retention_bytes
            surplus = sum(segment.visible for segment in self._segments) - most

            def too_much(segment: Segment) -> bool:
                nonlocal surplus
                surplus -= segment.visible
                return surplus >= 0

            return expired + (self._remove_while(too_much) if most >= 0 and surplus >= 0 else 0)

    def close(self) -> None:
        with self._lock:
            self._flush()
            self._file.close()

    def _flush(self) -> None:
        """Make appended messages visible.

        Bytes are not forced to the disk: they outlive the process, and no test cuts the power.
        """
        if self._unflushed:
            self._segments[-1].visible = self._segments[-1].size
            self._unflushed = 0
            self._flushed_at = self._clock()

    def _roll(self) -> None:
        """Start a new segment at the end of the last one."""
        self._flush()
        last = self._segments[-1]
        self._file.close()
        # Compressed messages with nothing in them, which no flush has counted: the real broker leaves them in the file
        # as well, under offsets that the next one has too, and then refuses to start.
        if last.size > last.visible:  # else the file keeps its time of modification, which OFFSETS by time goes by
            os.truncate(last.path, last.visible)
            last.size = last.visible
        if last.visible:
            self._segments.append(_new_segment(self._directory, last.end))
        self._file = self._segments[-1].path.open("ab")

    def _remove_while(self, surplus: Callable[[Segment], bool]) -> int:
        count = 0
        while count < len(self._segments) and surplus(self._segments[count]):
            count += 1
        if count == len(self._segments):
            if self._segments[-1].visible:
                self._roll()
            else:
                # An empty one is kept, as if it were new: its successor would have the same name.
                os.utime(self._segments[-1].path, (self._clock(), self._clock()))
                count -= 1
        removed, self._segments = self._segments[:count], self._segments[count:]
        for segment in removed:
            segment.path.unlink()
        return count


def _new_segment(directory: Path, start: int) -> Segment:
    path = directory / f"{start:020}{SUFFIX}"
    path.write_bytes(b"")
    return Segment(path, start)


def _load(directory: Path) -> list[Segment]:
    """Return the segments in `directory`, or create a first one. Raises DamagedLog if they leave a gap."""
    segments = sorted((Segment(path, int(path.stem)) for path in directory.glob(f"*{SUFFIX}")), key=lambda s: s.start)
    for before, after in itertools.pairwise(segments):
        if before.end != after.start:
            raise DamagedLog(f"{before.path} ends at {before.end}, but the next segment begins at {after.start}")
    return segments or [_new_segment(directory, 0)]


def _recover(segment: Segment) -> None:
    """Truncate a segment behind its last complete and valid message: a crash may have left a partial one.

    Raises DamagedLog for a complete message with an unknown magic, whose checksum Kafka cannot locate: it refuses to
    start.
    """
    good = 0
    try:
        for message in messages_of(segment.path.read_bytes()):
            good += message.size
    except UnsupportedMagic as error:
        raise DamagedLog(f"{segment.path}: {error}") from error
    except DecodeError:
        pass
    if good < segment.size:
        os.truncate(segment.path, good)
        segment.size = segment.visible = good


_LENGTH = 4
_MAGICS = {0: 5, 1: 6}
"""Size of the header by magic; the checksum comes last."""
_LEAST_HEADER = min(_MAGICS.values())
_CODEC_MASK = 3
_MOST_LEVELS = 32
"""Limit of nested compressed messages; the real broker's limit is its stack."""


class LogMessage(NamedTuple):
    """One message. `size` includes the length field."""

    codec: int
    payload: bytes
    size: int


class Checked(NamedTuple):
    """The result for a set: `valid` bytes of complete messages, which contain `messages` for a consumer."""

    valid: int
    messages: int


def check_set(data: Bytes, max_payload: int) -> Checked | None:
    """Validate the set of a PRODUCE. Return None if a payload exceeds `max_payload` bytes, which drops the set.

    A partial message at the end is left out. Raises DecodeError for a damaged message at any depth. The size limit
    applies to the outer messages and is checked first.
    """
    outer = []
    for message in messages_of(data):
        if len(message.payload) > max_payload:
            return None
        outer.append(message)
    return Checked(sum(message.size for message in outer), sum(_count(message, _MOST_LEVELS) for message in outer))


def messages_of(data: Bytes) -> Iterator[LogMessage]:
    """Yield the complete messages of a set without decompressing them, validating each.

    Raises Truncated if the set is a single partial message, ChecksumMismatch, UnsupportedMagic, DecodeError.
    """
    view, at = memoryview(data), 0
    while len(view) - at >= _LENGTH:
        length = int.from_bytes(view[at : at + _LENGTH], "big", signed=True)
        left = len(view) - at - _LENGTH
        if length < 0 or (length > left and at == 0):
            raise Truncated(f"at byte {at}: a message of {length} bytes, {left} are left")
        if length > left:
            return
        yield _message(bytes(view[at + _LENGTH : at + _LENGTH + length]), at)
        at += _LENGTH + length


def _message(body: bytes, at: int) -> LogMessage:
    header = _MAGICS.get(body[0]) if len(body) >= _LEAST_HEADER else _LEAST_HEADER
    if header is None:
        raise UnsupportedMagic(f"at byte {at}: magic {body[0]}; Kafka 0.7 has 0 and 1")
    if len(body) < header:
        raise Truncated(f"at byte {at}: a message of {len(body)} bytes")
    payload = body[header:]
    if zlib.crc32(payload) != int.from_bytes(body[header - 4 : header], "big"):
        raise ChecksumMismatch(f"at byte {at}: the payload's checksum does not fit")
    return LogMessage(body[1] & _CODEC_MASK if body[0] else NONE, payload, _LENGTH + len(body))


def _count(message: LogMessage, levels: int) -> int:
    """Return the number of messages that a consumer reads from this one."""
    if message.codec == NONE:
        return 1
    if not levels:
        raise TooLarge(f"compressed messages are nested more than {_MOST_LEVELS} levels deep")
    inner = messages_of(decompress(message.codec, message.payload))
    return sum(_count(each, levels - 1) for each in inner)


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

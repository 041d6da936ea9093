"""The input and the output of a scan of message sets: the formats before record batches.

Kafka 0.8 to 0.10 (magic 0 and 1), big-endian, one frame per message, 12 bytes of which are not part of the message:

    offset i64 | size i32 | crc u32 | magic i8 | attributes i8 | timestamp i64 (magic 1) | key bytes | value bytes

`bytes` is a length i32 (-1 is null) and as many bytes; the CRC-32 covers everything after it.

Kafka 0.7, in which the offset of a message is the position of its frame in the log:

    length i32 | magic i8 | attributes i8 (magic 1) | crc u32 | payload

The length counts what follows it; the CRC-32 covers the payload alone.

In both, a compressed message, the *wrapper*, has a set of messages as its value. As for record batches there are two
scans, which accept and reject the same bytes: `scan.py` in numpy and `_messages.c` compiled.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamgroup.frozen import frozen
from streamgroup.kafka.records.fields import Arrays, Ints, Longs

FRAME_SIZE = 12
"""Kafka 0.8: offset and size."""
LEAST_SIZES = (14, 22)
"""The smallest message of magic 0 and 1."""
LEAST_SIZES_07 = (5, 6)
CODEC_BITS = 0x07
CODEC_BITS_07 = 0x03
LOG_APPEND_TIME_BIT = 0x08

NO_TIMESTAMP = -1
NO_TIMESTAMP_TYPE = -1
OWN = -2
"""The timestamp type of a set whose messages have their own types."""


class Walk(NamedTuple):
    """The result of a walk over consecutive uncompressed messages.

    It has the end of the last message, their number, and the offset of the last one.
    """

    end: int
    messages: int
    last_offset: int


class MessageFaultKind(IntEnum):
    """Why a scan rejects a message. The numbers are those of `_messages.h`."""

    FRAME = 1
    MAGIC = 2
    NESTED = 3
    CHECKSUM = 4
    LENGTH = 5
    OVERRUN = 6
    TRAILING = 7
    OFFSET = 8

    @property
    def text(self) -> str:
        return _TEXTS[self]


_TEXTS = {
    MessageFaultKind.FRAME: "a message's size is invalid, or it reaches beyond its set",
    MessageFaultKind.MAGIC: "a message of a magic that is neither 0 nor 1",
    MessageFaultKind.NESTED: "a compressed message in a compressed message",
    MessageFaultKind.CHECKSUM: "its CRC-32 does not match; the bytes are damaged",
    MessageFaultKind.LENGTH: "a length of key or value is negative",
    MessageFaultKind.OVERRUN: "key or value reach beyond their message",
    MessageFaultKind.TRAILING: "a message is longer than its key and value",
    MessageFaultKind.OFFSET: "the offsets of its messages are out of order, or do not end at its own",
}


NO_MESSAGES = "it decompresses to nothing, where a compressed message holds at least one message"
"""An error text. Java rejects such a wrapper (`DeepRecordsIterator`): it may be damage that a codec accepts."""


class MessageSetFault(Exception):
    """A scan has found an invalid message: the index of its set, its position in the buffer, and the kind of fault."""

    def __init__(self, index: int, position: int, fault: MessageFaultKind) -> None:
        super().__init__(index, position, fault)
        self.index = index
        self.position = position
        self.fault = fault


@frozen
class MessageSets(Arrays):
    """The message sets of magic 0 and 1 to scan: arrays with one element per set.

    `[begin, end)` are positions in the buffer.
    """

    begin: Longs
    end: Longs
    least: Longs
    """The smallest offset that the first message may have."""
    last: Longs
    """The offset that the last message must have."""
    relative: npt.NDArray[np.bool_]
    """Whether the stored offsets are relative, so that the last one means `last` (wrappers of magic 1)."""
    timestamp: Longs
    """Milliseconds: the timestamp of all messages of magic 1 if `timestamp_type` is 1 (LogAppendTime)."""
    timestamp_type: Longs
    """The timestamp type of the wrapper, for all its messages of either magic (0, 1 or -1), or OWN."""

    def __len__(self) -> int:
        return len(self.begin)


@frozen
class MessageFields(Arrays):
    """The positions of the fields of messages (magic 0 and 1): arrays with one element per message.

    A length of -1 is null.
    """

    offset: Longs
    timestamp: Longs
    """Milliseconds, any number."""
    timestamp_type: Ints
    key_start: Ints
    key_length: Ints
    value_start: Ints
    value_length: Ints

    @classmethod
    def empty(cls, rows: int) -> MessageFields:
        """Return uninitialized arrays for `rows` messages."""
        offset, timestamp = (np.empty(rows, np.int64) for _ in range(2))
        return cls(offset, timestamp, *(np.empty(rows, np.int32) for _ in range(5)))


@frozen
class MessageSets07(Arrays):
    """The message sets of Kafka 0.7 to scan: arrays with one element per set.

    `[begin, end)` are positions in the buffer.
    """

    begin: Longs
    end: Longs
    offset: Longs
    """The offset of the first message, or of the wrapper, which all its messages share."""
    wrapped: npt.NDArray[np.bool_]
    """Whether the messages were in a wrapper."""

    def __len__(self) -> int:
        return len(self.begin)


@frozen
class MessageFields07(Arrays):
    """The positions of the payloads of messages of Kafka 0.7: arrays with one element per message."""

    offset: Longs
    inner: Ints
    """The index of a message in its wrapper; 0 without a wrapper."""
    value_start: Ints
    value_length: Ints

    @classmethod
    def empty(cls, rows: int) -> MessageFields07:
        """Return uninitialized arrays for `rows` messages of Kafka 0.7."""
        return cls(np.empty(rows, np.int64), *(np.empty(rows, np.int32) for _ in range(3)))

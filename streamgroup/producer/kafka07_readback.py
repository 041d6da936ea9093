"""Finds message sets in the bytes of a log of Kafka 0.7.

A broker appends the bytes of a set as they came, and nothing in between, because one PRODUCE is one write. Sets of one
connection lie in the log in the order in which they were sent. Sets of other producers may lie between them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from streamgroup.errors import DecodeError
from streamgroup.producer.kafka07_events import MessageSet
from streamgroup.wire.primitives import Bytes

_LENGTH = 4
_LEAST = 5
"""The least length of a message: magic and checksum."""
_MARK = 10
"""Bytes of a set's first message by which sets are told apart at first: length, magic, attributes, checksum."""


class ReadBack(NamedTuple):
    """The message sets found in some bytes of a log."""

    found: list[tuple[MessageSet, int]]
    """The sets that were found, and the positions where they begin, in the order of the log."""
    position: int
    """Where the next message begins that was not read yet."""
    wanted: int
    """Bytes from `position` on that have to be read at once, because a set may begin there; 0 for any number."""


def read_back(data: Bytes, position: int, expected: Sequence[MessageSet]) -> ReadBack:
    """Look for the sets `expected`, in their order, in `data`, the bytes of a log from `position` on.

    `position` must be a boundary of messages. Raises DecodeError where the bytes there cannot be a message.
    """
    view = memoryview(data)
    waiting = _by_mark(expected)
    found: list[tuple[MessageSet, int]] = []
    at = 0
    while len(view) - at >= _LENGTH:
        length = int.from_bytes(view[at : at + _LENGTH], "big", signed=True)
        if length < _LEAST:
            raise DecodeError(f"position {position + at}: a message of {length} bytes is announced there")
        if _LENGTH + length < _MARK:  # of magic 0, without a payload: not one of these sets
            at += _LENGTH + length
            continue
        mark = bytes(view[at : at + _MARK])
        candidates = waiting.get(mark, ())
        match = next((each for each in candidates if _begins_with(view[at:], each)), None)
        if match is not None:
            waiting[mark].remove(match)
            found.append((match, position + at))
            at += match.size
            continue
        wanted = max((_missing(view[at:], each) for each in candidates), default=0)
        if wanted or len(mark) < _MARK:
            return ReadBack(found, position + at, max(wanted, _MARK))
        at += _LENGTH + length
    return ReadBack(found, position + at, 0)


def _by_mark(expected: Iterable[MessageSet]) -> dict[bytes, deque[MessageSet]]:
    waiting: dict[bytes, deque[MessageSet]] = defaultdict(deque)
    for each in expected:
        waiting[bytes(each.messages[:_MARK])].append(each)
    return waiting


def _missing(rest: memoryview, expected: MessageSet) -> int:
    """Return the size of `expected` if `rest` is a proper part of it, else 0."""
    is_part = len(rest) < expected.size and bytes(rest) == bytes(expected.messages[: len(rest)])
    return expected.size if is_part else 0


def _begins_with(rest: memoryview, expected: MessageSet) -> bool:
    # Bytes are compared in one go, and elements of a memoryview one by one.
    return bytes(rest[: expected.size]) == bytes(expected.messages)

"""Readers and writers of single values and arrays, by type name, from which schemas are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamgroup.errors import DecodeError, Truncated
from streamgroup.wire.pieces import LARGE, Pieces
from streamgroup.wire.primitives import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    Reader,
    append_compact_length,
    append_length,
    append_uuid,
    encoded_text,
)

FIXED = {"bool": BOOL, "int8": INT8, "int16": INT16, "int32": INT32, "int64": INT64}
"""The types of fixed width."""

Read = Callable[[Reader], Any]
Write = Callable[[bytearray, Any], None]


def reader(type_: str, flexible: bool, nullable: bool) -> tuple[Read, int]:
    """Return the reader of a value of `type_`, and the fewest bytes that one takes."""
    if type_ in FIXED:
        layout = FIXED[type_]
        return lambda r: r.unpack(layout)[0], layout.size
    if type_ == "uuid":
        return Reader.uuid, 16
    is_text = type_ == "string"
    length = _length_reader(flexible, is_text)
    take: Callable[[Reader, int], Any] = Reader.text if is_text else Reader.take

    def read(r: Reader) -> Any:
        size = length(r)
        if size is None:
            if nullable:
                return None
            raise DecodeError(f"at byte {r.position}: a null where a {type_} must be")
        return take(r, size)

    return read, 1 if flexible else 2 if is_text else 4


def array_reader(item: Read, least: int, flexible: bool, nullable: bool) -> Read:
    """Return the reader of an array whose items take at least `least` bytes each."""
    length = _length_reader(flexible, False)
    least = max(1, least)

    def read(r: Reader) -> Any:
        count = length(r)
        if count is None:
            if nullable:
                return None
            raise DecodeError(f"at byte {r.position}: a null where an array must be")
        if count > r.remaining // least:
            raise Truncated(f"at byte {r.position}: {count} elements are announced, {r.remaining} bytes are left")
        return tuple([item(r) for _ in range(count)])

    return read


def _length_reader(flexible: bool, is_text: bool) -> Callable[[Reader], int | None]:
    if flexible:
        return Reader.compact_length
    layout = INT16 if is_text else INT32
    return lambda r: r.length(layout)


def writer(type_: str, flexible: bool) -> Write:
    """Return the writer of a value of `type_`; it writes None as null."""
    if type_ in FIXED:
        pack = FIXED[type_].pack
        return lambda out, value: out.extend(pack(value))
    if type_ == "uuid":
        return append_uuid
    is_text = type_ == "string"
    length = _length_writer(flexible, is_text)

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            length(out, None)
            return
        data = encoded_text(value) if is_text else memoryview(value).cast("B")
        length(out, len(data))
        if len(data) >= LARGE and isinstance(out, Pieces):
            out.keep(data)
        else:
            out += data

    return write


def array_writer(item: Write, flexible: bool) -> Write:
    """Return the writer of an array; it writes None as null."""
    length = _length_writer(flexible, False)

    def write(out: bytearray, value: Any) -> None:
        length(out, None if value is None else len(value))
        for element in value or ():
            item(out, element)

    return write


def _length_writer(flexible: bool, is_text: bool) -> Callable[[bytearray, int | None], None]:
    if flexible:
        return append_compact_length
    layout = INT16 if is_text else INT32
    return lambda out, length: append_length(out, length, layout)

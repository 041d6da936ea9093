"""Rows to encode: as Arrow columns of every shape that holds them, and as a reference encoder writes them.

The reference goes record by record. It is `encoder.py` and `encoder_sets.py`, which were written from Kafka's
description of the formats; this module only calls them as a producer would.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamgroup.kafka.records.encode import RecordColumns, RecordFormat
from tests.unit.kafka.records.encoder import CODECS, Header, Record, crc32c, encode_record
from tests.unit.kafka.records.encoder_sets import Message, encode_set, message07


@dataclass(frozen=True, slots=True)
class Sent:
    """A record to be sent. `headers` of None is a null list."""

    value: bytes | None = None
    key: bytes | None = None
    timestamp: int = 0
    headers: tuple[Header, ...] | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """How columns lie in memory."""

    large: bool = False
    text: bool = False
    """Whether keys and values are strings; only for rows that are UTF-8."""
    before: int = 0
    """Rows before the first one, of which the arrays are slices."""
    after: int = 0
    hidden: bool = False
    """Whether there are bytes behind null elements, and entries behind null lists."""


PLAIN = Shape()
_OUTSIDE = Sent(b"not of the slice", b"\xc3\xa9", 2**40, (("outside", b"outside"), ("null", None)))


def columns_of(rows: Sequence[Sent], shape: Shape = PLAIN) -> RecordColumns:
    """The rows as columns of this shape, whose headers are null where no row has any."""
    whole = [_OUTSIDE] * shape.before + list(rows) + [_OUTSIDE] * shape.after
    columns = [_binary([getattr(row, name) for row in whole], shape) for name in ("key", "value")]
    headers = _headers(whole, shape) if any(row.headers is not None for row in rows) else None
    key, value, headers = (a if a is None else a.slice(shape.before, len(rows)) for a in (*columns, headers))
    stamps = np.array([row.timestamp for row in whole], np.int64)[shape.before : shape.before + len(rows)]
    return RecordColumns(key, value, stamps, headers)


def _binary(values: Sequence[bytes | None], shape: Shape) -> pa.Array:
    kind = {
        (False, False): pa.binary(),
        (True, False): pa.large_binary(),
        (False, True): pa.string(),
        (True, True): pa.large_string(),
    }[shape.large, shape.text]
    if not shape.hidden:
        return pa.array(values, pa.large_binary() if shape.large else pa.binary()).view(kind)
    full = pa.array([b"hidden" if value is None else value for value in values], kind)
    valid = pa.py_buffer(np.packbits([value is not None for value in values], bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [valid, *full.buffers()[1:]])


def _headers(rows: Sequence[Sent], shape: Shape) -> pa.Array:
    hidden = (("hidden", b"hidden"),) if shape.hidden else ()
    lists = [hidden if row.headers is None else row.headers for row in rows]
    flat = [header for headers in lists for header in headers]
    names = [name.encode() if isinstance(name, str) else name for name, _ in flat]
    text = Shape(large=shape.large, text=True)
    children = [_binary(names, text), _binary([value for _, value in flat], Shape(shape.large))]
    entries = pa.StructArray.from_arrays(children, ["key", "value"])
    marks = np.cumsum([0, *map(len, lists)]).astype(np.int64 if shape.large else np.int32)
    valid = pa.py_buffer(np.packbits([row.headers is not None for row in rows], bitorder="little"))
    kind = (pa.large_list if shape.large else pa.list_)(entries.type)
    return pa.Array.from_buffers(kind, len(rows), [valid, pa.py_buffer(marks)], children=[entries])


def reference_records(rows: Sequence[Sent]) -> bytes:
    """The records of one batch v2, without its header."""
    base = rows[0].timestamp
    return b"".join(
        encode_record(Record(index, row.timestamp, row.key, row.value, row.headers or ()), 0, base)
        for index, row in enumerate(rows)
    )


def reference_batch(
    rows: Sequence[Sent], body: bytes, codec: str = "none", producer: tuple[int, int, int] = (-1, -1, -1), bits: int = 0
) -> bytes:
    """A batch as Java's producer sends it: offsets from 0, no leader epoch. `body` are its records, compressed."""
    stamps = [row.timestamp for row in rows]
    fields = CODECS.index(codec) | bits, len(rows) - 1, stamps[0], max(stamps), *producer, len(rows)
    covered = struct.pack(">hiqqqhii", *fields) + body
    return struct.pack(">qiibI", 0, len(covered) + 9, -1, 2, crc32c(covered)) + covered


def reference_set(rows: Sequence[Sent], record_format: RecordFormat) -> bytes:
    """The rows as uncompressed messages."""
    magic = record_format.magic
    if record_format.is_kafka07:
        return b"".join(message07(row.value or b"", magic) for row in rows)
    messages = [Message(index, row.value, row.key, row.timestamp) for index, row in enumerate(rows)]
    return encode_set(messages, magic)

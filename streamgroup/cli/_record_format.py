"""The formats in which `streamgroup consume` prints records: kcat's format strings and its JSON envelope.

A format turns one Arrow batch into the bytes of all its records. Arrow joins the columns in C++, so that no Python
object is made per record, but for headers and for the texts of JSON.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from json.encoder import encode_basestring
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroup.logformat import LogFormat

_BYTES = pa.large_binary()
"""Offsets of 64 bits: a format may repeat a value, and the rows of one batch may then take more than 2 GiB."""
_TOKEN = re.compile(rb"%(.?)", re.DOTALL)
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|.)", re.DOTALL)
_CONTROLS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0"}
_TIMESTAMP_TYPES = {0: "create", 1: "logappend"}


class FormatToken(Enum):
    """A token of a format string: the field of a record that it prints. The value is the letter after `%`."""

    VALUE = "s"
    VALUE_LENGTH = "S"
    """-1 for null."""
    VALUE_LENGTH_BINARY = "R"
    """As a big-endian integer of 32 bits; -1 for null."""
    KEY = "k"
    KEY_LENGTH = "K"
    """-1 for null."""
    TOPIC = "t"
    PARTITION = "p"
    """The cluster's name of the partition: `1-2` in Kafka 0.7."""
    OFFSET = "o"
    TIMESTAMP = "T"
    """In milliseconds since 1970; -1 for a record without one."""
    HEADERS = "h"
    """`name=value`, separated by commas."""


Piece = bytes | FormatToken


class PrintFormat(Protocol):
    """The format in which records are printed."""

    @property
    def needs_headers(self) -> bool:
        """Whether the batches need the column `headers`."""

    def render(self, batch: pa.RecordBatch, log_format: LogFormat) -> memoryview:
        """Return the bytes of all records of `batch`, which are of one partition."""


def unescape(text: bytes) -> bytes:
    r"""Return `text` with `\n`, `\t`, `\r`, `\0` and `\xNN` replaced. Any other character loses its backslash.

    Raises ValueError for `\x` without a hexadecimal digit.
    """

    def replaced(found: re.Match[bytes]) -> bytes:
        escape = found[1]
        if escape == b"x":
            raise ValueError(r"expected one or two hexadecimal digits after \x")
        return bytes([int(escape[1:], 16)]) if len(escape) > 1 else _CONTROLS.get(escape, escape)

    return _ESCAPE.sub(replaced, text)


def parse_format(text: bytes) -> tuple[Piece, ...]:
    """Return the pieces of a format string; adjacent literals are joined. Raises ValueError for an unknown token."""
    pieces: list[Piece] = []
    end = 0
    for found in _TOKEN.finditer(text):
        _append(pieces, unescape(text[end : found.start()]))
        end = found.end()
        if found[1] == b"%":
            _append(pieces, b"%")
            continue
        letter = found[1].decode("latin-1")
        try:
            pieces.append(FormatToken(letter))
        except ValueError:
            known = " ".join(f"%{token.value}" for token in FormatToken)
            raise ValueError(f"unknown token '%{letter}': expected one of {known} %%") from None
    _append(pieces, unescape(text[end:]))
    return tuple(pieces)


def _append(pieces: list[Piece], literal: bytes) -> None:
    if pieces and isinstance(pieces[-1], bytes):
        pieces[-1] += literal
    elif literal:
        pieces.append(literal)


def record_format(
    template: str | None, key_delimiter: str | None, delimiter: str, *, as_json: bool, show_null: bool
) -> PrintFormat:
    """Return the format that the options name. As in kcat, a template takes precedence over the delimiters.

    Raises ValueError for an invalid template or delimiter.
    """
    end = unescape(os.fsencode(delimiter))
    if as_json:
        return JsonFormat(end)
    null = b"NULL" if show_null else b""
    if template is not None:
        return TextFormat(parse_format(os.fsencode(template)), null)
    if key_delimiter is None:
        return TextFormat((FormatToken.VALUE, end), null)
    return TextFormat((FormatToken.KEY, unescape(os.fsencode(key_delimiter)), FormatToken.VALUE, end), null)


class TextFormat:
    """Prints records by the pieces of a format string. `null` stands for a null key, value or value of a header."""

    def __init__(self, pieces: Sequence[Piece], null: bytes = b"") -> None:
        self._pieces = tuple(pieces)
        self._null = null

    @property
    def needs_headers(self) -> bool:
        return FormatToken.HEADERS in self._pieces

    def render(self, batch: pa.RecordBatch, log_format: LogFormat) -> memoryview:
        columns = [p if isinstance(p, bytes) else self._column(p, batch, log_format) for p in self._pieces]
        return _joined(columns, batch.num_rows, self._null)

    def _column(self, token: FormatToken, batch: pa.RecordBatch, log_format: LogFormat) -> bytes | pa.Array:
        if token is FormatToken.HEADERS:
            return pa.array(map(self._headers, batch["headers"].to_pylist()), _BYTES)
        if token is FormatToken.PARTITION:
            return log_format.partition_name(_partition(batch)).encode()
        return _COLUMNS[token](batch)

    def _headers(self, headers: list[dict[str, str | bytes | None]] | None) -> bytes:
        return b",".join(
            str(header["key"]).encode() + b"=" + (self._null if (value := header["value"]) is None else bytes(value))  # type: ignore[arg-type]
            for header in headers or ()
        )


class JsonFormat:
    """Prints each record as a JSON object of kcat's form, followed by `delimiter`.

    As in kcat, `tstype` and `ts` are absent for a record without a timestamp, and `headers` for one without headers.
    Bytes that are not UTF-8 become U+FFFD, so that every object is valid JSON.
    """

    needs_headers = True

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter

    def render(self, batch: pa.RecordBatch, log_format: LogFormat) -> memoryview:
        label = json.dumps(log_format.partition_label(_partition(batch)))
        columns = [
            f'{{"topic":{encode_basestring(_topic(batch))},"partition":{label},"offset":'.encode(),
            _text(batch["offset"]),
            *_timestamps(batch),
            _json_headers(batch["headers"]),
            b',"key":',
            _json_texts(batch["key"]),
            b',"payload":',
            _json_texts(batch["value"]),
            b"}" + self._delimiter,
        ]
        return _joined(columns, batch.num_rows, b"")


def _joined(columns: Sequence[bytes | pa.Array], rows: int, null: bytes) -> memoryview:
    """Return the bytes of all rows, one after the other. A column is an array, or the same bytes for all rows."""
    if all(isinstance(column, bytes) for column in columns):
        return memoryview(b"".join(column for column in columns if isinstance(column, bytes)) * rows)
    parts = [pa.scalar(column, _BYTES) if isinstance(column, bytes) else column.cast(_BYTES) for column in columns]
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", _BYTES), null_handling="replace", null_replacement=null)
    _, ends, data = joined.buffers()
    end = int(np.frombuffer(ends, np.int64, 1, 8 * rows)[0])
    return memoryview(data)[:end] if end else memoryview(b"")


def _topic(batch: pa.RecordBatch) -> str:
    return str(batch["topic"][0].as_py())


def _partition(batch: pa.RecordBatch) -> int:
    return int(batch["partition"][0].as_py())


def _text(numbers: pa.Array) -> pa.Array:
    return numbers.cast(pa.string())


def _lengths(values: pa.Array) -> pa.Array:
    return pc.fill_null(pc.binary_length(values), -1)


def _big_endian(numbers: pa.Array) -> pa.Array:
    data = numbers.to_numpy(zero_copy_only=False).astype(">i4").tobytes()
    ends = np.arange(0, len(data) + 4, 4, dtype=np.int64)
    return pa.Array.from_buffers(_BYTES, len(numbers), [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _timestamps(batch: pa.RecordBatch) -> list[bytes | pa.Array]:
    """Return the columns of `tstype` and `ts`. Only a log that changed its message format has several kinds."""
    kinds = pc.unique(batch["timestampType"]).to_pylist()
    if kinds == [-1]:
        return []
    milliseconds = batch["timestamp"]
    if len(kinds) == 1:
        return [_timestamp_kind(kinds[0]), _text(milliseconds)]
    pairs = zip(batch["timestampType"].to_pylist(), milliseconds.to_pylist(), strict=True)
    return [pa.array((b"" if kind < 0 else _timestamp_kind(kind) + b"%d" % ms for kind, ms in pairs), _BYTES)]


def _timestamp_kind(kind: int) -> bytes:
    return f',"tstype":"{_TIMESTAMP_TYPES.get(kind, "unknown")}","ts":'.encode()


def _json_texts(values: pa.Array) -> pa.Array:
    return pa.array((_json_text(value) for value in values.to_pylist()), _BYTES)


def _json_text(value: bytes | None) -> bytes:
    return b"null" if value is None else encode_basestring(value.decode("utf-8", "replace")).encode()


def _json_headers(headers: pa.Array) -> bytes | pa.Array:
    """Return the list of names and values, in turns, of each record that has headers."""
    if headers.null_count == len(headers):
        return b""
    return pa.array((_json_list(row) for row in headers.to_pylist()), _BYTES)


def _json_list(headers: Iterable[dict[str, str | bytes | None]] | None) -> bytes:
    if headers is None:
        return b""
    pairs = (
        encode_basestring(str(header["key"])).encode() + b"," + _json_text(header["value"])  # type: ignore[arg-type]
        for header in headers
    )
    return b',"headers":[' + b",".join(pairs) + b"]"


_COLUMNS: Mapping[FormatToken, Callable[[pa.RecordBatch], bytes | pa.Array]] = {
    FormatToken.VALUE: lambda batch: batch["value"],
    FormatToken.VALUE_LENGTH: lambda batch: _text(_lengths(batch["value"])),
    FormatToken.VALUE_LENGTH_BINARY: lambda batch: _big_endian(_lengths(batch["value"])),
    FormatToken.KEY: lambda batch: batch["key"],
    FormatToken.KEY_LENGTH: lambda batch: _text(_lengths(batch["key"])),
    FormatToken.TOPIC: lambda batch: _topic(batch).encode(),
    FormatToken.OFFSET: lambda batch: _text(batch["offset"]),
    FormatToken.TIMESTAMP: lambda batch: _text(batch["timestamp"]),
}
"""The columns that depend only on the batch."""

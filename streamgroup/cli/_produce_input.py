"""Reads the records of `streamgroup produce`: bytes, cut into records, as Arrow batches."""

from __future__ import annotations

import io
import json
import select
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

import pyarrow as pa

from streamgroup.errors import ConfigError
from streamgroup.options.kinds import TOPIC

CHUNK = 256 * 1024
"""Bytes to read at once. Their records are one batch."""
PAUSE_S = 0.02
"""If nothing comes for so long, what was read is flushed: a user types, or a program waits."""
PAUSE = b""
"""Stands for such a pause between two chunks."""

Header = tuple[str, bytes]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TIMESTAMP = pa.timestamp("us")
_MAX_MS = (2**63 - 1) // 1000
"""The largest timestamp that fits into microseconds of 64 bits."""


def chunks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of `stream` as they come, and `PAUSE` where none come for a while. A file has no pauses."""
    try:
        number: int | None = stream.fileno()
    except (io.UnsupportedOperation, AttributeError):  # bytes in memory
        number = None
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    while True:
        if number is not None and not select.select([number], [], [], PAUSE_S)[0]:
            yield PAUSE
        chunk = read(CHUNK)
        if not chunk:
            return
        yield chunk


def split(parts: Iterable[bytes], delimiter: bytes) -> Iterator[list[bytes]]:
    r"""Yield the records between delimiters, those of one chunk together. An empty list stands for a pause.

    The last record may lack its delimiter. Where this is `\n`, a `\r` before it belongs to it.
    """
    rest = b""
    for chunk in parts:
        *records, rest = (rest + chunk).split(delimiter)
        if delimiter == b"\n":
            records = [record.removesuffix(b"\r") for record in records]
        if records or chunk == PAUSE:
            yield records
    if rest:
        yield [rest]


class InvalidRecord(ConfigError):
    """A record of the input that cannot be written. `number` is its line, `index` its place in its batch."""

    def __init__(self, number: int, index: int, reason: str) -> None:
        super().__init__(f"cannot write line {number}: {reason}. The lines before it were sent")
        self.index = index


class RecordReader(Protocol):
    """Reads records of one form."""

    def read(self, records: Sequence[bytes], first: int) -> pa.RecordBatch:
        """Return a batch with the columns of a write. `first` is the first record's number. Raises InvalidRecord."""


@dataclass(frozen=True, slots=True)
class Constants:
    """The headers and the partition that every record gets."""

    headers: tuple[Header, ...] = ()
    partition: int | None = None
    empty_is_null: bool = False
    """`-Z`: whether an empty key or value stands for null."""

    def columns(self, count: int) -> dict[str, pa.Array]:
        """Return the columns `headers` and `partition` of `count` records, if they have any."""
        columns = {}
        if self.headers:
            headers = [{"key": key, "value": value} for key, value in self.headers]
            columns["headers"] = pa.array([headers] * count, HEADERS)
        if self.partition is not None:
            columns["partition"] = pa.array([self.partition] * count, pa.int32())
        return columns

    def or_null(self, texts: Sequence[bytes]) -> pa.Array:
        """Return keys or values as an array."""
        return pa.array([text or None for text in texts] if self.empty_is_null else texts, pa.binary())


class TextReader:
    """Reads values, or keys and values with a delimiter between them. `key` is one that all records have."""

    def __init__(self, constants: Constants, key_delimiter: bytes | None = None, key: bytes | None = None) -> None:
        self._constants = constants
        self._key_delimiter = key_delimiter
        self._key = key

    def read(self, records: Sequence[bytes], first: int) -> pa.RecordBatch:
        columns = self._constants.columns(len(records))
        if self._key_delimiter is not None:
            parts = [record.partition(self._key_delimiter) for record in records]
            for index, (_, found, _) in enumerate(parts):
                if not found:
                    shown = self._key_delimiter.decode(errors="replace")
                    raise InvalidRecord(first + index, index, f"no {shown!r} after the key")
            columns["key"] = self._constants.or_null([key for key, _, _ in parts])
            records = [value for _, _, value in parts]
        elif self._key is not None:
            columns["key"] = pa.array([self._key] * len(records), pa.binary())
        return pa.record_batch({"value": self._constants.or_null(records), **columns})


class JsonReader:
    """Reads the objects that `streamgroup consume -J` and `kcat -J` print.

    It takes `key`, `payload`, `headers` and `ts`. Without `topic`, the topic of the command line, it takes `topic` and
    `partition` too; `partition_number` turns a partition's name into its number. Other fields are ignored.
    """

    def __init__(self, constants: Constants, topic: str | None, partition_number: Callable[[str], int]) -> None:
        self._constants = constants
        self._topic = topic
        self._partition_number = partition_number

    def read(self, records: Sequence[bytes], first: int) -> pa.RecordBatch:
        rows = []
        for index, record in enumerate(records):
            try:
                rows.append(self._row(record))
            except ValueError as error:
                raise InvalidRecord(first + index, index, str(error)) from None
        columns = {
            "key": pa.array([row["key"] for row in rows], pa.binary()),
            "value": pa.array([row["payload"] for row in rows], pa.binary()),
            "timestamp": pa.array([row["ts"] for row in rows], _TIMESTAMP),
            "headers": pa.array([row["headers"] for row in rows], HEADERS),
        }
        if self._topic is None:
            columns["topic"] = pa.array([row["topic"] for row in rows], pa.string())
            columns["partition"] = pa.array([row["partition"] for row in rows], pa.int32())
        if self._constants.partition is not None:
            columns |= Constants(partition=self._constants.partition).columns(len(rows))
        return pa.record_batch(columns)

    def _row(self, record: bytes) -> dict[str, Any]:
        """Return the columns of one object. Raises ValueError."""
        try:
            fields = json.loads(record)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not a JSON object ({error})") from None
        if not isinstance(fields, dict):
            raise ValueError("not a JSON object")
        timestamp = _milliseconds(fields)
        row = {
            "key": _bytes(_of_type(fields, "key", str), "key", self._constants.empty_is_null),
            "payload": _bytes(_of_type(fields, "payload", str), "payload", self._constants.empty_is_null),
            "headers": self._headers(_of_type(fields, "headers", list)),
            "ts": None if timestamp is None else timestamp * 1000,
        }
        if self._topic is None:
            row |= self._place(fields)
        return row

    def _place(self, fields: dict[str, Any]) -> dict[str, Any]:
        topic = _of_type(fields, "topic", str)
        if not topic:
            raise ValueError("the object has no topic. Add the field 'topic', or name a topic with -t")
        named = fields.get("partition")
        partition = None if named is None else self._partition_number(str(named))
        return {"topic": TOPIC.parse(topic), "partition": partition}

    def _headers(self, given: list[Any] | None) -> list[dict[str, Any]] | None:
        """Return the headers of a list of names and values in turns, and behind them those of all records."""
        texts = given or []
        names, values = texts[::2], texts[1::2]
        is_list = len(names) == len(values) and all(isinstance(name, str) for name in names)
        if not is_list or not all(value is None or isinstance(value, str) for value in values):
            raise ValueError("the field 'headers' must be a list of names and values in turns")
        own = [
            {"key": _bytes(name, "headers"), "value": _bytes(value, "headers")}
            for name, value in zip(names, values, strict=True)
        ]
        return [*own, *({"key": key, "value": value} for key, value in self._constants.headers)] or None


def _of_type(fields: dict[str, Any], name: str, kind: type) -> Any:
    value = fields.get(name)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        expected = {str: "a string", int: "a number of milliseconds", list: "a list"}[kind]
        raise ValueError(f"the field {name!r} must be {expected} or null")
    return value


def _milliseconds(fields: dict[str, Any]) -> int | None:
    milliseconds: int | None = _of_type(fields, "ts", int)
    if milliseconds is not None and not 0 <= milliseconds <= _MAX_MS:
        raise ValueError(f"the field 'ts' is {milliseconds}: expected milliseconds since 1970, up to {_MAX_MS}")
    return milliseconds


def _bytes(text: str | None, field: str, empty_is_null: bool = False) -> bytes | None:
    if text is None or (empty_is_null and not text):
        return None
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the field {field!r} has half of a surrogate pair, which UTF-8 does not have") from None

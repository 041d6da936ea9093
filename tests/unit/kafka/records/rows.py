"""Decoded columns as rows, to compare them with the reference's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamgroup.errors import DecodeError
from streamgroup.kafka.records import decode as records
from streamgroup.kafka.records import messages07
from streamgroup.kafka.records.batches import Frames
from streamgroup.kafka.records.decode import Aborted, Decoded, DecodeOptions
from tests.unit.kafka.records.reference import Row


def decode(
    data: memoryview | bytes,
    start: int,
    until: int,
    options: DecodeOptions,
    aborted: Sequence[Aborted] = (),
) -> Decoded:
    """Walk the frames of `data` and decode the records in `[start, until)`."""
    return records.decode(Frames(data, start, until), start, options, aborted)


def decode07(data: memoryview | bytes, start: int, until: int, options: DecodeOptions) -> Decoded:
    """Walk the messages of `data`, whose first byte is at `start`, and decode those that begin before `until`."""
    return messages07.decode07(messages07.Frames07(data, start, until), start, options)


def rows_of(decoded: Decoded) -> list[Row]:
    """The rows, after Arrow itself has found the arrays sound."""
    timestamp = decoded.timestamp.cast("int64")
    columns = [decoded.key, decoded.value, decoded.offset, timestamp, decoded.timestamp_type]
    if decoded.headers is None:
        headers: list[list[tuple[str, bytes | None]] | None] = [None] * decoded.num_rows
    else:
        decoded.headers.validate(full=True)
        headers = [
            None if entries is None else [(entry["key"], entry["value"]) for entry in entries]
            for entries in decoded.headers.to_pylist()
        ]
    for column in columns:
        column.validate(full=True)
        assert len(column) == decoded.num_rows
    return [Row(*row) for row in zip(*(column.to_pylist() for column in columns), headers, strict=True)]


def outcome(data: bytes, start: int, until: int, options: DecodeOptions = DecodeOptions()) -> Any:  # noqa: B008
    """The result of `decode`: rows and next offset, or that it refuses them."""
    try:
        decoded = decode(data, start, until, options)
    except DecodeError as error:
        return "refused" if "offset" in str(error) else f"an error without an offset: {error}"
    return rows_of(decoded), decoded.next_offset

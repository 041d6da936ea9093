"""The records of many batches in one buffer: decompressed one behind the other, or left where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamgroup.errors import DecodeError, TooLarge
from streamgroup.records import compression
from streamgroup.records.batches import HEADER_SIZE, Batch
from streamgroup.records.fields import MAX_BUFFER, Bytes, Regions


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the records of the first `held` batches lie in `buffer`."""

    buffer: Bytes
    regions: Regions
    held: int


def lay_out(data: memoryview, batches: Sequence[Batch], limit: int) -> Layout:
    """Bring the records of `batches` into one buffer of at most `limit` bytes.

    Batches that no longer fit are left for the next call, but the first must fit. Raises DecodeError about a batch:
    TooLarge, UnsupportedCodec, or plain where its compressed data is damaged.
    """
    if all(batch.codec == compression.NONE for batch in batches) and len(data) <= MAX_BUFFER:
        places = [(batch.begin + HEADER_SIZE, batch.end) for batch in batches]
        return Layout(np.frombuffer(data, np.uint8), _regions(batches, places), len(batches))
    return _inflated(data, batches, min(limit, MAX_BUFFER))


def _inflated(data: memoryview, batches: Sequence[Batch], limit: int) -> Layout:
    pieces = [data[batch.begin + HEADER_SIZE : batch.end] for batch in batches]
    total = 0
    for batch, piece in zip(batches, pieces, strict=True):
        try:
            total += compression.bound(batch.codec, piece)
        except DecodeError as error:
            raise _about(batch, error) from error
    # Pages are touched only as far as something is written: a bound that is too high costs nothing.
    buffer = np.empty(min(total, limit), np.uint8)
    places: list[tuple[int, int]] = []
    position = 0
    for batch, piece in zip(batches, pieces, strict=True):
        try:
            size = compression.inflate(batch.codec, piece, buffer[position:])
        except TooLarge as error:
            if places:
                break
            raise _about(batch, error, f" (group.maxDecompressedBytes is {limit})") from error
        except DecodeError as error:
            raise _about(batch, error) from error
        places.append((position, position + size))
        position += size
    return Layout(buffer[:position], _regions(batches[: len(places)], places), len(places))


def _about(batch: Batch, error: DecodeError, more: str = "") -> DecodeError:
    """The same error, told which batch it is about."""
    return batch.error(f"{error}{more}", type(error))


def _regions(batches: Sequence[Batch], places: Sequence[tuple[int, int]]) -> Regions:
    rows = [
        (
            begin,
            end,
            batch.record_count,
            batch.base_offset,
            batch.last_offset_delta,
            batch.max_timestamp if batch.log_append_time else batch.base_timestamp,
            batch.log_append_time,
        )
        for batch, (begin, end) in zip(batches, places, strict=True)
    ]
    columns = np.array(rows, np.int64).reshape(len(rows), 7).T
    begin, end, count, base, delta, timestamp, append_time = (np.ascontiguousarray(column) for column in columns)
    return Regions(begin, end, count, base, delta, timestamp, append_time.astype(np.bool_))

"""Record batches v2 to Arrow columns: the records of one partition of one Fetch answer at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamgroup.errors import DecodeError
from streamgroup.records import columns, kernel
from streamgroup.records.batches import Batch, Frames
from streamgroup.records.fields import RecordFault
from streamgroup.records.regions import lay_out
from streamgroup.records.schema import SCHEMA, schema
from streamgroup.records.transactions import AbortedTransaction, Aborts

__all__ = ["SCHEMA", "AbortedTransaction", "DecodeOptions", "Decoded", "decode", "record_batches", "schema"]

ROWS = 8192
BATCH_BYTES = 4 << 20
"""Arrow batches of a few MB: smaller ones cost calls, larger ones cost cache."""


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """How to decode.

    `max_decompressed_bytes` bounds one batch, and all that one call of `decode` holds decompressed.
    """

    check_crcs: bool = True
    include_headers: bool = False
    read_committed: bool = False
    max_decompressed_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class Decoded:
    """The records that were asked for, one element each.

    `headers` is None where they were not asked for. `next_offset` is where to go on fetching: behind the last complete
    batch, even where nothing of it was wanted; a range `[start, until)` is done when it is `until` or more.
    `truncated`: the bytes ended inside of a batch. Where that leaves `next_offset` at `start`, the batch is larger than
    what was fetched.
    """

    key: pa.Array
    value: pa.Array
    offset: pa.Array
    timestamp: pa.Array
    timestamp_type: pa.Array
    headers: pa.Array | None
    num_rows: int
    next_offset: int
    truncated: bool = False


def decode(
    data: memoryview | bytes,
    start: int,
    until: int,
    options: DecodeOptions,
    aborted: Sequence[AbortedTransaction] = (),
) -> Decoded:
    """Decode the records whose offsets are in `[start, until)`.

    `data` is the field `records` of a Fetch answer: whole batches, the last of which may be cut off. `aborted` are the
    aborted transactions of the same answer; they count under `read_committed` only.

    Raises DecodeError and its kinds (ChecksumMismatch, TooLarge, UnsupportedCodec, UnsupportedMagic), with the
    `base_offset` and `next_offset` of the batch; topic and partition are for the caller to add. Batches at `until` or
    beyond are not looked at. Decompressed bytes beyond the cap end the call early, behind the batches that fit.
    """
    data = memoryview(data).cast("B")
    frames = Frames(data, until)
    wanted, next_offset = _wanted(frames, data, start, options, aborted)
    layout = lay_out(data, wanted, options.max_decompressed_bytes)
    if layout.held < len(wanted):
        next_offset = wanted[layout.held].base_offset
    try:
        fields = kernel.current().scan(layout.buffer, layout.regions)
    except RecordFault as error:
        raise wanted[error.batch].error(error.fault.text, DecodeError) from None
    rows = fields.between(start, until)
    types = np.repeat(layout.regions.append_time.astype(np.int32), layout.regions.count)[rows]
    fields, buffer = fields.of(rows), layout.buffer
    return Decoded(
        key=columns.binary(buffer, fields.key_start, fields.key_length),
        value=columns.binary(buffer, fields.value_start, fields.value_length),
        offset=columns.longs(fields.offset),
        timestamp=columns.timestamps(fields.timestamp),
        timestamp_type=columns.ints(types),
        headers=columns.headers(buffer, fields) if options.include_headers else None,
        num_rows=len(fields),
        next_offset=next_offset,
        truncated=frames.truncated,
    )


def _wanted(
    frames: Frames, data: memoryview, start: int, options: DecodeOptions, aborted: Sequence[AbortedTransaction]
) -> tuple[list[Batch], int]:
    """The batches whose records are to be decoded, and where to go on fetching."""
    aborts = Aborts(aborted) if options.read_committed else None
    wanted: list[Batch] = []
    next_offset = start
    for batch in frames:
        last_offset = batch.last_offset
        next_offset = max(start, last_offset + 1)
        before = last_offset < start
        if before and aborts is None:
            continue
        if options.check_crcs:
            frames.verify(batch)
        if aborts is not None and aborts.hides(data, batch, options.max_decompressed_bytes):
            continue
        if not (before or batch.control) and batch.record_count:
            wanted.append(batch)
    if frames.beyond is not None:
        next_offset = max(next_offset, frames.beyond)
    return wanted, next_offset


def record_batches(decoded: Decoded, topic: str, partition: int, rows: int = ROWS) -> Iterator[pa.RecordBatch]:
    """The rows of `decoded` in the schema of Spark's own Kafka source (`schema`), none of them empty.

    Batches of at most `rows` rows and about `BATCH_BYTES` of keys and values.
    """
    if not decoded.num_rows:
        return
    rows = max(1, min(rows, BATCH_BYTES * decoded.num_rows // max(1, decoded.key.nbytes + decoded.value.nbytes)))
    target = schema(decoded.headers is not None)
    for first in range(0, decoded.num_rows, rows):
        size = min(rows, decoded.num_rows - first)
        arrays = [
            decoded.key.slice(first, size),
            decoded.value.slice(first, size),
            columns.constant(topic, pa.string(), size),
            columns.constant(partition, pa.int32(), size),
            decoded.offset.slice(first, size),
            decoded.timestamp.slice(first, size),
            decoded.timestamp_type.slice(first, size),
        ]
        if decoded.headers is not None:
            arrays.append(decoded.headers.slice(first, size))
        yield pa.RecordBatch.from_arrays(arrays, schema=target)

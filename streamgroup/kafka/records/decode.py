"""Decodes record batches and message sets to Arrow columns: one partition of one Fetch response per call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from streamgroup.errors import ChecksumMismatch, DecodeError
from streamgroup.frozen import frozen
from streamgroup.kafka.records import columns, kernel
from streamgroup.kafka.records.batches import HEADER_SIZE, Batch, Frame, Frames
from streamgroup.kafka.records.columns import DAMAGE, HEADERS, SCHEMA, schema
from streamgroup.kafka.records.fields import Fields, Ints, RecordFault
from streamgroup.kafka.records.message_sets import MessageFaultKind, MessageSetFault
from streamgroup.kafka.records.messages import UncompressedMessages
from streamgroup.kafka.records.regions import Layout, lay_out, lay_out_nested
from streamgroup.kafka.records.transactions import Aborted, Aborts

__all__ = ["SCHEMA", "Aborted", "DecodeOptions", "Decoded", "decode", "record_batches", "schema"]

ROWS = 8192
BATCH_BYTES = 4 << 20
"""Arrow batches of a few MB: smaller batches cost more calls, larger ones do not fit the cache."""


@frozen
class DecodeOptions:
    """The options of `decode`.

    `max_decompressed_bytes` limits the decompressed bytes of one call of `decode`, and so of one batch.
    """

    check_crcs: bool = True
    include_headers: bool = False
    include_inner_index: bool = False
    """Whether to return the column `inner`, which is 0 except for messages of Kafka 0.7."""
    timestamps_in_ms: bool = False
    """Whether timestamps are Kafka's milliseconds as a long, which holds every number."""
    read_committed: bool = False
    max_decompressed_bytes: int = 256 << 20


@frozen
class Decoded:
    """Decoded records as Arrow columns, one element per record.

    `headers` and `inner` are None unless requested. `next_offset` is the offset to fetch next: after the last complete
    batch, even if none of its records was requested. A range `[start, until)` is done when `next_offset` is at least
    `until`. `truncated`: the bytes ended within a batch. If `next_offset` is then `start`, the batch is larger than the
    fetched bytes.
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
    inner: pa.Array | None = None


def decode(frames: Frames, start: int, options: DecodeOptions, aborted: Sequence[Aborted] = ()) -> Decoded:
    """Decode the records of `frames` from the offset `start` on, up to `frames.until`.

    `frames` are the frames of the field `records` of a Fetch response: batches (magic 2) and messages (magic 0 and 1),
    in any order, the last of which may be truncated. `start` is `frames.start`, or the `next_offset` of a call that
    ended early. `aborted` are the aborted transactions of the same response, for `read_committed`. Messages of magic 0
    have the timestamp -1 and the timestamp type -1, as in Java.

    Raises DecodeError and its subclasses (ChecksumMismatch, TooLarge, UnsupportedCodec, UnsupportedMagic), with the
    `base_offset` and `next_offset` of the batch; the caller adds topic and partition. If the next batch exceeds
    `max_decompressed_bytes`, the call ends before it.
    """
    data, until = frames.data, frames.until
    wanted = _wanted(frames, start, options, aborted)
    next_offset = max(start, frames.next_offset)
    layout = lay_out(data, wanted, options.max_decompressed_bytes)
    try:
        fields, types = _scanned(layout, options)
    except _Nested:
        layout = lay_out_nested(data, wanted, options.max_decompressed_bytes, options.check_crcs)
        fields, types = _scanned(layout, options)
    if layout.held < len(wanted):
        next_offset = wanted[layout.held].base_offset
    rows = fields.between(start, until)
    fields, buffer = fields.of(rows), layout.buffer
    return Decoded(
        key=columns.binary(buffer, fields.key_start, fields.key_length),
        value=columns.binary(buffer, fields.value_start, fields.value_length),
        offset=columns.longs(fields.offset),
        timestamp=(columns.longs if options.timestamps_in_ms else columns.timestamps)(fields.timestamp),
        timestamp_type=columns.ints(types[rows]),
        headers=_headers(layout, fields) if options.include_headers else None,
        num_rows=len(fields),
        next_offset=next_offset,
        truncated=frames.truncated,
        inner=columns.constant(0, pa.int32(), len(fields)) if options.include_inner_index else None,
    )


class _Nested(Exception):
    """A scan has found a compressed message within a compressed message."""


def _scanned(layout: Layout, options: DecodeOptions) -> tuple[Fields, Ints]:
    """Return the fields of all records in the order of their offsets, and their timestamp types."""
    if not layout.messages:
        return _records(layout)
    if not layout.batches:
        return _messages(layout, options)
    first, second = _records(layout), _messages(layout, options)
    order = np.argsort(np.concatenate([first[0].offset, second[0].offset]), kind="stable")
    pairs = zip(first[0].arrays(), second[0].arrays(), strict=True)
    fields = Fields(*(np.concatenate(pair)[order] for pair in pairs))
    return fields, np.concatenate([first[1], second[1]])[order]


def _records(layout: Layout) -> tuple[Fields, Ints]:
    try:
        fields = kernel.current().scan(layout.buffer, layout.regions)
    except RecordFault as error:
        raise layout.batches[error.batch].error(error.fault.text, DecodeError) from None
    return fields, np.repeat(layout.regions.append_time.astype(np.int32), layout.regions.count)


def _messages(layout: Layout, options: DecodeOptions) -> tuple[Fields, Ints]:
    buffer = layout.buffer
    try:
        found = kernel.current().messages(buffer, layout.sets, options.check_crcs)
    except MessageSetFault as error:
        if error.fault is MessageFaultKind.NESTED:
            raise _Nested from None
        frame = layout.messages[error.index]
        kind = ChecksumMismatch if error.fault is MessageFaultKind.CHECKSUM else DecodeError
        offset = (
            int.from_bytes(buffer[error.position : error.position + 8], "big")
            if isinstance(frame, UncompressedMessages)
            else None
        )
        raise frame.error(error.fault.text, kind, offset) from None
    none = np.broadcast_to(np.int32(0), len(found.offset))  # magic 0 and 1 have no headers
    key_and_value = found.key_start, found.key_length, found.value_start, found.value_length
    return Fields(found.offset, found.timestamp, *key_and_value, none, none), found.timestamp_type


def _headers(layout: Layout, fields: Fields) -> pa.Array:
    if not layout.batches:
        return pa.nulls(len(fields), HEADERS)
    return columns.headers(layout.buffer, fields)


def _wanted(frames: Frames, start: int, options: DecodeOptions, aborted: Sequence[Aborted]) -> list[Frame]:
    """Return the frames to decode, after checking their checksums. Raises DecodeError."""
    aborts = Aborts(aborted) if options.read_committed else None
    wanted: list[Frame] = []
    for frame in frames:
        before = frame.last_offset < start
        batch = frame if isinstance(frame, Batch) else None
        if before and (aborts is None or batch is None):
            continue
        if options.check_crcs:
            frames.verify(frame)
        if batch is None:
            wanted.append(frame)
            continue
        if aborts is not None and aborts.hides(frames.data, batch, options.max_decompressed_bytes):
            continue
        # Bytes in a batch with the count 0 are an error, as in Java: they may be records.
        if not (before or batch.control) and (batch.record_count or batch.end > batch.begin + HEADER_SIZE):
            wanted.append(batch)
    return wanted


def _unfit(timestamps: pa.Array) -> pa.Array:
    """Return the column `damage` of records."""
    if not timestamps.null_count:
        return pa.nulls(len(timestamps), DAMAGE.type)
    reasons: list[str | None] = [None] * len(timestamps)
    for row, reason in columns.unfit_timestamps(timestamps):
        reasons[row] = reason
    return pa.array(reasons, DAMAGE.type)


def record_batches(
    decoded: Decoded, topic: str, partition: int, rows: int = ROWS, *, with_damage: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the records of `decoded` as Arrow batches in the schema of Spark's own Kafka source (`schema`).

    Each has at least one row, at most `rows` rows and about `BATCH_BYTES` of keys and values. `with_damage` adds the
    column `damage`, which is null except for records whose timestamp does not fit its column.
    """
    if not decoded.num_rows:
        return
    rows = max(1, min(rows, BATCH_BYTES * decoded.num_rows // max(1, decoded.key.nbytes + decoded.value.nbytes)))
    in_ms = decoded.timestamp.type == pa.int64()
    target = schema(decoded.headers is not None, decoded.inner is not None, with_damage, in_ms)
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
        arrays += [column.slice(first, size) for column in (decoded.headers, decoded.inner) if column is not None]
        if with_damage:
            arrays.append(_unfit(decoded.timestamp.slice(first, size)))
        yield pa.RecordBatch.from_arrays(arrays, schema=target)

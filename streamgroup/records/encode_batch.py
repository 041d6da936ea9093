"""Record batches v2 (KIP-98): the header, which is described in `batches.py`, around encoded records."""

from __future__ import annotations

from streamgroup.records import kernel
from streamgroup.records.batches import HEADER, HEADER_SIZE, SIZE_END
from streamgroup.records.compress import Compressor
from streamgroup.records.encoded import EncodedRecords
from streamgroup.records.fields import Longs
from streamgroup.records.record_columns import ColumnBuffers

_MAGIC = 2
_NO_LEADER_EPOCH = -1
"""The broker writes the epoch; Java's producer writes this."""
_NOT_SEALED = (-1, -1, -1)


def record_sizes(columns: ColumnBuffers) -> Longs:
    """Return the most bytes that each record can take uncompressed in any batch of these records.

    A record's deltas count from the first record of its batch, so they are taken as the largest of these records.
    """
    rows = len(columns.timestamp_ms)
    if not rows:
        return kernel.current().record_sizes(columns, 0)
    spread = int(columns.timestamp_ms.max()) - int(columns.timestamp_ms.min())
    return kernel.current().record_sizes(columns, _varint_size(spread) + _varint_size(rows - 1))


def encode_batch(columns: ColumnBuffers, start: int, stop: int, compressor: Compressor | None) -> EncodedRecords:
    """Encode the records `[start, stop)`, of which there is at least one, as one batch. Raises EncodeError."""
    if compressor is None:
        data, latest = kernel.current().encode_records(columns, start, stop, HEADER_SIZE)
        uncompressed_size = len(data)
    else:
        records, latest = kernel.current().encode_records(columns, start, stop, 0)
        uncompressed_size = HEADER_SIZE + len(records)
        data = bytearray(HEADER_SIZE)
        data += compressor.compress(memoryview(records))
    codec = 0 if compressor is None else compressor.number
    frame = 0, len(data) - SIZE_END, _NO_LEADER_EPOCH, _MAGIC, 0
    first = int(columns.timestamp_ms[start])
    HEADER.pack_into(data, 0, *frame, codec, stop - start - 1, first, latest, *_NOT_SEALED, stop - start)
    return EncodedRecords(stop - start, len(data), uncompressed_size, data)


def _varint_size(distance: int) -> int:
    """Return the most bytes of the zigzag varint of a number between `-distance` and `distance`."""
    return min(10, -(-(2 * distance).bit_length() // 7) or 1)

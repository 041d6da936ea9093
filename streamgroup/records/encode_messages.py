"""Message sets of magic 0 and 1, which are described in `message_sets.py`.

A producer's offsets count from 0, and the broker assigns its own. In a wrapper of magic 0 the broker writes the inner
messages anew. In one of magic 1 they are relative, so that a broker takes them as they are where they count from 0
without a gap (KIP-31). The wrapper has the offset of its last message, in magic 1 the largest timestamp, and no key.
"""

from __future__ import annotations

import struct

from streamgroup.errors import EncodeError
from streamgroup.records import kernel
from streamgroup.records.compress import Compressor
from streamgroup.records.encoded import EncodedRecords
from streamgroup.records.fields import Longs
from streamgroup.records.message_sets import FRAME_SIZE
from streamgroup.records.messages import CRC_COVERS, HEADER
from streamgroup.records.record_columns import ColumnBuffers

HEAD_SIZES = (26, 34)
"""The bytes of a message of magic 0 and 1 without key and value."""
_TIMESTAMP = struct.Struct(">q")
_LENGTHS = struct.Struct(">ii")
"""Of the key and, where the key is null, of the value."""
_CRC = struct.Struct(">I")
_NULL = -1


def message_sizes(columns: ColumnBuffers, magic: int) -> Longs:
    """Return the bytes of each message uncompressed."""
    rows = len(columns.timestamp_ms)
    return kernel.current().message_sizes(columns.key, columns.value, rows, HEAD_SIZES[magic])


def encode_messages(
    columns: ColumnBuffers, magic: int, start: int, stop: int, compressor: Compressor | None
) -> EncodedRecords:
    """Encode the records `[start, stop)`, of which there is at least one, as a set or as one wrapper.

    Raises EncodeError, also for records with headers, which there are since magic 2.
    """
    if columns.has_headers(start, stop):
        raise EncodeError(
            f"messages of magic {magic} have no headers (record batches have: Kafka 0.11 and later). "
            "Write the records without them"
        )
    data = kernel.current().encode_messages(columns, magic, start, stop, 0)
    uncompressed_size = len(data)
    if compressor is not None:
        latest = int(columns.timestamp_ms[start:stop].max())
        data = _wrapper(compressor.compress(memoryview(data)), compressor.number, magic, stop - start - 1, latest)
    return EncodedRecords(stop - start, len(data), uncompressed_size, data, is_batch=False)


def _wrapper(value: bytes, codec: int, magic: int, offset: int, timestamp: int) -> bytearray:
    head = HEAD_SIZES[magic]
    data = bytearray(head)
    data += value
    HEADER.pack_into(data, 0, offset, len(data) - FRAME_SIZE, 0, magic, codec)
    if magic:
        _TIMESTAMP.pack_into(data, HEADER.size, timestamp)
    _LENGTHS.pack_into(data, head - _LENGTHS.size, _NULL, len(value))
    _CRC.pack_into(data, CRC_COVERS - _CRC.size, kernel.current().crc32(memoryview(data)[CRC_COVERS:]))
    return data

"""Messages of Kafka 0.7, which are described in `message_sets.py`: payloads, without keys, timestamps and offsets."""

from __future__ import annotations

import struct

from streamgroup.errors import EncodeError
from streamgroup.records import kernel
from streamgroup.records.compress import Compressor
from streamgroup.records.encoded import EncodedRecords
from streamgroup.records.fields import Longs
from streamgroup.records.record_columns import BinaryColumn, ColumnBuffers

HEAD_SIZES = (9, 10)
"""The bytes of a message of magic 0 and 1 without its payload."""
_WRAPPER = struct.Struct(">iBBI")
"""Length, magic, attributes, checksum of the payload. Only magic 1 has codecs."""
_NO_KEYS = BinaryColumn.of(None, "key")


def message_sizes07(columns: ColumnBuffers, magic: int) -> Longs:
    """Return the bytes of each message uncompressed."""
    rows = len(columns.timestamp_ms)
    return kernel.current().message_sizes(_NO_KEYS, columns.value, rows, HEAD_SIZES[magic])


def encode_messages07(
    columns: ColumnBuffers, magic: int, start: int, stop: int, compressor: Compressor | None
) -> EncodedRecords:
    """Encode the values of `[start, stop)`, of which there is at least one, as a set or as one wrapper of magic 1.

    Keys and timestamps are left out: a key of Kafka 0.7 only chooses the partition. Raises EncodeError for a null value
    and for headers, which these messages cannot have.
    """
    if columns.has_headers(start, stop):
        raise EncodeError("messages of Kafka 0.7 have no headers. Write the records without them")
    if columns.value.nulls(start, stop).any():
        raise EncodeError("messages of Kafka 0.7 have no null values. Leave out the records with one")
    data = kernel.current().encode_messages07(columns.value, magic, start, stop, 0)
    uncompressed_size = len(data)
    if compressor is not None:
        payload = compressor.compress(memoryview(data))
        crc = kernel.current().crc32(memoryview(payload))
        data = bytearray(_WRAPPER.pack(_WRAPPER.size - 4 + len(payload), magic, compressor.number, crc))
        data += payload
    return EncodedRecords(stop - start, len(data), uncompressed_size, data, is_batch=False)

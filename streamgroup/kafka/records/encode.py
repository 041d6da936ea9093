"""Encodes Arrow columns to record batches and message sets: the records of one partition in a Produce request.

It is the inverse of `decode`, without a Python object per record: a kernel (`kernel.py`) encodes the records, and this
module adds the headers of batches and wrappers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import Enum

import google_crc32c
import numpy as np

from streamgroup.errors import EncodeError
from streamgroup.kafka.records import kernel
from streamgroup.kafka.records.batches import CRC_COVERS, HEADER, HEADER_SIZE, SIZE_END, TRANSACTIONAL_BIT
from streamgroup.kafka.records.codecs import Compressor, compressor
from streamgroup.kafka.records.fields import Longs
from streamgroup.kafka.records.message_sets import FRAME_SIZE
from streamgroup.kafka.records.messages import CRC_COVERS as MESSAGE_CRC_COVERS
from streamgroup.kafka.records.messages import HEADER as MESSAGE_HEADER
from streamgroup.kafka.records.record_columns import BinaryColumn, ColumnBuffers, RecordColumns

__all__ = ["EncodedRecords", "Encoder", "RecordColumns", "RecordFormat"]


class Encoder:
    """Encodes records in one format, with one compression codec and level. It has no state.

    All timestamps are CreateTime. Messages of magic 0 have no timestamp; messages of Kafka 0.7 have neither timestamp
    nor key.
    """

    def __init__(self, record_format: RecordFormat, codec: str = "none", level: int | None = None) -> None:
        """`codec` is a name of `compression.type`; a `level` of None is Java's default.

        Raises ValueError for a codec that the format does not have, and for a level that the codec does not have.
        """
        # Brokers before 0.10 require the other checksum. Later brokers accept both in magic 0 (KIP-57).
        self._compressor = compressor(codec, level, broken_lz4=record_format is RecordFormat.V0)
        if codec not in record_format.codecs:
            known = ", ".join(record_format.codecs)
            raise ValueError(f"codec {codec} in {record_format.label}: it has the codecs {known}")
        self.record_format = record_format
        self._is_batch = record_format is RecordFormat.V2

    @property
    def overhead(self) -> int:
        """The bytes of a batch without its records: the header of a record batch or wrapper."""
        if self._is_batch:
            return HEADER_SIZE
        if self._compressor is None:
            return 0
        return (HEAD_SIZES_07 if self.record_format.is_kafka07 else HEAD_SIZES)[self.record_format.magic]

    def sizes(self, columns: RecordColumns) -> Longs:
        """Return the bytes of each record as encoded, without compression.

        In a record batch, deltas count from the first record of the batch. So the sizes are upper bounds: exact if all
        `columns` are one batch with the largest deltas. Raises EncodeError for a record that is too long for any batch.
        """
        if self._is_batch:
            return record_sizes(columns.buffers)
        sizes = message_sizes07 if self.record_format.is_kafka07 else message_sizes
        return sizes(columns.buffers, self.record_format.magic)

    def encode(self, columns: RecordColumns, start: int, stop: int) -> EncodedRecords:
        """Encode the records `[start, stop)` as one batch. Without records it has no bytes.

        Raises EncodeError if the format cannot hold the records: headers before record batches, null values in Kafka
        0.7, more than 2 GiB. Raises ValueError for a range outside of `columns`.
        """
        if not 0 <= start <= stop <= len(columns):
            raise ValueError(f"the range [{start}, {stop}) of {len(columns)} records")
        if start == stop:
            return EncodedRecords(0, 0, 0, bytearray())
        if self._is_batch:
            return encode_batch(columns.buffers, start, stop, self._compressor)
        encode = encode_messages07 if self.record_format.is_kafka07 else encode_messages
        return encode(columns.buffers, self.record_format.magic, start, stop, self._compressor)


class RecordFormat(Enum):
    """The record formats of Kafka's releases. The value is the format's name in errors."""

    V07_0 = "messages of Kafka 0.7, magic 0"
    """Without attributes. No client has written it since there are codecs."""
    V07_1 = "messages of Kafka 0.7, magic 1"
    """The format of all clients of Kafka 0.7."""
    V0 = "message sets v0"
    """Kafka 0.8 and 0.9: Produce v0 and v1."""
    V1 = "message sets v1"
    """Kafka 0.10: Produce v2. Has timestamps."""
    V2 = "record batches v2"
    """Kafka 0.11 and later: Produce v3 and later. Has headers, and zstd since Kafka 2.1 (Produce v7)."""

    @property
    def label(self) -> str:
        return self.value

    @property
    def magic(self) -> int:
        """The value of the field `magic` in this format. Kafka 0.7 has its own numbering."""
        return _MAGICS[self]

    @property
    def is_kafka07(self) -> bool:
        return self in {RecordFormat.V07_0, RecordFormat.V07_1}

    @property
    def codecs(self) -> tuple[str, ...]:
        return _CODECS[self]


_MAGICS = {
    RecordFormat.V07_0: 0,
    RecordFormat.V07_1: 1,
    RecordFormat.V0: 0,
    RecordFormat.V1: 1,
    RecordFormat.V2: 2,
}
_CODECS = {
    RecordFormat.V07_0: ("none",),
    RecordFormat.V07_1: ("none", "gzip", "snappy"),
    RecordFormat.V0: ("none", "gzip", "snappy", "lz4"),
    RecordFormat.V1: ("none", "gzip", "snappy", "lz4"),
    RecordFormat.V2: ("none", "gzip", "snappy", "lz4", "zstd"),
}


# -- encoded bytes ----------------------------------------------------------------------------------------------------

_ATTRIBUTES = struct.Struct(">H")
_PRODUCER = struct.Struct(">qhi")
"""Producer id, producer epoch, base sequence."""
_PRODUCER_BEGIN = 43
_CRC = struct.Struct(">I")
_CRC_BEGIN = CRC_COVERS - _CRC.size


@dataclass(frozen=True, slots=True, eq=False)
class EncodedRecords:
    """The encoded records for one partition of a Produce request: one record batch or message set.

    It holds only the bytes to send, not the columns.
    """

    count: int
    size: int
    """Bytes as sent, 0 without records."""
    uncompressed_size: int
    """Bytes without compression."""
    data: bytearray = field(repr=False)
    """The bytes. In a record batch the producer's fields are -1 and the CRC-32C is 0 until `sealed` is called."""
    is_batch: bool = True
    """Whether the bytes are a record batch, which has the producer's fields."""

    def sealed(
        self,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        *,
        transactional: bool = False,
    ) -> memoryview:
        """Write the producer's fields and the CRC-32C into the header and return the bytes to send.

        May be called again, for example with a higher producer epoch. It changes the same bytes, so a request with the
        result of an earlier call must have ended. Message sets are returned unchanged: they have neither producer nor
        transaction.
        """
        if self.is_batch and self.count:
            data = self.data
            (attributes,) = _ATTRIBUTES.unpack_from(data, CRC_COVERS)
            attributes = attributes | TRANSACTIONAL_BIT if transactional else attributes & ~TRANSACTIONAL_BIT
            _ATTRIBUTES.pack_into(data, CRC_COVERS, attributes)
            _PRODUCER.pack_into(data, _PRODUCER_BEGIN, producer_id, producer_epoch, base_sequence)
            # The library accepts an array without a copy.
            _CRC.pack_into(data, _CRC_BEGIN, google_crc32c.value(np.frombuffer(data, np.uint8, offset=CRC_COVERS)))
        return memoryview(self.data).toreadonly()


# -- record batches (Kafka 0.11 and later) ----------------------------------------------------------------------------

_MAGIC = 2
_NO_LEADER_EPOCH = -1
"""The broker sets the epoch; Java's producer writes this value."""
_NOT_SEALED = (-1, -1, -1)


def record_sizes(columns: ColumnBuffers) -> Longs:
    """Return the most bytes that each record can take uncompressed in any batch of these records.

    Deltas count from the first record of the batch, so they are assumed to be the largest among these records.
    """
    rows = len(columns.timestamp_ms)
    if not rows:
        return kernel.current().record_sizes(columns, 0)
    spread = int(columns.timestamp_ms.max()) - int(columns.timestamp_ms.min())
    return kernel.current().record_sizes(columns, _varint_size(spread) + _varint_size(rows - 1))


def encode_batch(columns: ColumnBuffers, start: int, stop: int, compressor: Compressor | None) -> EncodedRecords:
    """Encode the records `[start, stop)`, at least one, as one batch. Raises EncodeError."""
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
    """Return the most bytes of the zigzag varint of a number from `-distance` to `distance`."""
    return min(10, -(-(2 * distance).bit_length() // 7) or 1)


# -- message sets (Kafka 0.8 to 0.10) ---------------------------------------------------------------------------------

HEAD_SIZES = (26, 34)
"""The bytes of a message of magic 0 and 1 without key and value."""
_TIMESTAMP = struct.Struct(">q")
_LENGTHS = struct.Struct(">ii")
"""The lengths of a null key and of the value."""
_NULL = -1


def message_sizes(columns: ColumnBuffers, magic: int) -> Longs:
    """Return the uncompressed bytes of each message of magic 0 or 1."""
    rows = len(columns.timestamp_ms)
    return kernel.current().message_sizes(columns.key, columns.value, rows, HEAD_SIZES[magic])


def encode_messages(
    columns: ColumnBuffers, magic: int, start: int, stop: int, compressor: Compressor | None
) -> EncodedRecords:
    """Encode the records `[start, stop)`, at least one, as a set or as one wrapper.

    Raises EncodeError, also for records with headers, which only magic 2 has.
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
    MESSAGE_HEADER.pack_into(data, 0, offset, len(data) - FRAME_SIZE, 0, magic, codec)
    if magic:
        _TIMESTAMP.pack_into(data, MESSAGE_HEADER.size, timestamp)
    _LENGTHS.pack_into(data, head - _LENGTHS.size, _NULL, len(value))
    _CRC.pack_into(data, MESSAGE_CRC_COVERS - _CRC.size, kernel.current().crc32(memoryview(data)[MESSAGE_CRC_COVERS:]))
    return data


# -- messages of Kafka 0.7 --------------------------------------------------------------------------------------------

HEAD_SIZES_07 = (9, 10)
"""The bytes of a message of magic 0 and 1 without its payload."""
_WRAPPER = struct.Struct(">iBBI")
"""Length, magic, attributes, checksum of the payload. Only magic 1 has codecs."""
_NO_KEYS = BinaryColumn.of(None, "key")


def message_sizes07(columns: ColumnBuffers, magic: int) -> Longs:
    """Return the uncompressed bytes of each message of Kafka 0.7."""
    rows = len(columns.timestamp_ms)
    return kernel.current().message_sizes(_NO_KEYS, columns.value, rows, HEAD_SIZES_07[magic])


def encode_messages07(
    columns: ColumnBuffers, magic: int, start: int, stop: int, compressor: Compressor | None
) -> EncodedRecords:
    """Encode the values of `[start, stop)`, at least one, as a set or as one wrapper of magic 1.

    Keys and timestamps are omitted: in Kafka 0.7 a key only selects the partition. Raises EncodeError for a null value
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

"""Arrow columns to record batches and message sets: what one Produce request carries for one partition.

The inverse of `decode`: no Python object is made per record. The work of each record is in a kernel (`kernel.py`); the
step for each batch is in `encode_batch.py`, `encode_messages.py` and `encode_messages07.py`.
"""

from __future__ import annotations

from streamgroup.records.batches import HEADER_SIZE
from streamgroup.records.compress import compressor
from streamgroup.records.encode_batch import encode_batch, record_sizes
from streamgroup.records.encode_messages import HEAD_SIZES, encode_messages, message_sizes
from streamgroup.records.encode_messages07 import HEAD_SIZES as HEAD_SIZES_07
from streamgroup.records.encode_messages07 import encode_messages07, message_sizes07
from streamgroup.records.encoded import EncodedRecords
from streamgroup.records.fields import Longs
from streamgroup.records.record_columns import RecordColumns
from streamgroup.records.record_format import RecordFormat

__all__ = ["EncodedRecords", "Encoder", "RecordColumns", "RecordFormat"]


class Encoder:
    """Encodes records in one format, compressed by one codec at one level. It keeps nothing between two calls.

    All timestamps are CreateTime. The format says what is not written: messages of magic 0 have no timestamp, those of
    Kafka 0.7 have neither timestamp nor key.
    """

    def __init__(self, record_format: RecordFormat, codec: str = "none", level: int | None = None) -> None:
        """`codec` is a name of `compression.type`; a `level` of None is Java's default.

        Raises ValueError for a codec that the format does not have, and for a level that the codec does not have.
        """
        # Brokers before 0.10 demand the other checksum, and later ones accept either in magic 0 (KIP-57).
        self._compressor = compressor(codec, level, broken_lz4=record_format is RecordFormat.V0)
        if codec not in record_format.codecs:
            known = ", ".join(record_format.codecs)
            raise ValueError(f"codec {codec} in {record_format.label}: it has the codecs {known}")
        self.record_format = record_format
        self._is_batch = record_format is RecordFormat.V2

    @property
    def overhead(self) -> int:
        """The bytes of a batch besides its records: of the header of a record batch, or of a wrapper."""
        if self._is_batch:
            return HEADER_SIZE
        if self._compressor is None:
            return 0
        return (HEAD_SIZES_07 if self.record_format.is_kafka07 else HEAD_SIZES)[self.record_format.magic]

    def sizes(self, columns: RecordColumns) -> Longs:
        """Return the bytes of each record as encoded, without compression.

        In a record batch a record's deltas count from the batch's first record. So there the sizes are upper bounds:
        right for deltas as large as those of all `columns` in one batch. Raises EncodeError for a record that is too
        long for any batch.
        """
        if self._is_batch:
            return record_sizes(columns.buffers)
        sizes = message_sizes07 if self.record_format.is_kafka07 else message_sizes
        return sizes(columns.buffers, self.record_format.magic)

    def encode(self, columns: RecordColumns, start: int, stop: int) -> EncodedRecords:
        """Encode the records `[start, stop)` as one batch, which is empty bytes where there are none.

        Raises EncodeError for what the format cannot hold: headers before record batches, null values in Kafka 0.7,
        more than 2 GiB. Raises ValueError for a range that is not one of `columns`.
        """
        if not 0 <= start <= stop <= len(columns):
            raise ValueError(f"the range [{start}, {stop}) of {len(columns)} records")
        if start == stop:
            return EncodedRecords(0, 0, 0, bytearray())
        if self._is_batch:
            return encode_batch(columns.buffers, start, stop, self._compressor)
        encode = encode_messages07 if self.record_format.is_kafka07 else encode_messages
        return encode(columns.buffers, self.record_format.magic, start, stop, self._compressor)

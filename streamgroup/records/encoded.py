"""One encoded record batch or message set: the field `records` of one partition in a Produce request."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import google_crc32c
import numpy as np

from streamgroup.records.batches import CRC_COVERS, TRANSACTIONAL_BIT

_ATTRIBUTES = struct.Struct(">H")
_PRODUCER = struct.Struct(">qhi")
"""Producer id, producer epoch, base sequence."""
_PRODUCER_BEGIN = 43
_CRC = struct.Struct(">I")
_CRC_BEGIN = CRC_COVERS - _CRC.size


@dataclass(frozen=True, slots=True, eq=False)
class EncodedRecords:
    """One record batch or message set that a Produce request carries for one partition.

    It holds the bytes that are sent and none of the columns that they were encoded from.
    """

    count: int
    size: int
    """Bytes as sent, 0 where there are no records."""
    uncompressed_size: int
    """Bytes as they would be sent without compression."""
    data: bytearray = field(repr=False)
    """The bytes. In a record batch the producer's fields are -1 and the CRC-32C is 0 until `sealed` is called."""
    is_batch: bool = True
    """Whether the bytes are a record batch, which has fields of the producer."""

    def sealed(
        self,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        *,
        transactional: bool = False,
    ) -> memoryview:
        """Write the producer's fields and the CRC-32C into the header and return the bytes to send.

        May be called again, for example after the producer's epoch has been raised. It changes the same bytes, so a
        request with the result of an earlier call must have been sent or given up. Message sets are returned as they
        are: they have neither producer nor transaction.
        """
        if self.is_batch and self.count:
            data = self.data
            (attributes,) = _ATTRIBUTES.unpack_from(data, CRC_COVERS)
            attributes = attributes | TRANSACTIONAL_BIT if transactional else attributes & ~TRANSACTIONAL_BIT
            _ATTRIBUTES.pack_into(data, CRC_COVERS, attributes)
            _PRODUCER.pack_into(data, _PRODUCER_BEGIN, producer_id, producer_epoch, base_sequence)
            # An array is what the library takes without a copy.
            _CRC.pack_into(data, _CRC_BEGIN, google_crc32c.value(np.frombuffer(data, np.uint8, offset=CRC_COVERS)))
        return memoryview(self.data).toreadonly()

"""Hides the records of aborted transactions for read_committed.

A Fetch response lists the aborted transactions within its bytes: producer and first offset. In the order of the batches
a transaction is open from its first offset until the ABORT marker of its producer (KIP-98, as in Java's consumer).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable

from streamgroup.errors import DecodeError
from streamgroup.frozen import frozen
from streamgroup.kafka.records import kernel
from streamgroup.kafka.records.batches import Batch
from streamgroup.kafka.records.fields import RecordFault
from streamgroup.kafka.records.regions import lay_out

NO_PRODUCER = -1
ABORT = 0
_CONTROL_KEY = struct.Struct(">hh")
"""The key of a control record: version, type."""


@frozen
class Aborted:
    """An aborted transaction in a Fetch response: the producer id and the first offset."""

    producer_id: int
    first_offset: int


class Aborts:
    """Decides for each batch, in order, whether it belongs to an aborted transaction."""

    def __init__(self, transactions: Iterable[Aborted]) -> None:
        self._ahead = deque(sorted(transactions, key=lambda t: t.first_offset))
        self._open: set[int] = set()

    def hides(self, data: memoryview, batch: Batch, limit: int) -> bool:
        """Return whether `batch`, the next one, belongs to an aborted transaction.

        A control batch is decompressed to at most `limit` bytes. Raises DecodeError if it cannot be read.
        """
        if batch.producer_id == NO_PRODUCER:
            return False
        while self._ahead and self._ahead[0].first_offset <= batch.last_offset:
            self._open.add(self._ahead.popleft().producer_id)
        if batch.control:
            if batch.producer_id in self._open and control_type(data, batch, limit) == ABORT:
                self._open.discard(batch.producer_id)
            return False
        return batch.transactional and batch.producer_id in self._open


def control_type(data: memoryview, batch: Batch, limit: int) -> int | None:
    """Return the type of a control batch's record (0 ABORT, 1 COMMIT); None if compaction has removed it.

    Raises DecodeError.
    """
    if not batch.record_count:
        return None
    layout = lay_out(data, [batch], limit)
    try:
        fields = kernel.current().scan(layout.buffer, layout.regions)
    except RecordFault as error:
        raise batch.error(error.fault.text, DecodeError) from None
    if fields.key_length[0] < _CONTROL_KEY.size:
        raise batch.error(
            f"the key of a control record has {fields.key_length[0]} bytes; Kafka writes at least {_CONTROL_KEY.size}",
            DecodeError,
        )
    version, kind = _CONTROL_KEY.unpack_from(layout.buffer.data, int(fields.key_start[0]))
    if version < 0:
        raise batch.error(f"a control record has version {version}; versions begin at 0", DecodeError)
    return int(kind)

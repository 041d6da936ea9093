"""Records of one partition as they wait for their batch: slices of Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from streamgroup.records.encode import EncodedRecords, Encoder, RecordColumns
from streamgroup.records.record_columns import concat


@dataclass(frozen=True, slots=True, eq=False)
class RecordSlice:
    """The records `[start, stop)` of `columns`, which are those of a larger batch of Spark's."""

    columns: RecordColumns
    start: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class RecordSlices:
    """Records of one partition, in their order: a payload of the producer."""

    slices: tuple[RecordSlice, ...]
    count: int
    size: int
    """Their bytes as encoded, without compression."""
    names_partition: bool = False
    """Whether rows name their partition, so that no other one may be chosen for them."""

    @classmethod
    def of(cls, columns: RecordColumns, start: int, stop: int, size: int, *, names_partition: bool = False) -> Self:
        """Return the records `[start, stop)` of `columns`, which take `size` bytes."""
        return cls((RecordSlice(columns, start, stop),), stop - start, size, names_partition)

    @classmethod
    def joined(cls, payloads: Sequence[RecordSlices]) -> RecordSlices:
        """Return the records of all `payloads` as one payload."""
        if len(payloads) == 1:
            return payloads[0]
        slices = tuple(each for payload in payloads for each in payload.slices)
        names_partition = any(p.names_partition for p in payloads)
        return cls(slices, sum(p.count for p in payloads), sum(p.size for p in payloads), names_partition)

    def encode(self, encoder: Encoder) -> EncodedRecords:
        """Encode the records as one batch. Raises EncodeError for what the format cannot hold."""
        if len(self.slices) == 1:
            (only,) = self.slices
            return encoder.encode(only.columns, only.start, only.stop)
        columns = self.columns()
        return encoder.encode(columns, 0, len(columns))

    def halves(self, encoder: Encoder) -> tuple[RecordSlices, RecordSlices]:
        """Return the records as two payloads of about the same size. There are at least two records."""
        columns, named = self.columns(), self.names_partition
        sizes = np.cumsum(encoder.sizes(columns))
        total = int(sizes[-1])
        middle = min(max(int(np.searchsorted(sizes, total / 2, "right")), 1), self.count - 1)
        first = int(sizes[middle - 1])
        return (
            RecordSlices.of(columns, 0, middle, first, names_partition=named),
            RecordSlices.of(columns, middle, self.count, total - first, names_partition=named),
        )

    def columns(self) -> RecordColumns:
        """Return the records."""
        return concat([each.columns.slice(each.start, each.stop - each.start) for each in self.slices])

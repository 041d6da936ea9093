"""The formats that records are written in."""

from __future__ import annotations

from enum import Enum


class RecordFormat(Enum):
    """A format of records, one for each generation of Kafka. The value is its name in messages."""

    V07_0 = "messages of Kafka 0.7, magic 0"
    """Without attributes. No client has written it since codecs came."""
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
        """Its name in messages."""
        return self.value

    @property
    def magic(self) -> int:
        """The number in the field `magic`. Kafka 0.7 has numbers of its own."""
        return _MAGICS[self]

    @property
    def is_kafka07(self) -> bool:
        """Whether only Kafka 0.7 knows it."""
        return self in {RecordFormat.V07_0, RecordFormat.V07_1}

    @property
    def codecs(self) -> tuple[str, ...]:
        """The names of its codecs."""
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

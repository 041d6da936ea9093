"""One commit in as many OffsetCommit requests as the broker's limit on record batches asks for.

The coordinator appends all partitions of one OffsetCommit as one batch to `__consumer_offsets`. It refuses a batch
beyond that topic's `max.message.bytes`, 1 MiB unless set, as a whole. With the metadata of R20 that is some 5 000
partitions.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamgroup.model import CommittedOffset, TopicPartition

PART_BYTES = 512 * 1024
"""One request holds no more than this to begin with: half of the default limit."""
DOUBTFUL_BYTES = 16 * 1024
"""The coordinator of Kafka 4 answers a batch that is too large with UNKNOWN_SERVER_ERROR, which may mean anything. A
request below this size is not what is wrong."""
_RECORD_BYTES = 100
"""A record of `__consumer_offsets` without group, topic and metadata takes 50 to 70 bytes, by the broker's release."""

Offsets = Mapping[TopicPartition, CommittedOffset]


class PartSize:
    """How much of a commit one request holds. It only ever shrinks, since the broker's limit hardly ever changes."""

    __slots__ = ("_fixed", "most")

    def __init__(self, group: str) -> None:
        self._fixed = _RECORD_BYTES + len(group.encode())
        self.most = PART_BYTES
        """Bytes in `__consumer_offsets`."""

    def bytes_of(self, offsets: Offsets) -> int:
        """Estimate how many bytes these offsets take in `__consumer_offsets`, rather too many than too few."""
        return sum(self._record(tp, offset) for tp, offset in offsets.items())

    def _record(self, tp: TopicPartition, offset: CommittedOffset) -> int:
        return self._fixed + len(tp.topic) + len(offset.metadata)

    def split(self, offsets: Offsets) -> tuple[Offsets, ...]:
        """Divide `offsets` in their order into parts of at most `most` bytes, and of one partition at least."""
        parts: list[dict[TopicPartition, CommittedOffset]] = []
        left = 0
        for tp, offset in offsets.items():
            size = self._record(tp, offset)
            if not parts or size > left:
                parts.append({})
                left = self.most
            parts[-1][tp] = offset
            left -= size
        return tuple(parts)

    def shrink(self, part: Offsets, *, certain: bool) -> bool:
        """Send less at a time, since the broker has refused `part`, for its size where that is `certain`.

        Return whether less may help.
        """
        size = self.bytes_of(part)
        if len(part) == 1 or not (certain or size > DOUBTFUL_BYTES):
            return False
        self.most = min(self.most, size) // 2
        return True

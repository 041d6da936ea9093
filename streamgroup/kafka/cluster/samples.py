"""Samples of logs, for estimates of record sizes: a small Fetch from each leader shows the bytes of some offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from streamgroup.kafka.wire.messages.log import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from streamgroup.model import ClusterSnapshot, TopicPartition
from streamgroup.options.types import Isolation

LAST_WITH_NAMES: Final = 12
"""The last version of Fetch with topic names instead of ids."""
_MAX_WAIT_MS = 500
"""A leader answers at once, unless the records are in tiered storage."""
_ENDLESS = 2**63 - 1


class LogSample(NamedTuple):
    """How many bytes some complete frames of a log have, and how many offsets they contain."""

    size: int
    offsets: int


class Piece(NamedTuple):
    """The limits of one round of requests: bytes per partition, and partitions per leader."""

    size: int
    partitions: int


ROUNDS: Final = (Piece(64 * 1024, 64), Piece(1024 * 1024, 4))
"""A broker sends the first batch of a response whole, but omits a later batch that is larger than its piece (KIP-74).
The second round requests these. The sum of the pieces limits the response of a leader to 4 MiB."""


def sample_requests(
    wanted: Mapping[TopicPartition, int], snapshot: ClusterSnapshot, piece: Piece
) -> dict[int, FetchRequest]:
    """Return one Fetch request for each leader, by node id.

    `wanted` maps partitions to positions. A request contains the first partitions of `wanted`, as many as `piece`
    allows.
    """
    by_leader: dict[int, dict[str, list[FetchPartition]]] = defaultdict(lambda: defaultdict(list))
    left: dict[int, int] = defaultdict(lambda: piece.partitions)
    for tp, position in wanted.items():
        info = snapshot.partition(tp)
        if info is None or info.leader not in snapshot.brokers or not left[info.leader]:
            continue
        left[info.leader] -= 1
        row = FetchPartition(
            partition=tp.partition,
            current_leader_epoch=info.leader_epoch,
            fetch_offset=position,
            partition_max_bytes=piece.size,
        )
        by_leader[info.leader][tp.topic].append(row)
    return {
        node: FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=piece.size * piece.partitions,
            isolation_level=Isolation.READ_UNCOMMITTED.value,
            topics=tuple(FetchTopic(topic=topic, partitions=tuple(rows)) for topic, rows in topics.items()),
        )
        for node, topics in by_leader.items()
    }


def read_samples(response: FetchResponse, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, LogSample]:
    """Return the samples in `response`. Partitions with an error or without a complete frame are absent."""
    # It loads the decoders, which only a coordinator with a limit of bytes needs.
    from streamgroup.kafka.records.batches import Frames  # noqa: PLC0415

    samples = {}
    for topic in response.responses:
        for row in topic.partitions:
            tp = TopicPartition(topic.topic, row.partition_index)
            if tp not in wanted or row.error_code or not row.records:
                continue
            walked = Frames(memoryview(row.records), wanted[tp], _ENDLESS).walked
            if walked:
                first, last = walked[0], walked[-1]
                offsets = last.last_offset + 1 - max(0, first.base_offset)
                samples[tp] = LogSample(last.end - first.begin, max(1, offsets))
    return samples


def without(wanted: Mapping[TopicPartition, int], found: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the partitions of `wanted` that are not in `found`."""
    return {tp: position for tp, position in wanted.items() if tp not in found}

"""Samples of logs: one small Fetch per leader, and how many bytes the offsets of its answer take."""

from __future__ import annotations

from streamgroup.cluster.samples import Piece, Sample, read_samples, sample_requests, without
from streamgroup.model import NO_LEADER, ClusterSnapshot, PartitionInfo, TopicInfo, TopicPartition
from streamgroup.records.batches import HEADER, HEADER_SIZE, SIZE_END
from streamgroup.wire.messages.log import FetchableTopicResponse, FetchResponse, PartitionData
from tests.fakes.cluster import NODES

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))
SNAPSHOT = ClusterSnapshot(
    NODES, {"t": TopicInfo("t", (PartitionInfo(0, 0, 5), PartitionInfo(1, 0, 5), PartitionInfo(2, NO_LEADER, 5)), "id")}
)


def batch(base: int, count: int, size: int) -> bytes:
    """A record batch of `size` bytes whose header says that it has `count` records."""
    header = HEADER.pack(base, size - SIZE_END, 0, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count)
    return header + bytes(size - HEADER_SIZE)


def answer(records: bytes | None, error: int = 0) -> FetchResponse:
    row = PartitionData(partition_index=0, error_code=error, high_watermark=100, records=records)
    return FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=(row,)),))


def test_a_leader_is_asked_for_as_many_partitions_as_its_answer_has_room_for() -> None:
    requests = sample_requests({P1: 7, P0: 3, P2: 1}, SNAPSHOT, Piece(1000, 1))
    (request,) = requests.values()
    (topic,) = request.topics
    (row,) = topic.partitions
    assert (row.partition, row.fetch_offset, row.partition_max_bytes, request.max_bytes) == (1, 7, 1000, 1000)


def test_a_partition_without_a_leader_is_not_asked_for() -> None:
    assert sample_requests({P2: 1}, SNAPSHOT, Piece(1000, 5)) == {}


def test_whole_batches_count_and_a_cut_one_does_not() -> None:
    records = batch(10, 5, 500) + batch(15, 5, 300) + batch(20, 5, 900)[:400]
    assert read_samples(answer(records), {P0: 12}) == {P0: Sample(800, 10)}


def test_gaps_that_compaction_left_are_offsets_without_bytes() -> None:
    assert read_samples(answer(batch(10, 5, 500) + batch(35, 5, 300)), {P0: 10}) == {P0: Sample(800, 30)}


def test_an_error_an_empty_answer_and_a_first_batch_that_is_cut_are_no_samples() -> None:
    assert read_samples(answer(batch(10, 5, 500), error=6), {P0: 10}) == {}
    assert read_samples(answer(None), {P0: 10}) == {}
    assert read_samples(answer(batch(10, 5, 500)[:200]), {P0: 10}) == {}
    assert read_samples(answer(b"\xff" * 200), {P0: 10}) == {}


def test_what_was_not_asked_for_is_left_out() -> None:
    assert read_samples(answer(batch(10, 5, 500)), {P1: 10}) == {}
    assert without({P0: 1, P1: 2}, {P0: Sample(1, 1)}) == {P1: 2}

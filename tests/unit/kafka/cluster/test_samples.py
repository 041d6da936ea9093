"""Samples of logs: one small Fetch per leader, and how many bytes the offsets of its answer take."""

from __future__ import annotations

from collections.abc import Callable

from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.cluster.samples import (
    LAST_WITH_NAMES,
    ROUNDS,
    LogSample,
    Piece,
    read_samples,
    sample_requests,
    without,
)
from streamgroup.kafka.records.batches import HEADER, HEADER_SIZE, SIZE_END
from streamgroup.kafka.wire.messages.log import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from streamgroup.model import NO_LEADER, ClusterSnapshot, PartitionInfo, TopicInfo, TopicPartition
from tests.fakes.broker import CLOSE
from tests.fakes.cluster import NODES
from tests.unit.kafka.cluster.test_kafka import ORDERS, Options, Start, Two
from tests.waiting import soon

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
    assert read_samples(answer(records), {P0: 12}) == {P0: LogSample(800, 10)}


def test_gaps_that_compaction_left_are_offsets_without_bytes() -> None:
    assert read_samples(answer(batch(10, 5, 500) + batch(35, 5, 300)), {P0: 10}) == {P0: LogSample(800, 30)}


def test_an_error_an_empty_answer_and_a_first_batch_that_is_cut_are_no_samples() -> None:
    assert read_samples(answer(batch(10, 5, 500), error=6), {P0: 10}) == {}
    assert read_samples(answer(None), {P0: 10}) == {}
    assert read_samples(answer(batch(10, 5, 500)[:200]), {P0: 10}) == {}
    assert read_samples(answer(b"\xff" * 200), {P0: 10}) == {}


def test_what_was_not_asked_for_is_left_out() -> None:
    assert read_samples(answer(batch(10, 5, 500)), {P1: 10}) == {}
    assert without({P0: 1, P1: 2}, {P0: LogSample(1, 1)}) == {P1: 2}


# -- by the brokers ----------------------------------------------------------------------------------------------------


def answering(*records: bytes) -> Callable[[FetchRequest, int], FetchResponse]:
    """Answers one Fetch after the other, each for the first partition that it asks for."""
    left = list(records)

    def answer(request: FetchRequest, version: int) -> FetchResponse:
        assert version <= LAST_WITH_NAMES
        asked = request.topics[0]
        row = PartitionData(
            partition_index=asked.partitions[0].partition, error_code=0, high_watermark=100, records=left.pop(0)
        )
        return FetchResponse(responses=(FetchableTopicResponse(topic=asked.topic, partitions=(row,)),))

    return answer


def test_a_batch_that_is_larger_than_a_piece_is_asked_for_again_with_a_larger_one(
    broker: Start, options: Options
) -> None:
    two = Two(
        broker,
        options,
        first={FetchRequest: answering(b"", batch(3, 10, 90_000))},
        second={FetchRequest: answering(batch(8, 2, 100))},
    )
    cluster = KafkaCluster(options(two.first.port))
    assert cluster.samples({ORDERS[0]: 3, ORDERS[1]: 8}, soon()) == {
        ORDERS[0]: LogSample(90_000, 10),
        ORDERS[1]: LogSample(100, 2),
    }
    pieces = [r.topics[0].partitions[0].partition_max_bytes for r in two.first.asked("Fetch")]
    assert pieces == [piece.size for piece in ROUNDS]
    assert len(two.second.asked("Fetch")) == 1
    cluster.close()


def test_a_broker_that_hangs_up_gives_no_sample_and_no_error(broker: Start, options: Options) -> None:
    two = Two(broker, options, first={FetchRequest: lambda request, version: CLOSE})
    cluster = KafkaCluster(options(two.first.port))
    assert cluster.samples({ORDERS[0]: 3}, soon(0.5)) == {}
    cluster.close()

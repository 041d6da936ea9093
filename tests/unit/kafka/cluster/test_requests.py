"""Requests to leaders and their responses as values: log ends, leader epochs, metadata, samples of logs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamgroup.advice import Requester
from streamgroup.errors import AuthorizationError, BrokerError, ErrorCode
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.cluster.metadata import MetadataCache, snapshot_of, wants_rebootstrap
from streamgroup.kafka.cluster.requests import (
    EpochCheck,
    EpochEnd,
    ListedOffset,
    epoch_requests,
    offset_requests,
    read_epoch_ends,
    read_offsets,
)
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
from streamgroup.kafka.wire.messages.cluster import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from streamgroup.kafka.wire.messages.log import (
    CONSUMER_REPLICA_ID,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
    PartitionData,
)
from streamgroup.model import (
    EARLIEST,
    LATEST,
    NO_LEADER,
    NO_TOPIC_ID,
    Broker,
    ClusterSnapshot,
    PartitionInfo,
    TopicInfo,
    TopicPartition,
)
from streamgroup.options.types import Isolation
from tests.fakes.answers import METADATA, metadata, topic
from tests.fakes.broker import CLOSE
from tests.fakes.cluster import NODES
from tests.unit.kafka.cluster.test_kafka import ORDERS, Options, Start, Two
from tests.waiting import soon

A0, A1, A2, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 0)
SNAPSHOT = ClusterSnapshot(
    {1: Broker(1, "h1", 92), 2: Broker(2, "h2", 92)},
    {
        "a": TopicInfo("a", (PartitionInfo(0, 1, 5), PartitionInfo(1, 2, 6), PartitionInfo(2, 1, 7))),
        "b": TopicInfo("b", (PartitionInfo(0, 1, 8), PartitionInfo(1, NO_LEADER, 8), PartitionInfo(2, 9, 8))),
    },
)
ALICE = Requester("User:alice", "b:9092")
RETRIED = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_SERVER_ERROR, 9_999]
FINAL = [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_TOPIC_EXCEPTION]


# -- requests by leader ------------------------------------------------------------------------------------------------


def test_each_leader_gets_one_request_with_its_partitions_and_their_leader_epochs() -> None:
    wanted = {B0: LATEST, A2: 1_000, A1: LATEST, A0: EARLIEST}
    requests, causes = offset_requests(wanted, SNAPSHOT, Isolation.READ_COMMITTED)
    assert causes == []
    assert requests.keys() == {1, 2}
    assert requests[1].topics == (
        ListOffsetsTopic(
            name="a",
            partitions=(
                ListOffsetsPartition(partition_index=0, current_leader_epoch=5, timestamp=EARLIEST),
                ListOffsetsPartition(partition_index=2, current_leader_epoch=7, timestamp=1_000),
            ),
        ),
        ListOffsetsTopic(
            name="b", partitions=(ListOffsetsPartition(partition_index=0, current_leader_epoch=8, timestamp=LATEST),)
        ),
    )
    assert [p.partition_index for t in requests[2].topics for p in t.partitions] == [1]
    assert {r.isolation_level for r in requests.values()} == {Isolation.READ_COMMITTED.value}
    assert {r.replica_id for r in requests.values()} == {CONSUMER_REPLICA_ID}


@pytest.mark.parametrize(
    ("tp", "cause"),
    [
        (TopicPartition("a", 3), "a-3 does not exist"),
        (TopicPartition("c", 0), "c-0 does not exist"),
        (TopicPartition("b", 1), "b-1 has no leader"),
        (TopicPartition("b", 2), "b-2 has no leader"),
    ],
    ids=["no partition", "no topic", "election", "leader away"],
)
def test_a_partition_without_a_leader_to_ask_is_named_and_the_others_are_asked(tp: TopicPartition, cause: str) -> None:
    requests, causes = offset_requests({tp: LATEST, A1: LATEST}, SNAPSHOT, Isolation.READ_UNCOMMITTED)
    assert (requests.keys(), causes) == ({2}, [cause])
    checks, causes = epoch_requests({tp: EpochCheck(1, 2), A0: EpochCheck(1, 2)}, SNAPSHOT)
    assert (checks.keys(), causes) == ({1}, [cause])


@pytest.mark.parametrize(("current", "sent"), [(4, 5), (5, 5), (6, 6)])
def test_the_end_of_an_epoch_is_asked_of_a_leader_of_the_newest_known_epoch(current: int, sent: int) -> None:
    """KIP-320: a leader of an older epoch refuses. The metadata or a listed end may have the newest epoch."""
    requests, _ = epoch_requests({A0: EpochCheck(3, current)}, SNAPSHOT)
    row = OffsetForLeaderPartition(partition=0, current_leader_epoch=sent, leader_epoch=3)
    assert requests[1].topics == (OffsetForLeaderTopic(topic="a", partitions=(row,)),)
    assert requests[1].replica_id == CONSUMER_REPLICA_ID


# -- ListOffsets -------------------------------------------------------------------------------------------------------


def listed(*rows: ListOffsetsPartitionResponse) -> tuple[dict[TopicPartition, ListedOffset], list[str]]:
    found: dict[TopicPartition, ListedOffset] = {}
    causes: list[str] = []
    topic = ListOffsetsTopicResponse(name="a", partitions=rows)
    read_offsets(ListOffsetsResponse(topics=(topic,)), found, causes, ALICE)
    return found, causes


def test_offsets_come_with_their_timestamps_and_leader_epochs() -> None:
    row = ListOffsetsPartitionResponse(partition_index=1, offset=7, timestamp=1_000, leader_epoch=3)
    assert listed(row) == ({A1: ListedOffset(7, 1_000, 3)}, [])


def test_a_broker_before_0_10_1_lists_segments_of_which_the_newest_counts() -> None:
    found, _ = listed(ListOffsetsPartitionResponse(partition_index=0, old_style_offsets=(90, 50, 0)))
    assert (found[A0].offset, found[A0].coarse) == (90, True)
    found, _ = listed(ListOffsetsPartitionResponse(partition_index=0, offset=90))
    assert not found[A0].coarse


@pytest.mark.parametrize("code", RETRIED)
def test_an_error_that_may_pass_is_a_cause_and_the_other_partitions_are_read(code: int) -> None:
    rows = [ListOffsetsPartitionResponse(partition_index=n, error_code=code * (n == 0), offset=7) for n in (0, 1)]
    found, causes = listed(*rows)
    assert found == {A1: ListedOffset(7)}
    assert [cause.startswith("a-0: ") for cause in causes] == [True]


@pytest.mark.parametrize("code", FINAL)
def test_an_error_that_no_retry_resolves_names_the_partition(code: ErrorCode) -> None:
    with pytest.raises(BrokerError, match=rf"cannot list the offsets of a-0: {code.name}"):
        listed(ListOffsetsPartitionResponse(partition_index=0, error_code=code))


def test_a_refusal_names_the_user_the_topic_and_the_command() -> None:
    row = ListOffsetsPartitionResponse(partition_index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError, match=r"offsets of a-0.*User:alice .*Describe on topic 'a'.*kafka-acls\.sh"):
        listed(row)


# -- OffsetForLeaderEpoch ----------------------------------------------------------------------------------------------


def ends(*rows: EpochEndOffset) -> tuple[dict[TopicPartition, EpochEnd], list[str]]:
    found: dict[TopicPartition, EpochEnd] = {}
    causes: list[str] = []
    topic = OffsetForLeaderTopicResult(topic="a", partitions=rows)
    read_epoch_ends(OffsetForLeaderEpochResponse(topics=(topic,)), found, causes, ALICE)
    return found, causes


@pytest.mark.parametrize("code", [*RETRIED, ErrorCode.FENCED_LEADER_EPOCH])
def test_an_end_that_is_not_told_yet_is_a_cause_with_the_partition(code: int) -> None:
    found, causes = ends(
        EpochEndOffset(partition=0, error_code=code), EpochEndOffset(partition=1, leader_epoch=3, end_offset=40)
    )
    assert found == {A1: EpochEnd(3, 40)}
    assert [cause.startswith("a-0: ") for cause in causes] == [True]


@pytest.mark.parametrize("code", [*FINAL, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_an_end_that_is_refused_for_good_is_an_error_with_the_partition(code: ErrorCode) -> None:
    with pytest.raises(BrokerError, match=rf"cannot read the end of a leader epoch of a-0: .*{code.name}"):
        ends(EpochEndOffset(partition=0, error_code=code))


CACHED = ClusterSnapshot({}, {name: TopicInfo(name, ()) for name in ("orders", "returns")})


# -- metadata ---------------------------------------------------------------------------------------------------------


def test_a_response_becomes_brokers_with_racks_and_topics_with_sorted_partitions() -> None:
    rows = tuple(
        MetadataResponsePartition(
            partition_index=n, leader_id=leader, leader_epoch=3, replica_nodes=(1, 2), isr_nodes=(2,)
        )
        for n, leader in ((1, NO_LEADER), (0, 2))
    )
    response = MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=2, host="h2", port=92, rack="r"),),
        cluster_id="c",
        controller_id=2,
        topics=(MetadataResponseTopic(name="orders", topic_id="an id", is_internal=True, partitions=rows),),
    )
    snapshot, unsettled = snapshot_of(response)
    assert (snapshot.brokers, snapshot.cluster_id, snapshot.controller_id) == ({2: Broker(2, "h2", 92, "r")}, "c", 2)
    orders = snapshot.topics["orders"]
    assert orders.partitions == (PartitionInfo(0, 2, 3), PartitionInfo(1, NO_LEADER, 3))
    assert [(info.replicas, info.in_sync) for info in orders.partitions] == [((1, 2), (2,))] * 2
    assert (orders.topic_id, orders.internal) == ("an id", True)
    assert snapshot.leader(TopicPartition("orders", 1)) is None
    assert unsettled == []


def test_a_topic_of_a_broker_before_2_8_has_no_id() -> None:
    snapshot, _ = snapshot_of(metadata({1: 92}, MetadataResponseTopic(name="orders", topic_id="")))
    assert snapshot.topics["orders"].topic_id == NO_TOPIC_ID


def test_transient_errors_are_told_with_their_topic_and_the_rest_is_read() -> None:
    electing = topic("new", error=ErrorCode.LEADER_NOT_AVAILABLE)
    snapshot, unsettled = snapshot_of(metadata({}, topic("orders", 1), electing))
    assert snapshot.topics.keys() == {"orders"}
    assert unsettled == ["topic 'new': LEADER_NOT_AVAILABLE", "the broker does not know any broker yet"]


def test_a_topic_that_may_not_be_described_is_an_error_with_the_user_and_the_command() -> None:
    refused = metadata({1: 92}, topic("orders", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(AuthorizationError, match=r"cannot describe topic 'orders'.*User:alice.*kafka-acls\.sh"):
        snapshot_of(refused, None, ALICE)


def test_an_invalid_topic_name_is_an_error_with_that_name() -> None:
    with pytest.raises(BrokerError, match=r"cannot describe topic 'a/b': INVALID_TOPIC_EXCEPTION"):
        snapshot_of(metadata({1: 92}, topic("a/b", error=ErrorCode.INVALID_TOPIC_EXCEPTION)))


def test_only_a_request_to_rebootstrap_or_a_transient_refusal_lets_the_client_ask_again() -> None:
    """KIP-1102: a broker whose cluster has moved asks the client to drop all known brokers."""
    brokers = METADATA.brokers
    rebootstrap = MetadataResponse(brokers=brokers, error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    busy = MetadataResponse(brokers=brokers, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert [wants_rebootstrap(each) for each in (rebootstrap, busy, METADATA)] == [True, False, False]
    assert snapshot_of(rebootstrap)[1] == ["REBOOTSTRAP_REQUIRED"]
    assert snapshot_of(busy)[1] == ["COORDINATOR_LOAD_IN_PROGRESS"]
    refused = MetadataResponse(brokers=brokers, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerError, match="cannot read the metadata of the cluster: CLUSTER_AUTHORIZATION_FAILED"):
        snapshot_of(refused)


# -- the cache of metadata --------------------------------------------------------------------------------------------


def cached(asked: frozenset[str] | None) -> MetadataCache:
    cache = MetadataCache(250)
    cache.put(CACHED, asked, 10.0)
    return cache


@pytest.mark.parametrize(
    ("asked", "wanted", "found"),
    [
        (None, None, {"orders", "returns"}),
        (None, {"orders"}, {"orders"}),
        (None, set(), set()),
        ({"orders", "returns"}, {"returns"}, {"returns"}),
        ({"orders"}, {"orders", "returns"}, None),
        ({"orders"}, None, None),
        ({"orders"}, set(), None),
        ({"orders", "gone"}, {"gone"}, set()),
    ],
)
def test_a_snapshot_answers_for_the_topics_that_it_was_read_for(
    asked: set[str] | None, wanted: set[str] | None, found: set[str] | None
) -> None:
    cache = cached(None if asked is None else frozenset(asked))
    snapshot = cache.get(None if wanted is None else frozenset(wanted), 10.0)
    assert (None if snapshot is None else set(snapshot.topics)) == found


def test_a_snapshot_is_used_up_to_its_age_and_its_brokers_stay_known_after_it() -> None:
    cache = cached(None)
    assert cache.get(None, 10.25) is CACHED
    assert cache.get(None, 10.26) is None
    assert cache.last is CACHED


# -- samples of logs --------------------------------------------------------------------------------------------------

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))
SAMPLED = ClusterSnapshot(
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
    requests = sample_requests({P1: 7, P0: 3, P2: 1}, SAMPLED, Piece(1000, 1))
    (request,) = requests.values()
    (topic,) = request.topics
    (row,) = topic.partitions
    assert (row.partition, row.fetch_offset, row.partition_max_bytes, request.max_bytes) == (1, 7, 1000, 1000)


def test_a_partition_without_a_leader_is_not_asked_for() -> None:
    assert sample_requests({P2: 1}, SAMPLED, Piece(1000, 5)) == {}


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


# -- samples by scripted brokers --------------------------------------------------------------------------------------


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

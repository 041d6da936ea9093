"""Requests to leaders, and responses as values: ends of logs and epochs, metadata, samples. Many brokers at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from streamgroup.advice import Requester
from streamgroup.errors import AuthorizationError, BrokerError, ErrorCode, TransportError, UnsupportedVersionError
from streamgroup.kafka.cluster.fanout import BrokerFanout, Pending, Unsent
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
from streamgroup.kafka.net.poller import Event, ResponseReceived
from streamgroup.kafka.records.batches import HEADER, HEADER_SIZE, SIZE_END
from streamgroup.kafka.wire.messages import log
from streamgroup.kafka.wire.messages.cluster import (
    ApiVersionsRequest,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
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
from tests.clock import Clock
from tests.fakes.answers import API_VERSIONS, METADATA, api_versions, metadata, topic
from tests.fakes.broker import CLOSE, SILENCE, FakeBroker, Held
from tests.fakes.cluster import NODES
from tests.unit.kafka.cluster.test_kafka import ORDERS, Two
from tests.unit.kafka.net.conftest import EVERYTHING, Options, Start, script
from tests.waiting import TIMEOUT_S, soon, wait_until

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
    asked = {
        node: {
            t.name: [(p.partition_index, p.current_leader_epoch, p.timestamp) for p in t.partitions] for t in r.topics
        }
        for node, r in requests.items()
    }
    assert asked == {1: {"a": [(0, 5, EARLIEST), (2, 7, 1_000)], "b": [(0, 8, LATEST)]}, 2: {"a": [(1, 6, LATEST)]}}
    assert len(requests[1].topics) == 2
    assert {r.isolation_level for r in requests.values()} == {Isolation.READ_COMMITTED.value}
    assert {r.replica_id for r in requests.values()} == {log.CONSUMER_REPLICA_ID}


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
    row = log.OffsetForLeaderPartition(partition=0, current_leader_epoch=sent, leader_epoch=3)
    assert requests[1].topics == (log.OffsetForLeaderTopic(topic="a", partitions=(row,)),)
    assert requests[1].replica_id == log.CONSUMER_REPLICA_ID


# -- ListOffsets -------------------------------------------------------------------------------------------------------


def listed(*rows: log.ListOffsetsPartitionResponse) -> tuple[dict[TopicPartition, ListedOffset], list[str]]:
    found: dict[TopicPartition, ListedOffset] = {}
    causes: list[str] = []
    topic = log.ListOffsetsTopicResponse(name="a", partitions=rows)
    read_offsets(log.ListOffsetsResponse(topics=(topic,)), found, causes, ALICE)
    return found, causes


def test_offsets_come_with_their_timestamps_and_leader_epochs() -> None:
    row = log.ListOffsetsPartitionResponse(partition_index=1, offset=7, timestamp=1_000, leader_epoch=3)
    assert listed(row) == ({A1: ListedOffset(7, 1_000, 3)}, [])


def test_a_broker_before_0_10_1_lists_segments_of_which_the_newest_counts() -> None:
    found, _ = listed(log.ListOffsetsPartitionResponse(partition_index=0, old_style_offsets=(90, 50, 0)))
    assert (found[A0].offset, found[A0].coarse) == (90, True)
    found, _ = listed(log.ListOffsetsPartitionResponse(partition_index=0, offset=90))
    assert not found[A0].coarse


@pytest.mark.parametrize("code", [*RETRIED, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.OFFSET_OUT_OF_RANGE])
def test_an_error_that_may_pass_is_a_cause_and_the_other_partitions_are_read(code: int) -> None:
    rows = [log.ListOffsetsPartitionResponse(partition_index=n, error_code=code * (n == 0), offset=7) for n in (0, 1)]
    found, causes = listed(*rows)
    assert found == {A1: ListedOffset(7)}
    assert [cause.startswith("a-0: ") for cause in causes] == [True]


@pytest.mark.parametrize("code", FINAL)
def test_an_error_that_no_retry_resolves_names_the_partition(code: ErrorCode) -> None:
    with pytest.raises(BrokerError, match=rf"cannot list the offsets of a-0: {code.name}"):
        listed(log.ListOffsetsPartitionResponse(partition_index=0, error_code=code))


def test_a_refusal_names_the_user_the_topic_and_the_command() -> None:
    row = log.ListOffsetsPartitionResponse(partition_index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError, match=r"offsets of a-0.*User:alice .*Describe on topic 'a'.*kafka-acls\.sh"):
        listed(row)


# -- OffsetForLeaderEpoch ----------------------------------------------------------------------------------------------


def ends(*rows: log.EpochEndOffset) -> tuple[dict[TopicPartition, EpochEnd], list[str]]:
    found: dict[TopicPartition, EpochEnd] = {}
    causes: list[str] = []
    topic = log.OffsetForLeaderTopicResult(topic="a", partitions=rows)
    read_epoch_ends(log.OffsetForLeaderEpochResponse(topics=(topic,)), found, causes, ALICE)
    return found, causes


@pytest.mark.parametrize("code", [*RETRIED, ErrorCode.FENCED_LEADER_EPOCH])
def test_an_end_that_is_not_told_yet_is_a_cause_with_the_partition(code: int) -> None:
    found, causes = ends(
        log.EpochEndOffset(partition=0, error_code=code), log.EpochEndOffset(partition=1, leader_epoch=3, end_offset=40)
    )
    assert found == {A1: EpochEnd(3, 40)}
    assert [cause.startswith("a-0: ") for cause in causes] == [True]


@pytest.mark.parametrize("code", [*FINAL, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_an_end_that_is_refused_for_good_is_an_error_with_the_partition(code: ErrorCode) -> None:
    with pytest.raises(BrokerError, match=rf"cannot read the end of a leader epoch of a-0: .*{code.name}"):
        ends(log.EpochEndOffset(partition=0, error_code=code))


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
    assert unsettled == ["topic 'new': LEADER_NOT_AVAILABLE", "the broker lists no broker yet"]


def test_a_topic_that_may_not_be_described_is_an_error_with_the_user_and_the_command() -> None:
    refused = metadata({1: 92}, topic("orders", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(AuthorizationError, match=r"cannot describe topic 'orders'.*User:alice.*kafka-acls\.sh"):
        snapshot_of(refused, None, ALICE)


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


def answer(records: bytes | None, error: int = 0) -> log.FetchResponse:
    row = log.PartitionData(partition_index=0, error_code=error, high_watermark=100, records=records)
    return log.FetchResponse(responses=(log.FetchableTopicResponse(topic="t", partitions=(row,)),))


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


def fetching(*records: bytes) -> Callable[[log.FetchRequest, int], log.FetchResponse]:
    """Answers one Fetch after the other, each for the first partition that it asks for."""
    left = list(records)

    def answer(request: log.FetchRequest, version: int) -> log.FetchResponse:
        assert version <= LAST_WITH_NAMES
        asked = request.topics[0]
        row = log.PartitionData(
            partition_index=asked.partitions[0].partition, error_code=0, high_watermark=100, records=left.pop(0)
        )
        return log.FetchResponse(responses=(log.FetchableTopicResponse(topic=asked.topic, partitions=(row,)),))

    return answer


def test_a_batch_that_is_larger_than_a_piece_is_asked_for_with_a_larger_one(broker: Start, options: Options) -> None:
    two = Two(
        broker,
        options,
        first={log.FetchRequest: fetching(b"", batch(3, 10, 90_000))},
        second={log.FetchRequest: fetching(batch(8, 2, 100))},
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
    two = Two(broker, options, first={log.FetchRequest: lambda request, version: CLOSE})
    cluster = KafkaCluster(options(two.first.port))
    assert cluster.samples({ORDERS[0]: 3}, soon(0.5)) == {}
    cluster.close()


# -- many brokers asked at once ------------------------------------------------------------

ASKED = MetadataRequest(topics=())
OTHER = EVERYTHING
SOON = Clock().now + 20
"""A deadline that no call reaches while the clock stands still."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fanout(options: Options, clock: Clock) -> Iterator[BrokerFanout]:
    """Waits for real sockets, on a clock that stands still."""
    made = BrokerFanout(options(request_timeout_ms=2_000), clock)
    yield made
    made.close()


@pytest.fixture
def answering(broker: Start) -> Start:
    """A broker whose answers to Metadata are these, one after the other, the last for ever."""
    return lambda *answers: broker({ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: script(*answers)})


def address(of: FakeBroker) -> tuple[str, int]:
    return "127.0.0.1", of.port


def ask(fanout: BrokerFanout, *brokers: FakeBroker, request: MetadataRequest = ASKED, **others: Any) -> list[Any]:
    """The answer of each broker, in their order."""
    return list(fanout.call_each({address(each): request for each in brokers}, SOON, **others).values())


NEWS = [metadata({n: 1}) for n in range(1, 5)]


def said(answers: list[Any]) -> list[int]:
    return [answer.brokers[0].node_id for answer in answers]


def test_all_are_asked_at_once_and_connections_are_kept(fanout: BrokerFanout, broker: Start) -> None:
    all_are_asked = threading.Barrier(3)

    def answer_when_all_are_asked(answer: MetadataResponse) -> MetadataResponse:
        all_are_asked.wait(TIMEOUT_S)
        return answer

    brokers = [
        broker(
            {
                ApiVersionsRequest: lambda *_: API_VERSIONS,
                MetadataRequest: lambda *_, answer=answer: answer_when_all_are_asked(answer),
            }
        )
        for answer in NEWS[:3]
    ]
    assert said(ask(fanout, *brokers)) == [1, 2, 3]
    assert said(ask(fanout, *brokers)) == [1, 2, 3]
    assert [each.connections for each in brokers] == [1, 1, 1]


def test_a_late_broker_delays_no_other_and_its_response_is_taken_by_the_next_call(
    fanout: BrokerFanout, clock: Clock, answering: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    slow, quick = answering(Held(NEWS[0], released), NEWS[1]), answering(NEWS[2])
    ask(fanout, quick)
    wait = fanout._poller.wait

    def wait_and_let_time_pass(timeout: float) -> list[Event]:
        """The timeout is over when the quick broker has answered, however long that really takes."""
        events = wait(timeout)
        clock.now += 0.5 * any(isinstance(event, ResponseReceived) for event in events)
        return events

    with monkeypatch.context() as patched:
        patched.setattr(fanout._poller, "wait", wait_and_let_time_pass)
        late, prompt = ask(fanout, slow, quick, timeout=0.5)
    assert isinstance(late, Pending)
    assert f"no response yet from broker 127.0.0.1:{slow.port} to Metadata after 0.5 s" in str(late)
    assert said([prompt]) == [3]
    released.set()
    assert said(ask(fanout, slow, quick)) == [1, 3]
    assert len(slow.asked("Metadata")) == 1  # not again what is on its way
    assert said(ask(fanout, slow)) == [2]  # and an answer counts once


def leave_pending(fanout: BrokerFanout, broker: FakeBroker) -> None:
    """Return when the broker has read a request whose response no call has."""

    def has_read() -> bool:
        (answer,) = ask(fanout, broker, timeout=0.0)
        assert isinstance(answer, Pending)
        return bool(broker.asked("Metadata"))

    wait_until(has_read, "the request", every=0.001)


def test_a_late_response_is_not_taken_for_that_of_another_request(fanout: BrokerFanout, answering: Start) -> None:
    released = threading.Event()
    slow = answering(Held(NEWS[0], released), NEWS[1])
    leave_pending(fanout, slow)
    released.set()
    assert said(ask(fanout, slow, request=OTHER)) == [2]
    assert said(ask(fanout, slow)) == [1]


def test_a_late_answer_of_another_era_is_not_taken(fanout: BrokerFanout, answering: Start) -> None:
    released = threading.Event()
    slow = answering(Held(NEWS[0], released), NEWS[1], NEWS[2])
    leave_pending(fanout, slow)
    released.set()
    assert said(ask(fanout, slow, epoch=1)) == [2]
    assert said(ask(fanout, slow, epoch=1)) == [3]


def test_a_broker_that_never_answers_is_reset_at_its_deadline_and_called_on_a_new_connection(
    fanout: BrokerFanout, clock: Clock, answering: Start
) -> None:
    silent = answering(SILENCE, NEWS[0])
    leave_pending(fanout, silent)
    clock.now += 1.999
    assert isinstance(ask(fanout, silent, timeout=0.0)[0], Pending)
    clock.now += 0.001
    (error,) = ask(fanout, silent)
    assert f"no response from broker 127.0.0.1:{silent.port} to Metadata in time" in str(error)
    assert not isinstance(error, Pending)
    assert said(ask(fanout, silent)) == [1]
    assert silent.connections == 2


def test_failed_connections_concern_their_brokers_alone(fanout: BrokerFanout, answering: Start, broker: Start) -> None:
    closing, fine, gone = answering(CLOSE), answering(NEWS[0]), broker({})
    gone.stop()
    refused, cut, answer = ask(fanout, gone, closing, fine)
    assert isinstance(refused, TransportError)
    assert "refused" in str(refused)
    assert "closed the connection" in str(cut)
    assert said([answer]) == [1]


def test_an_idle_connection_that_has_ended_is_made_again(fanout: BrokerFanout, answering: Start) -> None:
    fake = answering(NEWS[0])
    assert said(ask(fanout, fake)) == [1]
    fake.hang_up()
    fake.wait_for(lambda broker: broker.ends == 1)
    assert said(ask(fanout, fake)) == [1]
    assert fake.connections == 2


def test_errors_that_no_reconnect_resolves_are_raised(fanout: BrokerFanout, broker: Start) -> None:
    other = broker({ApiVersionsRequest: lambda *_: api_versions(apiversions=(0, 3))})
    for _ in range(2):
        with pytest.raises(UnsupportedVersionError, match="Metadata"):
            ask(fanout, other)


def test_a_call_without_requests_returns_at_once(fanout: BrokerFanout) -> None:
    assert fanout.call_each({}, SOON) == {}


# -- several requests at one broker -----------------------------------------------------------------------------------


def test_one_broker_may_be_asked_many_things(fanout: BrokerFanout, answering: Start) -> None:
    one, two = answering(metadata({})), answering(metadata({}))
    requests = [(address(one), ASKED), (address(one), OTHER), (address(two), ASKED)]
    found = fanout.call_all(requests, SOON)
    assert list(found) == requests
    assert not any(isinstance(answer, Exception) for answer in found.values())
    assert len(one.asked("Metadata")) == 2


def test_the_first_pending_request_is_blamed_for_a_closed_connection(fanout: BrokerFanout, answering: Start) -> None:
    """The broker did not read the request behind it, which may be sent again."""
    third = MetadataRequest(topics=(), allow_auto_topic_creation=False)
    one = answering(metadata({}), CLOSE)
    first, blamed, behind = fanout.call_all([(address(one), each) for each in (ASKED, OTHER, third)], SOON).values()
    assert not isinstance(first, Exception), "what was answered before counts"
    assert isinstance(blamed, TransportError)
    assert not isinstance(blamed, Unsent)
    assert isinstance(behind, Unsent)


def test_an_unreachable_broker_fails_all_its_requests_alike(fanout: BrokerFanout) -> None:
    found = fanout.call_all([(("127.0.0.1", 1), ASKED), (("127.0.0.1", 1), OTHER)], SOON)
    assert all(isinstance(each, TransportError) and not isinstance(each, Unsent) for each in found.values())


def test_a_connection_to_a_former_broker_is_closed(fanout: BrokerFanout, answering: Start) -> None:
    stays, goes = answering(*NEWS), answering(*NEWS)
    ask(fanout, stays, goes)
    fanout.keep([address(stays)])
    assert list(fanout._links) == [address(stays)]
    assert said(ask(fanout, goes, stays)) == [2, 2], "it is asked anew, should it come back"


def test_a_connection_that_was_idle_for_too_long_is_not_used(
    fanout: BrokerFanout, clock: Clock, answering: Start, options: Options
) -> None:
    fake = answering(*NEWS)
    assert said(ask(fanout, fake)) == [1]
    clock.now += options().max_idle_s + 1
    found = fanout.call_each({address(fake): ASKED}, clock.now + 20)
    assert said(list(found.values())) == [2]
    assert fake.connections == 2


def test_requests_to_a_throttled_broker_are_not_overdue(fanout: BrokerFanout, clock: Clock, answering: Start) -> None:
    fake = answering(replace(NEWS[0], throttle_time_ms=60_000), *NEWS[1:])
    request = {address(fake): ASKED}
    assert said(list(fanout.call_each(request, clock.now + 20).values())) == [1]
    for left in (60.0, 30.0):
        (answer,) = fanout.call_each(request, clock.now + 20, timeout=0.0).values()
        assert isinstance(answer, Pending)
        assert f"The broker throttles this client, for another {left:.1f} s" in str(answer)
        clock.now += 30.0
    assert said(list(fanout.call_each(request, clock.now + 20).values())) == [2]
    assert (fake.connections, len(fake.asked("Metadata"))) == (1, 2)

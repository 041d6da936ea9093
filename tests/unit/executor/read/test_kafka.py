"""A task reads logs of Kafka 0.8 and later by Fetch, and asks where a log is now before it reports a loss."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from streamgroup.errors import (
    AuthorizationError,
    BrokerError,
    DataLossError,
    ErrorCode,
    TooLarge,
    TransportError,
    error_of,
)
from streamgroup.executor.read import fetcher
from streamgroup.executor.read.cursor import Cursor
from streamgroup.executor.read.fetcher import MOST_PARTITIONS, Pipeline
from streamgroup.executor.read.kafka import KafkaFetchProtocol, KafkaLookup
from streamgroup.executor.read.read_format import Fetched, FetchProtocol, Loss, PreparedFetch
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.net.protocol import CorrelatedResponse
from streamgroup.kafka.wire.kafka07 import MultiFetchRequest07
from streamgroup.kafka.wire.messages import log as wire
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from streamgroup.kafka.wire.versions import BrokerVersions
from streamgroup.model import (
    NO_TOPIC_ID,
    UNKNOWN_EPOCH,
    Broker,
    Dialect,
    FetchRange,
    FetchTask,
    OffsetRange,
    TopicPartition,
)
from streamgroup.options.types import ClientOptions, FetchOptions, Isolation
from tests.clock import Clock
from tests.fakes.answers import api_versions
from tests.fakes.broker07 import OldBroker, values
from tests.unit.executor.leader import (
    OTHER_ID,
    PATIENT,
    QUICK,
    TOPIC_ID,
    Lead,
    Leader,
    Log,
    Options,
    Reading,
    batch,
    of_old,
    planned,
)
from tests.unit.executor.lookups import cursor as pipeline_cursor
from tests.unit.kafka.records.encoder import Record, encode_batch
from tests.waiting import soon

KIB = 1024
FETCH_SESSION_ID_NOT_FOUND = 70
FETCH = FetchOptions(max_wait_ms=20, min_bytes=3, poll_timeout_ms=5_000)
FOLLOWER = Broker(2, "h2", 92)


class Peer(Connection):
    """A connection that is not opened, to a broker that speaks Fetch up to a version."""

    def __init__(self, fetch: int = 13, list_offsets: int = 7, **client: Any) -> None:
        super().__init__("h", 92, ClientOptions((("h", 92),), **client))
        self._versions = {wire.FetchRequest.API_KEY: (0, fetch), wire.ListOffsetsRequest.API_KEY: (0, list_offsets)}

    @property
    def versions(self) -> BrokerVersions:
        return BrokerVersions("h:92", self._versions)


def cursor(partition: int = 0, start: int = 0, until: int = 100, *, topic_id: str = TOPIC_ID) -> Cursor:
    tp = TopicPartition("orders", partition)
    return Cursor.of(FetchRange(OffsetRange(tp, start, until), Broker(1, "h", 92), topic_id, 7))


def failed(code: int, **others: Any) -> Cursor:
    made = cursor(**others)
    made.mark_failed(error_of(code), 1.0)
    return made


# -- Fetch -------------------------------------------------------------------------------------------------------------


def test_topic_names_are_used_where_the_plan_has_no_topic_id() -> None:
    """From version 13 on a Fetch has ids only. A plan by brokers before 2.8 has none."""
    cursors = [cursor(0), cursor(1, topic_id=NO_TOPIC_ID)]
    assert KafkaFetchProtocol(Peer(), cursors, FETCH).ask(cursors).version == 12
    assert KafkaFetchProtocol(Peer(), cursors[:1], FETCH).ask(cursors[:1]).version == 13
    assert KafkaFetchProtocol(Peer(fetch=4), cursors[:1], FETCH).ask(cursors[:1]).version == 4


@pytest.mark.parametrize(("version", "count"), [(2, 2), (3, 4)])
def test_before_0_10_1_a_request_asks_for_as_many_partitions_as_an_answer_holds(version: int, count: int) -> None:
    cursors = [cursor(n) for n in range(4)]
    fetch = replace(FETCH, max_bytes=150 * KIB)
    assert KafkaFetchProtocol(Peer(version), cursors, fetch).ask(cursors).cursors == cursors[:count]


def test_one_partition_is_asked_for_however_large_its_next_message() -> None:
    large = cursor()
    large.min_bytes = 900 * KIB
    asked = KafkaFetchProtocol(Peer(2), [large], replace(FETCH, max_bytes=150 * KIB)).ask([large, cursor(1)])
    assert asked.cursors == [large]
    assert large.asked_bytes == 900 * KIB


def answer(*rows: wire.PartitionData, **others: Any) -> wire.FetchResponse:
    return wire.FetchResponse(responses=(wire.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=rows),), **others)


def read(response: wire.FetchResponse, *asked: Cursor, fetch: FetchOptions = FETCH) -> list[Fetched]:
    return KafkaFetchProtocol(Peer(), asked, fetch).read(response, asked)


def test_an_answer_gives_each_partition_its_records_or_its_error() -> None:
    rows = (
        wire.PartitionData(partition_index=0, high_watermark=10, records=batch(0, 10)),
        wire.PartitionData(partition_index=1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        wire.PartitionData(partition_index=2, high_watermark=10, records=batch(0, 5)),
        wire.PartitionData(partition_index=7, high_watermark=10, records=batch(0, 5)),
    )
    cursors = [cursor(n) for n in (0, 1, 2, 3)]
    first, refused, second = read(answer(*rows), *cursors)
    assert [each.cursor for each in (first, refused, second)] == cursors[:3], "an answer may leave partitions out"
    assert refused.error == error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert first.frames is not None
    assert second.frames is not None
    assert (first.frames.next_offset, second.frames.next_offset, first.high_watermark) == (10, 5, 10)
    assert (first.comes_first, second.comes_first) == (True, False)


@pytest.mark.parametrize(
    ("leader", "named"),
    [(3, (Broker(3, "kafka-3", 9094, "b"), 8)), (4, None), (-1, None)],
    ids=["", "no address", "none"],
)
def test_a_broker_that_does_not_lead_names_the_leader(leader: int, named: tuple[Broker, int] | None) -> None:
    row = wire.PartitionData(
        partition_index=0,
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        current_leader=wire.LeaderIdAndEpoch(leader_id=leader, leader_epoch=8),
    )
    endpoint = wire.NodeEndpoint(node_id=3, host="kafka-3", port=9094, rack="b")
    (refused,) = read(answer(row, node_endpoints=(endpoint,)), cursor())
    assert (refused.error, refused.leader) == (error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER), named)


def test_an_error_of_the_whole_answer_names_the_broker_and_the_partitions() -> None:
    refused = r"broker h:92 refused a Fetch of orders-0 at offset 5 .*: FETCH_SESSION_ID_NOT_FOUND"
    with pytest.raises(TransportError, match=refused):
        read(wire.FetchResponse(error_code=FETCH_SESSION_ID_NOT_FOUND), cursor(start=5))


EMPTY = wire.PartitionData(partition_index=0, high_watermark=50, last_stable_offset=20)
FULL = wire.PartitionData(partition_index=1, high_watermark=50, records=batch(0, 1))
COMMITTED = replace(FETCH, isolation=Isolation.READ_COMMITTED)


@pytest.mark.parametrize(
    ("response", "fetch", "readable"),
    [
        (answer(EMPTY), FETCH, 50),
        (answer(EMPTY), COMMITTED, 20),
        (answer(EMPTY, throttle_time_ms=1), FETCH, -1),
        (answer(EMPTY, FULL), FETCH, -1),
    ],
    ids=["uncommitted", "committed", "throttled", "another partition has records"],
)
def test_only_an_answer_that_had_room_and_time_proves_that_the_leader_has_no_records(
    response: wire.FetchResponse, fetch: FetchOptions, readable: int
) -> None:
    assert read(response, cursor(0), cursor(1), fetch=fetch)[0].readable == readable


def test_a_follower_proves_nothing_and_names_no_other_follower() -> None:
    row = wire.PartitionData(partition_index=0, high_watermark=50, preferred_read_replica=2)
    (of_leader,) = read(answer(row), cursor())
    assert (of_leader.readable, of_leader.read_replica) == (50, 2)
    at_follower = cursor()
    at_follower.read_from(FOLLOWER, 60.0)
    (of_follower,) = read(answer(row), at_follower)
    assert (of_follower.readable, of_follower.read_replica) == (-1, None)


# -- an answer without a whole message ---------------------------------------------------------------------------------


def test_empty_answers_are_counted_as_long_as_the_leaders_log_goes_on_behind() -> None:
    protocol, at = KafkaFetchProtocol(Peer(), [cursor()], FETCH), cursor(start=10)
    for readable, empty in ((50, 1), (50, 2), (-1, 2), (10, 2)):
        protocol.note_no_progress(Fetched(at, readable=readable), 5.0)
        assert (at.empty_answers, at.readable, at.waiting_since) == (empty, 50, 5.0)


def test_a_batch_that_a_broker_since_0_10_1_cuts_is_an_error_with_the_option_to_raise() -> None:
    (cut,) = read(answer(wire.PartitionData(partition_index=0, high_watermark=50, records=batch(0, 10)[:70])), cursor())
    protocol = KafkaFetchProtocol(Peer(), [cut.cursor], FETCH)
    with pytest.raises(TooLarge, match=r"orders-0: .* at offset 0 .*70 bytes.*kafka\.max\.partition\.fetch\.bytes"):
        protocol.note_no_progress(cut, 5.0)
    behind = cut._replace(comes_first=False)
    protocol.note_no_progress(behind, 5.0)
    assert behind.cursor.waiting_since == 5.0, "the answer had no room for a second partition"


# -- where a log is now ------------------------------------------------------------------------------------------------


@pytest.fixture
def look(options: Options) -> Iterator[Callable[[Leader], KafkaLookup]]:
    made: list[KafkaLookup] = []

    def make(leader: Leader) -> KafkaLookup:
        made.append(KafkaLookup(leader.client(), FETCH, time.monotonic))
        return made[-1]

    yield make
    for each in made:
        each.close()


Look = Callable[[Leader], KafkaLookup]


TEN = [batch(n, 10) for n in range(0, 100, 10)]


def test_a_failure_that_no_retry_mends_names_the_partition_the_offset_and_the_missing_right(options: Options) -> None:
    lookup = KafkaLookup(options(), FETCH, time.monotonic)
    with pytest.raises(BrokerError, match=r"fetching orders-0 at offset 5: UNSUPPORTED_VERSION"):
        lookup.require_mendable(failed(ErrorCode.UNSUPPORTED_VERSION, start=5))
    with pytest.raises(AuthorizationError, match=r"orders-0 at offset 5: .* Read on topic 'orders'.*kafka-acls\.sh"):
        lookup.require_mendable(failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED, start=5))


def test_a_cursor_follows_its_leader_and_its_failure_stays_for_recovery(lead: Lead, look: Look) -> None:
    leader, at = lead(Log(TEN)), failed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    leader.epoch = 9
    assert list(look(leader).look_up([at], soon())) == []
    assert (at.source, at.leader_epoch) == (Broker(1, "127.0.0.1", leader.broker.port), 9)
    assert at.failure == error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_a_recreated_topic_has_lost_the_rest_of_the_range(lead: Lead, look: Look) -> None:
    leader, at = lead(Log(TEN)), failed(ErrorCode.UNKNOWN_TOPIC_ID)
    leader.topic_id = OTHER_ID
    assert list(look(leader).look_up([at], soon())) == [
        Loss(at, 100, f"the topic was deleted and created again (id {OTHER_ID})")
    ]


@pytest.mark.parametrize(("log_start", "lost_until"), [(30, 30), (10, None), (0, None)])
def test_an_offset_below_the_log_is_lost_up_to_the_logs_start(
    log_start: int, lost_until: int | None, lead: Lead, look: Look
) -> None:
    at = failed(ErrorCode.OFFSET_OUT_OF_RANGE, start=10)
    losses = list(look(lead(Log(TEN[log_start // 10 :], start=log_start))).look_up([at], soon()))
    assert [loss.until for loss in losses] == ([] if lost_until is None else [lost_until])
    for loss in losses:
        assert loss.why == "the log now begins at offset 30 (retention or DeleteRecords)"
        assert "raise the topic's retention" in loss.way_out


def test_an_offset_above_the_log_is_not_lost_before_the_last_look(lead: Lead, look: Look) -> None:
    leader, at = lead(Log(TEN[:3])), failed(ErrorCode.OFFSET_OUT_OF_RANGE, start=50)
    lookup = look(leader)
    assert list(lookup.look_up([at], soon())) == []
    assert at.high_watermark == 30
    assert lookup.last_look(at, 7.0) == Loss(
        at, 100, "for 7 s the log has ended at offset 30, as after an unclean leader election or a power loss"
    )


@pytest.mark.parametrize("log", [Log(TEN), Log(TEN[:6]), Log(TEN[:3], log_end=60)], ids=["whole", "shorter", "behind"])
def test_a_log_that_reaches_beyond_the_position_has_lost_nothing(log: Log, lead: Lead, look: Look) -> None:
    """A new leader may have records above its high watermark until its followers have caught up."""
    assert look(lead(log)).last_look(failed(ErrorCode.OFFSET_NOT_AVAILABLE, start=50), 7.0) == ""


@pytest.mark.parametrize(
    ("code", "is_lost"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.UNKNOWN_TOPIC_ID, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
    ],
)
def test_a_partition_that_no_broker_knows_is_lost_if_its_leader_did_not_know_it_either(
    code: ErrorCode, is_lost: bool, lead: Lead, look: Look
) -> None:
    leader, at = lead(Log(TEN)), failed(code)
    leader.known = False
    expected = Loss(at, 100, "no broker has had the partition for 7 s") if is_lost else ""
    assert look(leader).last_look(at, 7.0) == expected


@pytest.mark.parametrize(("local", "list_offsets", "position"), [(None, 8, 60), (40, 8, 60), (41, 8, 40), (41, 7, 60)])
def test_a_gap_is_skipped_unless_the_records_may_be_in_tiered_storage(
    local: int | None, list_offsets: int, position: int, lead: Lead, look: Look
) -> None:
    """KIP-405: a log may be silent because its remote part is slow. ListOffsets tells the local part from version 8."""
    at = cursor(start=40)
    at.readable = 60
    lookup = look(lead(Log(TEN, local=local)))
    assert list(lookup.pass_gaps([at], Peer(list_offsets=list_offsets), soon())) == []
    assert at.position == position


def test_a_named_follower_is_found_among_the_replicas_of_the_partition(lead: Lead, look: Look) -> None:
    leader = lead(Log(TEN))
    leader.peers = {1: leader.broker.port, 2: 9_092}
    lookup = look(leader)
    assert lookup.replica(cursor(), 2, soon()) == Broker(2, "127.0.0.1", 9_092)
    assert lookup.replica(cursor(), 3, soon()) is None


COUNT = MOST_PARTITIONS + 30


@pytest.mark.parametrize("release", ["", "0.9", "0.8.0"])
def test_more_ranges_than_a_request_is_for_are_asked_for_in_several(release: str, lead: Lead) -> None:
    leader = lead(*(Log([batch(0, 2)]) for _ in range(COUNT)), release=release)
    known = {"topic_id": NO_TOPIC_ID, "leader_epoch": UNKNOWN_EPOCH} if release else {}
    # Before 0.10.1 what is asked for of all of them has to fit into an answer.
    reading = Reading(leader, FetchOptions(max_partition_bytes=32 << 20))
    found = reading.batches(*(planned(leader, 0, 2, partition, **known) for partition in range(COUNT)))
    assert [(each["partition"][0].as_py(), each["offset"].to_pylist()) for each in found] == [
        (partition, [0, 1]) for partition in range(COUNT)
    ]
    assert leader.fetches() == [
        [(partition, 0) for partition in range(MOST_PARTITIONS)],
        [(partition, 0) for partition in range(MOST_PARTITIONS, COUNT)],
    ]


def test_those_that_were_left_out_of_a_request_come_first_in_the_next(lead: Lead) -> None:
    leader = lead(*(Log([batch(0, 1), batch(1, 1)]) for _ in range(COUNT)))
    one_batch = FetchOptions(max_partition_bytes=1, prefetch=0)
    offsets = Reading(leader, one_batch).offsets(*(planned(leader, 0, 2, p) for p in range(COUNT)))
    assert sorted(offsets) == [0] * COUNT + [1] * COUNT
    rest = range(MOST_PARTITIONS, COUNT)
    room = MOST_PARTITIONS - len(rest)
    assert leader.fetches() == [
        [(partition, 0) for partition in range(MOST_PARTITIONS)],
        [*((partition, 0) for partition in rest), *((partition, 1) for partition in range(room))],
        [(partition, 1) for partition in range(room, COUNT)],
    ]


def test_a_multifetch_of_0_7_is_for_no_more_either(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    send = Connection.send

    def counted(self: Connection, request: object, *others: object) -> object:
        if isinstance(request, MultiFetchRequest07):
            asked.append(len(request.fetches))
        return send(self, request, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(Connection, "send", counted)
    leader = OldBroker(tmp_path, partitions=COUNT)
    try:
        places = [leader.produce(partition, *values(1, first=partition)) for partition in range(COUNT)]
        ranges = tuple(FetchRange(OffsetRange(each, 0, leader.end(each)), leader.broker) for each in places)
        found = [
            value
            for each in fetcher.read(FetchTask(ranges, Dialect.KAFKA07), options(), PATIENT)
            for value in each["value"].to_pylist()
        ]
    finally:
        leader.stop()
    assert found == values(COUNT)
    assert asked == [MOST_PARTITIONS, COUNT - MOST_PARTITIONS]


class Throttled:
    """A connection whose broker throttles the client; it answers at once."""

    throttled_s = 7.0

    def __init__(self) -> None:
        self.deadlines: list[float] = []

    def send(self, *_: object) -> None:
        """Take the request."""

    def receive(self, deadline: float) -> CorrelatedResponse:
        self.deadlines.append(deadline)
        return CorrelatedResponse(0, None, 12, 2.5)

    def arrived(self) -> bool:
        return True


class NothingCame(FetchProtocol):
    timeout_s = 3.0

    def ask(self, wanted: Sequence[Cursor]) -> PreparedFetch:
        return PreparedFetch(list(wanted), MetadataRequest(topics=None))

    def read(self, response: object, asked: Sequence[Cursor]) -> list[Fetched]:
        return []

    def note_no_progress(self, fetched: Fetched, now: float) -> None:
        raise AssertionError


def test_a_request_that_waits_for_its_throttle_time_may_take_that_much_longer() -> None:
    connection = Throttled()
    pipeline = Pipeline(cast("Connection", connection), NothingCame(), [pipeline_cursor(0)], 1, Clock(100.0))
    assert pipeline.next() == []
    assert connection.deadlines == [110.0]
    assert (pipeline.take_throttled_s(), pipeline.take_throttled_s()) == (2.5, 0.0)


RELEASES = pytest.mark.parametrize("release", ["0.8.0", "0.8.2", "0.9"])


def large(offset: int, size: int) -> bytes:
    return encode_batch([Record(offset, 1000, b"k", b"x" * size)])


@RELEASES
def test_a_range_is_delivered_whole_and_nothing_else(release: str, lead: Lead) -> None:
    leader = lead(Log([batch(i, 10) for i in range(0, 50, 10)]), release=release)
    assert Reading(leader).offsets(of_old(leader, 5, 45)) == list(range(5, 45))
    (versions,) = {version for name, version, _ in leader.broker.requests if name == "Fetch"}
    assert versions == (1 if release == "0.9" else 0)


def test_a_task_does_not_ask_for_what_the_driver_has_reported(lead: Lead) -> None:
    leader = lead(Log([batch(0, 10)]), release="0.9")
    task = FetchTask((of_old(leader, 0, 10),), releases=((f"127.0.0.1:{leader.broker.port}", "0.9"),))
    rows = [each["offset"].to_pylist() for each in fetcher.read(task, leader.client(), PATIENT)]
    assert rows == [list(range(10))]
    assert leader.broker.connections == 1
    assert {name for name, _, _ in leader.broker.requests} == {"Fetch"}


def test_a_kept_connection_that_the_broker_has_ended_has_it_asked_anew(lead: Lead) -> None:
    """A broker that was upgraded: spoken with as before it would hide headers and timestamps."""
    leader = lead(Log([batch(0, 20)]), release="0.9")
    reading = Reading(leader)
    assert reading.offsets(of_old(leader, 0, 10)) == list(range(10))
    leader.broker.hang_up()
    leader.broker._by_key |= {ApiVersionsRequest.API_KEY: ApiVersionsRequest}
    leader.broker.handlers[ApiVersionsRequest] = lambda *_: api_versions(fetch=(0, 1))
    assert reading.offsets(of_old(leader, 10, 20)) == list(range(10, 20))
    assert len(leader.broker.asked("ApiVersions")) == 1


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_read_committed_has_no_effect_where_there_are_no_transactions(version: int, lead: Lead) -> None:
    """The answer tells no last stable offset; a range that is compacted away to its end is done all the same."""
    leader = lead(Log([batch(0, 10)], high_watermark=30))
    spoken = api_versions(fetch=(0, version), metadata=(0, 0), listoffsets=(0, 0))
    leader.broker.handlers[next(c for c in leader.broker.handlers if c.NAME == "ApiVersions")] = lambda *_: spoken
    fetch = replace(PATIENT, isolation=Isolation.READ_COMMITTED)
    assert Reading(leader, fetch).offsets(of_old(leader, 0, 30)) == list(range(10))
    assert {v for name, v, _ in leader.broker.requests if name == "Fetch"} == {version}


@pytest.mark.slow
@RELEASES
def test_the_rest_of_a_log_cut_inside_the_range_is_left_out_where_that_is_allowed(release: str, lead: Lead) -> None:
    leader = lead(Log([batch(0, 5)]), release=release)
    assert Reading(leader, QUICK).offsets(of_old(leader, 0, 10), fail_on_data_loss=False) == list(range(5))


def test_a_message_larger_than_what_was_asked_for_is_asked_for_whole(lead: Lead) -> None:
    leader = lead(Log([batch(0, 10), large(10, 300_000), batch(11, 10)]), release="0.8.2")
    fetch = replace(PATIENT, max_partition_bytes=64 * 1024)
    assert Reading(leader, fetch).offsets(of_old(leader, 0, 21)) == list(range(21))
    sizes = [p.partition_max_bytes for r in leader.broker.asked("Fetch") for t in r.topics for p in t.partitions]
    assert sizes[:2] == [64 * 1024] * 2
    assert 300_000 < sizes[2] < 301_000
    assert all(size <= 64 * 1024 for size in sizes[3:])


def test_where_not_even_the_size_of_a_message_came_more_is_asked_for(lead: Lead) -> None:
    log = Log([large(0, 1000)])
    leader = lead(log, release="0.9")
    whole, asked = log.read, []

    def stingy(offset: int, most: int) -> bytes:
        asked.append(most)
        return whole(offset, most)[: 3 if len(asked) < 3 else most]

    log.read = stingy  # type: ignore[method-assign]
    assert Reading(leader).offsets(of_old(leader, 0, 1)) == [0]
    assert asked[1] >= 2 * asked[0]
    assert asked[2] >= 2 * asked[1]


def test_a_message_larger_than_any_answer_is_named_with_its_offset_and_size(lead: Lead) -> None:
    leader = lead(Log([batch(0, 10), large(10, 300_000)]), release="0.8.2")
    fetch = replace(PATIENT, max_partition_bytes=64 * 1024, max_bytes=128 * 1024)
    too_large = (
        r"orders-0: the message at offset 10 is larger than the \d+ bytes of a fetch \(its size: 300\d\d\d\)"
        r".*fetch\.max\.bytes"
    )
    with pytest.raises(TooLarge, match=too_large):
        Reading(leader, fetch).offsets(of_old(leader, 0, 11))


@pytest.mark.parametrize("code", [3, 5, 6, 9, -1])
def test_what_may_pass_is_tried_again(code: int, lead: Lead) -> None:
    leader = lead(Log([batch(0, 10)], errors=[code]), release="0.8.2")
    assert Reading(leader).offsets(of_old(leader, 0, 10)) == list(range(10))


@pytest.mark.slow
def test_a_lasting_server_error_is_reported_after_the_poll_timeout(lead: Lead) -> None:
    leader = lead(Log([batch(0, 10)], errors=[-1] * 1000), release="0.8.2")
    with pytest.raises(TransportError, match=r"no records for .* last: UNKNOWN_SERVER_ERROR"):
        Reading(leader, QUICK).offsets(of_old(leader, 0, 10))


def test_records_that_retention_took_are_data_loss(lead: Lead) -> None:
    leader = lead(Log([batch(10, 10)], start=10), release="0.8.2")
    with pytest.raises(DataLossError, match=r"orders-0: the offsets \[0, 10\) .* begins at offset 10"):
        Reading(leader).offsets(of_old(leader, 0, 20))


def test_a_leader_that_moved_is_followed(lead: Lead) -> None:
    log = Log([batch(0, 10)])
    old = lead(Log([batch(0, 10)], errors=[6] * 10), release="0.8.2")
    new = lead(log, node=2, release="0.8.2")
    old.lead_by = [2]
    old.peers[2] = new.broker.port
    fetch = FetchOptions(max_wait_ms=10, poll_timeout_ms=5_000)
    assert Reading(old, fetch).offsets(of_old(old, 0, 10)) == list(range(10))
    assert new.fetches()[0] == [(0, 0)]

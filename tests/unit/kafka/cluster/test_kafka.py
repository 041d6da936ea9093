import itertools
import re
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streamgroup.errors import BrokerError, ConfigError, NoBrokersYetError, TransportError, error_of
from streamgroup.kafka.cluster.kafka import ANY, KafkaCluster
from streamgroup.kafka.cluster.requests import NO_OFFSET, EpochCheck, EpochEnd, ListedOffset
from streamgroup.kafka.net.handshake import RELEASES
from streamgroup.kafka.wire.messages import log
from streamgroup.kafka.wire.messages.cluster import (
    ApiVersionsRequest,
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from streamgroup.kafka.wire.messages.group import FindCoordinatorRequest, FindCoordinatorResponse, FoundCoordinator
from streamgroup.model import EARLIEST, LATEST, NO_LEADER, Broker, TopicPartition
from streamgroup.options.types import ClientOptions, Isolation
from tests.clock import Clock
from tests.fakes.answers import API_VERSIONS, api_versions, metadata, topic
from tests.fakes.broker import CLOSE, SILENCE, FakeBroker
from tests.fakes.old_broker import old_broker
from tests.unit.kafka.net.conftest import Names, Options, Start, script
from tests.waiting import soon

ORDERS = (TopicPartition("orders", 0), TopicPartition("orders", 1))
Handlers = dict[Any, Any]
NONE: Handlers = {}


def asked_for(everything: MetadataResponse) -> Callable[[Any], MetadataResponse]:
    """Answer with the topics asked for; those that are not there do not exist."""

    def answer(request: MetadataRequest) -> MetadataResponse:
        if request.topics is None:
            return everything
        found = {t.name: t for t in everything.topics}
        return replace(
            everything, topics=tuple(found.get(t.name, topic(t.name or "", error=3)) for t in request.topics)
        )

    return answer


def offsets(request: log.ListOffsetsRequest, *rows: tuple[int, int], epoch: int = 7) -> log.ListOffsetsResponse:
    """For the partitions asked for, in their order: (error code, offset)."""
    left = iter(rows)
    topics = []
    for each in request.topics:
        partitions = [
            log.ListOffsetsPartitionResponse(
                partition_index=p.partition_index, error_code=code, offset=offset, leader_epoch=epoch
            )
            for p, (code, offset) in zip(each.partitions, left, strict=False)
        ]
        topics.append(log.ListOffsetsTopicResponse(name=each.name, partitions=tuple(partitions)))
    return log.ListOffsetsResponse(topics=tuple(topics))


def refused_v0(request: log.ListOffsetsRequest, code: int) -> log.ListOffsetsResponse:
    """The answer of a broker before 0.10.1 for one partition."""
    return offsets(request, (code, -1), epoch=-1)


def cluster_of(options: ClientOptions, clock: Clock | None) -> KafkaCluster:
    """Open a cluster. Its waits take no time if it has a clock."""
    return KafkaCluster(options) if clock is None else KafkaCluster(options, clock=clock, sleep=clock.sleep)


class Two:
    """Two brokers, ids 1 and 2, that lead one partition each of `orders`, and their cluster."""

    def __init__(
        self,
        broker: Start,
        options: Options,
        first: Handlers = NONE,
        second: Handlers = NONE,
        clock: Clock | None = None,
    ) -> None:
        self.lead = (1, 2)
        self.ports: dict[int, int] = {}
        shared = {ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: self._metadata}
        self.first, self.second = broker({**shared, **first}), broker({**shared, **second})
        self.ports = {1: self.first.port, 2: self.second.port}
        self.cluster = cluster_of(options(self.first.port), clock)

    def _metadata(self, request: MetadataRequest, version: int) -> Any:
        return asked_for(metadata(self.ports, topic("orders", *self.lead)))(request)


Pair = Callable[..., Two]


@pytest.fixture
def pair(broker: Start, options: Options) -> Pair:
    return lambda **others: Two(broker, options, **others)


One = Callable[..., tuple[FakeBroker, KafkaCluster]]


@pytest.fixture
def one(broker: Start, options: Options) -> One:
    """Starts a broker with these handlers beside ApiVersions, and its cluster."""

    def start(handlers: Handlers, clock: Clock | None = None, **client: Any) -> tuple[FakeBroker, KafkaCluster]:
        fake = broker({ApiVersionsRequest: script(API_VERSIONS), **handlers})
        return fake, cluster_of(options(fake.port, **client), clock)

    return start


@pytest.fixture
def old(broker: Start, options: Options) -> One:
    """Starts a broker of 0.9 with these handlers by the names of requests, and its cluster."""

    def start(clock: Clock | None = None, **handlers: Any) -> tuple[FakeBroker, KafkaCluster]:
        fake = old_broker(broker, "0.9", **handlers)
        return fake, cluster_of(options(fake.port), clock)

    return start


def test_without_bootstrap_servers_there_is_no_cluster(options: Options) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers"):
        KafkaCluster(replace(options(), bootstrap_servers=()))


def test_metadata_is_cached_for_the_topics_that_were_asked_for(pair: Pair) -> None:
    two = pair()
    snapshot = two.cluster.snapshot(["orders", "missing"], soon())
    assert snapshot.leader(ORDERS[1]) == Broker(2, "127.0.0.1", two.second.port)
    assert "missing" not in snapshot.topics
    two.cluster.snapshot(["orders"], soon())
    assert len(two.first.asked("Metadata")) == 1
    two.cluster.snapshot(["orders"], soon(), refresh=True)
    two.cluster.snapshot(None, soon())
    two.cluster.snapshot(["orders", "other"], soon())
    assert [None if r.topics is None else len(r.topics) for r in two.first.asked("Metadata")] == [2, 1, None]
    assert not any(r.allow_auto_topic_creation for r in two.first.asked("Metadata"))
    two.cluster.close()


def test_the_newest_version_of_an_api_is_one_that_all_brokers_have(pair: Pair) -> None:
    newest = MetadataRequest.VERSIONS[1]
    older = script(api_versions(metadata=(0, newest - 1), apiversions=ApiVersionsRequest.VERSIONS))
    two = pair(first={}, second={ApiVersionsRequest: older})
    assert two.cluster.newest_version(MetadataRequest, soon()) == newest - 1
    two.cluster.close()


def test_metadata_ages(broker: Start, options: Options) -> None:
    two = Two(broker, options)
    now = [time.monotonic()]
    cluster = KafkaCluster(options(two.first.port, metadata_max_age_ms=1_000), clock=lambda: now[0])
    for later in (0.0, 0.9, 0.2):
        now[0] += later
        cluster.snapshot(["orders"], now[0] + 5)
    assert len(two.first.asked("Metadata")) == 2


def test_a_topic_that_is_coming_up_is_asked_for_again_and_a_lone_partition_without_leader_is_not(one: One) -> None:
    answers = script(
        lambda _: metadata({1: 1}, topic("new", error=5)),
        lambda _: MetadataResponse(),
        lambda _: metadata({1: 1}, topic("new", 1, -1)),
    )
    fake, cluster = one({MetadataRequest: answers})
    snapshot = cluster.snapshot(["new"], soon())
    assert [p.leader for p in snapshot.topics["new"].partitions] == [1, NO_LEADER]
    assert len(fake.requests) == 4


def test_a_cluster_whose_brokers_know_none_at_the_deadline_is_an_error_that_names_the_first_topic(one: One) -> None:
    _, cluster = one(
        {MetadataRequest: script(MetadataResponse())}, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000
    )
    with pytest.raises(NoBrokersYetError, match="until the first topic exists: create a topic"):
        cluster.snapshot(None, soon())


def test_a_client_that_is_to_bootstrap_again_forgets_the_brokers_that_it_knows(broker: Start, options: Options) -> None:
    """KIP-1102: the brokers behind the addresses are another cluster's by now, the bootstrap servers are not."""
    gone = replace(metadata({}), error_code=129)
    other = broker({ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: script(gone)})
    answers = script(lambda _: metadata({2: other.port}), asked_for(metadata({1: 1}, topic("orders", 1))))
    first = broker({ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: answers})
    cluster = KafkaCluster(options(first.port))
    cluster.snapshot((), soon())
    first.hang_up()
    snapshot = cluster.snapshot(["orders"], soon())
    assert len(other.asked("Metadata")) == 1
    assert snapshot.brokers.keys() == {1}
    assert "orders" in snapshot.topics
    cluster.close()


def test_without_any_listener_the_error_names_servers_and_causes(options: Options) -> None:
    clock = Clock()
    cluster = KafkaCluster(options(1, 2), clock=clock, sleep=clock.sleep)
    with pytest.raises(
        TransportError, match=r"no Metadata .* from cluster 127.0.0.1:1,127.0.0.1:2 after \d+ attempts"
    ) as caught:
        cluster.snapshot(None, clock.now + 0.5)
    assert all(
        f"cannot connect to broker 127.0.0.1:{port}: 127.0.0.1: Connection refused" in str(caught.value)
        for port in (1, 2)
    )


def test_a_name_that_is_lost_for_a_while_is_looked_up_again(broker: Start, options: Options, names: Names) -> None:
    fake = broker({ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: script(metadata({1: 1}))})
    hiccups = 5

    def ports_of(host: str) -> list[int]:
        nonlocal hiccups
        if not hiccups:
            return [fake.port]
        hiccups -= 1
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    names(ports_of)
    servers = (("kafka.example", fake.port),)
    assert KafkaCluster(replace(options(), bootstrap_servers=servers)).snapshot((), soon()).brokers
    assert hiccups == 0


def test_a_server_that_fails_is_tried_after_the_others_from_then_on(broker: Start, options: Options) -> None:
    broken = broker({ApiVersionsRequest: script(CLOSE)})
    two = Two(broker, options)
    cluster = KafkaCluster(options(broken.port, two.first.port))
    for _ in range(5):
        cluster.close()
        cluster.snapshot((), soon(), refresh=True)
    assert broken.connections <= len(RELEASES) + 1  # one attempt at the handshake


def test_another_broker_is_asked_where_the_metadata_of_the_first_is_distrusted(pair: Pair) -> None:
    two = pair()
    two.cluster.snapshot(["orders"], soon())
    for _ in range(2):
        two.cluster.distrust_metadata()
        two.cluster.snapshot(["orders"], soon())
    assert [len(each.asked("Metadata")) for each in (two.first, two.second)] == [2, 1]
    two.cluster.close()


def test_a_connection_that_breaks_is_made_again(one: One) -> None:
    answers = script(CLOSE, CLOSE, lambda _: metadata({1: 1}))
    fake, cluster = one({MetadataRequest: answers})
    assert cluster.snapshot((), soon()).brokers
    assert fake.connections == 3


def test_a_broker_that_is_silent_is_given_up_after_the_request_timeout(one: One) -> None:
    clock = Clock()
    answers = script(clock.before(0.05, SILENCE), lambda _: metadata({1: 1}))
    fake, cluster = one({MetadataRequest: answers}, clock, request_timeout_ms=50)
    assert cluster.snapshot((), clock.now + 20).brokers
    fake.wait_for(lambda f: f.resets == 1)


def test_a_node_that_moved_to_another_port_is_found_again(pair: Pair) -> None:
    two = pair()
    assert two.cluster.call(MetadataRequest(topics=()), 2, soon()).brokers
    two.second.stop()
    two.ports[2] = two.first.port
    assert two.cluster.call(MetadataRequest(topics=()), 2, soon()).brokers


def test_a_node_that_the_cluster_does_not_know_is_an_error_at_the_deadline(pair: Pair) -> None:
    clock = Clock()
    two = pair(clock=clock)
    with pytest.raises(TransportError, match="cannot connect to broker 9: it is not in the metadata"):
        two.cluster.call(MetadataRequest(topics=()), 9, clock.now + 0.5)


def test_offsets_are_asked_of_all_leaders(pair: Pair) -> None:
    two = pair(
        first={log.ListOffsetsRequest: script(lambda r: offsets(r, (0, 10)))},
        second={log.ListOffsetsRequest: script(lambda r: offsets(r, (0, 20)))},
    )
    wanted = {ORDERS[0]: LATEST, ORDERS[1]: 1234}
    listed = two.cluster.list_offsets(wanted, Isolation.READ_COMMITTED, soon())
    assert listed == {tp: ListedOffset(at, -1, 7) for tp, at in zip(wanted, (10, 20), strict=True)}
    assert two.second.asked("ListOffsets")[0].isolation_level == 1


def test_offsets_follow_a_leader_that_moves_and_only_what_is_missing_is_asked_again(pair: Pair) -> None:
    def moves(request: log.ListOffsetsRequest) -> log.ListOffsetsResponse:
        two.lead = (1, 1)
        return offsets(request, (6, -1))

    two = pair(
        first={log.ListOffsetsRequest: script(lambda r: offsets(r, (0, 10)), lambda r: offsets(r, (0, 20)))},
        second={log.ListOffsetsRequest: script(moves)},
    )
    wanted = dict.fromkeys(ORDERS, LATEST)
    listed = two.cluster.list_offsets(wanted, Isolation.READ_UNCOMMITTED, soon())
    assert [listed[tp].offset for tp in wanted] == [10, 20]
    assert [[p.partition_index for p in r.topics[0].partitions] for r in two.first.asked("ListOffsets")] == [[0], [1]]


def test_offsets_of_a_leader_that_dies_are_asked_of_the_next_one(pair: Pair) -> None:
    def dies(_: log.ListOffsetsRequest) -> Any:
        two.lead = (1, 1)
        return CLOSE

    two = pair(
        first={log.ListOffsetsRequest: script(lambda r: offsets(r, (0, 5)))},
        second={log.ListOffsetsRequest: script(dies)},
    )
    listed = two.cluster.list_offsets({ORDERS[1]: LATEST}, Isolation.READ_UNCOMMITTED, soon())
    assert listed[ORDERS[1]].offset == 5


@pytest.mark.parametrize(
    ("lead", "tp", "cause"),
    [
        ((1, -1), ORDERS[1], "orders-1 has no leader"),
        ((1, 2), TopicPartition("orders", 2), "orders-2 does not exist"),
        ((1, 2), ORDERS[0], "orders-0: NOT_LEADER_OR_FOLLOWER"),
    ],
)
def test_offsets_without_a_response_are_an_error_at_the_deadline_with_the_cause(
    lead: tuple[int, int], tp: TopicPartition, cause: str, pair: Pair
) -> None:
    clock = Clock()
    two = pair(first={log.ListOffsetsRequest: script(lambda r: offsets(r, (6, -1)))}, clock=clock)
    two.lead = lead
    with pytest.raises(TransportError, match=cause):
        two.cluster.list_offsets({tp: LATEST}, Isolation.READ_UNCOMMITTED, clock.now + 0.5)


def test_records_without_timestamps_have_no_offset_at_a_timestamp(pair: Pair) -> None:
    two = pair(first={log.ListOffsetsRequest: script(lambda r: offsets(r, (43, -1)))})
    found = two.cluster.list_offsets({ORDERS[0]: 1_000}, Isolation.READ_UNCOMMITTED, soon())
    assert found == {ORDERS[0]: ListedOffset(NO_OFFSET)}


# -- leader epochs ----------------------------------------------------------------------------------------------------


def epoch_ends(
    request: log.OffsetForLeaderEpochRequest, code: int, epoch: int, end: int
) -> log.OffsetForLeaderEpochResponse:
    """The same for all partitions asked for."""
    row = log.EpochEndOffset(error_code=code, leader_epoch=epoch, end_offset=end)
    topics = [
        log.OffsetForLeaderTopicResult(
            topic=t.topic, partitions=tuple(replace(row, partition=p.partition) for p in t.partitions)
        )
        for t in request.topics
    ]
    return log.OffsetForLeaderEpochResponse(topics=tuple(topics))


def test_the_ends_of_epochs_are_asked_of_all_leaders(pair: Pair) -> None:
    two = pair(
        first={log.OffsetForLeaderEpochRequest: script(lambda r: epoch_ends(r, 0, 4, 100))},
        second={log.OffsetForLeaderEpochRequest: script(lambda r: epoch_ends(r, 0, -1, -1))},
    )
    wanted = {ORDERS[0]: EpochCheck(5, 7), ORDERS[1]: EpochCheck(6, 9)}
    ends = two.cluster.epoch_ends(wanted, soon())
    assert ends == {ORDERS[0]: EpochEnd(4, 100), ORDERS[1]: EpochEnd(-1, -1)}
    assert [end.known for end in ends.values()] == [True, False]


@pytest.mark.parametrize("code", [6, 74, 75])
def test_a_moved_leader_is_looked_for_and_only_what_is_missing_is_asked_again(code: int, pair: Pair) -> None:
    def moves(request: log.OffsetForLeaderEpochRequest) -> log.OffsetForLeaderEpochResponse:
        two.lead = (1, 1)
        return epoch_ends(request, code, -1, -1)

    two = pair(
        first={
            log.OffsetForLeaderEpochRequest: script(
                lambda r: epoch_ends(r, 0, 5, 10), lambda r: epoch_ends(r, 0, 5, 20)
            )
        },
        second={log.OffsetForLeaderEpochRequest: script(moves)},
    )
    ends = two.cluster.epoch_ends(dict.fromkeys(ORDERS, EpochCheck(5, 7)), soon())
    assert ends == {ORDERS[0]: EpochEnd(5, 10), ORDERS[1]: EpochEnd(5, 20)}
    asked = [[p.partition for p in r.topics[0].partitions] for r in two.first.asked("OffsetForLeaderEpoch")]
    assert asked == [[0], [1]]


def test_a_partition_without_a_leader_holds_up_no_other(pair: Pair) -> None:
    clock = Clock()
    two = pair(first={log.OffsetForLeaderEpochRequest: script(lambda r: epoch_ends(r, 0, 5, 10))}, clock=clock)
    two.lead = (1, -1)
    ends = two.cluster.epoch_ends(dict.fromkeys(ORDERS, EpochCheck(5, 7)), clock.now + 0.5)
    assert ends == {ORDERS[0]: EpochEnd(5, 10)}


def test_a_broker_that_tells_epochs_to_brokers_only_cannot_tell_and_the_log_says_so_once(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    answer = [lambda r: epoch_ends(r, 31, -1, -1)] * 2
    two = pair(first={log.OffsetForLeaderEpochRequest: script(*answer)})
    for _ in range(2):
        assert two.cluster.epoch_ends({ORDERS[0]: EpochCheck(5, 7)}, soon()) == {ORDERS[0]: EpochEnd()}
    (told,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert "cannot check by leader epochs whether the log of orders-0 was truncated" in told


# -- coordinators -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("newest", [2, 6])
def test_a_coordinator_is_waited_for_in_the_old_and_in_the_new_shape(
    newest: int, broker: Start, options: Options
) -> None:
    def answer(code: int) -> FindCoordinatorResponse:
        found = {"error_code": code, "node_id": 3, "host": "h", "port": 9}
        if newest < 4:
            return FindCoordinatorResponse(**found)  # type: ignore[arg-type]
        return FindCoordinatorResponse(coordinators=(FoundCoordinator(key="g", **found),))  # type: ignore[arg-type]

    fake = broker(
        {
            ApiVersionsRequest: script(api_versions(findcoordinator=(0, newest))),
            FindCoordinatorRequest: script(answer(15), answer(0)),
        }
    )
    assert KafkaCluster(options(fake.port)).coordinator("g", soon()) == Broker(3, "h", 9)
    assert len(fake.asked("FindCoordinator")) == 2


def test_a_group_that_may_not_be_used_is_an_error_with_its_name(one: One) -> None:
    refused = FindCoordinatorResponse(coordinators=(FoundCoordinator(key="g", error_code=30),))
    _, cluster = one({FindCoordinatorRequest: script(refused)})
    with pytest.raises(BrokerError, match="cannot find the group coordinator of group 'g': GROUP_AUTHORIZATION_FAILED"):
        cluster.coordinator("g", soon())


def test_a_group_that_gets_no_coordinator_is_an_error_with_the_usual_cause(one: One) -> None:
    clock = Clock()
    none = FindCoordinatorResponse(coordinators=(FoundCoordinator(key="g", error_code=15),))
    _, cluster = one({FindCoordinatorRequest: script(none)}, clock)
    with pytest.raises(TransportError, match=r"COORDINATOR_NOT_AVAILABLE \(usually .* offsets\.topic\.repl"):
        cluster.coordinator("g", clock.now + 0.5)


def test_any_broker_will_do(broker: Start, options: Options) -> None:
    two = Two(broker, options)
    assert KafkaCluster(options(two.second.port)).call(MetadataRequest(topics=()), ANY, soon()).brokers


def test_brokers_under_ever_new_addresses_leave_no_connection_behind(broker: Start, options: Options) -> None:
    """As where a broker is given another address with each start."""
    places: list[FakeBroker] = []

    def now_at(request: Any, version: int) -> Any:
        return asked_for(metadata({1: first.port, 2: places[-1].port}, topic("orders", 1, 2)))(request)

    shared = {ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: now_at}
    listing = {log.ListOffsetsRequest: lambda request, _: offsets(request, (0, 7))}
    first = broker({**shared, **listing})
    cluster = KafkaCluster(options(first.port))
    wanted = {TopicPartition("orders", n): LATEST for n in range(2)}
    for _ in range(5):
        places.append(broker({**shared, **listing}))
        cluster.snapshot(["orders"], soon(), refresh=True)
        cluster.call(MetadataRequest(topics=()), 2, soon())
        assert len(cluster.list_offsets(wanted, Isolation.READ_UNCOMMITTED, soon())) == 2
        cluster._failed_at["127.0.0.1", places[-1].port] = 0.0
    there = {("127.0.0.1", first.port), ("127.0.0.1", places[-1].port)}
    assert cluster._connections.keys() <= there
    assert cluster._failed_at.keys() <= there
    assert cluster._fanout is not None
    assert cluster._fanout._links.keys() <= there
    cluster.close()


YET_TO_COME = 10**15


def of_segments(*starts: int) -> Any:
    """A broker before 0.10.1: it knows where segments start, and takes the timestamps asked for as their files' times.

    The last one is the end of the log, which counts as of now.
    """

    def answer(request: log.ListOffsetsRequest, version: int) -> log.ListOffsetsResponse:
        assert version == 0
        topics = []
        for each in request.topics:
            rows = []
            for p in each.partitions:
                assert p.max_num_offsets == 1
                older = {LATEST: starts, EARLIEST: starts[:1], YET_TO_COME: starts}.get(
                    p.timestamp, tuple(s for s in starts[:-1] if s <= p.timestamp)
                )
                rows.append(
                    log.ListOffsetsPartitionResponse(partition_index=p.partition_index, old_style_offsets=older[-1:])
                )
            topics.append(log.ListOffsetsTopicResponse(name=each.name, partitions=tuple(rows)))
        return log.ListOffsetsResponse(topics=tuple(topics))

    return answer


@pytest.mark.parametrize(
    ("at", "offset"),
    [(EARLIEST, 100), (LATEST, 350), (250, 200), (200, 200), (199, 100), (99, 100), (349, 300), (YET_TO_COME, 350)],
)
@pytest.mark.parametrize("isolation", Isolation)
def test_offsets_of_a_broker_that_knows_the_times_of_segments_only(
    isolation: Isolation, at: int, offset: int, old: One
) -> None:
    """Never beyond the first record of that time: the newest segment not written to since, else the earliest."""
    fake, cluster = old(
        Metadata=lambda *_: metadata({1: fake.port}, topic("orders", 1)), ListOffsets=of_segments(100, 200, 300, 350)
    )
    listed = cluster.list_offsets({ORDERS[0]: at}, isolation, soon())
    assert listed == {ORDERS[0]: ListedOffset(offset)}


def test_a_timestamp_that_no_record_is_as_late_as_has_no_offset(pair: Pair) -> None:
    two = pair(
        first={log.ListOffsetsRequest: lambda request, _: offsets(request, (0, -1))},
        second={log.ListOffsetsRequest: lambda request, _: offsets(request, (0, 20))},
    )
    tps = [TopicPartition("orders", partition) for partition in (0, 1)]
    listed = two.cluster.list_offsets(dict.fromkeys(tps, 1_000), Isolation.READ_UNCOMMITTED, soon())
    assert [listed[tp].offset for tp in tps] == [NO_OFFSET, 20]


@pytest.mark.parametrize("newest", [0, 1, 3])
def test_asking_an_old_broker_for_a_topic_does_not_create_it(newest: int, broker: Start, options: Options) -> None:
    """It is asked for all topics; what is wanted, and what is wrong with it, is taken from those."""
    answer = metadata({1: 1}, topic("orders", 1), topic("else", 1), topic("coming", error=5))
    fake = broker(
        {ApiVersionsRequest: script(api_versions(metadata=(0, newest))), MetadataRequest: script(lambda _: answer)}
    )
    cluster = KafkaCluster(options(fake.port))
    assert set(cluster.snapshot(["orders", "missing"], soon()).topics) == {"orders"}
    assert set(cluster.snapshot((), soon(), refresh=True).topics) == set()
    named, nothing = fake.asked("Metadata")
    assert named.topics == (() if newest == 0 else None)
    assert nothing.topics == ()


def test_the_bootstrap_servers_are_tried_one_after_the_other_until_one_answers(broker: Start, options: Options) -> None:
    """Kafka 0.8: cycle through the list until one can be connected to; what it tells is asked from then on."""
    clock = Clock()
    hangs_up, mute = broker({}), broker({ApiVersionsRequest: clock.before(0.02, SILENCE)})
    answers = old_broker(broker, "0.8.2", Metadata=lambda *_: metadata({1: answers.port}, topic("orders", 1)))
    for order in itertools.permutations([hangs_up.port, mute.port, 1, answers.port]):
        before = hangs_up.connections
        cluster = KafkaCluster(options(*order, connection_setup_timeout_ms=20), clock=clock, sleep=clock.sleep)
        assert cluster.snapshot(["orders"], clock.now + 10).leader(ORDERS[0]) is not None
        assert cluster.call(MetadataRequest(topics=()), 1, clock.now + 10).topics
        cluster.close()
        assert (hangs_up.connections > before) is (order.index(hangs_up.port) < order.index(answers.port))


def test_the_bootstrap_servers_are_tried_in_the_order_of_the_list(options: Options) -> None:
    for order in itertools.permutations([1, 2, 3]):
        cluster = KafkaCluster(options(*order, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000))
        with pytest.raises(TransportError, match=" after 1 attempt ") as caught:
            cluster.snapshot(None, soon(30))
        refused = re.findall(r"cannot connect to broker 127\.0\.0\.1:(\d+)", str(caught.value))
        assert [int(port) for port in refused] == list(order)


def test_an_error_that_the_metadata_has_caused_refreshes_it(broker: Start, options: Options) -> None:
    """Kafka 0.8: the metadata is cached until an answer contradicts it; then it is asked for anew."""
    leaders = [2, 1]
    first = old_broker(
        broker,
        "0.8.2",
        Metadata=lambda *_: metadata({1: first.port, 2: second.port}, topic("orders", leaders.pop(0))),
        ListOffsets=of_segments(0, 7),
    )
    second = old_broker(broker, "0.8.2", ListOffsets=lambda request, _: refused_v0(request, 6))
    cluster = KafkaCluster(options(first.port))
    cluster.snapshot(["orders"], soon())
    assert cluster.list_offsets({ORDERS[0]: LATEST}, Isolation.READ_UNCOMMITTED, soon()) == {ORDERS[0]: ListedOffset(7)}
    asked = len(first.asked("Metadata"))
    assert cluster.list_offsets({ORDERS[0]: LATEST}, Isolation.READ_UNCOMMITTED, soon()) == {ORDERS[0]: ListedOffset(7)}
    assert len(first.asked("Metadata")) == asked


# -- error codes of the protocol guide of 0.8 and 0.9 ------------------------------------------------------------------


def test_an_unknown_topic_is_absent(old: One) -> None:
    fake, cluster = old(Metadata=lambda *_: metadata({1: fake.port}, topic("orders", error=3)))
    assert cluster.snapshot(["orders"], soon()).topics == {}


def test_a_topic_without_leaders_yet_is_asked_for_again(old: One) -> None:
    coming = script(metadata({1: 9}, topic("orders", error=5)), metadata({1: 9}, topic("orders", 1)))
    _, cluster = old(Metadata=coming)
    assert cluster.snapshot(["orders"], soon()).leader(ORDERS[0]) is not None


@pytest.mark.parametrize("code", [17, 29])
def test_a_topic_that_cannot_be_asked_for_is_an_error_with_its_name(code: int, old: One) -> None:
    _, cluster = old(Metadata=lambda *_: metadata({1: 9}, topic("orders", error=code)))
    with pytest.raises(BrokerError, match=f"topic 'orders': {error_of(code).name}"):
        cluster.snapshot(["orders"], soon())


@pytest.mark.parametrize(("code", "leader"), [(5, NO_LEADER), (9, 1)])
def test_a_partition_has_a_leader_whatever_its_replicas_are(code: int, leader: int, old: One) -> None:
    """REPLICA_NOT_AVAILABLE tells of another replica, and can be ignored; without a leader the partition waits."""
    row = MetadataResponsePartition(
        error_code=code, partition_index=0, leader_id=leader, replica_nodes=(1, 2), isr_nodes=(1,)
    )
    answer = MetadataResponseTopic(error_code=0, name="orders", partitions=(row,))
    _, cluster = old(Metadata=lambda *_: metadata({1: 9}, answer))
    info = cluster.snapshot(["orders"], soon()).topics["orders"].partitions[0]
    assert (info.leader, info.replicas, info.in_sync) == (leader, (1, 2), (1,))


def test_a_broker_is_its_id_host_and_port(old: One) -> None:
    fake, cluster = old(Metadata=lambda *_: metadata({7: fake.port}, topic("orders", 7)))
    leader = cluster.snapshot(["orders"], soon()).leader(ORDERS[0])
    assert leader == Broker(7, "127.0.0.1", fake.port)


@pytest.mark.parametrize("code", [3, 6])
def test_offsets_that_the_broker_lacks_are_requested_again_after_new_metadata(code: int, old: One) -> None:
    answer, codes = of_segments(0, 7), [code]
    fake, cluster = old(
        Metadata=lambda *_: metadata({1: fake.port}, topic("orders", 1)),
        ListOffsets=lambda request, version: refused_v0(request, codes.pop()) if codes else answer(request, version),
    )
    listed = cluster.list_offsets({ORDERS[0]: LATEST}, Isolation.READ_UNCOMMITTED, soon())
    assert listed == {ORDERS[0]: ListedOffset(7)}


def test_an_unknown_error_is_retried_and_reported_with_the_partition(old: One) -> None:
    clock = Clock()
    fake, cluster = old(
        clock,
        Metadata=lambda *_: metadata({1: fake.port}, topic("orders", 1)),
        ListOffsets=lambda request, _: refused_v0(request, -1),
    )
    with pytest.raises(TransportError, match="orders-0: UNKNOWN_SERVER_ERROR"):
        cluster.list_offsets({ORDERS[0]: LATEST}, Isolation.READ_UNCOMMITTED, clock.now + 0.3)
    assert len(fake.asked("ListOffsets")) > 1

"""Plans of a batch read and of a write: where partitions start, where logs end, and where a write finds its brokers."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from streamgroup.coordinator import batch_read
from streamgroup.coordinator.batch_read import log_ends, offsets_of, plan_batch, tasks_of
from streamgroup.coordinator.planning.starts import RangeBound
from streamgroup.coordinator.write_plan import config07, plan_write
from streamgroup.errors import BrokerError, ConfigError, DataLossError, ErrorCode, TransportError
from streamgroup.kafka.cluster.registered import ClusterFromZooKeeper
from streamgroup.kafka.cluster.requests import ListedOffset
from streamgroup.kafka.net import resolve
from streamgroup.kafka.producer.kafka07 import Kafka07Target
from streamgroup.model import (
    EARLIEST,
    LATEST,
    NO_TOPIC_ID,
    UNKNOWN_EPOCH,
    Broker,
    ClusterSnapshot,
    ConfiguredOffsets,
    Dialect,
    FetchTask,
    LogRange,
    OffsetRange,
    PartitionInfo,
    Position,
    TopicInfo,
    TopicPartition,
)
from streamgroup.options.types import (
    ClientOptions,
    Isolation,
    ProducerOptions,
    SinkOptions,
    SourceOptions,
    SplitOptions,
    Subscription,
)
from tests.fakes.cluster import NODES, FakeCluster, Logs, logs_of
from tests.fakes.registry07 import FakeNodes, client07
from tests.unit.coordinator.runs import ranges
from tests.unit.coordinator.shells import client, source

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))
COMMITTED = Isolation.READ_COMMITTED
NEVER = float("inf")


def test_a_spec_becomes_offsets_with_one_listing_for_what_only_the_log_knows() -> None:
    logs = logs_of([10, 20, 30])
    logs.starts, logs.stable = {P0: 3}, {P2: 25}
    spec = ConfiguredOffsets(LATEST, offsets={P0: EARLIEST, P1: 7, P2: LATEST})
    found = offsets_of(FakeCluster(logs), NEVER, spec, [P0, P1, P2], isolation=COMMITTED)  # type: ignore[arg-type]
    assert found == {P0: 3, P1: 7, P2: 25}
    assert logs.listings == [(EARLIEST, (P0,)), (LATEST, (P2,))]


def test_the_ends_are_those_of_all_partitions_as_far_as_they_may_be_read() -> None:
    logs = logs_of([10, 20])
    logs.stable = {P1: 15}
    ends = log_ends(FakeCluster(logs), NEVER, Subscription(topics=("t",)), COMMITTED)  # type: ignore[arg-type]
    assert ends == {P0: 10, P1: 15}


class OfSegments(FakeCluster):
    """Brokers before 0.10.1."""

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float
    ) -> dict[TopicPartition, ListedOffset]:
        return {tp: ListedOffset(3, coarse=True) for tp in wanted}


def test_where_brokers_know_the_times_of_segments_only_a_start_is_early_and_an_end_is_refused() -> None:
    cluster, tp = OfSegments(logs_of([10])), TopicPartition("t", 0)
    spec = ConfiguredOffsets(LATEST, timestamp=1_000)
    assert offsets_of(cluster, 0.0, spec, [tp], isolation=Isolation.READ_UNCOMMITTED) == {tp: 3}
    with pytest.raises(ConfigError, match=r"ending timestamp for t-0: brokers before 0\.10\.1 .*Use endingOffsets"):
        offsets_of(cluster, 0.0, spec, [tp], isolation=Isolation.READ_UNCOMMITTED, bound=RangeBound.BATCH_END)


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    made = logs_of([10, 20])
    monkeypatch.setattr(batch_read, "open_cluster", made.of)
    monkeypatch.setattr(batch_read.time, "sleep", lambda seconds: None)
    return made


def options(
    starting: ConfiguredOffsets | None = None, ending: ConfiguredOffsets | None = None, **others: Any
) -> SourceOptions:
    given = source(**others)
    return replace(
        given, starting=starting or ConfiguredOffsets(EARLIEST), ending=ending or ConfiguredOffsets(LATEST), group=None
    )


def located(tasks: list[FetchTask]) -> tuple[Broker | None, str, int]:
    (found,) = {(r.leader, r.topic_id, r.leader_epoch) for task in tasks for r in task.ranges}
    return found


# -- planning ---------------------------------------------------------------------------------------------------------


def test_all_that_the_logs_hold_with_leaders_ids_and_epochs(logs: Logs) -> None:
    logs.starts = {P0: 3}
    tasks = plan_batch(options())
    assert ranges(tasks) == [(0, 3, 10), (1, 0, 20)]
    assert {(r.leader, r.topic_id, r.leader_epoch) for task in tasks for r in task.ranges} == {
        (NODES[0], "id", 1),
        (NODES[1], "id", 1),
    }
    assert logs.closed == 1


def test_offsets_that_the_logs_do_not_hold_end_the_read_or_are_left_out(logs: Logs) -> None:
    logs.starts = {P0: 5}
    given = ConfiguredOffsets(EARLIEST, offsets={P0: 2, P1: 90})
    with pytest.raises(DataLossError, match=r"t-1 from offset 90.*t-0\[2, 10\): the log holds \[5, 10\)"):
        plan_batch(options(given, ConfiguredOffsets(LATEST, offsets={P0: LATEST, P1: 95})))
    lenient = options(given, ConfiguredOffsets(LATEST, offsets={P0: LATEST, P1: 95}), fail_on_data_loss=False)
    assert ranges(plan_batch(lenient)) == [(0, 5, 10)]


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_start_that_is_given_above_the_end_that_is_given_is_an_error_as_in_spark(
    logs: Logs, fail_on_data_loss: bool
) -> None:
    starting, ending = (
        ConfiguredOffsets(EARLIEST, offsets={P0: 9, P1: 5}),
        ConfiguredOffsets(LATEST, offsets={P0: 4, P1: 5}),
    )
    crossed = r"^startingOffsets is above endingOffsets: t-0 starts at offset 9 and ends at 4\. Give"
    with pytest.raises(ConfigError, match=crossed):
        plan_batch(options(starting, ending, fail_on_data_loss=fail_on_data_loss))


def test_silent_brokers_are_asked_again_as_often_as_said(logs: Logs, caplog: pytest.LogCaptureFixture) -> None:
    logs.failures = [TransportError("down")] * 3
    assert ranges(plan_batch(options(fetch_offset_retries=3))) == [(0, 0, 10), (1, 0, 20)]
    assert len([r for r in caplog.records if "trying again" in r.message]) == 3
    assert logs.closed == 4, "each attempt has a connection of its own"
    logs.failures = [TransportError("down")] * 2
    with pytest.raises(TransportError, match="down"):
        plan_batch(options(fetch_offset_retries=1))
    assert logs.failures == []


def test_servers_whose_names_nobody_knows_end_the_read_at_once(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(resolve, "RESOLVE_TIMEOUT_S", 0.0)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    given = options(client=client(("nowhere", 9092)), fetch_offset_retries=3)
    with pytest.raises(ConfigError, match=r"cannot resolve any name .*: nowhere:9092: .*not known"):
        plan_batch(given)
    assert logs.snapshots == 0


def test_a_refusal_is_not_asked_again(logs: Logs) -> None:
    logs.failures = [BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t")]
    with pytest.raises(BrokerError):
        plan_batch(options())
    assert logs.snapshots == 1


def test_the_notes_of_the_options_are_said_once(logs: Logs, caplog: pytest.LogCaptureFixture) -> None:
    logs.failures = [TransportError("down")]
    with caplog.at_level("INFO"):
        plan_batch(options(notes=("fetch.max.bytes is without effect",)))
    assert [r.message for r in caplog.records].count("fetch.max.bytes is without effect") == 1


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
@pytest.mark.parametrize("by_time", [False, True])
def test_partitions_that_are_named_must_be_there_as_in_spark(logs: Logs, option: str, by_time: bool) -> None:
    named = {P0: 0, P1: 0, TopicPartition("t", 10_002): 0}
    spec = ConfiguredOffsets(EARLIEST, timestamps=named) if by_time else ConfiguredOffsets(EARLIEST, offsets=named)
    given = options(spec) if option == "startingOffsets" else options(ending=spec)
    option += "ByTimestamp" if by_time else ""
    with pytest.raises(ConfigError, match=rf"^option '{option}' lists partitions that do not exist or .*: t-10002\."):
        plan_batch(given)
    logs.dialect = Dialect.KAFKA07
    broker_away = rf"^option '{option}' lists .*: t 1-2\. .* broker is not registered.*Start that broker"
    with pytest.raises(ConfigError, match=broker_away):
        plan_batch(given)


def test_a_topic_without_any_broker_is_no_empty_topic(
    logs: Logs, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_read, "require_boundaries", lambda *_: None)
    logs.ends, logs.empty = {}, ("t", "u")
    assert plan_batch(options(topics=("t", "u"))) == [], "later brokers tell of partitions whoever is there"
    logs.dialect = Dialect.KAFKA07
    with pytest.raises(DataLossError, match=r"topic 't', 'u': no broker .*Start the broker.*failOnDataLoss=false"):
        plan_batch(options(topics=("t", "u")))
    assert plan_batch(options(topics=("t", "u"), fail_on_data_loss=False)) == []
    assert [r.levelname for r in caplog.records if "topic 't', 'u': no broker" in r.message] == ["WARNING"]


# -- what is subscribed -----------------------------------------------------------------------------------------------


def topic(name: str, partitions: int, *, internal: bool = False) -> TopicInfo:
    return TopicInfo(name, tuple(PartitionInfo(n, 0, 1) for n in range(partitions)), f"id of {name}", internal)


CLUSTER = ClusterSnapshot(
    NODES, {t.name: t for t in (topic("a", 2), topic("ab", 1), topic("__a", 1, internal=True), topic("b", 1))}
)


def test_a_topic_that_a_lagging_broker_leaves_out_at_first_is_read(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    known, looks = logs.topics, iter([{}, {}])
    monkeypatch.setattr(logs, "topics", lambda names: next(looks, None) or known(names))
    assert ranges(plan_batch(options())) == [(0, 0, 10), (1, 0, 20)]


def test_an_assigned_partition_that_does_not_exist_is_left_out_with_a_warning(
    logs: Logs, caplog: pytest.LogCaptureFixture
) -> None:
    given = Subscription(assign=(TopicPartition("t", 1), TopicPartition("t", 8), TopicPartition("t", 9)))
    assert ranges(plan_batch(replace(options(), subscription=given))) == [(1, 0, 20)]
    warning = "option 'assign' lists partitions that do not exist: t-8, t-9. The batch read skips them"
    assert [r.message for r in caplog.records if r.levelname == "WARNING"] == [warning]


def test_offsets_of_an_assigned_partition_that_does_not_exist_are_an_error_as_in_spark(logs: Logs) -> None:
    late = TopicPartition("t", 8)
    given = options(ConfiguredOffsets(EARLIEST, offsets={P0: 0, late: 0}))
    with pytest.raises(ConfigError, match=r"option 'startingOffsets' lists partitions that do not exist .*: t-8"):
        plan_batch(replace(given, subscription=Subscription(assign=(P0, late))))


def test_a_named_topic_that_stays_away_is_an_error(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "topics", lambda names: {})
    with pytest.raises(ConfigError, match="cannot read topic 't': the cluster has no such topic"):
        plan_batch(options())
    assert logs.snapshots == 1 + 6  # every half second for three seconds


# -- tasks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("planned", "topic_id"),
    [
        (None, "recreated"),
        ({P0: Position(5, "as planned")}, "as planned"),
        ({P0: Position(5)}, "recreated"),
        ({P1: Position(5, "of another partition")}, "recreated"),
    ],
    ids=["a new plan", "a replay", "a plan without ids", "a plan of others"],
)
def test_tasks_have_the_topic_id_of_the_plan(planned: Mapping[TopicPartition, Position] | None, topic_id: str) -> None:
    snapshot = ClusterSnapshot(NODES, {"t": TopicInfo("t", (PartitionInfo(0, 1, 4),), "recreated")})
    assert located(tasks_of([OffsetRange(P0, 0, 5)], snapshot, source(), planned)) == (NODES[1], topic_id, 4)


def test_a_partition_that_is_gone_is_planned_for_the_executor_to_find_out() -> None:
    nowhere = ClusterSnapshot({}, {})
    wanted = [OffsetRange(P0, 0, 5)]
    assert located(tasks_of(wanted, nowhere, source())) == (None, NO_TOPIC_ID, UNKNOWN_EPOCH)
    planned = {P0: Position(5, "as planned")}
    assert located(tasks_of(wanted, nowhere, source(), planned)) == (None, "as planned", UNKNOWN_EPOCH)


def test_limits_split_and_empty_ranges_are_no_tasks() -> None:
    wanted = [OffsetRange(P0, 0, 10), OffsetRange(P1, 3, 3)]
    tasks = tasks_of(wanted, CLUSTER, source(split=SplitOptions(max_records_per_partition=4)))
    assert all(len(task) <= 4 for task in tasks)
    assert sum(map(len, tasks)) == 10


# -- Kafka 0.7, and brokers that only ZooKeeper names ------------------------------------------------------------------

BROKERS = (("b0", 9092), ("b1", 9092))


def test_tasks_of_bytes_are_divided_at_segments_and_know_their_dialect() -> None:
    old = replace(CLUSTER, dialect=Dialect.KAFKA07)
    given = source(client=client07(), split=SplitOptions(min_partitions=3))
    logs = {P0: LogRange(0, 3_000_000, (0, 1_300_000, 2_900_000))}
    tasks = tasks_of([OffsetRange(P0, 0, 3_000_000)], old, given, logs=logs)
    assert {task.dialect for task in tasks} == {Dialect.KAFKA07}
    assert {task.brokers for task in tasks} == {BROKERS}
    starts = sorted(r.range.start for task in tasks for r in task.ranges)
    assert starts == [0, 1_300_000, 2_900_000]
    whole = tasks_of([OffsetRange(P0, 0, 3_000_000)], old, given)
    assert len(whole) == 1, "without the segments nobody knows where to divide"


def test_small_ranges_share_a_task_where_the_run_packs_them() -> None:
    old = replace(CLUSTER, dialect=Dialect.KAFKA07)
    wanted = [OffsetRange(P0, 0, 900_000), OffsetRange(P1, 0, 900_000)]
    assert len(tasks_of(wanted, old, source(client=client07()))) == 2
    assert len(tasks_of(wanted, old, source(client=client07()), packed_offsets=2_000_000)) == 1
    assert len(tasks_of(wanted, CLUSTER, source(), packed_offsets=2_000_000)) == 2, "so many records are not small"


def test_tasks_name_brokers_where_the_options_do_not() -> None:
    wanted = [OffsetRange(P0, 0, 5)]
    (found,) = tasks_of(wanted, CLUSTER, source(client=client07()))
    assert (found.brokers, found.dialect) == (BROKERS, Dialect.KAFKA)
    (told,) = tasks_of(wanted, CLUSTER, source())
    assert told.brokers == ()
    assert pickle.loads(pickle.dumps(found)) == found


# -- a write: scripted registries, and brokers that are never asked ---------------------------------------------------

OLD = {
    "/brokers/ids/0": b"h-1:127.0.0.1:9092",
    "/brokers/ids/2": b"h-2:127.0.0.1:9093",
    "/brokers/topics/t/0": b"1",
    "/brokers/topics/t/2": b"2",
    "/brokers/topics/other/0": b"1",
}
NEW = {f"/brokers/ids/{n}": b'{"host":"127.0.0.1","port":909%d,"version":1}' % n for n in (2, 1)}


def writing(topic: str | None = "t", verify: bool = False, **producer: object) -> SinkOptions:
    chosen = ProducerOptions(**{"max_block_ms": 300, **producer})  # type: ignore[arg-type]
    return SinkOptions(client07(), chosen, topic, verify=verify)


def planned(nodes: dict[str, bytes], given: SinkOptions) -> tuple[SinkOptions, Kafka07Target | None]:
    return plan_write(given, lambda client: ClusterFromZooKeeper(client, FakeNodes(nodes)))


def test_bootstrap_servers_are_taken_at_their_word() -> None:
    given = SinkOptions(ClientOptions((("127.0.0.1", 9092),)), ProducerOptions(), "t")
    assert plan_write(given) == (given, None)


def test_a_cluster_of_07_is_planned_with_its_brokers_and_the_topic() -> None:
    for_tasks, target = planned(OLD, writing(verify=True, compression="gzip"))
    assert sorted(target.snapshot.brokers) == [0, 2]
    assert {t: [p.partition for p in i.partitions] for t, i in target.snapshot.topics.items()} == {
        "t": [0, 20000, 20001]
    }
    assert (target.config.codec, target.config.verify, target.config.max_message_size) == ("gzip", True, 1_000_000)
    assert for_tasks.client.zookeeper is None, "tasks do not read ZooKeeper"


def test_without_the_option_topic_all_topics_are_planned() -> None:
    _, target = planned(OLD, writing(topic=None))
    assert sorted(target.snapshot.topics) == ["other", "t"]


def test_a_topic_that_does_not_exist_is_planned_as_a_new_one() -> None:
    _, target = planned(OLD, writing(topic="new"))
    assert not target.snapshot.topics.get("new")


def test_a_message_set_of_kafka_07_fits_into_a_fetch_of_its_consumers() -> None:
    """Compressed, it is one message. The consumers of 0.7 fetch 300 KiB by default, and stop at a larger message."""
    assert config07(writing()).batch_size == 256 * 1024
    assert config07(writing(batch_size=1000)).batch_size == 1000


def test_later_brokers_in_zookeeper_become_the_bootstrap_servers() -> None:
    for_tasks, target = planned(NEW, writing())
    assert target is None
    assert for_tasks.client.bootstrap_servers == (("127.0.0.1", 9091), ("127.0.0.1", 9092))
    assert for_tasks.client.zookeeper is None


@pytest.mark.parametrize(
    ("nodes", "given", "said"),
    [
        (NEW, writing(verify=True), "cannot write with verify=true: it is for Kafka 0.7"),
        (OLD, writing(compression="lz4"), "'lz4': Kafka 0.7 has none, gzip, snappy"),
        ({"/other": b""}, writing(), "no brokers in .*zookeeper.connect"),
        (OLD, writing(verify=True, delivery_timeout_ms=100), "delivery.timeout.ms=100 is below"),
    ],
)
def test_a_write_that_the_cluster_rules_out_is_refused_before_a_task_runs(
    nodes: dict[str, bytes], given: SinkOptions, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        planned(nodes, given)


def test_verify_is_refused_for_bootstrap_servers() -> None:
    given = SinkOptions(ClientOptions((("127.0.0.1", 9092),)), ProducerOptions(), "t", verify=True)
    with pytest.raises(ConfigError, match="cannot write with verify=true"):
        plan_write(given)


def test_brokers_that_stay_away_are_waited_for_until_max_block_ms() -> None:
    with pytest.raises(TransportError, match="no brokers in"):
        planned({"/brokers/ids": b""}, writing())

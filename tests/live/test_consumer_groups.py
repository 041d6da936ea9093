"""Groups of the consumer protocol (KIP-848) on real brokers, beside librdkafka, and the migration to it and back."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from streamgroup.coordinator.threads import assemble
from streamgroup.errors import BrokerError, ConfigError
from streamgroup.kafka.cluster import admin, changes
from streamgroup.model import CommittedOffset, GroupDescription, TopicPartition
from streamgroup.testing import KafkaServer
from streamgroup.testing.releases import NEWEST
from tests.conftest import MakeTopic
from tests.fault.harness import QUICK, QUICK_GROUPS, Peer, Stream, Streams, Writer, check_everything, goes_on
from tests.spark.console_consumer import java_consumer
from tests.spark.support import Load
from tests.waiting import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

PARTITIONS = 6
CLASSIC = {"kafka__group__protocol": "classic"}
CONSUMER = {"kafka__group__protocol": "consumer"}
AUTO = {"kafka__group__protocol": "auto"}


@pytest.fixture(scope="module", params=[NEWEST, *(pytest.param(v, marks=pytest.mark.long) for v in ("4.0.1", "4.2.1"))])
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
    with KafkaServer(request.param, config=QUICK_GROUPS) as server:
        yield server


class Group(Streams):
    """Queries of one group, each with its protocol."""

    def query(self, name: str, kind: type[Stream] = Stream, **options: Any) -> Stream:
        quick = {key: value for key, value in QUICK.items() if key != "kafka.heartbeat.interval.ms"}
        if options.get("kafka__group__protocol", "classic") == "classic":
            quick = QUICK
        given = {key.replace("__", "."): str(value) for key, value in options.items()}
        return kind(
            name,
            {
                "kafka.bootstrap.servers": self.server.bootstrap_servers,
                "kafka.group.id": self.group,
                **({} if "subscribePattern" in given else {"subscribe": self.topic}),
                "startingOffsets": "earliest",
                **quick,
                **given,
            },
        )

    def described(self) -> GroupDescription:
        return self.ask(lambda cluster: admin.describe_any_group(cluster, self.group, cluster.deadline()))


@pytest.fixture
def group(kafka: KafkaServer, make_topic: MakeTopic) -> Group:
    topic = make_topic(kafka, PARTITIONS, config={"retention.ms": "-1"})
    return Group(kafka, topic, f"group-{topic}")


@pytest.fixture
def writer(group: Group) -> Writer:
    return Writer(group.server, group.topic, PARTITIONS)


class JavaPeer:
    """Kafka's console consumer. `number`: the test has so many of them, with this one."""

    error = ""

    def __init__(self, group: Group, protocol: str, number: int, home: Path) -> None:
        self.name = f"Java ({protocol})"
        load = Load(group.server, group.topic, PARTITIONS)
        self._group, self._number = group, number
        self._running = java_consumer(home, load, group.group, "RangeAssignor" if protocol == "classic" else None)

    def __enter__(self) -> JavaPeer:
        self._consumer = self._running.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._running.__exit__(*exception)

    @property
    def values(self) -> list[str]:
        """The records. It may print an error between them, if the group puts it out."""
        return [line for line in self._consumer.values() if line.startswith(self._group.topic)]

    @property
    def held(self) -> set[str]:
        """The partitions of all console consumers; none before each of them has some."""
        found = [member for member in self._group.described().members if member.client_id == "console-consumer"]
        shares = [{str(tp) for tp in member.assigned} for member in found if member.assigned]
        return set().union(*shares) if len(shares) >= self._number else set()


Member = Stream | Peer | JavaPeer


def shares(*members: Member) -> list[int]:
    """How many partitions each has, sorted; none where two have the same one."""
    held = [set(member.held) for member in members]
    return sorted(map(len, held)) if len(set().union(*held)) == sum(map(len, held)) else []


def values(*members: Member) -> Counter[str]:
    return Counter(
        value
        for member in members
        for value in ([row.value for row in member.rows] if isinstance(member, Stream) else member.values)
    )


def read_once(group: Group, writer: Writer, members: Sequence[Member]) -> None:
    """Everything written was read once, and is committed."""
    wait_until(lambda: values(*members).keys() >= set(writer.sent), "everything is read")
    assert values(*members) == Counter(writer.sent)
    wait_until(lambda: group.ends() == offsets(group.committed()), "everything is committed")


def offsets(committed: dict[TopicPartition, CommittedOffset]) -> dict[TopicPartition, int]:
    return {tp: each.offset for tp, each in committed.items()}


def epoch(query: Stream) -> int:
    found: int = query.status.get("generation", -1)
    return found


# -- sharing ----------------------------------------------------------------------------------------------------------


def test_two_queries_and_a_librdkafka_consumer_share_a_group(group: Group, writer: Writer) -> None:
    with group.running("one", "two", **CONSUMER) as (one, two), Peer(group, "consumer") as peer:
        wait_until(lambda: shares(one, two, peer) == [2, 2, 2], "the three share")
        with writer.writing():
            goes_on([one, two], 100)
        read_once(group, writer, [one, two, peer])
        assert peer.error == ""
        described = group.described()
        assert (described.state, len(described.members)) == ("Stable", 3)
        assert {member.epoch for member in described.members} == {epoch(one)}


def test_members_come_and_go_under_load_and_every_record_is_read_once(group: Group, writer: Writer) -> None:
    with writer.writing(), group.running("a", "b", "c", **CONSUMER) as queries:
        for query in queries:
            goes_on(queries, 20)
            query.stop()
            others = [other for other in queries if other is not query]
            wait_until(lambda others=tuple(others): shares(*others) == [3, 3], "the others have all")
            goes_on(others, 20)
            query.start()
            wait_until(lambda: shares(*queries) == [2, 2, 2], "all share again")
        check_everything(group, writer, queries, repeats=600)  # a stop in mid-batch repeats it


class Holding(Stream):
    """A query whose batches can be held: read, and not finished."""

    free: threading.Event

    def _execute(self, coordinator: Any) -> None:
        assert self.free.wait(120)
        super()._execute(coordinator)


def test_only_the_partitions_of_a_batch_in_flight_come_late_and_nobody_waits(group: Group, writer: Writer) -> None:
    slow = group.query("slow", kind=Holding, **CONSUMER)
    assert isinstance(slow, Holding)
    slow.free = threading.Event()
    slow.free.set()
    with writer.writing(), group.running("other", **CONSUMER) as (other,), slow:
        wait_until(lambda: shares(slow, other) == [3, 3], "the two share")
        goes_on([slow, other], 20)
        batches = len(slow.offsets)
        slow.free.clear()
        wait_until(lambda: len(slow.offsets) > batches, "a batch of it is planned, and held")
        with group.query("newcomer", **CONSUMER) as newcomer:
            wait_until(lambda: newcomer.held, "the newcomer has its part of the other's share")
            goes_on([newcomer, other], 100)
            in_batch = {str(planned.partition) for planned in slow.ranges[-1]}
            assert in_batch.isdisjoint(set(newcomer.held) | set(other.held)), (
                "no other member owns a partition of the batch"
            )
            slow.free.set()
            wait_until(lambda: shares(slow, other, newcomer) == [2, 2, 2], "the three share")
            check_everything(group, writer, [slow, other, newcomer], repeats=0)


def test_a_static_member_gets_its_partitions_back_and_nobody_else_notices(group: Group, writer: Writer) -> None:
    static = group.query("static", **CONSUMER, kafka__group__instance__id="s")
    with group.running("other", **CONSUMER) as (other,):
        with static:
            wait_until(lambda: shares(static, other) == [3, 3], "the two share")
            before, held = epoch(other), set(static.held)
            writer.send(60)
            wait_until(lambda: values(static, other) == Counter(writer.sent), "all is read")
        writer.send(60)
        with static:
            wait_until(lambda: set(static.held) == held, "it has the same partitions")
            read_once(group, writer, [static, other])
            assert (epoch(other), epoch(static)) == (before, before)


def test_the_second_of_two_queries_with_an_instance_id_waits_and_then_fails(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assemble, "LEAST_SESSION_S", 6.0)  # as this broker has it
    options = {**CONSUMER, "kafka__group__instance__id": "s"}
    with group.running("one", **options), group.query("two", **options) as two:
        wait_until(lambda: two.error is not None, "the second one fails", 60)
        assert isinstance(two.error, BrokerError)
        assert "another running member has group.instance.id 's'" in str(two.error)


def test_a_copy_of_a_checkpoint_is_refused_and_the_first_query_goes_on(
    group: Group, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assemble, "LEAST_SESSION_S", 6.0)  # as this broker has it
    writer.send(60)
    with group.running("first", **CONSUMER) as (first,):
        wait_until(lambda: values(first) == Counter(writer.sent), "all is read")
        copy = group.query("copy", **CONSUMER)
        copy.offsets, copy.finished = first.offsets[: first.finished], first.finished
        with copy:
            wait_until(lambda: copy.error is not None, "the copy is refused", 60)
            assert isinstance(copy.error, ConfigError)
            assert "another live member uses a copy of this query's checkpoint" in str(copy.error)
        writer.send(60)
        wait_until(lambda: values(first) == Counter(writer.sent), "the first one reads all")


def test_new_partitions_are_read_from_their_beginning(group: Group, writer: Writer) -> None:
    options = {**CONSUMER, "startingOffsets": "latest"}
    with group.running("one", "two", **options) as (one, two):
        goes_on_after_start = writer.send(60)
        wait_until(lambda: values(one, two) == Counter(goes_on_after_start), "all is read")
        group.ask(lambda cluster: changes.grow_topics(cluster, {group.topic: 8}, cluster.deadline()))
        writer.grow(8)
        writer.send(80)
        wait_until(lambda: shares(one, two) == [4, 4], "the new partitions have owners")
        read_once(group, writer, [one, two])


def test_topics_that_come_to_match_a_pattern_are_shared_from_their_beginning(
    group: Group, make_topic: MakeTopic
) -> None:
    """No topic matches at first."""
    pattern = f"{group.topic}-t[0-9]"
    given = {"subscribePattern": pattern, "startingOffsets": "latest", "kafka.metadata.max.age.ms": "300", **CONSUMER}
    one, two = group.query("one", **given), group.query("two", **given)
    with one, two:
        wait_until(lambda: one.status.get("state") == two.status.get("state") == "stable", "both have joined")
        sent: list[str] = []
        for number in (1, 2):
            topic = make_topic(group.server, 2, name=f"{group.topic}-t{number}")
            sent += Writer(group.server, topic, 2).send(30)
            wait_until(lambda sent=tuple(sent): values(one, two) == Counter(sent), f"all of {number} topics is read")
        every = {f"{group.topic}-t{number}-{partition}" for number in (1, 2) for partition in (0, 1)}
        wait_until(lambda: one.held | two.held == every and shares(one, two) == [2, 2], "both have a share")


def test_the_group_coordinators_assignor_is_the_one_named(group: Group) -> None:
    with group.running("one", **CONSUMER, kafka__group__remote__assignor="range"):
        assert group.described().strategy == "range"
    unknown = group.query("unknown", **CONSUMER, kafka__group__remote__assignor="best")
    with unknown:
        wait_until(lambda: unknown.error is not None, "it fails")
        assert "the broker does not have the assignor 'best'" in str(unknown.error)


# -- the choice of the protocol ---------------------------------------------------------------------------------------


def test_auto_is_the_consumer_protocol_on_such_a_cluster(group: Group, writer: Writer) -> None:
    writer.send(60)
    with group.running("one", **AUTO) as (one,):
        wait_until(lambda: values(one) == Counter(writer.sent), "all is read")
        assert [member.epoch for member in group.described().members] == [epoch(one)]


def test_auto_is_the_classic_protocol_on_an_older_cluster_and_consumer_an_error(
    kafka39: KafkaServer, make_topic: MakeTopic
) -> None:
    auto_is_classic(kafka39, make_topic(kafka39, 2), "kafka.group.protocol=consumer needs Kafka 4.0")


def test_auto_is_the_classic_protocol_on_a_cluster_that_has_the_other_one_switched_off(make_topic: MakeTopic) -> None:
    with KafkaServer(config={**QUICK_GROUPS, "group.coordinator.rebalance.protocols": "classic"}) as server:
        auto_is_classic(server, make_topic(server, 2), "group.coordinator.rebalance.protocols of the broker")


def auto_is_classic(server: KafkaServer, topic: str, refusal: str) -> None:
    """A query with `auto` reads, and one with the consumer protocol fails with `refusal`."""
    group, writer = Group(server, topic, f"auto-{topic}"), Writer(server, topic, 2)
    writer.send(20)
    with group.running("one", **AUTO) as (one,):
        wait_until(lambda: values(one) == Counter(writer.sent), "all is read")
    with group.query("two", **CONSUMER) as two:
        wait_until(lambda: two.error is not None, "it fails")
        assert refusal in str(two.error)


# -- migration --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", [None, "librdkafka", pytest.param("Java", marks=pytest.mark.long)])
def test_a_group_migrates_to_the_consumer_protocol_and_back_under_load(
    group: Group, writer: Writer, client: str | None, tmp_path: Path
) -> None:
    """One query after the other is stopped and started with the other protocol. The group never stops.

    `client` has a consumer of each protocol in the group.
    """
    every: list[Member] = []
    with ExitStack() as stack:
        running = {name: stack.enter_context(group.query(name, **CLASSIC)) for name in ("a", "b")}
        every += running.values()
        # One after the other: Kafka 4.0 cannot convert a group that is gathering (UNKNOWN_SERVER_ERROR).
        for number, name in enumerate(("classic", "consumer") if client else (), 1):
            wait_until(lambda: all(member.held for member in every), "all hold partitions")
            peer = Peer(group, name) if client == "librdkafka" else JavaPeer(group, name, number, tmp_path)
            every.append(stack.enter_context(peer))
        wait_until(lambda: all(member.held for member in every), "all hold partitions")
        with writer.writing():
            for protocol in (CONSUMER, CLASSIC, AUTO):
                for name, old in tuple(running.items()):
                    goes_on(list(running.values()), 20)
                    old.stop()
                    new = group.query(name, **protocol)
                    new.offsets, new.finished, new.sunk = old.offsets, old.finished, old.sunk
                    every[every.index(old)] = new
                    running[name] = stack.enter_context(new)
                    wait_until(lambda new=new: new.held, "the member is back", 60)
            goes_on(list(running.values()), 20)
        wait_until(lambda: values(*every).keys() >= set(writer.sent), "everything is read")
        wait_until(lambda: group.ends() == offsets(group.committed()), "everything is committed")
    assert values(*every).keys() == set(writer.sent)
    assert [member.error for member in every if not isinstance(member, Stream) and member.error] == []


def test_a_broker_that_converts_no_group_is_named_as_the_reason(make_topic: MakeTopic) -> None:
    with KafkaServer(config={**QUICK_GROUPS, "group.consumer.migration.policy": "disabled"}) as server:
        topic = make_topic(server, 2)
        group = Group(server, topic, f"kept-{topic}")
        with group.running("classic", **CLASSIC) as (classic,):
            with group.query("new", **CONSUMER) as new:
                wait_until(lambda: new.error is not None, "it fails")
                assert "group.consumer.migration.policy" in str(new.error)
            with group.query("auto", **AUTO) as auto:  # the group refuses it, and it joins by the classic protocol
                wait_until(lambda: shares(classic, auto) == [1, 1], "both have a share")

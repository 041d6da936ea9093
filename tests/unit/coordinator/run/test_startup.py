"""How a run connects, starts its member and keeps the resolved subscription current."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from streamgroup.advice import NO_LOCATION, OffsetLocation, StoredIn
from streamgroup.coordinator.planning.loss import BELIEVED_AFTER_S, LOOK_EVERY_S
from streamgroup.coordinator.run.interface import Connect, ListOffsets, Question, ReadTopics
from streamgroup.coordinator.run.run_events import RunEvents
from streamgroup.coordinator.run.startup import StartingOffsets, Startup, losses_of, refuse
from streamgroup.errors import BrokerError, ConfigError, DataLossError, TransportError
from streamgroup.group import events as ev
from streamgroup.group.member import Resolve
from streamgroup.group.start_positions import Origin
from streamgroup.kafka.cluster.requests import ListedOffset
from streamgroup.logline import parse
from streamgroup.model import (
    EARLIEST,
    INITIAL_DOCUMENT,
    LATEST,
    ClusterSnapshot,
    ConfiguredOffsets,
    Dialect,
    Document,
    Position,
    TopicPartition,
)
from streamgroup.options.types import GroupOptions, Isolation, OffsetsStorage, Subscription
from tests.fakes.cluster import FakeCluster, Logs, logs_of
from tests.unit.coordinator.run.run_shell import COMMIT, MEMBER, OFF, P0, P1, P2, Call, config, snapshot

U0 = TopicPartition("u", 0)
CHECKPOINT = replace(INITIAL_DOCUMENT, positions={P0: Position(5), P1: Position(6), U0: Position(7)})


class Starting:
    """The startup of one run, its member's events and the topics that it follows, in order."""

    def __init__(self, subscription: Subscription | None = None, group: GroupOptions = COMMIT) -> None:
        self.done: list[Any] = []
        self.is_stopped = False
        self.metadata = SimpleNamespace(snapshot=ClusterSnapshot({}, {}))
        self.startup = Startup(
            config(group, subscription=subscription or Subscription(topics=("t",))),
            self,  # type: ignore[arg-type]
            self.metadata,
            perform=self.perform,
            follow=self.done.append,
            is_stopped=lambda: self.is_stopped,
        )

    def step(self, event: object, now: float) -> list[Any]:
        """As of a member."""
        return [event]

    def perform(self, actions: Iterable[Any]) -> None:
        self.done += actions

    def opened(self, found: ClusterSnapshot) -> Startup:
        self.metadata.snapshot = found
        call = Call(self.startup.open())
        call.answered(found)
        assert call.is_over
        return self.startup

    def looks_again(self, checkpoint: Document = CHECKPOINT, now: float = 0.0) -> Call:
        return Call(self.startup.look_again(checkpoint), now)


# -- open and join ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subscription", "asked", "followed", "there"),
    [
        (Subscription(topics=("t",)), frozenset({"t"}), {"t"}, {P0, P1}),
        (Subscription(pattern="t|v"), None, {"t"}, {P0, P1}),
        (Subscription(assign=(P1, U0)), frozenset({"t", "u"}), {"t", "u"}, {P1, U0}),
    ],
    ids=["topics", "pattern", "assign"],
)
def test_a_run_asks_for_the_topics_of_its_subscription_and_follows_those_that_exist(
    subscription: Subscription, asked: frozenset[str] | None, followed: set[str], there: set[TopicPartition]
) -> None:
    starting = Starting(subscription)
    call = Call(starting.startup.open())
    assert call.question == Connect(asked)
    assert starting.done == []
    call.answered(snapshot(t=2, u=1))
    assert call.is_over
    assert starting.done == [followed]
    assert starting.startup.there == there
    assert [tp for tp in (P0, P1, U0) if not starting.startup.is_new(tp)] == sorted(there)


NAMED = pytest.mark.parametrize("subscription", [Subscription(topics=("t",)), Subscription(assign=(P1,))])


@NAMED
def test_a_named_topic_that_a_lagging_broker_leaves_out_at_first_is_read(subscription: Subscription) -> None:
    starting = Starting(subscription)
    call = Call(starting.startup.open(), 10.0)
    call.answered(snapshot(u=1))
    call.at(10.0 + LOOK_EVERY_S)
    assert call.question == ReadTopics(frozenset({"t"}))
    call.answered(snapshot(t=2))
    assert call.is_over
    assert P1 in starting.startup.there
    assert starting.done == [{"t"}]


@NAMED
def test_a_named_topic_that_stays_away_is_an_error(subscription: Subscription) -> None:
    starting = Starting(subscription)
    call, now = Call(starting.startup.open(), 10.0), 10.0
    call.answered(snapshot(u=1))
    while now + LOOK_EVERY_S < 10.0 + BELIEVED_AFTER_S:
        now += LOOK_EVERY_S
        call.at(now)
        call.answered(snapshot(u=1))
        assert not call.is_over
    call.at(10.0 + BELIEVED_AFTER_S)
    with pytest.raises(ConfigError, match=r"\bt\b"):
        call.answered(snapshot(u=1))


def test_a_named_topic_that_is_missing_is_an_error_at_once_after_a_stop_and_in_kafka_07() -> None:
    """A topic of Kafka 0.7 exists only while a broker has it."""
    starting = Starting()
    call = Call(starting.startup.open(), 10.0)
    call.answered(snapshot(u=1))
    starting.is_stopped = True
    with pytest.raises(ConfigError, match=r"\bt\b"):
        call.at(10.1)
    with pytest.raises(ConfigError, match=r"\bt\b"):
        Starting().opened(snapshot(Dialect.KAFKA07, u=1))


@pytest.mark.parametrize("identity", [b"lineage and run", None])
def test_the_member_starts_with_its_identity_and_the_topics(identity: bytes | None) -> None:
    starting = Starting(Subscription(topics=("u", "t")))
    startup = starting.opened(snapshot(t=2, u=1))
    starting.done.clear()
    assert not startup.has_joined
    startup.join(identity, 1.0)
    assert startup.has_joined
    known = ev.MetadataRefreshed(starting.metadata.snapshot.topics, frozenset({"t", "u"}))
    told = [] if identity is None else [ev.UserDataChanged(identity)]
    assert starting.done == [*told, ev.Start(("t", "u")), known]


# -- partitions that were deleted before the run began (R8) -----------------------------------------------------------


def test_positions_of_subscribed_partitions_that_do_not_exist_are_gone() -> None:
    startup = Starting().opened(snapshot(t=1))
    assert startup.gone(CHECKPOINT) == {P1: Position(6)}, "u is not subscribed any more"
    startup.join(None, 0.0)
    assert startup.gone(CHECKPOINT) == {}, "from now on the member knows"


@pytest.mark.parametrize(
    ("group", "found"),
    [(MEMBER, snapshot(t=1)), (COMMIT, snapshot(t=2)), (COMMIT, snapshot(Dialect.KAFKA07, t=1))],
    ids=["another member may hold it", "nothing is gone", "a broker of Kafka 0.7 is away"],
)
def test_the_metadata_is_not_read_again(group: GroupOptions, found: ClusterSnapshot) -> None:
    starting = Starting(group=group)
    startup = starting.opened(found)
    assert starting.looks_again().is_over
    assert startup.gone(CHECKPOINT) == ({P1: Position(6)} if found.log_format.is_broker_bound else {})


def test_a_partition_that_comes_back_was_there_when_the_run_began() -> None:
    starting = Starting(Subscription(pattern=".*"))
    startup = starting.opened(snapshot(t=2))
    starting.done.clear()
    assert startup.gone(CHECKPOINT) == {U0: Position(7)}
    look = starting.looks_again()
    assert look.wake_at == LOOK_EVERY_S
    assert look.at(LOOK_EVERY_S).question == ReadTopics(None)
    look.answered(snapshot(t=2))
    assert not look.is_over
    assert starting.done == []
    look.at(2 * LOOK_EVERY_S).answered(snapshot(t=2, u=1))
    assert look.is_over
    assert starting.done == [{"t", "u"}]
    assert not startup.is_new(U0)
    assert startup.gone(CHECKPOINT) == {}


def test_a_partition_that_stays_away_is_believed_to_be_gone_and_a_stop_ends_the_looks() -> None:
    starting = Starting()
    startup = starting.opened(snapshot(t=1))
    look, now = starting.looks_again(now=100.0), 100.0
    while not look.is_over:
        now += LOOK_EVERY_S
        assert look.at(now).question == ReadTopics(frozenset({"t"}))
        look.answered(snapshot(t=1))
    assert now == pytest.approx(100.0 + BELIEVED_AFTER_S, abs=LOOK_EVERY_S)
    assert startup.gone(CHECKPOINT) == {P1: Position(6)}
    look = starting.looks_again(now=now)
    starting.is_stopped = True
    assert look.at(now + 0.01).is_over


def test_topics_of_the_other_members_are_followed_beside_the_subscribed_ones() -> None:
    starting = Starting()
    starting.opened(snapshot(t=2)).follow(("u", "t"))
    assert starting.done[-1] == {"t", "u"}


def test_topics_that_come_to_match_the_pattern_are_subscribed_before_the_member_sees_them() -> None:
    starting = Starting(Subscription(pattern="t|u"))
    startup = starting.opened(snapshot(t=2))
    startup.follow(("others",))
    asked = frozenset({"t", "u", "v"})
    for more, subscribed in (({"u": 1}, ("t", "u")), ({"v": 1}, ("t",))):
        starting.done.clear()
        new = snapshot(t=2, **more)
        startup.see(new, asked, 1.0)
        assert starting.done == [
            {*subscribed, "others"},
            ev.Subscribed(subscribed),
            ev.MetadataRefreshed(new.topics, asked),
        ]
    starting.done.clear()
    startup.see(snapshot(t=2), asked, 2.0)
    assert starting.done == [ev.MetadataRefreshed(snapshot(t=2).topics, asked)], "the same topics as before"


FOUNDED = Resolve(4, {P0: Origin.STARTING, P1: Origin.STARTING})
IN_ZOOKEEPER = GroupOptions("g", offsets_storage=OffsetsStorage.ZOOKEEPER)
SPEC = ConfiguredOffsets(LATEST)


class Finder:
    """The search of one run, which the brokers of `logs` answer, and what it told."""

    def __init__(
        self,
        logs: Logs,
        is_new: Callable[[TopicPartition], bool] = lambda tp: False,
        *,
        spec: ConfiguredOffsets = SPEC,
        **options: Any,
    ) -> None:
        self.found: list[tuple[int, dict[TopicPartition, int]]] = []
        self.actions: list[Any] = []
        self.lines: list[tuple[int, str]] = []
        self.asked: list[tuple[float, ListOffsets]] = []
        self.cluster = FakeCluster(logs)
        options = {"group": IN_ZOOKEEPER, "fetch_offset_retry_interval_ms": 250, **options}
        given = replace(config(**options), starting=spec)
        events = RunEvents("g", "r", lambda level, line: self.lines.append((level, line)))
        self.starts = StartingOffsets(given, self, events, perform=self.actions.extend, is_new=is_new)  # type: ignore[arg-type]
        self.now = 100.0
        self.ledger = SimpleNamespace(generation=4)

    def resolved(self, generation: int, offsets: Mapping[TopicPartition, int], now: float) -> list[Any]:
        """As of a member."""
        self.found.append((generation, dict(offsets)))
        return ["the member's actions"]

    def answer(self, question: Question) -> object:
        assert isinstance(question, ListOffsets)
        self.asked.append((self.now, question))
        return self.cluster.list_offsets(question.wanted, Isolation.READ_COMMITTED, self.now + question.timeout)

    def find(self, wanted: Resolve = FOUNDED) -> Call:
        """To the end; it waits only between two attempts."""
        self.ledger.generation = wanted.generation
        call = Call(self.starts.find(wanted), self.now, answer=self.answer)
        while not call.is_over:
            assert call.wake_at is not None
            self.now = call.wake_at
            call.at(self.now)
        return call


def found(logs: Logs, origins: Mapping[TopicPartition, Origin], **options: Any) -> dict[TopicPartition, int]:
    finder = Finder(logs, **options)
    finder.find(Resolve(1, origins))
    ((_, offsets),) = finder.found
    return offsets


# -- what is found ----------------------------------------------------------------------------------------------------


def test_what_came_to_be_after_the_run_began_starts_at_earliest() -> None:
    finder = Finder(logs_of([10, 20]), is_new=lambda tp: tp == P1)
    finder.find()
    assert finder.found == [(4, {P0: 10, P1: 0})]


def test_founders_start_as_the_options_say_and_all_others_at_earliest() -> None:
    origins = {P0: Origin.STARTING, P1: Origin.EARLIEST, P2: Origin.EARLIEST}
    assert found(logs_of([10, 20, 30]), origins) == {P0: 10, P1: 0, P2: 0}


def test_offsets_that_are_given_ask_nobody() -> None:
    logs = logs_of([10])
    assert found(logs, {P0: Origin.STARTING}, spec=ConfiguredOffsets(LATEST, offsets={P0: 4})) == {P0: 4}
    assert logs.listings == []


def test_a_timestamp_beyond_the_last_record_asks_for_the_end_in_the_time_that_is_left() -> None:
    finder = Finder(logs_of([10]), spec=ConfiguredOffsets(LATEST, timestamp=1_000, no_match_is_latest=True))
    call = Call(finder.starts.find(Resolve(4, {P0: Origin.STARTING})), 100.0)
    assert call.question == ListOffsets({P0: 1_000}, 60.0)
    call.at(102.0).answered({P0: ListedOffset(-1)})
    assert call.question == ListOffsets({P0: LATEST}, 58.0)
    call.answered({P0: ListedOffset(10)})
    assert finder.found == [(4, {P0: 10})]


# -- records that may have been missed --------------------------------------------------------------------------------


def test_losses_that_are_not_allowed_fail_at_once_and_others_are_warnings() -> None:
    logs = logs_of([10, 20])
    logs.starts = {P0: 5}
    lenient, finder = Finder(logs, fail_on_data_loss=False), Finder(logs)
    lenient.find(Resolve(1, {P0: Origin.EARLIEST}))
    ((level, line),) = lenient.lines
    assert (level, "failed" in parse(line)) == (ev.WARNING, False)
    logs.listings.clear()
    with pytest.raises(DataLossError, match="ZooKeeper's nodes /consumers/g/offsets"):
        finder.find(Resolve(1, {P0: Origin.EARLIEST}))
    assert [parse(line)["failed"] for _, line in finder.lines] == ["true"]
    assert finder.found == []
    assert logs.listings == [(EARLIEST, (P0,))]


def test_a_loss_that_an_earlier_generation_found_is_not_reported() -> None:
    logs = logs_of([10])
    logs.starts = {P0: 5}
    finder = Finder(logs)
    call = Call(finder.starts.find(Resolve(3, {P0: Origin.EARLIEST})), 100.0, answer=finder.answer)
    assert call.is_over
    assert (finder.found, finder.lines) == ([], [])


@pytest.mark.parametrize(
    ("origin", "start", "told"),
    [(Origin.EARLIEST, 5, "its log starts at offset 5"), (Origin.RECREATED, 0, "deleted and created again")],
)
def test_records_that_may_have_been_missed_are_reported_or_end_the_query(origin: Origin, start: int, told: str) -> None:
    logs = logs_of([10])
    logs.starts = {P0: start}
    offsets = found(logs, {P0: origin}, fail_on_data_loss=False)
    assert offsets == {P0: start}
    losses = losses_of("g", {P0: origin}, offsets)
    assert [(loss.partition, loss.at, loss.to) for loss in losses] == [(P0, None, start)]
    assert told in losses[0].text
    assert re.search(
        rf"'g', t-0: [^\n]*{told}[\s\S]*failOnDataLoss=false.*--group g", str(refuse(OffsetLocation("g"), losses))
    )
    there = str(refuse(OffsetLocation("g", StoredIn.ZOOKEEPER), losses))
    assert "write the group's offsets into ZooKeeper's nodes /consumers/g/offsets/<topic>/<partition>" in there
    assert "kafka-consumer-groups" not in there


@pytest.mark.parametrize("origin", [Origin.STARTING, Origin.EARLIEST])
def test_a_founders_start_and_a_log_that_starts_at_0_lose_nothing(origin: Origin) -> None:
    assert losses_of("g", {P0: origin}, {P0: 5 if origin is Origin.STARTING else 0}) == []


@pytest.mark.parametrize("origin", [Origin.EARLIEST, Origin.RECREATED])
def test_without_a_group_a_loss_speaks_of_none(origin: Origin) -> None:
    logs = logs_of([10])
    logs.starts = {P0: 5}
    finder = Finder(logs, group=OFF)
    with pytest.raises(DataLossError) as raised:
        finder.find(Resolve(1, {P0: origin}))
    losses = losses_of("", {P0: origin}, {P0: 5})
    for text in (str(raised.value), str(refuse(NO_LOCATION, losses))):
        assert text.startswith("t-0: ")
        assert "group" not in text
        assert "failOnDataLoss=false" in text


@pytest.mark.parametrize(("failures", "retries", "is_found"), [(2, 2, True), (3, 2, False), (1, 0, False)])
def test_brokers_that_do_not_answer_are_asked_again_as_often_as_said(
    failures: int, retries: int, is_found: bool
) -> None:
    logs = logs_of([10, 20])
    logs.failures = [TransportError("down")] * failures
    finder = Finder(logs, fetch_offset_retries=retries)
    if is_found:
        finder.find()
    else:
        with pytest.raises(TransportError, match="down"):
            finder.find()
    assert bool(finder.found) is is_found
    assert logs.failures == []
    assert len(logs.listings) == retries + 1
    assert [at for at, _ in finder.asked] == [100.0 + 0.25 * n for n in range(retries + 1)]
    assert {question.timeout for _, question in finder.asked} == {60.0}
    notes = [action for action in finder.actions if isinstance(action, ev.Note)]
    assert len(notes) == retries
    assert [n.text for n in notes] == [
        f"group g: cannot look up the starting offsets of t-0, t-1: down. Starting retry {n} of {retries} in 0.25 s"
        for n in range(1, retries + 1)
    ]


def test_an_error_of_a_broker_is_not_asked_about_again() -> None:
    logs = logs_of([10, 20])
    logs.failures = [BrokerError(29, "t")]
    with pytest.raises(BrokerError):
        Finder(logs).find()
    assert len(logs.listings) == 1

"""How a run connects, starts its member and keeps the resolved subscription current."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from streamgroup.errors import ConfigError, TransportError
from streamgroup.group import events as ev
from streamgroup.model import (
    INITIAL_DOCUMENT,
    ClusterSnapshot,
    Dialect,
    Document,
    PartitionInfo,
    Position,
    TopicInfo,
    TopicPartition,
)
from streamgroup.options.types import GroupMode, GroupOptions, Subscription
from streamgroup.planning.suspicions import BELIEVED_AFTER_S, LOOK_EVERY_S
from streamgroup.run.questions import Connect, ReadMetadata
from streamgroup.run.startup import Startup
from tests.fakes.cluster import NODES
from tests.unit.run.calls import Call, config

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ALONE = GroupOptions("g", mode=GroupMode.COMMIT)
CHECKPOINT = replace(INITIAL_DOCUMENT, positions={T0: Position(5), T1: Position(6), U0: Position(7)})


def snapshot(dialect: Dialect = Dialect.KAFKA, **partitions: int) -> ClusterSnapshot:
    topics = {
        name: TopicInfo(name, tuple(PartitionInfo(n, 0) for n in range(count))) for name, count in partitions.items()
    }
    return ClusterSnapshot(NODES, topics, dialect=dialect)


class Starting:
    """The startup of one run, its member's events and the topics that it follows, in order."""

    def __init__(self, subscription: Subscription | None = None, group: GroupOptions = ALONE) -> None:
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
        (Subscription(topics=("t",)), frozenset({"t"}), {"t"}, {T0, T1}),
        (Subscription(pattern="t|v"), None, {"t"}, {T0, T1}),
        (Subscription(assign=(T1, U0)), frozenset({"t", "u"}), {"t", "u"}, {T1, U0}),
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
    assert [tp for tp in (T0, T1, U0) if not starting.startup.is_new(tp)] == sorted(there)


@pytest.mark.parametrize("error", [TransportError("no broker answers"), ConfigError("no such server")])
def test_what_the_connection_raises_ends_the_call(error: Exception) -> None:
    starting = Starting()
    call = Call(starting.startup.open())
    with pytest.raises(type(error)):
        call.failed(error)
    assert starting.done == []


NAMED = pytest.mark.parametrize("subscription", [Subscription(topics=("t",)), Subscription(assign=(T1,))])


@NAMED
def test_a_named_topic_that_a_lagging_broker_leaves_out_at_first_is_read(subscription: Subscription) -> None:
    starting = Starting(subscription)
    call = Call(starting.startup.open(), 10.0)
    call.answered(snapshot(u=1))
    call.at(10.0 + LOOK_EVERY_S)
    assert call.question == ReadMetadata(frozenset({"t"}))
    call.answered(snapshot(t=2))
    assert call.is_over
    assert T1 in starting.startup.there
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


def test_a_stop_ends_the_wait_for_a_named_topic() -> None:
    starting = Starting()
    call = Call(starting.startup.open(), 10.0)
    call.answered(snapshot(u=1))
    starting.is_stopped = True
    with pytest.raises(ConfigError, match=r"\bt\b"):
        call.at(10.1)


def test_a_named_topic_of_kafka_07_that_is_not_registered_is_an_error_at_once() -> None:
    """It exists only while a broker has it."""
    starting = Starting()
    with pytest.raises(ConfigError, match=r"\bt\b"):
        starting.opened(snapshot(Dialect.KAFKA07, u=1))


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
    assert startup.gone(CHECKPOINT) == {T1: Position(6)}, "u is not subscribed any more"
    startup.join(None, 0.0)
    assert startup.gone(CHECKPOINT) == {}, "from now on the member knows"


def test_a_member_misses_nothing_since_another_one_may_hold_it() -> None:
    starting = Starting(group=GroupOptions("g"))
    assert starting.opened(snapshot(t=1)).gone(CHECKPOINT) == {}
    assert starting.looks_again().is_over


def test_nothing_is_looked_at_again_where_nothing_is_gone() -> None:
    starting = Starting()
    starting.opened(snapshot(t=2))
    assert starting.looks_again().is_over


def test_a_partition_of_kafka_07_comes_and_goes_with_its_broker() -> None:
    starting = Starting()
    starting.opened(snapshot(Dialect.KAFKA07, t=1))
    assert starting.looks_again().is_over


def test_a_partition_that_comes_back_was_there_when_the_run_began() -> None:
    starting = Starting(Subscription(pattern=".*"))
    startup = starting.opened(snapshot(t=2))
    starting.done.clear()
    assert startup.gone(CHECKPOINT) == {U0: Position(7)}
    look = starting.looks_again()
    assert look.wake_at == LOOK_EVERY_S
    assert look.at(LOOK_EVERY_S).question == ReadMetadata(None)
    look.answered(snapshot(t=2))
    assert not look.is_over
    assert starting.done == []
    look.at(2 * LOOK_EVERY_S).answered(snapshot(t=2, u=1))
    assert look.is_over
    assert starting.done == [{"t", "u"}]
    assert not startup.is_new(U0)
    assert startup.gone(CHECKPOINT) == {}


def test_a_partition_that_stays_away_is_believed_to_be_gone() -> None:
    starting = Starting()
    startup = starting.opened(snapshot(t=1))
    look, now = starting.looks_again(now=100.0), 100.0
    while not look.is_over:
        now += LOOK_EVERY_S
        assert look.at(now).question == ReadMetadata(frozenset({"t"}))
        look.answered(snapshot(t=1))
    assert now == pytest.approx(100.0 + BELIEVED_AFTER_S, abs=LOOK_EVERY_S)
    assert startup.gone(CHECKPOINT) == {T1: Position(6)}


def test_brokers_that_do_not_answer_the_second_look_end_the_call() -> None:
    starting = Starting()
    starting.opened(snapshot(t=1))
    look = starting.looks_again().at(LOOK_EVERY_S)
    with pytest.raises(TransportError):
        look.failed(TransportError("no broker answers"))


def test_a_stop_ends_the_second_look() -> None:
    starting = Starting()
    starting.opened(snapshot(t=1))
    look = starting.looks_again()
    starting.is_stopped = True
    assert look.at(0.01).is_over


# -- the resolved subscription ----------------------------------------------------------------------------------------


def test_topics_of_the_other_members_are_followed_beside_the_subscribed_ones() -> None:
    starting = Starting()
    starting.opened(snapshot(t=2)).follow(("u", "t"))
    assert starting.done[-1] == {"t", "u"}


def test_new_metadata_goes_to_the_member() -> None:
    starting = Starting()
    startup = starting.opened(snapshot(t=2))
    starting.done.clear()
    startup.see(snapshot(t=2, u=1), frozenset({"t", "u"}), 1.0)
    assert starting.done == [ev.MetadataRefreshed(snapshot(t=2, u=1).topics, frozenset({"t", "u"}))]


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

"""The topics and partitions of a subscription in a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamgroup.coordinator.planning.subscription import (
    is_subscribed,
    of_interest,
    require_columns,
    subscribed_partitions,
    subscribed_topics,
    topics_to_ask,
    unknown_assigned,
)
from streamgroup.errors import ConfigError
from streamgroup.model import ClusterSnapshot, Dialect, PartitionInfo, TopicInfo, TopicPartition
from streamgroup.options.types import FetchOptions, Subscription
from tests.unit.test_java_regex import SLOW, SLOW_NAME


def topic(name: str, partitions: int = 1, *, internal: bool = False) -> TopicInfo:
    return TopicInfo(name, tuple(PartitionInfo(n, 0) for n in range(partitions)), internal=internal)


def cluster(*topics: TopicInfo) -> ClusterSnapshot:
    return ClusterSnapshot({}, {t.name: t for t in topics})


A0, A1, B0, AB0 = (TopicPartition(*name) for name in (("a", 0), ("a", 1), ("b", 0), ("ab", 0)))
THERE = cluster(topic("a", 2), topic("b"), topic("ab"), topic("__consumer_offsets", internal=True))
NAMES, PATTERN, ASSIGN = Subscription(("b", "a")), Subscription(pattern="^a$|^b$"), Subscription(assign=(A1,))


@pytest.mark.parametrize(
    ("subscription", "ask", "topics", "partitions"),
    [
        pytest.param(NAMES, {"a", "b"}, {"a", "b"}, [A0, A1, B0], id="names"),
        pytest.param(PATTERN, None, {"a", "b"}, [A0, A1, B0], id="a pattern"),
        pytest.param(Subscription(pattern="b"), None, {"ab", "b"}, [AB0, B0], id="it matches anywhere, as in Spark"),
        pytest.param(Subscription(pattern=".*"), None, {"a", "b", "ab"}, [A0, A1, AB0, B0], id="no internal topics"),
        pytest.param(ASSIGN, {"a"}, {"a"}, [A1], id="partitions"),
        pytest.param(Subscription(pattern="nothing.*"), None, set(), [], id="a pattern may match nothing"),
    ],
)
def test_the_three_subscriptions(
    subscription: Subscription, ask: set[str] | None, topics: set[str], partitions: list[TopicPartition]
) -> None:
    assert topics_to_ask(subscription) == ask
    assert subscribed_topics(subscription, THERE) == topics
    assert subscribed_partitions(subscription, THERE) == partitions


def test_what_is_named_and_does_not_exist_is_an_error() -> None:
    with pytest.raises(ConfigError, match="'c', 'd'"):
        subscribed_partitions(Subscription(("a", "c", "d")), THERE)
    with pytest.raises(ConfigError, match="'c'"):
        subscribed_partitions(Subscription(assign=(TopicPartition("c", 0),)), THERE)


def test_an_assigned_partition_that_does_not_exist_is_left_out_as_in_spark() -> None:
    subscription = Subscription(assign=(A0, TopicPartition("a", 3), TopicPartition("a", 2)))
    assert subscribed_partitions(subscription, THERE) == [A0]
    assert unknown_assigned(subscription, {A0, A1}) == [TopicPartition("a", 2), TopicPartition("a", 3)]
    assert unknown_assigned(NAMES, ()) == []
    assert subscribed_partitions(Subscription(assign=(TopicPartition("a", 2),)), THERE) == []


def test_of_kafka_07_what_is_named_may_be_on_a_broker_that_is_away() -> None:
    old = replace(THERE, dialect=Dialect.KAFKA07)
    with pytest.raises(ConfigError, match=r"not exist: a 1-2: their brokers are not registered.*Start the broker"):
        subscribed_partitions(Subscription(assign=(A0, TopicPartition("a", 10_002))), old)


@pytest.mark.parametrize(
    ("subscription", "tp", "subscribed"),
    [
        (NAMES, TopicPartition("a", 99), True),
        (NAMES, TopicPartition("ab", 0), False),
        (PATTERN, TopicPartition("b", 99), True),
        (PATTERN, TopicPartition("ab", 0), False),
        (ASSIGN, A1, True),
        (ASSIGN, A0, False),
    ],
)
def test_a_partition_is_subscribed_whether_it_exists_or_not(
    subscription: Subscription, tp: TopicPartition, subscribed: bool
) -> None:
    assert is_subscribed(subscription, tp) is subscribed


def test_a_topic_whose_name_takes_too_long_to_match_is_an_error() -> None:
    with pytest.raises(ConfigError, match=rf"topic '{SLOW_NAME}' with subscribePattern .* takes more than 0\.25 s\."):
        subscribed_topics(Subscription(pattern=SLOW), cluster(topic("b"), topic(SLOW_NAME)))


def test_of_all_topics_those_of_interest_are_kept() -> None:
    assert of_interest(THERE, PATTERN, ["ab", "gone"]).topics.keys() == {"a", "b", "ab"}


def test_the_inner_index_is_for_messages_that_share_an_offset() -> None:
    asked = FetchOptions(include_inner_index=True)
    require_columns(asked, ClusterSnapshot({}, {}, dialect=Dialect.KAFKA07))
    require_columns(FetchOptions(), ClusterSnapshot({}, {}))
    with pytest.raises(ConfigError, match=r"cannot use includeInnerIndex: it is for Kafka 0\.7"):
        require_columns(asked, ClusterSnapshot({}, {}))


def test_damaged_batches_are_set_aside_where_record_batches_show_their_end() -> None:
    asked = FetchOptions(include_damaged_batches=True)
    require_columns(asked, ClusterSnapshot({}, {}))
    with pytest.raises(ConfigError, match=r"cannot use includeDamagedBatches: it is for Kafka 0\.8 and later"):
        require_columns(asked, ClusterSnapshot({}, {}, dialect=Dialect.KAFKA07))

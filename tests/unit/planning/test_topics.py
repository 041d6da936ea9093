from __future__ import annotations

import pytest

from streamgroup.errors import ConfigError
from streamgroup.model import PartitionInfo, TopicInfo, TopicPartition
from streamgroup.planning.topics import matching, select


def topic(name: str, partitions: int, *, internal: bool = False) -> TopicInfo:
    return TopicInfo(name, tuple(PartitionInfo(n, 1) for n in reversed(range(partitions))), internal=internal)


TOPICS = {t.name: t for t in (topic("orders", 2), topic("orders-eu", 1), topic("__consumer_offsets", 3, internal=True))}


def test_a_pattern_matches_whole_names() -> None:
    assert matching("orders", TOPICS) == ("orders",)
    assert matching("orders.*", TOPICS) == ("orders", "orders-eu")
    assert matching("rders.*", TOPICS) == ()


def test_a_pattern_never_matches_internal_topics() -> None:
    assert matching(".*", TOPICS) == ("orders", "orders-eu")


def test_topics_named_are_read_whole_even_internal_ones() -> None:
    assert select(TOPICS, names=["orders"]) == (TopicPartition("orders", 0), TopicPartition("orders", 1))
    assert len(select(TOPICS, names=["__consumer_offsets"])) == 3


def test_partitions_assigned_are_read_alone() -> None:
    assert select(TOPICS, assign=[TopicPartition("orders", 1)]) == (TopicPartition("orders", 1),)


def test_a_pattern_may_match_nothing() -> None:
    assert select(TOPICS, pattern="none") == ()
    assert len(select(TOPICS, pattern="orders.*")) == 3


def test_what_is_named_and_does_not_exist_is_an_error_that_names_it() -> None:
    with pytest.raises(ConfigError, match="topic 'order'"):
        select(TOPICS, names=["orders", "order"])
    with pytest.raises(ConfigError, match="partition orders-2, partition clicks-0"):
        select(TOPICS, assign=[TopicPartition("orders", 2), TopicPartition("clicks", 0)])

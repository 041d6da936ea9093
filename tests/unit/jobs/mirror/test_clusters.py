"""A mirror reads the topics of both clusters, and creates missing ones."""

from __future__ import annotations

import pytest

from streamgroup.errors import ConfigError
from streamgroup.jobs.mirror.clusters import refuse_loop, side_of
from streamgroup.logformat import KAFKA07_LOG, KAFKA_LOG
from streamgroup.model import Broker, ClusterSnapshot, Dialect, PartitionInfo, TopicInfo


def cluster(*ports: int, dialect: Dialect = Dialect.KAFKA, **topics: tuple[int, ...]) -> ClusterSnapshot:
    brokers = {number: Broker(number, "host", port) for number, port in enumerate(ports)}
    found = {name: TopicInfo(name, tuple(PartitionInfo(p, 0) for p in of)) for name, of in topics.items()}
    return ClusterSnapshot(brokers, found, dialect=dialect)


def test_a_side_has_the_partitions_of_its_topic() -> None:
    side = side_of("t", cluster(1, t=(1, 0)))
    assert (side.name, side.partitions, side.log_format) == ("t", [0, 1], KAFKA_LOG)


def test_a_new_topic_of_0_7_has_partition_0_of_each_broker() -> None:
    side = side_of("t", cluster(1, 2, dialect=Dialect.KAFKA07))
    assert (side.partitions, side.log_format) == ([0, 10_000], KAFKA07_LOG)


def test_a_mirror_must_not_read_what_it_writes() -> None:
    with pytest.raises(ConfigError, match="cannot mirror into topic 'b': source and destination are one cluster"):
        refuse_loop({"a": "b", "b": "c"}, cluster(1, 2), cluster(2))


def test_one_cluster_may_hold_both_topics() -> None:
    refuse_loop({"a": "copy.a"}, cluster(1), cluster(1))


def test_two_clusters_may_use_one_name() -> None:
    refuse_loop({"a": "a"}, cluster(1), cluster(2))

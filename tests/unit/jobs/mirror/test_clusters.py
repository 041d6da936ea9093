"""A mirror reads the topics of both clusters, and creates missing ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from streamgroup.errors import ConfigError
from streamgroup.jobs.job_file import SparkSettings
from streamgroup.jobs.mirror.clusters import Clusters, refuse_loop, side_of
from streamgroup.jobs.mirror.config import MirrorConfig
from streamgroup.jobs.mirror.plan import MirrorPlan
from streamgroup.jobs.mirror.query import mirror
from streamgroup.jobs.mirror.renaming import Renaming
from streamgroup.jobs.signals import StopRequest
from streamgroup.logformat import KAFKA07_LOG, KAFKA_LOG
from streamgroup.model import Broker, ClusterSnapshot, Dialect, PartitionInfo, TopicInfo
from streamgroup.options.types import Subscription
from streamgroup.wire.messages.admin import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from streamgroup.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from streamgroup.wire.messages.produce import ProduceRequest
from tests.fakes.answers import api_versions, metadata, topic
from tests.fakes.broker import FakeBroker
from tests.fakes.files import LocalFiles


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


@pytest.mark.parametrize(
    ("names", "subscription"),
    [
        pytest.param({"a": "b", "b": "c"}, Subscription(topics=("a", "b")), id="a copy is subscribed"),
        pytest.param({"a": "b"}, Subscription(pattern="[ab]"), id="a pattern matches a copy that does not exist yet"),
    ],
)
def test_a_mirror_must_not_read_what_it_writes(names: dict[str, str], subscription: Subscription) -> None:
    with pytest.raises(ConfigError, match="cannot mirror into topic 'b': source and destination are one cluster"):
        refuse_loop(names, subscription, cluster(1, 2), cluster(2))


def test_one_cluster_may_hold_both_topics() -> None:
    refuse_loop({"a": "copy.a"}, Subscription(pattern="^a"), cluster(1), cluster(1))


def test_two_clusters_may_use_one_name() -> None:
    refuse_loop({"a": "a"}, Subscription(pattern="a"), cluster(1), cluster(2))


# -- at scripted brokers -----------------------------------------------------------------------------------------------


class ScriptedCluster:
    """A cluster of one broker, with topics of one partition."""

    def __init__(self, *topics: str) -> None:
        self.topics = list(topics)
        spoken = (MetadataRequest, ProduceRequest, CreateTopicsRequest)
        versions = api_versions(**{cls.NAME.lower(): cls.VERSIONS for cls in spoken})
        self.broker = FakeBroker(
            {
                ApiVersionsRequest: lambda *_: versions,
                MetadataRequest: lambda *_: metadata({1: self.broker.port}, *(topic(name, 1) for name in self.topics)),
                CreateTopicsRequest: self._create,
            }
        )

    @property
    def options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": f"127.0.0.1:{self.broker.port}"}

    def _create(self, request: CreateTopicsRequest, _: int) -> CreateTopicsResponse:
        self.topics += [wanted.name for wanted in request.topics]
        return CreateTopicsResponse(topics=tuple(CreatableTopicResult(name=each.name) for each in request.topics))


@pytest.fixture
def source() -> Iterator[ScriptedCluster]:
    made = ScriptedCluster("m-a")
    yield made
    made.broker.stop()


def configured(source: ScriptedCluster, destination: ScriptedCluster, pattern: str, plan: str = "") -> MirrorConfig:
    return MirrorConfig(
        file=Path("m.toml"),
        member=None,
        source={**source.options, "subscribePattern": pattern},
        destination=destination.options,
        checkpoint="",
        plan=plan,
        spark=SparkSettings("m"),
        renaming=Renaming(prefix="copy."),
        create=True,
    )


def test_a_pattern_that_matches_the_copies_is_refused_before_a_topic_is_created(source: ScriptedCluster) -> None:
    with (
        closing(Clusters(configured(source, source, "m-"))) as clusters,
        pytest.raises(
            ConfigError, match=r"cannot mirror into topic 'copy\.m-a': source and destination are one cluster"
        ),
    ):
        clusters.plan(MirrorPlan(), clusters.source())
    assert source.topics == ["m-a"]


class Started(Exception):
    """The mirror has started a query over these topics."""


class Session:
    """A session whose read ends the test."""

    readStream = property(lambda self: self)  # noqa: N815 - Spark's name

    def format(self, _: str) -> Session:
        return self

    def options(self, **options: str) -> Session:
        raise Started(options["subscribe"])


def test_a_topic_that_appears_while_the_mirror_plans_waits_for_the_next_look(
    source: ScriptedCluster, tmp_path: Path
) -> None:
    class Files(LocalFiles):
        def create(self, path: str, text: str) -> bool:
            source.topics.append("m-new")
            return super().create(path, text)

    config = configured(source, source, "^m-", plan=str(tmp_path))
    session = cast("SparkSession", Session())
    with closing(Clusters(config)) as clusters, pytest.raises(Started, match=r"^m-a$"):
        mirror(session, config, clusters, Files(), stop=StopRequest(), say=lambda *_, **__: None)

"""A mirror reads the topics of both clusters, and creates missing ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from streamgroup.errors import AuthorizationError, ConfigError, ErrorCode
from streamgroup.jobs.job_file import SparkSettings
from streamgroup.jobs.keys import EXACTLY_ONCE
from streamgroup.jobs.mirror.clusters import Clusters, differing, is_one_cluster, refuse_loop, side_of
from streamgroup.jobs.mirror.config import MirrorConfig, Renaming
from streamgroup.jobs.mirror.plan import MirrorPlan
from streamgroup.jobs.mirror.query import mirror
from streamgroup.jobs.signals import StopRequest
from streamgroup.kafka.cluster.configs import TopicConfig
from streamgroup.kafka.wire.messages.admin import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from streamgroup.kafka.wire.messages.produce import ProduceRequest
from streamgroup.kafka.wire.messages.topics import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from streamgroup.logformat import KAFKA07_LOG, KAFKA_LOG
from streamgroup.model import Broker, ClusterSnapshot, Dialect, PartitionInfo, TopicInfo
from streamgroup.options.types import Subscription
from tests.fakes.answers import api_versions, metadata, topic
from tests.fakes.broker import FakeBroker
from tests.fakes.files import LocalFiles


def cluster(*ports: int, dialect: Dialect = Dialect.KAFKA, **topics: tuple[int, ...]) -> ClusterSnapshot:
    brokers = {number: Broker(number, "host", port) for number, port in enumerate(ports)}
    found = {name: TopicInfo(name, tuple(PartitionInfo(p, 0) for p in of)) for name, of in topics.items()}
    return ClusterSnapshot(brokers, found, dialect=dialect)


def test_a_side_has_the_partitions_of_its_topic_or_if_that_is_new_in_0_7_partition_0_of_each_broker() -> None:
    side = side_of("t", cluster(1, t=(1, 0)))
    assert (side.name, side.partitions, side.log_format) == ("t", [0, 1], KAFKA_LOG)
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


def test_one_cluster_may_hold_both_topics_and_two_may_use_one_name() -> None:
    refuse_loop({"a": "copy.a"}, Subscription(pattern="^a"), cluster(1), cluster(1))
    refuse_loop({"a": "a"}, Subscription(pattern="a"), cluster(1), cluster(2))


class ScriptedCluster:
    """A cluster of one broker, with topics of one partition that have the brokers' configurations and their own."""

    def __init__(
        self,
        *topics: str,
        defaults: Mapping[str, str] | None = None,
        cluster_id: str = "fake",
        **versions: tuple[int, int],
    ) -> None:
        self.topics: dict[str, dict[str, str]] = {name: {} for name in topics}
        self.defaults = {"cleanup.policy": "delete", "retention.ms": "604800000", **(defaults or {})}
        self.refused: dict[str, str] = {}
        """Configurations that this cluster does not take, with the reasons."""
        self.refusal = ErrorCode.INVALID_CONFIG
        self.error_of_configs = 0
        spoken = (MetadataRequest, ProduceRequest, CreateTopicsRequest, DescribeConfigsRequest)
        announced = api_versions(**{**{cls.NAME.lower(): cls.VERSIONS for cls in spoken}, **versions})
        announced = replace(announced, api_keys=tuple(api for api in announced.api_keys if api.max_version >= 0))
        self.broker = FakeBroker(
            {
                ApiVersionsRequest: lambda *_: announced,
                MetadataRequest: lambda *_: replace(
                    metadata({1: self.broker.port}, *(topic(name, 1) for name in self.topics)), cluster_id=cluster_id
                ),
                CreateTopicsRequest: self._create,
                DescribeConfigsRequest: self._describe,
            }
        )

    @property
    def options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": f"127.0.0.1:{self.broker.port}"}

    def _create(self, request: CreateTopicsRequest, _: int) -> CreateTopicsResponse:
        results = []
        for wanted in request.topics:
            configs = {config.name: config.value or "" for config in wanted.configs}
            refused = [self.refused[name] for name in configs if name in self.refused]
            if not request.validate_only and not refused:
                self.topics[wanted.name] = configs
            code, message = (self.refusal, refused[0]) if refused else (0, None)
            results.append(CreatableTopicResult(name=wanted.name, error_code=code, error_message=message))
        return CreateTopicsResponse(topics=tuple(results))

    def _describe(self, request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponse:
        results = []
        for asked in request.resources:
            assert asked.resource_type == 2, "a topic"
            own = self.topics[asked.resource_name]
            configs = tuple(
                DescribeConfigsResourceResult(
                    name=name,
                    value=value,
                    is_default=version == 0 and name not in own,
                    config_source=1 if name in own else 5,
                )
                for name, value in {**self.defaults, **own}.items()
            )
            results.append(
                DescribeConfigsResult(
                    error_code=self.error_of_configs,
                    error_message=None,
                    resource_type=2,
                    resource_name=asked.resource_name,
                    configs=() if self.error_of_configs else configs,
                )
            )
        return DescribeConfigsResponse(results=tuple(results))


Start = Callable[..., ScriptedCluster]


@pytest.fixture
def start() -> Iterator[Start]:
    made: list[ScriptedCluster] = []

    def make(*topics: str, **others: Any) -> ScriptedCluster:
        made.append(ScriptedCluster(*topics, **others))
        return made[-1]

    yield make
    for each in made:
        each.broker.stop()


@pytest.fixture
def source(start: Start) -> ScriptedCluster:
    return start("m-a")


@pytest.fixture
def destination(start: Start) -> ScriptedCluster:
    return start()


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
    said = r"cannot mirror into topic 'copy\.m-a': source and destination are one cluster"
    with (
        closing(Clusters(configured(source, source, "m-"))) as clusters,
        pytest.raises(ConfigError, match=said),
    ):
        clusters.plan(MirrorPlan(), clusters.source())
    assert source.topics.keys() == {"m-a"}


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
            source.topics["m-new"] = {}
            return super().create(path, text)

    config = configured(source, source, "^m-", plan=str(tmp_path))
    session = cast("SparkSession", Session())
    with closing(Clusters(config)) as clusters, pytest.raises(Started, match=r"^m-a$"):
        mirror(session, config, clusters, Files(), stop=StopRequest(), say=lambda *_, **__: None)


def test_exactly_once_between_two_clusters_is_refused_before_anything_is_written(
    start: Start, source: ScriptedCluster, tmp_path: Path
) -> None:
    destination = start(cluster_id="other")
    config = replace(configured(source, destination, "^m-", plan=str(tmp_path / "plan")), guarantee=EXACTLY_ONCE)
    said = r"exactly once between two clusters \(ids fake and other\): a transaction of the destination cannot contain"
    with closing(Clusters(config)) as clusters, pytest.raises(ConfigError, match=said):
        mirror(cast("SparkSession", Session()), config, clusters, LocalFiles(), stop=StopRequest(), say=lambda *_: None)
    assert (destination.topics, list(tmp_path.iterdir())) == ({}, [])


def test_options_of_a_destination_without_transactions_are_refused_before_anything_is_written(
    source: ScriptedCluster, tmp_path: Path
) -> None:
    config = replace(configured(source, source, "^m-", plan=str(tmp_path / "plan")), guarantee=EXACTLY_ONCE)
    config = replace(config, destination={**config.destination, "kafka.acks": "1"})
    with closing(Clusters(config)) as clusters, pytest.raises(ConfigError, match=r"it needs kafka\.acks=all"):
        mirror(cast("SparkSession", Session()), config, clusters, LocalFiles(), stop=StopRequest(), say=lambda *_: None)
    assert (source.topics.keys(), list(tmp_path.iterdir())) == ({"m-a"}, [])


@pytest.mark.parametrize(("ids", "is_one"), [(("a", "a"), True), (("a", "b"), False), (("a", None), True)])
def test_one_cluster_has_one_id_or_without_ids_one_address(ids: tuple[str, str | None], *, is_one: bool) -> None:
    sides = [replace(cluster(1), cluster_id=one) for one in ids]
    assert is_one_cluster(*sides) is is_one
    assert not is_one_cluster(cluster(1), cluster(2))


# -- created topics ----------------------------------------------------------------------------------------------------


def created(source: ScriptedCluster, destination: ScriptedCluster) -> list[str]:
    """Create the copies of the source's topics; what the mirror has said."""
    said: list[str] = []
    with closing(Clusters(configured(source, destination, "^m-"), said.append)) as clusters:
        clusters.plan(MirrorPlan(), clusters.source())
    return said


@pytest.mark.parametrize("version", [0, 4])
def test_a_created_topic_has_the_configuration_that_is_set_on_its_source_topic(start: Start, version: int) -> None:
    source, destination = start("m-a", "m-b", describeconfigs=(version, version)), start()
    source.topics["m-a"] = {"cleanup.policy": "compact", "compression.type": "zstd"}
    assert created(source, destination) == ["created topics at the destination: copy.m-a, copy.m-b"]
    assert destination.topics == {"copy.m-a": source.topics["m-a"], "copy.m-b": {}}


def test_configurations_of_replicas_and_of_old_timestamps_are_left_out_and_named(
    source: ScriptedCluster, destination: ScriptedCluster
) -> None:
    source.topics["m-a"] = {
        "retention.ms": "-1",
        "min.insync.replicas": "2",
        "message.timestamp.before.max.ms": "3600000",
    }
    assert created(source, destination)[1:] == [
        "message.timestamp.before.max.ms=3600000 of the source is not copied to copy.m-a",
        "min.insync.replicas=2 of the source is not copied to copy.m-a",
    ]
    assert destination.topics["copy.m-a"] == {"retention.ms": "-1"}


@pytest.mark.parametrize("code", [ErrorCode.INVALID_CONFIG, ErrorCode.UNKNOWN_SERVER_ERROR], ids=["", "of 0.10.2"])
def test_a_configuration_that_the_destination_does_not_know_is_left_out_and_named(
    start: Start, code: ErrorCode
) -> None:
    source, destination = start("m-a", "m-b"), start()
    destination.refusal = code
    destination.refused = {"new.one": "Unknown topic config name: new.one"}
    source.topics["m-a"] = {"flush.ms": "7", "new.one": "1"}
    source.topics["m-b"] = {"flush.ms": "9"}
    assert created(source, destination)[1:] == [
        "new.one=1 (Unknown topic config name: new.one) of the source is not copied to copy.m-a"
    ]
    assert destination.topics == {"copy.m-a": {"flush.ms": "7"}, "copy.m-b": {"flush.ms": "9"}}


def test_a_line_or_an_error_about_a_hundred_topics_names_a_few_of_them(start: Start) -> None:
    source, destination = start(*(f"m-{number:03}" for number in range(100))), start()
    config = replace(configured(source, destination, "^m-"), create=False)
    with (
        closing(Clusters(config)) as clusters,
        pytest.raises(ConfigError, match=r"no topic 'copy\.m-000' \(1 partition\), .* and 97 more topics\. Create it"),
    ):
        clusters.plan(MirrorPlan(), clusters.source())
    for configs in source.topics.values():
        configs["min.insync.replicas"] = "2"
    few = "copy.m-000, copy.m-001, copy.m-002 and 97 more topics"
    assert created(source, destination) == [
        f"created topics at the destination: {few}",
        f"min.insync.replicas=2 of the source is not copied to {few}",
    ]


def test_no_topic_is_created_if_the_destination_refuses_what_keeps_its_records(
    source: ScriptedCluster, destination: ScriptedCluster
) -> None:
    destination.refused = {"cleanup.policy": "Invalid value compact,delete"}
    source.topics["m-a"] = {"cleanup.policy": "compact,delete"}
    with pytest.raises(ConfigError, match=r"cannot create topic 'copy\.m-a' \(Invalid value compact,delete\)"):
        created(source, destination)
    assert destination.topics == {}


def test_defaults_by_which_the_destination_removes_or_refuses_records_are_a_warning(start: Start) -> None:
    source = start("m-a", "m-b", "m-c", defaults={"retention.ms": "-1", "max.message.bytes": "2000000"})
    destination = start(defaults={"retention.ms": "86400000", "max.message.bytes": "1048588"})
    source.topics["m-b"] = {"cleanup.policy": "compact", "max.message.bytes": "1000"}
    source.topics["m-c"] = {"retention.ms": "3600000"}
    assert created(source, destination)[1:] == [
        "warning: retention.ms is -1 at the source and 86400000 at the destination, which can remove records of the "
        "copy that the source keeps: copy.m-a. Set retention.ms on them",
        "warning: max.message.bytes is 2000000 at the source and 1048588 at the destination, which can refuse records "
        "that the source has: copy.m-a, copy.m-c. Set max.message.bytes on them",
    ]


@pytest.mark.parametrize(
    ("name", "source", "destination", "differs"),
    [
        ("cleanup.policy", "compact", "delete", True),
        ("cleanup.policy", "delete", "delete, compact", True),
        ("cleanup.policy", "compact,delete", "delete", False),
        ("retention.bytes", "-1", "1000", True),
        ("retention.bytes", "1000", "-1", False),
        ("message.timestamp.type", "CreateTime", "LogAppendTime", True),
        ("message.timestamp.after.max.ms", "9223372036854775807", "3600000", True),
        ("message.timestamp.before.max.ms", "3600000", "9223372036854775807", False),
        ("compression.type", "zstd", "gzip", False),
    ],
)
def test_a_destination_that_keeps_or_takes_less_differs(
    name: str, source: str, destination: str, *, differs: bool
) -> None:
    sides = (
        {"cleanup.policy": TopicConfig("delete", False), name: TopicConfig(v, False)} for v in (source, destination)
    )
    assert list(differing(*sides)) == ([(name, source, destination)] if differs else [])


def test_a_configuration_that_one_release_lacks_does_not_differ() -> None:
    destination = {"retention.bytes": TopicConfig("1", True), "cleanup.policy": TopicConfig("delete", True)}
    assert list(differing({}, destination)) == []


def test_a_source_that_does_not_describe_configurations_is_a_warning(start: Start) -> None:
    source, destination = start("m-a", describeconfigs=(-1, -1)), start()
    (_, warning) = created(source, destination)
    assert warning.startswith("warning: the source is older than Kafka 0.11 and does not describe the configuration")
    assert destination.topics == {"copy.m-a": {}}


def test_a_source_that_may_not_be_described_ends_the_mirror_before_a_topic_is_created(
    source: ScriptedCluster, destination: ScriptedCluster
) -> None:
    source.error_of_configs = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    said = r"operation DescribeConfigs on topic 'm-a'\. To allow it: `kafka-acls"
    with pytest.raises(AuthorizationError, match=said):
        created(source, destination)
    assert destination.topics == {}


def test_a_destination_that_may_not_be_described_is_a_warning(
    source: ScriptedCluster, destination: ScriptedCluster
) -> None:
    destination.error_of_configs = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    (_, warning) = created(source, destination)
    said = "warning: cannot compare the configuration of the created topics with the source's: cannot"
    assert warning.startswith(said)


def test_a_broker_that_does_not_know_a_new_topic_yet_is_asked_again(
    source: ScriptedCluster, destination: ScriptedCluster
) -> None:
    destination.error_of_configs = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = destination.broker.handlers[DescribeConfigsRequest]

    def later(request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponse:
        response: DescribeConfigsResponse = answer(request, version)
        destination.error_of_configs = 0
        return response

    destination.broker.handlers[DescribeConfigsRequest] = later
    assert created(source, destination) == ["created topics at the destination: copy.m-a"]

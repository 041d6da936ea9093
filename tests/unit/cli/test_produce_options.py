"""The command line of `streamgroup produce` becomes a write whose records are delivered or fail within its timeout."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroup.cli._cluster import ClusterAddress
from streamgroup.cli._produce_options import parse_properties, sink_options
from streamgroup.errors import ConfigError
from streamgroup.options.types import SinkOptions

BROKER = ClusterAddress("127.0.0.1:9092")


def options(
    properties: dict[str, str] | None = None,
    *,
    where: ClusterAddress = BROKER,
    topic: str | None = "orders",
    compression: str = "none",
    timeout_ms: int = 30_000,
    include_timestamp: bool = False,
) -> SinkOptions:
    return sink_options(where, topic, properties or {}, compression, timeout_ms, include_timestamp=include_timestamp)


@pytest.mark.parametrize(
    ("timeout_ms", "linger_ms", "request_ms"),
    [(30_000, 20, 15_000), (80, 20, 40), (40, 10, 20), (4, 1, 2), (1, 0, 1)],
)
def test_every_wait_of_a_record_fits_into_the_timeout(timeout_ms: int, linger_ms: int, request_ms: int) -> None:
    found = options(timeout_ms=timeout_ms)
    assert (found.producer.delivery_timeout_ms, found.producer.max_block_ms) == (timeout_ms, timeout_ms)
    assert (found.producer.linger_ms, found.client.request_timeout_ms) == (linger_ms, request_ms)
    assert linger_ms + request_ms <= max(timeout_ms, 1), "else Kafka refuses the delivery timeout"


def test_a_request_to_the_cluster_takes_no_longer_than_the_user_says() -> None:
    assert options(timeout_ms=700).client.default_api_timeout_ms == 700
    in_zookeeper = options(where=ClusterAddress(zookeeper="zk1:2181/kafka"), timeout_ms=700).client.zookeeper
    assert in_zookeeper is not None
    assert in_zookeeper.connection_timeout_ms == 700


def test_the_command_line_names_the_cluster_the_topic_the_codec_and_the_columns() -> None:
    found = options(compression="lz4", include_timestamp=True)
    assert found.client.bootstrap_servers == (("127.0.0.1", 9092),)
    assert found.client.client_id == "streamgroup-produce"
    assert (found.topic, found.producer.compression, found.include_timestamp) == ("orders", "lz4", True)
    assert options(topic=None).topic is None, "each record of JSON names its own"
    assert not options().include_timestamp


def test_properties_take_precedence_over_the_defaults_of_the_command() -> None:
    properties = {"kafka.linger.ms": "3", "kafka.batch.size": "1000", "kafka.client.id": "mine", "kafka.acks": "1"}
    found = options(properties)
    assert (found.producer.linger_ms, found.producer.batch_size, found.producer.acks) == (3, 1_000, 1)
    assert found.client.client_id == "mine"
    assert options().producer.batch_size == 128 * 1024


def test_a_property_takes_precedence_over_the_file_of_the_connection(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=of the file\n")
    where = ClusterAddress("b:9092", command_config=file)
    assert options(where=where).client.client_id == "of the file"
    assert options({"kafka.client.id": "mine"}, where=where).client.client_id == "mine"


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"kafka.acks": "7"}, "invalid value '7' for option kafka.acks"),
        ({"kafka.linger.mss": "1"}, "Did you mean 'kafka.linger.ms'"),
        ({"verifyWaitMs": "soon"}, "verifyWaitMs"),
    ],
)
def test_an_invalid_property_is_an_error_with_the_name_of_the_option(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        options(properties)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("acks=1", {"kafka.acks": "1"}),
        ("VerifyWaitMs=7", {"verifyWaitMs": "7"}),
        ("verify=true", {"verify": "true"}),
        ("partitioner=murmur2", {"partitioner": "murmur2"}),
    ],
)
def test_properties_are_those_of_a_producer_and_of_the_sink(value: str, expected: dict[str, str]) -> None:
    assert parse_properties([value]) == expected


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("bootstrap.servers", "--bootstrap-server"),
        ("zookeeper.connect", "--zookeeper"),
        ("compression.type", "-z"),
        ("delivery.timeout.ms", "--timeout"),
        ("kafka.max.block.ms", "--timeout"),
    ],
)
def test_a_property_that_has_an_option_of_its_own_names_it(name: str, option: str) -> None:
    with pytest.raises(ValueError, match=f"cannot set {name}: use {option}"):
        parse_properties([f"{name}=1"])

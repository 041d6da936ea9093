"""The command lines of `streamgroup produce` and `consume` become the options of a write or a read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.cli._cluster import ClusterAddress
from streamgroup.cli._kcat_options import (
    Bounds,
    ConsumeStart,
    NoSuchPartition,
    StartKind,
    TopicArgument,
    group_start,
    parse_bounds,
    parse_consume_properties,
    parse_produce_properties,
    parse_topics,
    partitions_of,
    sink_options,
    source_options,
)
from streamgroup.cli._properties import without_prefix
from streamgroup.errors import ConfigError
from streamgroup.model import Dialect, TopicPartition
from streamgroup.options.types import GroupMode, Isolation, SinkOptions
from tests.unit.cli.shown import orders_cluster

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
    ("timeout_ms", "linger_ms", "request_ms"), [(30_000, 20, 15_000), (80, 20, 40), (40, 10, 20), (4, 1, 2), (1, 0, 1)]
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


# -- properties --------------------------------------------------------------------------------------------------------

BOTH = (parse_produce_properties, parse_consume_properties)
Parse = Callable[[list[str]], dict[str, str]]


@pytest.mark.parametrize(
    ("parse", "value", "expected"),
    [
        (parse_produce_properties, "acks=1", {"kafka.acks": "1"}),
        (parse_produce_properties, "VerifyWaitMs=7", {"verifyWaitMs": "7"}),
        (parse_produce_properties, "verify=true", {"verify": "true"}),
        (parse_produce_properties, "partitioner=murmur2", {"partitioner": "murmur2"}),
        (parse_consume_properties, "fetch.min.bytes=7", {"kafka.fetch.min.bytes": "7"}),
        (parse_consume_properties, "kafka.fetch.min.bytes=7", {"kafka.fetch.min.bytes": "7"}),
        (parse_consume_properties, "Fetch.MIN.bytes=7", {"kafka.fetch.min.bytes": "7"}),
        (parse_consume_properties, "KAFKA.fetch.min.bytes=7", {"kafka.fetch.min.bytes": "7"}),
        (parse_consume_properties, "FailOnDataLoss=false", {"failOnDataLoss": "false"}),
        (parse_consume_properties, "fetch.Min.byte=1", {"kafka.fetch.Min.byte": "1"}),  # to suggest the nearest name
        *((parse, "sasl.jaas.config=a=b=c", {"kafka.sasl.jaas.config": "a=b=c"}) for parse in BOTH),
        *((parse, "client.id=", {"kafka.client.id": ""}) for parse in BOTH),
        *((parse, "zookeeper.session.timeout.ms=9", {"zookeeper.session.timeout.ms": "9"}) for parse in BOTH),
        *((parse, "Zookeeper.SSL.client.enable=true", {"zookeeper.ssl.client.enable": "true"}) for parse in BOTH),
    ],
)
def test_a_property_is_an_option_by_its_own_spelling(parse: Parse, value: str, expected: dict[str, str]) -> None:
    assert parse([value]) == expected
    assert parse([]) == {}


def test_of_one_property_in_two_spellings_the_last_value_counts() -> None:
    found = parse_consume_properties(["fetch.min.bytes=1", "client.id=c", "kafka.fetch.min.bytes=2"])
    assert found == {"kafka.fetch.min.bytes": "2", "kafka.client.id": "c"}


@pytest.mark.parametrize("value", ["", "acks", "=1", "="])
def test_a_text_that_is_not_a_name_and_a_value_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="expected NAME=VALUE") as refused:
        parse_consume_properties(["client.id=c", value])
    assert repr(value) in str(refused.value)


@pytest.mark.parametrize(
    ("parse", "name", "option"),
    [
        *((parse, "bootstrap.servers", "--bootstrap-server") for parse in BOTH),
        *((parse, "Kafka.Bootstrap.Servers", "--bootstrap-server") for parse in BOTH),
        *((parse, "zookeeper.connect", "--zookeeper") for parse in BOTH),
        (parse_produce_properties, "compression.type", "-z"),
        (parse_produce_properties, "delivery.timeout.ms", "--timeout"),
        (parse_produce_properties, "kafka.max.block.ms", "--timeout"),
    ],
)
def test_a_property_that_has_an_option_of_its_own_names_it(parse: Parse, name: str, option: str) -> None:
    with pytest.raises(ValueError, match=f"cannot set {name}: use {option}"):
        parse([f"{name}=1"])


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (
            "invalid value for option kafka.sasl.jaas.config: no password",
            "invalid value for option sasl.jaas.config: no password",
        ),
        ("Correct keyTab in kafka.sasl.jaas.config, or klist", "Correct keyTab in sasl.jaas.config, or klist"),
        ("within kafka.max.block.ms=700. Raise kafka.max.block.ms.", "within max.block.ms=700. Raise max.block.ms."),
        (
            "unknown option 'kafka.sasl.mechansm'. Did you mean 'kafka.sasl.mechanism'?",
            "unknown option 'sasl.mechansm'. Did you mean 'sasl.mechanism'?",
        ),
        ("unknown option 'Kafka.SASL.mechansm'", "unknown option 'SASL.mechansm'"),
        *(
            (same, same)
            for same in (
                "cannot connect to broker kafka.example.com:9092: kafka.example.com is unknown",
                "topic 'kafka.orders' does not exist",
                "group my-kafka.acks, file /etc/kafka.acks, org.apache.kafka.acks",
            )
        ),
    ],
)
def test_messages_name_properties_as_the_files_of_kafka_do(message: str, shown: str) -> None:
    assert without_prefix(message) == shown


# -- offsets, topics and partitions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        ((), Bounds()),
        (("beginning",), Bounds(ConsumeStart(StartKind.BEGINNING))),
        (("end",), Bounds(ConsumeStart(StartKind.END))),
        (("stored",), Bounds(ConsumeStart(StartKind.STORED))),
        (("0",), Bounds(ConsumeStart(StartKind.OFFSET, 0))),
        (("-5",), Bounds(ConsumeStart(StartKind.LAST, 5))),
        (("s@1700000000000",), Bounds(ConsumeStart(StartKind.TIMESTAMP, 1700000000000))),
        (("e@9",), Bounds(None, 9)),
        (("e@9", "s@3"), Bounds(ConsumeStart(StartKind.TIMESTAMP, 3), 9)),
        (("-1", "e@9"), Bounds(ConsumeStart(StartKind.LAST, 1), 9)),
    ],
)
def test_offsets_are_kcats(values: tuple[str, ...], bounds: Bounds) -> None:
    assert parse_bounds(values) == bounds


@pytest.mark.parametrize(
    "values", [("",), ("begin",), ("--1",), ("1.5",), ("s@-1",), ("s@",), ("x@1",), ("1", "2"), ("e@1", "e@2")]
)
def test_other_offsets_are_refused(values: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_bounds(values)


@given(st.text())
def test_any_offset_is_parsed_or_refused(text: str) -> None:
    try:
        bounds = parse_bounds([text])
    except ValueError:
        return
    assert (bounds.start is None) != (bounds.stop is None)


def test_topics_take_the_partition_of_p_but_for_those_with_one_of_their_own() -> None:
    assert parse_topics(["a", "b:1-2", "a"], "3") == (TopicArgument("a", "3"), TopicArgument("b", "1-2"))
    assert parse_topics(["a"], None) == (TopicArgument("a"),)
    for text in (":1", "a:", ""):
        with pytest.raises(ValueError, match="TOPIC:PARTITION"):
            parse_topics([text], None)


def test_partitions_are_found_by_the_names_that_the_cluster_gives_them() -> None:
    modern, old = (orders_cluster(dialect).snapshot(None, 0.0) for dialect in (Dialect.KAFKA, Dialect.KAFKA07))
    assert partitions_of([TopicArgument("orders")], modern) == [TopicPartition("orders", n) for n in range(4)]
    assert partitions_of([TopicArgument("orders", "2"), TopicArgument("orders", "2")], modern) == [
        TopicPartition("orders", 2)
    ]
    assert partitions_of([TopicArgument("orders", "1-1")], old) == [TopicPartition("orders", 10001)]
    with pytest.raises(ConfigError, match="invalid partition '1' of topic 'orders': expected <broker>-<partition>"):
        partitions_of([TopicArgument("orders", "1")], old)


def test_topics_and_partitions_that_do_not_exist_are_named_together() -> None:
    snapshot = orders_cluster().snapshot(None, 0.0)
    with pytest.raises(NoSuchPartition, match="topic 'no' does not exist; topic 'orders' has no partition 9"):
        partitions_of([TopicArgument("no"), TopicArgument("orders", "9"), TopicArgument("orders", "1")], snapshot)


BROKERS = ClusterAddress(bootstrap_server="b:1")


def test_options_read_committed_records_alone_unless_properties_say_otherwise() -> None:
    options = source_options(BROKERS, ["a", "b"], {}, 5_000, include_headers=True)
    assert (options.fetch.isolation, options.fetch.include_headers) == (Isolation.READ_COMMITTED, True)
    assert options.subscription.topics == ("a", "b")
    assert options.client.default_api_timeout_ms == options.fetch.poll_timeout_ms == 5_000
    assert options.group is not None
    assert options.group.mode is GroupMode.OFF
    given = {"kafka.isolation.level": "read_uncommitted"}
    uncommitted = source_options(BROKERS, ["a"], given, 5_000, include_headers=False)
    assert uncommitted.fetch.isolation is Isolation.READ_UNCOMMITTED


def test_a_group_makes_the_reader_a_member_that_starts_as_o_says() -> None:
    given = {"kafka.group.id": "g", **group_start(Bounds(ConsumeStart(StartKind.TIMESTAMP, 7)))}
    options = source_options(BROKERS, ["a"], given, 5_000, include_headers=False)
    assert options.group is not None
    assert (options.group.mode, options.group.group_id) == (GroupMode.MEMBER, "g")
    assert (options.starting.timestamp, options.starting.no_match_is_latest) == (7, True)
    assert group_start(Bounds()) == group_start(Bounds(ConsumeStart(StartKind.STORED))) == {"startingOffsets": "latest"}
    assert group_start(Bounds(ConsumeStart(StartKind.BEGINNING))) == {"startingOffsets": "earliest"}


@pytest.mark.parametrize(
    "bounds", [Bounds(stop=1), Bounds(ConsumeStart(StartKind.OFFSET, 1)), Bounds(ConsumeStart(StartKind.LAST))]
)
def test_a_group_starts_at_no_offset_and_stops_at_no_time(bounds: Bounds) -> None:
    with pytest.raises(ValueError, match="cannot"):
        group_start(bounds)

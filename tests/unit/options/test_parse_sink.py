from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import ConfigError
from streamgroup.kafka.producer.partitioners import PARTITIONERS
from streamgroup.options.parse import SINK_OPTIONS, parse_sink
from streamgroup.options.producer import PRODUCER
from streamgroup.options.rows import Effect, Scope, default_of
from streamgroup.options.types import ClientOptions, ProducerOptions, SinkOptions, ZooKeeperOptions

SERVERS = "kafka.bootstrap.servers"
CLIENT = ClientOptions((("b1", 9092),))


def write(**changes: Any) -> SinkOptions:
    """The options of a write, in which `__` stands for a dot; None leaves an option out."""
    named = {SERVERS: "b1:9092", **{name.replace("__", "."): value for name, value in changes.items()}}
    return parse_sink({name: value for name, value in named.items() if value is not None})


def refused(**changes: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        write(**changes)
    return str(raised.value)


# -- the least that works, and every field -----------------------------------------------------------------------------


def test_a_write_needs_servers_only() -> None:
    assert write() == SinkOptions(client=CLIENT, producer=ProducerOptions())
    assert "kafka.bootstrap.servers is required" in refused(kafka__bootstrap__servers=None)


def test_a_zookeeper_names_the_brokers_too_and_bootstrap_servers_take_precedence() -> None:
    options = write(kafka__bootstrap__servers=None, zookeeper__connect="zk1:2181/k")
    assert options.client == ClientOptions((), zookeeper=ZooKeeperOptions((("zk1", 2181),), "/k"))
    options = write(zookeeper__connect="zk1:2181/k")
    assert options.client == CLIENT
    assert options.notes == ("ignored option zookeeper.connect: 'kafka.bootstrap.servers' names the brokers",)


def test_messages_of_07_are_as_large_as_its_brokers_take_unless_the_user_says_so() -> None:
    assert write().producer.max_message_size == 1_000_000
    assert write(kafka__max__request__size="2000000").producer.max_message_size == 2_000_000


def test_what_spark_adds_to_the_options_of_a_stream_is_no_option_of_the_user() -> None:
    assert write(queryname="q", checkpointLocation="/c") == write()


SINK_EXAMPLES = {
    "topic": (" orders ", "orders"),
    "includeTimestamp": ("true", True),
    "verify": ("TRUE", True),
    "verifyWaitMs": ("60000", 60_000),
    "partitioner": ("Consistent_Random", "consistent_random"),
    "kafka.acks": ("1", 1),
    "kafka.enable.idempotence": ("false", False),
    "kafka.batch.size": ("0", 0),
    "kafka.linger.ms": ("20", 20),
    "kafka.compression.type": ("LZ4", "lz4"),
    "kafka.buffer.memory": ("5000000000", 5_000_000_000),
    "kafka.max.request.size": ("9", 9),
    "kafka.max.in.flight.requests.per.connection": ("1", 1),
    "kafka.retries": ("3", 3),
    "kafka.delivery.timeout.ms": ("40000", 40_000),
    "kafka.max.block.ms": ("0", 0),
    "kafka.metadata.max.idle.ms": ("5000", 5000),
    "kafka.partitioner.ignore.keys": ("true", True),
    "kafka.partitioner.adaptive.partitioning.enable": ("false", False),
}


@pytest.mark.parametrize("name", SINK_EXAMPLES)
def test_a_value_of_the_sink_reaches_its_field(name: str) -> None:
    text, value = SINK_EXAMPLES[name]
    options = write(**{name: text})
    section, _, field = SINK_OPTIONS[name.lower()].target.partition(".")
    assert getattr(options if section == "sink" else options.producer, field) == value
    assert value != getattr(SinkOptions(CLIENT, ProducerOptions()) if section == "sink" else ProducerOptions(), field)


def test_the_examples_are_all_options_that_set_a_field_of_a_write() -> None:
    targets = {row.name for row in SINK_OPTIONS.values() if row.target.startswith(("sink.", "producer."))}
    assert targets == SINK_EXAMPLES.keys()


@pytest.mark.parametrize(("text", "acks"), [("all", -1), ("-1", -1), ("1", 1), ("0", 0)])
def test_acks(text: str, acks: int) -> None:
    assert write(kafka__acks=text).producer.acks == acks


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("kafka.acks", "2", "expected all or -1 or 1 or 0"),
        ("kafka.compression.type", "brotli", "expected none or gzip or snappy or lz4 or zstd"),
        ("kafka.max.in.flight.requests.per.connection", "0", "expected an integer from 1"),
        ("kafka.security.protocol", "TLS", "expected plaintext or ssl or sasl_plaintext or sasl_ssl"),
        ("partitioner", "fnv1a", "expected default or sticky"),
        ("topic", "a b", "invalid topic name 'a b'"),
        ("topic", " ", "expected a text that is not empty"),
    ],
)
def test_an_invalid_value_is_shown_with_what_is_expected(name: str, value: str, why: str) -> None:
    text = refused(**{name: value})
    assert f"for option {name}: " in text
    assert why in text


# -- options that must fit together ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "text", "level"),
    [
        *(("gzip", "1", 1), ("lz4", "17", 17), ("zstd", "-7", -7)),
        *(("gzip", "-1", None), ("lz4", "9", None), ("zstd", "3", None)),
    ],
)
def test_the_level_is_that_of_the_codec_and_javas_default_the_codecs_own(
    codec: str, text: str, level: int | None
) -> None:
    options = write(**{"kafka.compression.type": codec, f"kafka.compression.{codec}.level": text})
    assert (options.producer.compression, options.producer.compression_level) == (codec, level)
    assert options.notes == ()


def test_the_level_of_another_codec_has_no_effect() -> None:
    options = write(**{"kafka.compression.type": "lz4", "kafka.compression.gzip.level": "3"})
    assert options.producer.compression_level is None
    assert options.notes == ("ignored option kafka.compression.gzip.level: kafka.compression.type is lz4",)


@pytest.mark.parametrize("changes", [{"kafka.acks": "1"}, {"kafka.acks": "0"}, {"kafka.retries": "0"}])
def test_the_default_idempotence_gives_way_to_what_rules_it_out(changes: dict[str, str]) -> None:
    options = write(**changes)
    assert not options.producer.enable_idempotence
    ((name, value),) = changes.items()
    assert options.notes == (f"idempotence is off, because {name} is {value}: a retry may repeat records",)
    text = refused(**changes, **{"kafka.enable.idempotence": "true"})
    assert text.startswith("cannot use kafka.enable.idempotence=true with kafka.")
    assert write(**changes, **{"kafka.enable.idempotence": "false"}).notes == ()


@pytest.mark.parametrize(
    ("given", "required"), [({}, False), ({"kafka.enable.idempotence": "true"}, True), ({"kafka.acks": "1"}, False)]
)
def test_idempotence_is_required_of_the_broker_only_where_the_user_asks_for_it(
    given: dict[str, str], required: bool
) -> None:
    assert write(**given).producer.require_idempotence is required


def test_idempotence_allows_five_requests_in_flight() -> None:
    name = "kafka.max.in.flight.requests.per.connection"
    assert write(**{name: "5"}).producer.enable_idempotence
    assert f"{name} (6) must not be above 5 with idempotence" in refused(**{name: "6"})
    assert write(**{name: "6", "kafka.enable.idempotence": "false"}).producer.max_in_flight == 6


def test_a_delivery_takes_at_least_one_request() -> None:
    text = refused(**{"kafka.delivery.timeout.ms": "30004"})
    assert "kafka.delivery.timeout.ms (30004) must not be below kafka.linger.ms (5) plus" in text
    assert "Set 30005 or more" in text
    assert write(**{"kafka.delivery.timeout.ms": "30005"}).producer.delivery_timeout_ms == 30_005


def test_the_default_delivery_timeout_grows_with_the_request_timeout_and_stays_an_int() -> None:
    options = write(**{"kafka.request.timeout.ms": "200000"})
    assert options.producer.delivery_timeout_ms == 200_005
    assert options.notes[0].startswith("kafka.delivery.timeout.ms is 200005, which is kafka.linger.ms (5) plus")
    assert write(**{"kafka.linger.ms": str(2**62)}).producer.delivery_timeout_ms == 2**31 - 1


# -- partitioners ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PARTITIONERS)
def test_every_partitioner_has_its_word(name: str) -> None:
    assert write(partitioner=name).producer.partitioner == name


@pytest.mark.parametrize(
    ("java", "name"),
    [
        ("org.apache.kafka.clients.producer.RoundRobinPartitioner", "round_robin"),
        ("org.apache.kafka.clients.producer.internals.DefaultPartitioner", "sticky"),
        ("kafka.producer.DefaultPartitioner", "hashcode"),
        ("kafka.producer.ByteArrayPartitioner", "hashcode_bytes"),
    ],
)
def test_a_known_java_class_is_its_partitioner(java: str, name: str) -> None:
    assert write(kafka__partitioner__class=java).producer.partitioner == name
    assert write(kafka__partitioner__class=java, partitioner=name).producer.partitioner == name
    contradiction = refused(kafka__partitioner__class=java, partitioner="default")
    assert f"contradict each other: the class is the partitioner '{name}'" in contradiction
    unknown = refused(kafka__partitioner__class="com.example.Mine")
    assert "Python cannot run another Java class. Set 'partitioner'" in unknown


# -- refused, ignored, unknown -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("kafka.key.serializer", "keys and values are written as bytes"),
        ("kafka.value.serializer", "keys and values are written as bytes"),
        ("kafka.transactional.id", "format('streamgroup') cannot write in transactions"),
        ("kafka.interceptor.classes", "an interceptor is a Java class"),
        ("kafka.config.providers", "streamgroup would take references such as"),
        ("kafka.zookeeper.connect", "streamgroup names it differently. Set 'zookeeper.connect'"),
    ],
)
def test_a_property_that_would_break_a_guarantee_is_refused(name: str, why: str) -> None:
    assert refused(**{name: "x"}).startswith(f"cannot use option {name}: {why}")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("includeHeaders", "a write always takes the column 'headers' if the query has it"),
        ("startingOffsets", "the option is for reads"),
        ("group.mode", "the option is for reads"),
        ("kafka.group.id", "the property is for consumers"),
        ("kafka.auto.offset.reset", "the property is for consumers"),
        ("kafka.zookeeper.sync.time.ms", "the property is for consumers"),
        ("kafka.producer.type", "a task sends in the background"),
        ("kafka.transaction.timeout.ms", "a write uses no transactions"),
        ("kafka.partitioner.availability.timeout.ms", "a partition counts as available while it has a leader"),
        ("kafka.metric.reporters", "the property concerns the internals of the Java client"),
        ("kafka.sasl.jaas.config", "kafka.security.protocol is PLAINTEXT, which has no SASL"),
        ("kafka.ssl.provider", "TLS is implemented by OpenSSL, which has no such setting"),
    ],
)
def test_an_ignored_option_is_named_in_the_log(name: str, why: str) -> None:
    (note,) = write(**{name: "x"}).notes
    assert note.startswith(f"ignored option {name}: {why}")


def test_a_reason_names_only_options_that_exist_in_a_write() -> None:
    for row in SINK_OPTIONS.values():
        for word in row.why.split("'")[1::2]:
            named = SINK_OPTIONS.get(word.lower())
            assert named is None or named.effect(Scope.WRITE) is not Effect.REFUSED, row.name


@given(
    given=st.dictionaries(
        st.sampled_from(sorted(SINK_OPTIONS)), st.one_of(st.text(max_size=8), st.sampled_from(["1", "all", "true"]))
    )
)
def test_any_options_of_the_sink_are_understood_or_a_config_error(given: dict[str, str]) -> None:
    with contextlib.suppress(ConfigError):
        assert isinstance(parse_sink({SERVERS: "b1:9092", **given}), SinkOptions)


ROWS = {row.name.removeprefix("kafka."): row for row in PRODUCER}


def invalid(name: str, text: str) -> str:
    with pytest.raises(ValueError, match="expected") as raised:
        ROWS[name].kind.parse(text)
    return str(raised.value)


@pytest.mark.parametrize(("name", "default"), [("acks", -1), ("batch.size", 524_288)])
def test_all_replicas_acknowledge_by_default_and_a_batch_is_larger_than_javas(name: str, default: int) -> None:
    assert default_of(ROWS[name]) == default


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [
        ("retries", 0, 2**31 - 1),
        ("delivery.timeout.ms", 0, 2**31 - 1),
        ("max.in.flight.requests.per.connection", 1, 2**31 - 1),
        ("max.block.ms", 0, 2**63 - 1),
        ("batch.size", 0, 2**31 - 1),
        ("linger.ms", 0, 2**63 - 1),
        ("buffer.memory", 0, 2**63 - 1),
        ("max.request.size", 0, 2**31 - 1),
    ],
)
def test_a_number_has_the_range_that_javas_producer_gives_it(name: str, lowest: int, highest: int) -> None:
    parse = ROWS[name].kind.parse
    assert (parse(str(lowest)), parse(str(highest))) == (lowest, highest)
    for beyond in (lowest - 1, highest + 1):
        assert invalid(name, str(beyond)) == f"expected an integer from {lowest} to {highest}"


@pytest.mark.parametrize(
    ("codec", "lowest", "highest", "default"), [("gzip", 1, 9, -1), ("lz4", 1, 17, 9), ("zstd", -131_072, 22, 3)]
)
def test_a_compression_level_has_the_range_of_its_codec(codec: str, lowest: int, highest: int, default: int) -> None:
    name = f"compression.{codec}.level"
    assert ROWS[name].default_text == f"`{default}`"
    assert (ROWS[name].kind.parse(str(lowest)), ROWS[name].kind.parse(str(highest))) == (lowest, highest)
    for beyond in (lowest - 1, highest + 1):
        assert invalid(name, str(beyond)) == f"expected an integer from {lowest} to {highest}"


@pytest.mark.parametrize("name", ["connect", "connection.timeout.ms", "session.timeout.ms"])
def test_an_old_name_of_a_zookeeper_option_is_refused_with_the_name_that_a_write_has(name: str) -> None:
    row = ROWS[f"zookeeper.{name}"]
    assert row.effect(Scope.WRITE) is Effect.REFUSED
    assert row.reason(Scope.WRITE).endswith(f"Set 'zookeeper.{name}'")


def test_a_property_that_both_clients_have_is_used_in_a_write_and_not_in_a_read() -> None:
    for name in ("bootstrap.servers", "client.id", "request.timeout.ms", "security.protocol"):
        assert ROWS[name].effect(Scope.WRITE) is Effect.USED
        assert ROWS[name].effect(Scope.ALL) is not Effect.USED

"""Kafka's properties of a write: a user sets those of the Java producer, and learns why another one has no effect."""

from __future__ import annotations

import pytest

from streamgroup.options.producer import PRODUCER
from streamgroup.options.rows import Effect, Scope, default_of

ROWS = {row.name.removeprefix("kafka."): row for row in PRODUCER}


def invalid(name: str, text: str) -> str:
    with pytest.raises(ValueError, match="expected") as raised:
        ROWS[name].kind.parse(text)
    return str(raised.value)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("acks", "producer.acks"),
        ("enable.idempotence", "producer.enable_idempotence"),
        ("retries", "producer.retries"),
        ("delivery.timeout.ms", "producer.delivery_timeout_ms"),
        ("max.in.flight.requests.per.connection", "producer.max_in_flight"),
        ("max.block.ms", "producer.max_block_ms"),
        ("batch.size", "producer.batch_size"),
        ("linger.ms", "producer.linger_ms"),
        ("buffer.memory", "producer.buffer_memory"),
        ("max.request.size", "producer.max_request_size"),
        ("compression.type", "producer.compression"),
        ("partitioner.ignore.keys", "producer.ignore_keys"),
        ("partitioner.adaptive.partitioning.enable", "producer.adaptive_partitioning"),
    ],
)
def test_a_used_property_sets_its_field_of_the_producer(name: str, target: str) -> None:
    row = ROWS[name]
    assert row.effect(Scope.WRITE) is Effect.USED
    assert row.target == target


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
    assert ROWS[name].default == f"`{default}`"
    assert (ROWS[name].kind.parse(str(lowest)), ROWS[name].kind.parse(str(highest))) == (lowest, highest)
    assert invalid(name, str(lowest - 1)) == invalid(name, str(highest + 1))


@pytest.mark.parametrize("name", ["connect", "connection.timeout.ms", "session.timeout.ms"])
def test_an_old_name_of_a_zookeeper_option_is_refused_with_the_name_that_a_write_has(name: str) -> None:
    row = ROWS[f"zookeeper.{name}"]
    assert row.effect(Scope.WRITE) is Effect.REFUSED
    assert row.reason(Scope.WRITE).endswith(f"Set 'zookeeper.{name}'")


def test_a_property_that_both_clients_have_is_used_in_a_write_and_not_in_a_read() -> None:
    for name in ("bootstrap.servers", "client.id", "request.timeout.ms", "security.protocol"):
        assert ROWS[name].effect(Scope.WRITE) is Effect.USED
        assert ROWS[name].effect(Scope.ALL) is not Effect.USED

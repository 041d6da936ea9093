"""The properties of the producers of Kafka 0.7 and 0.8: a user learns the new name, or why there is none."""

from __future__ import annotations

import pytest

from streamgroup.options.old_producers import OLD_PRODUCERS
from streamgroup.options.rows import Effect, Scope

ROWS = {row.name: row for row in OLD_PRODUCERS}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # by the documentation of 0.7
        ("zk.connect", "zookeeper.connect"),
        ("zk.sessiontimeout.ms", "zookeeper.session.timeout.ms"),
        ("zk.connectiontimeout.ms", "zookeeper.connection.timeout.ms"),
        ("buffer.size", "kafka.send.buffer.bytes"),
        ("connect.timeout.ms", "kafka.socket.connection.setup.timeout.ms"),
        ("socket.timeout.ms", "kafka.request.timeout.ms"),
        ("max.message.size", "kafka.max.request.size"),
        ("num.retries", "kafka.retries"),
        ("queue.time", "kafka.linger.ms"),
        ("queue.enqueueTimeout.ms", "kafka.max.block.ms"),
        ("compression.codec", "kafka.compression.type"),
        # by the documentation of 0.8
        ("metadata.broker.list", "kafka.bootstrap.servers"),
        ("request.required.acks", "kafka.acks"),
        ("message.send.max.retries", "kafka.retries"),
        ("topic.metadata.refresh.interval.ms", "kafka.metadata.max.age.ms"),
        ("queue.buffering.max.ms", "kafka.linger.ms"),
        ("queue.enqueue.timeout.ms", "kafka.max.block.ms"),
        # by the documentation of the Java producer of 0.8.2
        ("metadata.fetch.timeout.ms", "kafka.max.block.ms"),
        ("timeout.ms", "kafka.request.timeout.ms"),
    ],
)
def test_a_property_that_has_a_new_name_is_refused_with_that_name(old: str, new: str) -> None:
    row = ROWS[f"kafka.{old}"]
    assert row.effect(Scope.WRITE) is Effect.REFUSED
    assert row.reason(Scope.WRITE).endswith(f"Set '{new}'")


@pytest.mark.parametrize(
    ("names", "instead"),
    [
        ("broker.list", "'zookeeper.connect', or 'kafka.bootstrap.servers' for later brokers"),
        ("serializer.class key.serializer.class", "encode the columns 'key' and 'value'"),
        ("compressed.topics", "in a query of their own"),
        ("queue.size queue.buffering.max.messages", "Set 'kafka.buffer.memory'"),
        ("batch.num.messages", "Set 'kafka.batch.size'"),
        ("event.handler event.handler.props callback.handler callback.handler.props", "Change them in the query"),
    ],
)
def test_a_property_without_an_equivalent_is_refused_with_the_next_step(names: str, instead: str) -> None:
    for name in names.split():
        row = ROWS[f"kafka.{name}"]
        assert row.effect(Scope.WRITE) is Effect.REFUSED
        assert instead in row.reason(Scope.WRITE)


def test_the_properties_whose_loss_changes_no_record_are_the_only_ones_that_are_ignored() -> None:
    ignored = {row.name.removeprefix("kafka.") for row in OLD_PRODUCERS if row.effect(Scope.WRITE) is Effect.IGNORED}
    assert ignored == {
        "producer.type",
        "zk.synctime.ms",
        "zk.read.num.retries",
        "reconnect.interval",
        "reconnect.time.interval.ms",
        "block.on.buffer.full",
    }


def test_no_property_of_an_old_producer_takes_effect_in_any_read_or_write() -> None:
    assert [row.name for row in OLD_PRODUCERS if row.effect(Scope.ALL | Scope.WRITE) is Effect.USED] == []

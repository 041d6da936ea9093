"""The properties of old clients and of librdkafka: an error has the new name, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from streamgroup.errors import ConfigError
from streamgroup.options.foreign_names import LIBRDKAFKA_HINTS, OLD_CONSUMERS, OLD_PRODUCERS
from streamgroup.options.parse import parse_client, parse_sink, parse_source
from streamgroup.options.rows import Effect, Option, Scope
from tests.unit.options.reads import batch, stream

PRODUCER_ROWS = {row.name: row for row in OLD_PRODUCERS}


@pytest.mark.parametrize(
    ("names", "instead"),
    [
        ("broker.list", "'zookeeper.connect', or 'kafka.bootstrap.servers' for later brokers"),
        ("serializer.class key.serializer.class", "encode the columns 'key' and 'value'"),
        ("compressed.topics", "in a separate query"),
        ("queue.size queue.buffering.max.messages", "Set 'kafka.buffer.memory'"),
        ("batch.num.messages", "Set 'kafka.batch.size'"),
        ("event.handler event.handler.props callback.handler callback.handler.props", "Change them in the query"),
    ],
)
def test_a_property_without_an_equivalent_is_refused_with_the_next_step(names: str, instead: str) -> None:
    for name in names.split():
        row = PRODUCER_ROWS[f"kafka.{name}"]
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


SERVERS = {"kafka.bootstrap.servers": "b1:9092"}
READERS: dict[str, Callable[[Mapping[str, str]], object]] = {
    "read": lambda given: parse_source({**SERVERS, "subscribe": "orders", **given}, streaming=False),
    "write": lambda given: parse_sink({**SERVERS, **given}),
    "command": parse_client,
}


@pytest.mark.parametrize("name", LIBRDKAFKA_HINTS)
@pytest.mark.parametrize("reader", READERS)
def test_a_name_of_librdkafka_is_refused_with_the_option_that_java_has(reader: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown option '{name}': it is librdkafka's name") as caught:
        READERS[reader]({name: "hunter2"})
    assert "'kafka." in str(caught.value).partition("librdkafka's name")[2]
    assert "hunter2" not in str(caught.value)


CONSUMER_ROWS = {option.name: option for option in OLD_CONSUMERS}
REFUSED = [option for option in OLD_CONSUMERS if option.elsewhere is Effect.REFUSED]
IGNORED = [option for option in OLD_CONSUMERS if option.elsewhere is Effect.IGNORED]


def name_of(option: Option) -> str:
    return option.name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("kafka.zookeeper.connect", "zookeeper.connect"),
        ("kafka.zk.connect", "zookeeper.connect"),
        ("kafka.zk.sessiontimeout.ms", "zookeeper.session.timeout.ms"),
        ("kafka.groupid", "kafka.group.id"),
        ("kafka.fetch.size", "kafka.max.partition.fetch.bytes"),
        ("kafka.fetch.message.max.bytes", "kafka.max.partition.fetch.bytes"),
        ("kafka.fetch.wait.max.ms", "kafka.fetch.max.wait.ms"),
        ("kafka.socket.timeout.ms", "kafka.request.timeout.ms"),
        ("kafka.socket.buffersize", "kafka.receive.buffer.bytes"),
        ("kafka.autooffset.reset", "startingOffsets"),
        ("kafka.mirror.topics.whitelist", "subscribe"),
    ],
)
def test_a_property_with_another_name_is_refused_with_that_name(old: str, new: str) -> None:
    assert CONSUMER_ROWS[old].elsewhere is Effect.REFUSED
    assert f"Set '{new}'" in CONSUMER_ROWS[old].why


@pytest.mark.parametrize("option", REFUSED, ids=name_of)
def test_a_refused_property_ends_each_kind_of_read_with_an_error_that_names_it_and_the_next_step(
    option: Option,
) -> None:
    for read in (stream, batch):
        with pytest.raises(ConfigError) as caught:
            read(**{option.name: "7"})
        assert option.name in str(caught.value)
        assert option.why in str(caught.value)
    assert any(step in option.why for step in (". Set '", ". Leave the option out"))


@pytest.mark.parametrize("option", IGNORED, ids=name_of)
def test_an_ignored_property_ends_no_read_and_the_log_says_why_it_has_no_effect(option: Option) -> None:
    for read in (stream, batch):
        plain, given = read(), read(**{option.name: "7"})
        (note,) = set(given.notes) - set(plain.notes)
        assert option.name in note
        assert option.why in note
        assert given.fetch == plain.fetch


def test_a_property_that_would_commit_early_has_its_reason_and_one_that_still_takes_effect_no_row() -> None:
    row = CONSUMER_ROWS["kafka.auto.commit.enable"]
    assert row.elsewhere is Effect.REFUSED
    assert "commits offsets only after their batch has reached the sink" in row.why
    assert not {"kafka.offsets.storage", "kafka.dual.commit.enabled"} & CONSUMER_ROWS.keys()

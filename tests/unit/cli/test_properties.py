"""`-X NAME=VALUE` sets an option of a read or a write by Kafka's name, with or without the prefix `kafka.`."""

from __future__ import annotations

import pytest

from streamgroup.cli._properties import parse_properties, without_prefix
from streamgroup.options.parse import OPTIONS

OWN = {"kafka.bootstrap.servers": "--bootstrap-server", "zookeeper.connect": "--zookeeper"}
OTHERS = {"failondataloss": "failOnDataLoss"}


def parse(*values: str) -> dict[str, str]:
    return parse_properties(values, OPTIONS, own=OWN, others=OTHERS)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("fetch.min.bytes=7", {"kafka.fetch.min.bytes": "7"}),
        ("kafka.fetch.min.bytes=7", {"kafka.fetch.min.bytes": "7"}),
        ("Fetch.MIN.bytes=7", {"kafka.fetch.min.bytes": "7"}),
        ("KAFKA.fetch.min.bytes=7", {"kafka.fetch.min.bytes": "7"}),
        ("zookeeper.session.timeout.ms=9", {"zookeeper.session.timeout.ms": "9"}),
        ("FailOnDataLoss=false", {"failOnDataLoss": "false"}),
        ("sasl.jaas.config=a=b=c", {"kafka.sasl.jaas.config": "a=b=c"}),
        ("client.id=", {"kafka.client.id": ""}),
    ],
)
def test_a_property_is_an_option_by_its_own_spelling(value: str, expected: dict[str, str]) -> None:
    assert parse(value) == expected


def test_a_name_that_no_table_has_is_kept_as_the_user_wrote_it() -> None:
    """The parser of the options suggests the nearest name, so it must see the user's."""
    assert parse("fetch.Min.byte=1") == {"kafka.fetch.Min.byte": "1"}


def test_of_one_property_in_two_spellings_the_last_value_counts() -> None:
    assert parse("fetch.min.bytes=1", "client.id=c", "kafka.fetch.min.bytes=2") == {
        "kafka.fetch.min.bytes": "2",
        "kafka.client.id": "c",
    }
    assert parse() == {}


@pytest.mark.parametrize("value", ["", "acks", "=1", "="])
def test_a_text_that_is_not_a_name_and_a_value_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="expected NAME=VALUE") as refused:
        parse("client.id=c", value)
    assert repr(value) in str(refused.value)


@pytest.mark.parametrize(
    ("value", "option"),
    [
        ("bootstrap.servers=b:1", "--bootstrap-server"),
        ("Kafka.Bootstrap.Servers=b:1", "--bootstrap-server"),
        ("zookeeper.connect=z:1", "--zookeeper"),
    ],
)
def test_a_property_with_an_option_of_the_command_names_that_option(value: str, option: str) -> None:
    with pytest.raises(ValueError, match=f"cannot set {value.partition('=')[0]}: use {option}"):
        parse(value)


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

from __future__ import annotations

from dataclasses import MISSING, fields
from enum import Enum
from pathlib import Path

import pytest

from streamgroup.options.kafka import KAFKA, PREFIX
from streamgroup.options.kinds import SECRET
from streamgroup.options.old_consumers import OLD_CONSUMERS
from streamgroup.options.rows import SECTIONS, Option, Scope, default_of
from streamgroup.options.secrets import is_secret
from streamgroup.options.source import HINTS, SOURCE
from streamgroup.options.zookeeper import ZOOKEEPER

VECTORS = Path(__file__).parents[2] / "vectors" / "options"
LISTS = sorted(path.name for path in VECTORS.glob("*-properties-*.tsv"))
TABLE = {option.name: option for option in (*SOURCE, *ZOOKEEPER, *KAFKA)}
IDS = [option.name for option in TABLE.values()]

SPARK = {
    "subscribe",
    "subscribePattern",
    "assign",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "includeHeaders",
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
}

DIFFERS = {
    "client.id": "a name that tells who asks",
    "receive.buffer.bytes": "the system's own",
    "send.buffer.bytes": "the system's own",
    "partition.assignment.strategy": "ours first",
    "max.partition.fetch.bytes": "4 MiB, measured",
    "group.id": "empty where a stream has none",
    "group.protocol": "the default stands in the row",
}
"""Defaults that are not Java's."""


def properties(name: str) -> list[tuple[str, str, str]]:
    """(name, type, default) of each property of a Java client, as its ConfigDef tells them."""
    rows = [line.split("\t") for line in (VECTORS / name).read_text().splitlines()]
    return [(row[0], row[1], row[2]) for row in rows]


@pytest.mark.parametrize("name", LISTS)
def test_every_property_of_the_java_clients_has_its_row(name: str) -> None:
    listed = properties(name)
    assert len(listed) > 50
    assert [p for p, _, _ in listed if PREFIX + p not in TABLE] == []


def old_properties() -> set[str]:
    """Of the consumers of Kafka 0.7 and 0.8, by their documentation: these had no ConfigDef to tell them."""
    lines = (VECTORS / "old-consumers.tsv").read_text().splitlines()
    return {PREFIX + line.split("\t")[1] for line in lines}


def test_every_property_of_the_old_consumers_has_its_row() -> None:
    assert len(old_properties()) > 40
    assert [name for name in sorted(old_properties()) if name not in TABLE] == []
    assert [option.name for option in OLD_CONSUMERS if option.name not in old_properties()] == []


def test_an_old_name_is_refused_with_a_new_name_that_exists() -> None:
    said = [option.why for option in OLD_CONSUMERS if option.why.startswith("streamgroup names it differently. Set ")]
    assert len(said) > 10
    assert [why for why in said if why.split("'")[1] not in TABLE] == []


def test_every_kafka_row_is_a_property_of_a_java_client() -> None:
    known = {PREFIX + p for name in LISTS for p, _, _ in properties(name)} | old_properties()
    # config.providers is read by the base of all Java configurations and stands in no client's list.
    assert {option.name for option in KAFKA} - known == {PREFIX + "config.providers"}


@pytest.mark.parametrize("name", [name for name in LISTS if name.startswith("consumer")])
def test_the_defaults_of_used_properties_are_javas(name: str) -> None:
    for java_name, _, java_default in properties(name):
        option = TABLE[PREFIX + java_name]
        if not option.scope & Scope.STREAM or java_name in DIFFERS:
            continue
        default = default_of(option)
        if isinstance(default, Enum):
            default = default.name
        ours = "null" if default is None or default is MISSING else str(default)
        assert ours.lower() == java_default.lower().replace("[]", "null"), java_name


def test_every_option_of_spark_has_its_row() -> None:
    ours = {option.name for option in SOURCE if option.name.startswith("group.")} | {"includeInnerIndex"}
    assert {option.name for option in SOURCE} - ours == SPARK


@pytest.mark.parametrize("option", TABLE.values(), ids=IDS)
def test_a_row_is_complete(option: Option) -> None:
    if option.scope:
        assert option.doc.endswith(".")
    for scope in (Scope.BATCH, Scope.MEMBER, Scope.COMMIT, Scope.OFF):
        assert option.scope & scope or option.reason(scope)
    if not option.scope:
        assert option.why
    if option.target:
        section, _, field = option.target.partition(".")
        assert field in {f.name for f in fields(SECTIONS[section])}


def test_no_two_rows_share_a_name_or_a_field() -> None:
    rows = (*SOURCE, *ZOOKEEPER, *KAFKA)
    assert len({option.name.lower() for option in rows}) == len(rows)
    targets = [option.target for option in TABLE.values() if option.target]
    assert len(targets) == len(set(targets))


def test_a_hint_is_for_a_name_without_an_option() -> None:
    assert HINTS.keys() & {name.lower() for name in TABLE} == set()


@pytest.mark.parametrize("name", LISTS)
def test_the_secrets_of_java_are_secret(name: str) -> None:
    secret = [p for p, kind, _ in properties(name) if kind == "PASSWORD"]
    assert len(secret) >= 7
    assert [p for p in secret if not is_secret(PREFIX + p)] == []


def test_a_used_secret_option_has_the_kind_secret() -> None:
    used = [o for o in TABLE.values() if o.scope]
    assert [o.name for o in used if is_secret(o.name)] == ["zookeeper.password"]
    assert [o.name for o in used if o.kind is SECRET] == ["zookeeper.password"]

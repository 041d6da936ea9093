from __future__ import annotations

import re
from dataclasses import MISSING, fields
from enum import Enum
from pathlib import Path

import pytest

from streamgroup.options.docs import PAGES
from streamgroup.options.foreign_names import OLD_CONSUMERS, OLD_PRODUCERS
from streamgroup.options.kafka import KAFKA
from streamgroup.options.kinds import BOOLEAN, POSITIVE, SECRET, TEXT
from streamgroup.options.producer import PRODUCER
from streamgroup.options.rows import (
    FOR_CONSUMERS,
    FOR_PRODUCERS,
    FOR_READS,
    PREFIX,
    SCOPE_OF_MODE,
    SECTIONS,
    Effect,
    Option,
    Scope,
    default_of,
)
from streamgroup.options.secrets import is_secret
from streamgroup.options.sink import SINK, SINK_HINTS, SINK_ZOOKEEPER
from streamgroup.options.source import HINTS, SOURCE, SPARK
from streamgroup.options.types import GroupMode, Isolation
from streamgroup.options.zookeeper import ZOOKEEPER

VECTORS = Path(__file__).parents[2] / "vectors" / "options"
LISTS = sorted(path.name for path in VECTORS.glob("*-properties-*.tsv"))
TABLE = {option.name: option for option in (*SOURCE, *ZOOKEEPER, *KAFKA)}
WRITES = {option.name: option for option in (*SINK, *SINK_ZOOKEEPER, *PRODUCER)}
READS = (Scope.BATCH, Scope.MEMBER, Scope.COMMIT, Scope.OFF)
TABLES = {"reads": TABLE, "writes": WRITES}

each_table = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)

OF_SPARK = """
    subscribe subscribePattern assign startingTimestamp startingOffsetsByTimestamp startingOffsets endingTimestamp
    endingOffsetsByTimestamp endingOffsets startingOffsetsByTimestampStrategy failOnDataLoss minPartitions
    maxRecordsPerPartition maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay includeHeaders groupIdPrefix
    fetchOffset.numRetries fetchOffset.retryIntervalMs kafkaConsumer.pollTimeoutMs partition.metadata.cache.ttl.ms
"""
"""The options of Spark's own source."""

DIFFERS = {
    "client.id": "a name that tells who asks",
    "receive.buffer.bytes": "the system's own",
    "send.buffer.bytes": "the system's own",
    "connections.max.idle.ms": "load balancers drop connections that were idle for 4 minutes",
    "partition.assignment.strategy": "ours first",
    "max.partition.fetch.bytes": "4 MiB, measured",
    "group.id": "empty where a stream has none",
    "group.protocol": "the default stands in the row",
    "sasl.oauthbearer.jwt.retriever.class": "no class runs, the URL decides",
    "acks": "the number of all",
    "batch.size": "larger: Spark passes thousands of rows at a time",
}
"""Defaults that are not Java's."""


def properties(name: str) -> list[tuple[str, str, str]]:
    """(name, type, default) of each property of a Java client, as its ConfigDef tells them."""
    rows = [line.split("\t") for line in (VECTORS / name).read_text().splitlines()]
    return [(row[0], row[1], row[2]) for row in rows]


@each_table
@pytest.mark.parametrize("name", LISTS)
def test_every_property_of_the_java_clients_has_its_row(name: str, table: dict[str, Option]) -> None:
    listed = properties(name)
    assert len(listed) > 50
    assert [p for p, _, _ in listed if PREFIX + p not in table] == []


def old_properties(clients: str) -> set[str]:
    """Of the old consumers or producers, by their documentation: these had no ConfigDef to tell them."""
    lines = (VECTORS / f"old-{clients}.tsv").read_text().splitlines()
    return {PREFIX + line.split("\t")[1] for line in lines}


@each_table
@pytest.mark.parametrize(("clients", "rows"), [("consumers", OLD_CONSUMERS), ("producers", OLD_PRODUCERS)])
def test_every_property_of_the_old_clients_has_its_row(
    clients: str, rows: tuple[Option, ...], table: dict[str, Option]
) -> None:
    listed = old_properties(clients)
    assert len(listed) > 40
    assert [name for name in sorted(listed) if name not in table] == []
    assert [option.name for option in rows if option.name not in listed] == []


@pytest.mark.parametrize(
    ("rows", "table"), [(OLD_CONSUMERS, TABLE), (OLD_PRODUCERS, WRITES)], ids=["consumers", "producers"]
)
def test_an_old_name_is_refused_with_a_new_name_that_exists(rows: tuple[Option, ...], table: dict[str, Option]) -> None:
    said = [option.why for option in rows if option.why.startswith("streamgroup names it differently. Set ")]
    assert len(said) > 10
    assert [why for why in said if not table[why.split("'")[1]].scope] == []


@pytest.mark.parametrize("rows", [KAFKA, PRODUCER], ids=TABLES)
def test_every_kafka_row_is_a_property_of_a_java_client(rows: tuple[Option, ...]) -> None:
    known = {PREFIX + p for name in LISTS for p, _, _ in properties(name)}
    known |= old_properties("consumers") | old_properties("producers")
    assert {option.name for option in rows} - known == set()


# Kafka 4.0 changed the producer's linger.ms from 0 to 5, so 3.9's list of defaults is another one.
@pytest.mark.parametrize("name", [name for name in LISTS if name.startswith("consumer") or "-4." in name])
def test_the_defaults_of_used_properties_are_javas(name: str) -> None:
    for java_name, _, java_default in properties(name):
        option = (TABLE if name.startswith("consumer") else WRITES)[PREFIX + java_name]
        if not option.scope & (Scope.STREAM | Scope.WRITE) or java_name in DIFFERS:
            continue
        default = default_of(option)
        if isinstance(default, Enum):
            default = default.name
        elif default is MISSING and option.default_text not in ("", "none"):
            default = option.default_text.strip("`")
        elif isinstance(default, tuple):
            default = f"[{', '.join(default)}]"
        ours = "null" if default is None or default is MISSING else str(default)
        # An empty list is no value, and since 4.2 bootstrap.servers has no default.
        assert ours.lower() == java_default.lower().replace("[]", "null").replace("req", "null"), java_name


def test_every_option_of_spark_has_its_row() -> None:
    assert {option.name for option in SPARK} == {*OF_SPARK.split()}


def test_every_option_of_sparks_source_has_no_effect_in_a_write() -> None:
    assert [name for name in OF_SPARK.split() if WRITES[name].scope] == []


ROWS = [*((row, Scope.ALL) for row in TABLE.values()), *((row, Scope.WRITE) for row in WRITES.values())]


@pytest.mark.parametrize(("option", "scopes"), ROWS, ids=[*TABLE, *WRITES])
def test_a_row_is_complete(option: Option, scopes: Scope) -> None:
    assert option.scope in scopes
    assert option.doc.endswith(".") if option.scope else option.why
    assert all(option.scope & scope or option.reason(scope) for scope in scopes)
    if option.target:
        section, _, field = option.target.partition(".")
        assert field in {f.name for f in fields(SECTIONS[section])}


@pytest.mark.parametrize("rows", [(*SOURCE, *ZOOKEEPER, *KAFKA), (*SINK, *SINK_ZOOKEEPER, *PRODUCER)], ids=TABLES)
def test_no_two_rows_share_a_name_or_a_field(rows: tuple[Option, ...]) -> None:
    assert len({option.name.lower() for option in rows}) == len(rows)
    targets = [option.target for option in rows if option.target]
    assert len(targets) == len(set(targets))


def test_a_hint_is_for_a_name_without_an_option() -> None:
    assert HINTS.keys() & {name.lower() for name in TABLE} == set()
    assert SINK_HINTS.keys() & {name.lower() for name in WRITES} == set()


@pytest.mark.parametrize("name", LISTS)
def test_the_secrets_of_java_are_secret(name: str) -> None:
    secret = [p for p, kind, _ in properties(name) if kind == "PASSWORD"]
    assert len(secret) >= 7
    assert [p for p in secret if not is_secret(PREFIX + p)] == []


@each_table
def test_a_used_secret_option_has_the_kind_secret(table: dict[str, Option]) -> None:
    used = [o for o in table.values() if o.scope]
    secret = [o.name for o in used if o.kind is SECRET]
    assert secret == [o.name for o in used if is_secret(o.name)]
    assert {"zookeeper.password", "kafka.ssl.keystore.key", "kafka.ssl.truststore.certificates"} < set(secret)


DOCS = Path(__file__).parents[3] / "docs"
PAGE_TABLES = {"options.md": (*SOURCE, *ZOOKEEPER, *KAFKA), "write-options.md": (*SINK, *SINK_ZOOKEEPER, *PRODUCER)}


@pytest.mark.parametrize("page", PAGES)
def test_the_docs_are_those_of_the_tables_and_have_every_option(page: str) -> None:
    text = (DOCS / page).read_text()
    assert text == PAGES[page](), "run: make docs"
    other_page = "".join(PAGES[other]() for other in PAGES if other != page)
    for option in PAGE_TABLES[page]:
        is_there = option.why in {FOR_READS, FOR_CONSUMERS, FOR_PRODUCERS}
        assert f"`{option.name}`" in (other_page if is_there else text)


LITERALS = [o for o in (*WRITES.values(), *TABLE.values()) if re.fullmatch(r"`[^`.]+`", o.default_text) and o.target]


@pytest.mark.parametrize("option", LITERALS, ids=lambda option: option.name)
def test_a_default_that_the_docs_write_in_another_way_is_that_of_the_field(option: Option) -> None:
    assert option.kind.parse(option.default_text.strip("`")) == default_of(option)


@pytest.mark.parametrize("line", [line for page in PAGES.values() for line in page().splitlines() if line[:1] == "|"])
def test_every_row_has_the_cells_of_its_table(line: str) -> None:
    assert line.count("|") in (3, 4, 5, 6)


# -- a row ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "used_in"),
    [
        (Scope.NONE, ()),
        (Scope.BATCH, (Scope.BATCH,)),
        (Scope.COMMIT, (Scope.COMMIT,)),
        (Scope.GROUP, (Scope.MEMBER, Scope.COMMIT)),
        (Scope.STREAM, (Scope.MEMBER, Scope.COMMIT, Scope.OFF)),
        (Scope.ALL, READS),
        (Scope.WRITE, (Scope.WRITE,)),
    ],
)
def test_an_option_takes_effect_in_its_scope_and_nowhere_else(scope: Scope, used_in: tuple[Scope, ...]) -> None:
    row = Option("x", scope=scope, elsewhere=Effect.REFUSED)
    for each in (*READS, Scope.WRITE):
        assert row.effect(each) is (Effect.USED if each in used_in else Effect.REFUSED)
    is_of_a_stream = any(each in Scope.STREAM for each in used_in)  # whose mode is not known yet
    assert row.effect(Scope.STREAM) is (Effect.USED if is_of_a_stream else Effect.REFUSED)


def test_each_mode_of_a_group_has_the_scope_of_its_name_within_the_streams() -> None:
    assert {mode: scope.name for mode, scope in SCOPE_OF_MODE.items()} == {mode: mode.name for mode in GroupMode}
    assert all(scope in Scope.STREAM for scope in SCOPE_OF_MODE.values())


@pytest.mark.parametrize(
    ("scope", "reason"),
    [
        (Scope.BATCH, "a batch read never joins a group and commits nothing"),
        (Scope.COMMIT, "with group.mode=commit the query is not a member of its group"),
        (Scope.OFF, "with group.mode=off the query has no group"),
        (Scope.MEMBER, ""),
    ],
)
def test_the_scope_gives_the_reason_of_an_ignored_option_that_has_none(scope: Scope, reason: str) -> None:
    assert Option("x", scope=Scope.NONE).reason(scope) == reason
    assert Option("x", scope=Scope.NONE, why="its own").reason(scope) == "its own"


def test_an_option_has_another_kind_of_value_in_a_batch_read_where_the_row_has_one() -> None:
    row = Option("x", kind=POSITIVE, batch_kind=BOOLEAN)
    assert row.kind_in(Scope.BATCH) is BOOLEAN
    assert {row.kind_in(scope) for scope in (Scope.MEMBER, Scope.COMMIT, Scope.OFF, Scope.WRITE)} == {POSITIVE}
    assert Option("x").kind_in(Scope.BATCH) is TEXT


@pytest.mark.parametrize(
    ("target", "default"),
    [
        ("fetch.min_bytes", 1),
        ("fetch.isolation", Isolation.READ_UNCOMMITTED),
        ("group.instance_id", None),
        ("zookeeper.chroot", ""),
        ("producer.acks", -1),
        ("client.bootstrap_servers", MISSING),
        ("", MISSING),
    ],
)
def test_the_default_of_an_option_is_that_of_its_field(target: str, default: object) -> None:
    assert default_of(Option("x", target=target)) == default

"""Tables of SQL, with the options and schemas that Spark passes for them."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_streamgroup import DefaultSource
from streamgroup.errors import ConfigError
from streamgroup.spark.source import row_schema
from streamgroup.spark.tables import OPTIONS_KEY, table_options, with_table_options

READ = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "startingOffsets": "earliest"}


def created(**options: str) -> dict[str, str]:
    """The options that Spark 4.2 passes for CREATE TABLE … USING StreamGroup OPTIONS (…) TBLPROPERTIES ('p' = 'q')."""
    table = {"provider": "StreamGroup", "owner": "root", "comment": "c", "p": "q", "path": "file:/warehouse/t"}
    given = {name.replace("__", "."): text for name, text in options.items()}
    return table | given | {f"option.{name}": text for name, text in given.items()}


TABLE = created(kafka__bootstrap__servers="localhost:1", subscribe="t", startingOffsets="earliest")


def test_a_table_keeps_its_options_for_the_reads_from_it() -> None:
    schema = DefaultSource(TABLE).schema()
    assert [(f.name, f.dataType) for f in schema] == [(f.name, f.dataType) for f in row_schema(False)]
    stored = StructType.fromJson(schema.jsonValue())  # as Spark's catalog stores it
    batch = DefaultSource({}).reader(stored)._options
    stream = DefaultSource({}).streamReader(stored)._options
    assert batch == DefaultSource(dict(READ)).reader(row_schema(False))._options
    assert stream == DefaultSource(dict(READ)).streamReader(row_schema(False))._options


def test_the_options_of_a_statement_take_precedence_over_those_of_its_table() -> None:
    schema = DefaultSource(TABLE).schema()
    options = DefaultSource({"Subscribe": "other"}).reader(schema)._options
    assert (options.subscription.topics, options.client.bootstrap_servers) == (("other",), (("localhost", 1),))


def test_an_ordinary_load_has_a_schema_without_metadata() -> None:
    assert [f.metadata for f in DefaultSource(dict(READ)).schema()] == [{}] * 7
    assert table_options({**READ, "owner": "root"}, "streamgroup") is None
    assert table_options({**READ, "provider": "kafka", "owner": "root"}, "streamgroup") is None


def test_a_table_has_the_columns_that_its_options_ask_for() -> None:
    assert DefaultSource({**TABLE, **created(includeHeaders="true")}).schema().fieldNames()[-1] == "headers"


def test_wrong_options_fail_when_the_table_is_created() -> None:
    with pytest.raises(ConfigError, match=r"^kafka\.bootstrap\.servers is required"):
        DefaultSource(created(subscribe="t")).schema()


def test_a_table_without_options_takes_those_of_each_statement() -> None:
    schema = DefaultSource(created()).schema()
    assert schema == row_schema(False)
    assert DefaultSource(dict(READ)).reader(schema)._options.subscription.topics == ("t",)
    with pytest.raises(ConfigError, match=r"no options to read a table .* SELECT \* FROM <table> WITH"):
        DefaultSource({}).reader(schema)


SECURED = TABLE | created(kafka__security__protocol="SSL", kafka__ssl__keystore__location="/k.p12")


def test_a_secret_is_not_kept_in_a_table_where_all_its_readers_would_see_it() -> None:
    with pytest.raises(ConfigError, match=r"cannot keep option kafka.ssl.keystore.password in a table") as refused:
        DefaultSource(SECURED | created(kafka__ssl__keystore__password="canary")).schema()
    assert "canary" not in str(refused.value)


def test_an_unknown_option_is_not_kept_in_a_table() -> None:
    schema = with_table_options(row_schema(False), {"api.key": "canary", "subscribe": "t"})
    assert schema.fields[0].metadata[OPTIONS_KEY] == '{"subscribe": "t"}'
    assert with_table_options(row_schema(False), {"api.key": "canary"}) == row_schema(False)


def test_a_reference_to_a_secret_is_kept_in_a_table() -> None:
    schema = DefaultSource(SECURED | created(kafka__ssl__keystore__password="env:STORE")).schema()
    assert "env:STORE" in schema.fields[0].metadata[OPTIONS_KEY]


def test_a_write_into_a_table_needs_options_in_its_statement() -> None:
    schema = StructType([StructField("value", StringType())])
    for method in ("writer", "streamWriter"):
        with pytest.raises(ConfigError, match=r"no options to write into a table .* INSERT INTO <table> WITH"):
            getattr(DefaultSource({}), method)(schema, overwrite=False)

"""SQL tables: `CREATE TABLE … USING streamgroup OPTIONS (…)` stores its options in the first column's metadata.

Spark stores the options of a table in its catalog, but passes only the options of a statement to a Python source
(PythonTable). It also stores the schema of the source, with the metadata of the columns, and passes that schema to the
reader. So the schema carries the options. The schema of an ordinary `load()` has no metadata, as with Spark's own
source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from streamgroup.errors import ConfigError
from streamgroup.options.parse import OPTIONS, follows_references
from streamgroup.options.secrets import is_reference, is_secret

OPTIONS_KEY = "streamgroup.options"
"""The key of the metadata."""
_OPTION = "option."


def table_options(options: Mapping[str, str], name: str) -> dict[str, str] | None:
    """Return the options of the table that Spark creates with `options`; None if Spark does not create a table.

    Spark passes the properties of the table, such as `provider` and `owner`, and each option as `option.<name>` too.
    """
    given = {key.lower(): str(text) for key, text in options.items()}
    if given.get("provider", "").lower() != name or "owner" not in given:
        return None
    return {key.removeprefix(_OPTION): text for key, text in given.items() if key.startswith(_OPTION)}


def with_table_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return `schema` with the options of a table in it, as far as streamgroup knows them.

    Raises ConfigError for a secret that is not a reference: every user who may read the table sees its schema.
    """
    for key, text in options.items():
        if is_secret(key) and not (follows_references(key) and is_reference(text)):
            raise ConfigError(
                f"cannot store option {key} in a table: every user who may read the table would see the secret. Set a "
                "reference such as env:NAME if the option accepts one, or give the option in each statement: "
                f"SELECT * FROM <table> WITH ('{key}' = '…')"
            )
    # An unknown option may be a secret of another source.
    known = {key: text for key, text in options.items() if key.lower() in OPTIONS}
    if not known:
        return schema
    first = schema.fields[0]
    kept = StructField(first.name, first.dataType, first.nullable, {OPTIONS_KEY: json.dumps(known)})
    return StructType([kept, *schema.fields[1:]])


def read_options(schema: StructType, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a read: those stored in its table, overridden by those of the statement.

    Raises ConfigError if there is no option at all, as for a table that was created with a list of columns.
    """
    kept = schema.fields[0].metadata.get(OPTIONS_KEY) if schema.fields else None
    of_table: dict[str, str] = json.loads(kept) if kept else {}
    given = {key.lower() for key in options}
    merged = {key: text for key, text in of_table.items() if key.lower() not in given} | dict(options)
    if not merged:
        raise ConfigError(
            "cannot read a table of format streamgroup without options: Spark does not pass the options of a CREATE "
            "TABLE with a list of columns to a source in Python. Create the table without the list, or give the "
            "options in the statement: SELECT * FROM <table> WITH ('kafka.bootstrap.servers' = 'localhost:9092', "
            "'subscribe' = 'orders')"
        )
    return merged


def require_write_options(options: Mapping[str, str]) -> None:
    """Raise ConfigError if there is no option at all, as for a write into a table."""
    if not options:
        raise ConfigError(
            "cannot write into a table of format streamgroup without options: Spark does not pass the options of "
            "CREATE TABLE to a sink in Python. Give them in the statement: INSERT INTO <table> WITH "
            "('kafka.bootstrap.servers' = 'localhost:9092', 'topic' = 'orders') SELECT …; or insert into a view: "
            "CREATE TEMPORARY VIEW <name> (key BINARY, value BINARY) USING streamgroup OPTIONS (…)"
        )

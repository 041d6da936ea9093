"""The options of a write into a database."""

from __future__ import annotations

import pytest

from streamgroup.errors import ConfigError
from streamgroup.options.database import DatabaseOptions, parse_database
from streamgroup.options.secrets import Secret

REQUIRED = {"url": "postgresql://db/shop", "dbtable": "sales.orders"}


def test_options_are_read_in_any_case() -> None:
    given = {"URL": REQUIRED["url"], "dbTable": "orders", "USER": "writer", "PassWord": "env:PASSWORD"}
    given |= {"keycolumns": " id, region ,id", "createtable": "true"}
    assert parse_database(given) == DatabaseOptions(
        REQUIRED["url"], "orders", "writer", Secret("env:PASSWORD"), ("id", "region"), True
    )


def test_defaults_add_rows_to_a_table_that_exists() -> None:
    assert parse_database(REQUIRED) == DatabaseOptions(REQUIRED["url"], "sales.orders")


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"url": "postgresql://writer:secret-canary@db/shop"}, "expected a URL without a password"),
        ({"url": "shop"}, "expected the URL of a database"),
        ({"createTable": "yes"}, "invalid value 'yes' for option createTable"),
        ({"dbtabel": "x"}, "Did you mean 'dbtable'?"),
        ({"batchsize": "1000"}, "Tasks load whole Arrow batches"),
        ({"numPartitions": "4"}, "call repartition or coalesce on the rows"),
        ({"driver": "org.postgresql.Driver"}, "The URL names the database"),
        ({"passwort": "secret-canary"}, "unknown option 'passwort'"),
    ],
)
def test_an_invalid_option_is_named_with_the_next_step_and_no_secret(options: dict[str, str], cause: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_database({**REQUIRED, **options})
    assert cause in str(caught.value)
    assert "secret-canary" not in str(caught.value)


def test_all_missing_options_are_named_together() -> None:
    with pytest.raises(ConfigError, match=r"(?s)2 problems with the options.*url is required.*dbtable is required"):
        parse_database({"user": "writer"})

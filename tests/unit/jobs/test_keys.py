"""The keys of a job file: which values each accepts, and what the error says of another one."""

from __future__ import annotations

import re
import tomllib
from datetime import date
from typing import Any

import pytest

from streamgroup.jobs.keys import (
    COUNT,
    COUNT_FROM_ZERO,
    FLAG,
    LARGE_COUNT,
    OPTIONS,
    PORT,
    SECONDS,
    SECTIONS,
    SHARE,
    TEXT,
    TEXTS,
    Key,
)
from streamgroup.options.kinds import ValueKind

INF, NAN = float("inf"), float("nan")


def refused(kind: ValueKind, value: object) -> str:
    with pytest.raises(ValueError, match=r"^(expected|invalid value for) ") as caught:
        kind.parse(value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "accepted", "others"),
    [
        (SECONDS, [0.001, 1, 86_400], [0, -1, 86_400.5, INF, NAN]),
        (COUNT, [1, 32_767], [0, -1, 32_768, 1.0]),
        (LARGE_COUNT, [1, 2**63 - 1], [0, 2**63, 1.5]),
        (COUNT_FROM_ZERO, [0, 2**63 - 1], [-1, 2**63, 0.0]),
        (SHARE, [0, 0.1, 1], [-0.1, 1.1, NAN]),
        (PORT, [0, 9404, 65_535], [-1, 65_536, 80.0]),
    ],
    ids=["seconds", "count", "large count", "count from zero", "share", "port"],
)
def test_a_number_is_accepted_up_to_its_bounds(kind: ValueKind, accepted: list[float], others: list[float]) -> None:
    assert [kind.parse(value) for value in accepted] == accepted
    for value in (*others, True, "1", [1], {"a": 1}, date(2026, 1, 1)):
        assert ", not " in refused(kind, value)


@pytest.mark.parametrize(("kind", "type_"), [(SECONDS, float), (SHARE, float), (COUNT, int), (PORT, int)])
def test_a_number_has_the_type_of_its_kind(kind: ValueKind, type_: type) -> None:
    assert type(kind.parse(1)) is type_


@pytest.mark.parametrize(
    ("kind", "accepted", "others"),
    [
        (TEXT, [("a", "a"), (" a ", " a ")], ["", " ", 1, True, ["a"]]),
        (FLAG, [(True, True), (False, False)], ["true", 0, 1, []]),
        (TEXTS, [(["a"], ("a",)), (["a", "b c"], ("a", "b c"))], ["a", [], ["a", ""], ["a", 1], [["a"]]]),
    ],
    ids=["text", "flag", "texts"],
)
def test_a_text_a_flag_and_a_list_accept_no_other_type(
    kind: ValueKind, accepted: list[tuple[Any, Any]], others: list[Any]
) -> None:
    assert [kind.parse(value) for value, _ in accepted] == [parsed for _, parsed in accepted]
    for value in others:
        refused(kind, value)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("", "an empty text"),
        ("canary", "a text"),
        (True, "true or false"),
        (-7, "a number"),
        (0.5, "a number"),
        (["canary"], "a list"),
        ({"canary": "canary"}, "a table"),
        (date(2026, 1, 1), "a date or a time"),
    ],
)
def test_an_error_names_the_type_in_the_words_of_toml_and_never_the_value(value: object, named: str) -> None:
    said = refused(PORT, value)
    assert said == f"expected a port from 0 to 65535, 0 for any free one, not {named}"


def test_options_are_flat_texts_whether_their_dots_are_in_quotes_or_not() -> None:
    document = tomllib.loads('kafka.group.id = "g"\n"kafka.client.id" = "c"\nflag = true\nn = 3\nshare = 0.5')
    assert OPTIONS.parse(document) == {
        "kafka.group.id": "g",
        "kafka.client.id": "c",
        "flag": "true",
        "n": "3",
        "share": "0.5",
    }
    assert OPTIONS.parse({}) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('a.b = "canary"\n"a.b" = "x"', "a.b is set twice, once in quotes and once without. Remove one of them"),
        ('a.b = ["canary"]', 'invalid value for a.b: expected one text with commas, for example "a,b", not a list'),
        (
            "a.b = 2026-01-01",
            "invalid value for a.b: expected a text, a number, true or false, not a date or a time",
        ),
    ],
)
def test_an_option_that_is_not_one_text_is_refused_by_its_whole_name(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        OPTIONS.parse(tomllib.loads(text))


def test_tables_nested_too_deeply_are_an_error_and_not_a_crash() -> None:
    table: dict[str, object] = {"a": "x"}
    for _ in range(5_000):
        table = {"a": table}
    with pytest.raises(ValueError, match="too many nested tables, one for each dot in a name without quotes"):
        OPTIONS.parse(table)


def test_options_that_are_not_a_table_are_refused() -> None:
    assert refused(OPTIONS, "a=b") == "expected a table of options, not a text"


# -- the table ---------------------------------------------------------------------------------------------------------

KEYS = [(section, key) for section, keys in SECTIONS.items() for key in keys]


@pytest.mark.parametrize(("section", "key"), KEYS, ids=[f"{section}.{key.name}" for section, key in KEYS])
def test_a_key_is_described_and_its_default_is_a_value_that_it_accepts(section: str, key: Key) -> None:
    assert key.doc.endswith(".")
    assert [each.name for each in SECTIONS[section]].count(key.name) == 1
    if key.default:
        assert not key.required, "a required key is never without a value"
        value = tomllib.loads(f"value = {key.default}")["value"]
        assert key.kind.parse(value) == value

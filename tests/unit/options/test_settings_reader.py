from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from streamgroup.options.kinds import BOOLEAN, ValueKind, integer
from streamgroup.options.settings_reader import SettingsReader, nearest, suggestion, together


@dataclass(frozen=True)
class Field:
    name: str
    kind: ValueKind


class Reader(SettingsReader[Field]):
    def __init__(self) -> None:
        rows = (Field("size", integer(1)), Field("fast", BOOLEAN))
        super().__init__({row.name: row for row in rows}, [])

    def find(self, key: str) -> Field | None:
        return self.rows.get(key.lower())

    def label(self, row: Field) -> str:
        return f"field {row.name}"

    def unknown(self, key: str) -> str:
        return f"unknown field {key!r}{suggestion(key, self.rows)}"


def read(*entries: tuple[str, Any]) -> Reader:
    reader = Reader()
    for key, value in entries:
        reader.take(key, value)
    return reader


def test_valid_entries_become_values_by_the_name_of_their_row() -> None:
    reader = read(("SIZE", "5"), ("fast", "true"))
    assert reader.values == {"size": 5, "fast": True}
    assert reader.problems == []


def test_all_problems_are_collected() -> None:
    reader = read(("size", "0"), ("speed", "1"), ("sise", "1"), ("Size", "7"))
    assert reader.problems == [
        "invalid value for field size: expected an integer from 1 to 2147483647",
        "unknown field 'speed'",
        "unknown field 'sise'. Did you mean 'size'?",
        "field size is set twice, in different spellings. Remove one of them",
    ]


def test_an_entry_with_an_invalid_value_counts_as_given_but_has_no_value() -> None:
    reader = read(("size", "x"))
    assert (reader.given, reader.values) == ({"size"}, {})


@pytest.mark.parametrize(("name", "near"), [("sizes", "size"), ("quux", None)])
def test_only_a_similar_name_is_suggested(name: str, near: str | None) -> None:
    assert nearest(name, ["size", "fast"]) == near


def test_one_problem_stands_alone_and_several_are_a_list() -> None:
    assert together(["a is wrong"], "problems") == "a is wrong"
    assert together(["a is wrong", "b is wrong"], "problems") == "2 problems:\n  - a is wrong\n  - b is wrong"

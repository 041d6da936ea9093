from __future__ import annotations

from typing import Any

from streamgroup.cli import _tables as tables


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    columns: tuple[tables.Column[Any], ...] = (
        tables.Column("A", "a", lambda row: row[0]),
        tables.Column("LONG-TITLE", "b", lambda row: row[1]),
        tables.Column("C", "c", lambda row: row[2]),
    )
    text = tables.table(columns, [("wide cell", 1, None), ("", 2, "x")])
    assert text == "A          LONG-TITLE  C\nwide cell  1           -\n-          2           x"


def test_a_table_that_is_too_wide_is_shortened_in_its_first_column() -> None:
    columns: tuple[tables.Column[Any], ...] = (
        tables.Column("ID", "id", lambda row: row),
        tables.Column("OTHER", "other", lambda row: 1),
    )
    ids = ["streamgroup-0123456789", "short"]
    assert tables.table(columns, ids, width=22).splitlines()[1:] == ["streamgroup-01…  1", "short            1"]
    assert tables.table(columns, ids, width=5).splitlines()[1] == "streamgroup…  1", "never less than that"
    assert tables.table(columns, ids, width=100) == tables.table(columns, ids)

"""docs/least-rights.md shows the table by which tests/live/test_least_rights.py tries the rights."""

from __future__ import annotations

from pathlib import Path

from streamgroup.advice import Operation, Resource
from tests.least_rights import page_row, read_table

PAGE = Path(__file__).parents[2] / "docs" / "least-rights.md"
MODES = read_table()


def test_the_page_has_the_rows_of_the_table_and_no_others() -> None:
    shown = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and line.count("|") == 6]
    heads = [line for line in shown if line.endswith("| topic | group | cluster | without one |")]
    assert len(heads) == 2, "a table of modes and one of commands"
    assert [line for line in shown if line not in heads] == [page_row(mode) for mode in MODES]


def test_the_table_knows_only_rights_that_errors_can_name() -> None:
    operations, kinds = {each.value for each in Operation}, {each.value for each in Resource}
    for mode in MODES:
        for needed in mode.rights:
            for right in filter(None, (needed.right, needed.fails, needed.instead)):
                operation, kind = right.split()
                assert operation in operations, right
                assert kind in kinds, right


def test_every_right_of_the_table_has_one_result() -> None:
    for mode in MODES:
        for needed in mode.rights:
            assert bool(needed.fails) is not bool(needed.degrades), (mode.name, needed)
            assert not (needed.since and needed.before), (mode.name, needed)


def test_releases_bound_a_right_on_both_sides() -> None:
    (sink,) = (mode for mode in MODES if mode.name == "sink into a topic that the brokers create")
    assert sink.least((1, 1, 1)) == ["Write topic", "Create cluster", "IdempotentWrite cluster"]
    assert sink.least((2, 0)) == ["Write topic", "Create topic", "IdempotentWrite cluster"]
    assert sink.least((2, 8)) == ["Write topic", "Create topic"]

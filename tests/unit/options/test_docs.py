from __future__ import annotations

from pathlib import Path

import pytest

from streamgroup.options.docs import render
from streamgroup.options.kafka import KAFKA
from streamgroup.options.source import SOURCE
from streamgroup.options.zookeeper import ZOOKEEPER

DOCS = Path(__file__).parents[3] / "docs" / "options.md"


def test_the_docs_are_those_of_the_tables() -> None:
    assert DOCS.read_text() == render(), "run: python -m streamgroup.options.docs > docs/options.md"


def test_every_option_stands_in_the_docs() -> None:
    text = DOCS.read_text()
    assert [option.name for option in (*SOURCE, *ZOOKEEPER, *KAFKA) if f"`{option.name}`" not in text] == []


@pytest.mark.parametrize("line", [line for line in render().splitlines() if line.startswith("|")])
def test_every_row_has_the_cells_of_its_table(line: str) -> None:
    assert line.count("|") in (3, 6)

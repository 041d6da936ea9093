from __future__ import annotations

from pathlib import Path

import pytest

from streamgroup.options.docs import PAGES
from streamgroup.options.kafka import KAFKA
from streamgroup.options.producer import PRODUCER
from streamgroup.options.sink import SINK, SINK_ZOOKEEPER
from streamgroup.options.source import SOURCE
from streamgroup.options.zookeeper import ZOOKEEPER

DOCS = Path(__file__).parents[3] / "docs"
TABLES = {"options.md": (*SOURCE, *ZOOKEEPER, *KAFKA), "write-options.md": (*SINK, *SINK_ZOOKEEPER, *PRODUCER)}

each_page = pytest.mark.parametrize("page", PAGES)


@each_page
def test_the_docs_are_those_of_the_tables(page: str) -> None:
    assert (DOCS / page).read_text() == PAGES[page](), "run: make docs"


@each_page
def test_every_option_stands_in_the_docs(page: str) -> None:
    text = (DOCS / page).read_text()
    assert [option.name for option in TABLES[page] if f"`{option.name}`" not in text] == []


@pytest.mark.parametrize("line", [line for page in PAGES.values() for line in page().splitlines() if line[:1] == "|"])
def test_every_row_has_the_cells_of_its_table(line: str) -> None:
    assert line.count("|") in (3, 4, 5, 6)

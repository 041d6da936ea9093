"""Offsets as Spark shows them, and which of them are documents of streamgroup."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamgroup.coordinator.planning.document import to_value
from streamgroup.model import INITIAL_DOCUMENT, Document
from streamgroup.spark.queries import document, is_initial

PLANNED = to_value(Document("g", "lineage", "run", 3))
INITIAL = to_value(INITIAL_DOCUMENT)


@pytest.mark.parametrize("offset", [PLANNED, json.dumps(PLANNED)], ids=["value", "text"])
def test_a_planned_document_is_known_as_value_and_as_text(offset: Any) -> None:
    assert document(offset) == PLANNED
    assert not is_initial(offset)


def test_the_initial_offset_is_not_the_document_of_a_batch() -> None:
    assert document(json.dumps(INITIAL)) is None
    assert is_initial(json.dumps(INITIAL))


@pytest.mark.parametrize(
    "offset", [None, 7, "", "7", "no json", "[" * 5_000, '{"streamgroup": {"0": 5}}', '{"orders": {"0": 5}}']
)
def test_offsets_of_other_sources_are_no_documents(offset: Any) -> None:
    assert document(offset) is None
    assert not is_initial(offset)

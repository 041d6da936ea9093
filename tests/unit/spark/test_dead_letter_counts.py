"""The counts of dead letters tell the metrics how many records of each query were set aside."""

from __future__ import annotations

import pytest

from streamgroup.spark.dead_letter_counts import DeadLetterCounts


@pytest.mark.parametrize(
    ("added", "counts"),
    [
        ([], {"q-1": None, "q-2": None}),
        ([("q-1", 3)], {"q-1": 3, "q-2": None}),
        ([("q-1", 3), ("q-2", 1), ("q-1", 3)], {"q-1": 6, "q-2": 1}),
    ],
    ids=["no query", "one batch", "a batch that ran again, beside another query"],
)
def test_each_query_has_the_records_of_all_its_batches(
    added: list[tuple[str, int]], counts: dict[str, int | None]
) -> None:
    counted = DeadLetterCounts()
    for query, records in added:
        counted.add(query, records)
    assert {query: counted.of(query) for query in counts} == counts


def test_each_object_counts_for_itself() -> None:
    one, other = DeadLetterCounts(), DeadLetterCounts()
    one.add("q-1", 3)
    assert other.of("q-1") is None

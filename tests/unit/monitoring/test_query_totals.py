"""The totals of a query since its driver began to count: batches, rows, the time of each phase, and how far behind."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgroup.monitoring.query_totals import QueryTotals


def test_a_query_without_a_batch_has_counted_nothing_and_knows_no_distance() -> None:
    totals = QueryTotals("ingest")
    assert (totals.batches, totals.rows, totals.last_batch_at) == (0, 0, 0.0)
    assert (totals.most_behind, totals.dead_letters) == (None, None)


def test_batches_and_rows_add_up_and_the_last_batch_has_its_time() -> None:
    totals = QueryTotals("ingest")
    for rows, now in ((10, 1000.0), (0, 1001.0), (5, 1002.5)):
        totals.add(rows, {}, [], now)
    assert (totals.batches, totals.rows, totals.last_batch_at) == (3, 15, 1002.5)


@pytest.mark.parametrize(("behind", "most"), [([3], 3), ([3, 9, 4], 9), ([0, 0], 0), ([], None)])
def test_the_distance_is_that_of_the_partition_with_the_most_offsets_behind(
    behind: list[int], most: int | None
) -> None:
    totals = QueryTotals("ingest")
    totals.add(1, {}, behind, 1000.0)
    assert totals.most_behind == most


def test_only_the_last_batch_tells_the_distance() -> None:
    totals = QueryTotals("ingest")
    totals.add(1, {}, [100], 1000.0)
    totals.add(1, {}, [2], 1001.0)
    assert totals.most_behind == 2
    totals.add(1, {}, [], 1002.0)
    assert totals.most_behind is None, "the ends of the logs are unknown again"


def test_a_phase_is_counted_only_in_the_batches_that_had_it() -> None:
    totals = QueryTotals("ingest")
    totals.add(1, {"addBatch": 1500, "latestOffset": 20}, [], 1000.0)
    totals.add(1, {"addBatch": 250}, [], 1001.0)
    assert totals.phase_s == {"addBatch": 1.75, "latestOffset": 0.02}
    assert totals.phases == {"addBatch": 2, "latestOffset": 1}


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**7)), max_size=8))
def test_the_totals_are_those_of_all_batches(batches: list[tuple[int, int]]) -> None:
    totals = QueryTotals("ingest")
    for rows, milliseconds in batches:
        totals.add(rows, {"addBatch": milliseconds}, [], 1000.0)
    assert (totals.batches, totals.rows) == (len(batches), sum(rows for rows, _ in batches))
    assert totals.phases["addBatch"] == len(batches)
    assert totals.phase_s.get("addBatch", 0.0) == pytest.approx(sum(ms for _, ms in batches) / 1000)

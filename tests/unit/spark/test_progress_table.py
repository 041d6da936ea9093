"""The progress table has a row for each recent batch and streamgroup source of a session's queries."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from streamgroup.model import INITIAL_DOCUMENT
from streamgroup.planning.document import to_value
from streamgroup.spark.completed_progress import of_progress
from streamgroup.spark.progress_table import COLUMNS, progress_table
from streamgroup.spark.progress_table import rows as rows_of
from tests.unit.spark.test_progress import LATEST, document, made, source


def test_the_table_has_a_row_for_each_source_of_a_batch_that_is_of_this_format() -> None:
    other = source(3, {"orders": {"0": 7}}, None)
    batch = made(source(1, document(), LATEST), other, source(2, document(""), None))
    rows = [dict(zip(COLUMNS.names, row, strict=True)) for row in rows_of(of_progress(batch))]
    assert [row["group"] for row in rows] == ["etl", None]
    behind = [(row["max_offsets_behind"], row["min_offsets_behind"], row["avg_offsets_behind"]) for row in rows]
    assert behind == [(10, 5, 7.5), (None, None, None)]
    first = rows[0]
    assert (first["query"], first["batch"], first["rows"]) == ("orders", 7, 50)
    assert first["started_at"] == datetime(2026, 1, 1, tzinfo=UTC)
    assert first["positions"] == {"orders-0": 100, "orders-1": 195}
    assert first["duration_ms"] == {"addBatch": 300}


def test_a_source_before_its_first_batch_has_no_row() -> None:
    assert list(rows_of(made(source(1, json.dumps(to_value(INITIAL_DOCUMENT)), LATEST)))) == []


def test_a_batch_of_a_query_without_a_name_is_named_by_its_id() -> None:
    batch = made(source(1, document(), LATEST))
    batch["name"] = None
    (row,) = rows_of(batch)
    named = dict(zip(COLUMNS.names, row, strict=True))
    assert named["query"] == named["query_id"] == str(batch.id)
    assert named["run_id"] == str(batch.runId)


def test_the_table_has_the_recent_batches_of_all_queries_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)  # as in a client of Spark Connect
    batches = [made(source(1, document(group), LATEST)) for group in ("a", "b", "c")]
    queries = [SimpleNamespace(recentProgress=batches[:2]), SimpleNamespace(recentProgress=batches[2:])]
    made_frames: list[tuple[list[Any], Any]] = []
    spark: Any = SimpleNamespace(
        streams=SimpleNamespace(active=queries),
        createDataFrame=lambda rows, schema: made_frames.append((rows, schema)),
    )
    progress_table(spark)
    ((rows, schema),) = made_frames
    assert schema is COLUMNS
    group = COLUMNS.names.index("group")
    assert [row[group] for row in rows] == ["a", "b", "c"]

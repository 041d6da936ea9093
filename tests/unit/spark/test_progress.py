"""`progress()` with progresses as Spark makes them, and the plan of a query that is an object of the test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql.streaming.listener import StreamingQueryProgress

import streamgroup
from streamgroup.coordinator.planning.document import to_value
from streamgroup.model import INITIAL_DOCUMENT, Document, Position, TopicPartition
from streamgroup.spark.progress import COLUMNS, completed, describe, of_progress, progress_table
from streamgroup.spark.progress import rows as rows_of
from streamgroup.spark.source import row_schema
from streamgroup.spark.tables import with_table_options

CLASS = "org.apache.spark.PythonMicroBatchStreamWithTriggerAvailableNow"
OPTIONS = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "orders, payments", "kafka.group.id": "etl"}
LATEST = {"orders": {"0": 110, "1": 200}}


def document(group: str = "etl") -> dict[str, Any]:
    positions = {TopicPartition("orders", 0): Position(100), TopicPartition("orders", 1): Position(195)}
    return to_value(Document(group, "lineage", "run", 3, positions=positions))


def source(number: int, end: Any, latest: Any) -> dict[str, Any]:
    return {
        "description": f"{CLASS}@{number}",
        "startOffset": None,
        "endOffset": end,
        "latestOffset": latest,
        "numInputRows": 50,
        "inputRowsPerSecond": 5.0,
        "processedRowsPerSecond": 25.0,
    }


def made(*sources: dict[str, Any]) -> StreamingQueryProgress:
    """A progress as Spark's JSON describes it."""
    return StreamingQueryProgress.fromJson(
        {
            "id": "8f2f9f44-0f6c-4c3a-b6f2-0d0f4b8f5c11",
            "runId": "1f2f9f44-0f6c-4c3a-b6f2-0d0f4b8f5c12",
            "name": "orders",
            "timestamp": "2026-01-01T00:00:00.000Z",
            "batchId": 7,
            "batchDuration": 400,
            "numInputRows": 50,
            "durationMs": {"addBatch": 300},
            "stateOperators": [],
            "sources": list(sources),
            "sink": {"description": "noop", "numOutputRows": 50},
        }
    )


class QueryWithPlan:
    """A query whose plan has sources with these options, all of one `table`, and a leaf that is not a source."""

    def __init__(
        self, last: StreamingQueryProgress | None, *options: dict[str, str], table: Mapping[str, str] | None = None
    ) -> None:
        self.lastProgress = last
        self._schema = with_table_options(row_schema(False), table or {})
        leaves = [SimpleNamespace(relation=_without_method), *(self._leaf(n, given) for n, given in enumerate(options))]
        seq = SimpleNamespace(size=lambda: len(leaves), apply=leaves.__getitem__)
        plan = SimpleNamespace(collectLeaves=lambda: seq)
        self._jsq = SimpleNamespace(streamingQuery=lambda: SimpleNamespace(logicalPlan=lambda: plan))

    def _leaf(self, number: int, options: dict[str, str]) -> Any:
        relation = SimpleNamespace(options=lambda: SimpleNamespace(asCaseSensitiveMap=lambda: options))
        stream = SimpleNamespace(toString=lambda: f"{CLASS}@{number}")
        schema = SimpleNamespace(json=self._schema.json)
        return SimpleNamespace(stream=lambda: stream, relation=lambda: relation, schema=lambda: schema)


def _without_method() -> None:
    raise Py4JError("Method relation([]) does not exist")


def progress(of: Any) -> StreamingQueryProgress:
    found = streamgroup.progress(of)
    assert found is not None
    return found


def test_a_source_has_the_metrics_of_sparks_own_and_says_what_it_reads() -> None:
    last = made(source(0, document(), LATEST))
    found = progress(QueryWithPlan(last, OPTIONS))
    metrics = {"avgOffsetsBehindLatest": "7.5", "maxOffsetsBehindLatest": "10", "minOffsetsBehindLatest": "5"}
    text = "streamgroup[Subscribe[orders, payments], group=etl, mode=member]"
    assert (found.sources[0].metrics, found.sources[0].description) == (metrics, text)
    for value in (json.loads(found.json)["sources"][0], json.loads(found.sources[0].json)):
        assert (value["metrics"], value["description"]) == (metrics, text)
    assert last.sources[0].metrics == {}, "Spark's own object stays as it is"


def test_all_other_fields_are_sparks() -> None:
    last = made(source(0, document(), LATEST))
    found = progress(QueryWithPlan(last, OPTIONS))
    assert {**found, "sources": None} == {**last, "sources": None}
    left = {"metrics": None, "description": None}
    assert {**found.sources[0], **left} == {**last.sources[0], **left}
    assert (found["id"], found.batchId, found.sink.description) == (last["id"], 7, "noop")


def test_each_of_several_sources_has_its_own_and_one_of_another_format_stays() -> None:
    kafka = {**source(1, {"orders": {"0": 5}}, {"orders": {"0": 9}}), "metrics": {"maxOffsetsBehindLatest": "4"}}
    last = made(source(0, document(), LATEST), kafka, source(2, document(), None))
    for of_kafka in ({"subscribe": "orders"}, {}):
        found = progress(QueryWithPlan(last, OPTIONS, of_kafka, {**OPTIONS, "subscribe": "other"}))
        described = [each.description.partition(",")[0] for each in found.sources]
        assert described == ["streamgroup[Subscribe[orders", f"{CLASS}@1", "streamgroup[Subscribe[other]"]
    assert [s.metrics.get("maxOffsetsBehindLatest") for s in found.sources] == ["10", "4", None]


def test_the_options_of_a_table_are_in_the_description_too() -> None:
    given = {"kafka.group.id": "etl"}
    table = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "orders"}
    found = progress(QueryWithPlan(made(source(0, document(), LATEST)), given, table=table))
    assert found.sources[0].description == "streamgroup[Subscribe[orders], group=etl, mode=member]"


def test_a_query_without_a_progress_has_none() -> None:
    assert streamgroup.progress(QueryWithPlan(None)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("jsq", [SimpleNamespace(), None], ids=["another Spark", "Spark Connect"])
def test_where_the_plan_cannot_be_seen_the_metrics_are_there_all_the_same(jsq: Any) -> None:
    query = QueryWithPlan(made(source(0, document(), LATEST)), OPTIONS)
    query._jsq = jsq
    found = progress(query)
    assert (found.sources[0].description, found.sources[0].metrics["maxOffsetsBehindLatest"]) == (f"{CLASS}@0", "10")


def test_a_listener_gives_the_progress_of_its_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)  # as in a client of Spark Connect
    found = progress(made(source(0, document(), LATEST)))
    assert (found.sources[0].description, found.sources[0].metrics["minOffsetsBehindLatest"]) == (f"{CLASS}@0", "5")


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
        streams=SimpleNamespace(active=queries), createDataFrame=lambda rows, schema: made_frames.append((rows, schema))
    )
    progress_table(spark)
    ((rows, schema),) = made_frames
    assert schema is COLUMNS
    group = COLUMNS.names.index("group")
    assert [row[group] for row in rows] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"subscribe": "orders"}, "streamgroup[Subscribe[orders], group=etl, mode=member]"),
        ({"subscribePattern": "or.*"}, "streamgroup[SubscribePattern[or.*], group=etl, mode=member]"),
        ({"assign": '{"orders": [1, 0]}'}, "streamgroup[Assign[orders-0, orders-1], group=etl, mode=commit]"),
        ({"subscribe": "orders", "group.mode": "off"}, "streamgroup[Subscribe[orders], mode=off]"),
    ],
)
def test_the_description_has_sparks_words_for_what_is_read(more: dict[str, str], text: str) -> None:
    options = {name: value for name, value in OPTIONS.items() if name != "subscribe"}
    assert describe({**options, **more}) == text
    assert describe({**options, **more}, to_value(INITIAL_DOCUMENT)) == text


@pytest.mark.parametrize("mode", [{}, {"Group.Mode": "member"}], ids=["by default", "against the options"])
def test_a_document_without_a_group_shows_that_the_mode_is_off(mode: dict[str, str]) -> None:
    options = {**OPTIONS, "subscribe": "orders", **mode}
    assert describe(options, document(group="")) == "streamgroup[Subscribe[orders], mode=off]"


def test_metrics_that_a_source_has_already_are_kept() -> None:
    of_source = {**source(0, document(), LATEST), "metrics": {"own": "1"}}
    found = completed(made(of_source), {})
    assert found.sources[0].metrics["own"] == "1"
    assert found.sources[0].metrics["maxOffsetsBehindLatest"] == "10"


def test_a_source_before_its_first_batch_is_described_and_has_no_metrics() -> None:
    first = made(source(0, json.dumps(to_value(INITIAL_DOCUMENT)), LATEST))
    assert list(rows_of(first)) == [], "nor a row in the table"
    found = completed(first, {f"{CLASS}@0": {**OPTIONS, "subscribe": "orders"}})
    assert found.sources[0].description == "streamgroup[Subscribe[orders], group=etl, mode=member]"
    assert found.sources[0].metrics == {}

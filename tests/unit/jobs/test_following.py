from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from streamgroup.coordinator.planning.document import to_value
from streamgroup.jobs.following import Following, Reporter, is_of_a_signal, lag_of, line_of
from streamgroup.logline import message_of, parse
from streamgroup.model import Document, Position, TopicPartition


def progress(batch: int, rows: int = 10, **more: Any) -> dict[str, Any]:
    return {"batchId": batch, "numInputRows": rows, "batchDuration": 400, "durationMs": {}, "sources": [], **more}


def source(**positions: int) -> dict[str, Any]:
    """The progress of a source whose batch has ended at these positions. The log ends are those before the batch."""
    held = {TopicPartition("orders", int(p.removeprefix("p"))): Position(offset) for p, offset in positions.items()}
    end = to_value(Document("g", "lineage", "run", 1, positions=held))
    return {"latestOffset": {"orders": {"0": 0}}, "endOffset": json.dumps(end)}


def no_ends(_: object) -> dict[str, Any]:
    """As for a query whose coordinator process has ended."""
    return {}


def test_a_batch_is_one_line() -> None:
    assert message_of(line_of(progress(12, rows=1000), None)) == "batch 12: 1000 rows in 0.4 s (2500 rows/s)"


def test_the_line_of_a_batch_has_its_figures_for_programs() -> None:
    phases = {"triggerExecution": 400, "latestOffset": 3, "queryPlanning": 20, "walCommit": 30, "addBatch": 300}
    line = line_of(progress(12, rows=1000, durationMs=phases), 5)
    assert parse(line) == {
        "event": "batch",
        "batch": "12",
        "rows": "1000",
        "duration_ms": "400",
        "rows_per_second": "2500",
        "lag": "5",
        "latest_offset_ms": "3",
        "query_planning_ms": "20",
        "wal_commit_ms": "30",
        "add_batch_ms": "300",
    }


def test_the_lag_of_the_newest_batch_is_to_the_log_ends_after_it() -> None:
    """Spark's progress has the log ends of its plan, which a long batch has left far behind."""
    asked: list[Any] = []

    def log_ends(end: Any) -> dict[str, Any]:
        asked.append(end["positions"])
        return {"orders": {"0": 110, "1": 200}}

    recent = [progress(1, sources=[source(p0=50, p1=95)]), progress(2, sources=[source(p0=100, p1=195)])]
    first, second = Reporter(log_ends).news(recent)
    assert "lag" not in message_of(first)
    assert message_of(second).endswith("lag 15")
    assert asked == [{"orders": {"0": [100, -1], "1": [195, -1]}}], "one listing, for all batches of a look"


@pytest.mark.parametrize(
    ("latest", "lag"),
    [
        ({"orders": {"0": 110}}, 10),
        ({"orders": {"0": 90}}, 0),
        ({"orders": {"1": 110}}, None),
        ({"payments": {"0": 110}}, None),
        ({}, None),
        (None, None),
        ({"orders": 3}, None),
    ],
)
def test_the_lag_is_of_the_partitions_held(latest: object, lag: int | None) -> None:
    assert lag_of(progress(1, sources=[source(p0=100)]), lambda _: latest) == lag  # type: ignore[arg-type,return-value]


def test_a_duration_of_zero_causes_no_division_by_zero() -> None:
    assert message_of(line_of(progress(0, rows=1, batchDuration=0), None)) == "batch 0: 1 row in 0.0 s"


def test_an_older_spark_tells_the_duration_elsewhere() -> None:
    assert line_of(progress(0, batchDuration=None, durationMs={"triggerExecution": 2000}), None).startswith(
        "batch 0: 10 rows in 2.0 s (5 rows/s)"
    )


def test_each_batch_is_reported_once_and_empty_ones_never() -> None:
    reporter = Reporter(no_ends)
    first = [progress(0), progress(1, rows=0), progress(2)]
    assert [line.split(":")[0] for line in reporter.news(first)] == ["batch 0", "batch 2"]
    assert reporter.news([*first, progress(3, rows=0)]) == []
    assert len(reporter.news([*first, progress(3)])) == 1


def test_only_a_new_batch_with_rows_is_worth_a_look() -> None:
    reporter = Reporter(no_ends)
    reporter.news([progress(4)])
    assert [reporter.is_news(p) for p in (None, progress(4), progress(5, rows=0), progress(5))] == [
        False,
        False,
        False,
        True,
    ]


class Failed(StreamingQueryException):
    """A query's failure as PySpark passes it on."""

    def __init__(self, trace: str) -> None:
        Exception.__init__(self, "terminated with exception: ")
        self._stackTrace = trace

    def __str__(self) -> str:
        return "terminated with exception: "


class FailedQuery:
    """A query that has failed."""

    lastProgress = None  # noqa: N815  (Spark's name)

    def __init__(self, trace: str) -> None:
        self.error = Failed(trace)

    def awaitTermination(self, _: float) -> bool:  # noqa: N802  (Spark's name)
        raise self.error


KILLED = "...StreamingQueryException: \nCaused by: ExitCodeException exitCode=143: \n\tat org.apache.hadoop.util.Shell"

KILLED_HELPER = 'IOException: Cannot run program "chmod": error=0, Failed to exec spawn helper: pid: 5, signal: '


class Stop:
    """A stop that is requested while the query is waited for."""

    name = "SIGTERM"

    def __init__(self, *, requested: bool) -> None:
        self.looks = iter([False, requested])

    def __bool__(self) -> bool:
        return next(self.looks)


@pytest.mark.parametrize("trace", [KILLED, f"{KILLED_HELPER}15", f"{KILLED_HELPER}2 SQLSTATE: XXKST"])
def test_a_signal_that_ends_a_command_of_hadoop_stops_the_job(trace: str) -> None:
    said: list[str] = []
    stop: Any = Stop(requested=True)
    assert not Following(FailedQuery(trace), said.append, no_ends).follow(stop)
    (line,) = said
    assert line.startswith("SIGTERM has ended a command of Hadoop too, and with it the query: the last batch may be")


@pytest.mark.parametrize(
    ("trace", "requested"),
    [(KILLED, False), ("ExitCodeException exitCode=1: x", True), (f"{KILLED_HELPER}9", True), ("", True)],
)
def test_any_other_failure_is_a_failure(trace: str, requested: bool) -> None:
    stop: Any = Stop(requested=requested)
    with pytest.raises(StreamingQueryException):
        Following(FailedQuery(trace), print, no_ends).follow(stop)


def test_an_error_without_a_trace_is_of_no_signal() -> None:
    assert not is_of_a_signal(ValueError(KILLED))

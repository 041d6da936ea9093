"""The smallest micro-batch, phase by phase: queries that take turns, and the table of their times."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress
from rich.console import Console
from rich.table import Table

from benchmarks.batch_read import session

PHASES = ("latestOffset", "queryPlanning", "getBatch", "walCommit", "addBatch", "commitOffsets", "triggerExecution")
WARM_UP = 5
"""The batches of each query that do not count."""
TIMEOUT_S = 300

Begin = Callable[[Path], StreamingQuery]
"""Starts a query with one row in each batch. It takes the checkpoint's path."""


@contextmanager
def micro_batch_session() -> Iterator[SparkSession]:
    """Yield a session that keeps the progress of all batches."""
    spark = session()
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
    yield spark
    spark.stop()


def take_turns(queries: Mapping[str, Begin], rounds: int, batches: int) -> dict[str, list[dict[str, float]]]:
    """Return the `measure` of each query in each round. A first round warms up and does not count."""
    results: dict[str, list[dict[str, float]]] = {name: [] for name in queries}
    names = list(queries)
    for number in range(rounds + 1):
        for name in names if number % 2 else names[::-1]:
            measured = measure(queries[name], batches)
            if number:
                results[name].append(measured)
    return results


def report(results: dict[str, list[dict[str, float]]], as_json: bool) -> None:
    """Print the results as JSON or as a table."""
    if as_json:
        click.echo(json.dumps(results, indent=2))
    else:
        show(results)


def measure(begin: Begin, batches: int) -> dict[str, float]:
    """Return the median milliseconds of each phase over `batches` batches."""
    with tempfile.TemporaryDirectory() as home:
        query = begin(Path(home))
        try:
            progress = _progress(query, WARM_UP + batches)
        finally:
            query.stop()
    return {phase: statistics.median(each.durationMs.get(phase, 0) for each in progress) for phase in PHASES}


def _progress(query: StreamingQuery, count: int) -> list[StreamingQueryProgress]:
    """Wait for the progress of `count` batches with a row. Return all but the first ones."""
    for _ in range(TIMEOUT_S):
        written = [each for each in query.recentProgress if each.numInputRows]
        if len(written) >= count:
            return written[WARM_UP:count]
        if query.awaitTermination(1):  # raises the query's error
            break
    raise click.ClickException(f"the query has not written {count} batches")


def show(results: dict[str, list[dict[str, float]]]) -> None:
    """Print the median of each phase, and the median ratio of each format in Python to Spark's own, round by round."""
    table = Table(title="milliseconds of a micro-batch with one row, local[2]")
    others = [each for each in results if each != "kafka"]
    for column in ("phase", *results, *(f"{each} / kafka" for each in others)):
        table.add_column(column, justify="left" if column == "phase" else "right")
    for phase in PHASES:
        times = {each: [run[phase] for run in results[each]] for each in results}
        medians = (f"{statistics.median(times[each]):.1f}" for each in results)
        ratios = (_ratio(times[each], times["kafka"]) for each in others)
        table.add_row(phase, *medians, *ratios)
    Console().print(table)


def _ratio(ones: list[float], others: list[float]) -> str:
    ratios = [one / other for one, other in zip(ones, others, strict=True) if other]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} - {max(ratios):.2f})" if ratios else "-"

"""Follows a job's query: reports its batches, waits for its end, and drains it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamgroup import logline
from streamgroup.coordinator.planning.batch import offsets_behind
from streamgroup.errors import DrainedError, StreamGroupError
from streamgroup.jobs.job_file import Trigger
from streamgroup.jobs.signals import StopRequest
from streamgroup.spark.channel import SunkNotifier
from streamgroup.spark.queries import Value, documents_in, jvm_pid
from streamgroup.text import counted

Say = Callable[[str], None]
"""Prints a line for the user."""
LogEnds = Callable[[Value], Mapping[str, Any]]
"""Returns the ends of logs for the end document of a batch, as `{"orders": {"0": 110}}`; empty if they are unknown."""

_PHASES = {
    "latestOffset": "latest_offset_ms",
    "queryPlanning": "query_planning_ms",
    "walCommit": "wal_commit_ms",
    "addBatch": "add_batch_ms",
    "commitOffsets": "commit_offsets_ms",
}
"""The keys of the log line by the names of Spark's phases."""

POLL_S = 0.5
"""Seconds of one wait in the JVM. Between waits Python handles signals, and the job reports batches."""
_DRAINED = re.compile(rf"{DrainedError.__module__}\.{DrainedError.__name__}: (.+)")

_ENDED_COMMAND = re.compile(
    r"ExitCodeException exitCode=(130|143)\b|Failed to exec spawn helper: pid: \d+, signal: (2|15)\b"
)
"""The error of a command that SIGINT or SIGTERM has ended (128 plus the signal), or of Java's helper that starts it."""


def trigger_options(trigger: Trigger) -> dict[str, Any]:
    if trigger.processing_time is not None:
        return {"processingTime": trigger.processing_time}
    if trigger.available_now:
        return {"availableNow": True}
    return {"once": True} if trigger.once else {}


class RowsWithOffsets:
    """A function for `foreachBatch`: `write` stores rows and offsets in one transaction, of a database or of Kafka.

    `error` is the last error of streamgroup that it has raised. Spark wraps it in two stack traces.
    """

    def __init__(self, write: Callable[[DataFrame, int], None]) -> None:
        self._write = write
        self.error: StreamGroupError | None = None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        try:
            self._write(rows, batch)
        except StreamGroupError as error:
            self.error = error
            raise


class Following:
    """Follows a job's query: reports each batch once with `say(line)`, and drains the query at a stop.

    `log_ends(document)` lists the current log ends of the partitions in a batch's end document.
    """

    def __init__(self, query: Any, say: Say, log_ends: LogEnds) -> None:
        self._query = query
        self._say = say
        self._reporter = Reporter(log_ends)

    def follow(self, stop: StopRequest, has_changed: Callable[[], bool] = lambda: False) -> bool:
        """Report batches until the query ends, a signal requests a stop, or the query must be planned again.

        `has_changed` returns whether it must, and is called between two waits. Return whether the query still runs.

        Raises StreamingQueryException if the query failed. A drain by another process is not a failure. Nor is a
        signal to the process group, which also ends the commands that Hadoop runs at that moment.
        """
        ended = False
        while not ended and not stop and not has_changed():
            try:
                ended = bool(self._query.awaitTermination(POLL_S))
            except StreamingQueryException as error:
                self._report()
                said = drained_by(error)
                if said is None and stop and is_of_a_signal(error):
                    said = (
                        f"{stop.name} has ended a command of Hadoop too, and with it the query: the last batch may be "
                        "repeated. Send the signal to spark-submit alone"
                    )
                if said is None:
                    raise
                self._say(said)
                return False
            self._report()
        if ended:
            self._say("the query has ended: it has read the whole backlog")
        return not ended

    def finish_on_signal(self, signal_name: str, timeout_s: float) -> None:
        self._say(
            f"{signal_name}: waiting up to {timeout_s:.0f} s for the batch in flight. Send it again to stop at once"
        )
        self.finish(timeout_s)

    def finish(self, timeout_s: float) -> None:
        """Drain the query: wait until the batch in flight reaches the sink, commit it, leave the group, stop."""
        from streamgroup.spark.drain import drain  # noqa: PLC0415  (only a stop needs the control channel)

        try:
            result = drain(self._query, timeout_s)
        except StreamGroupError as error:  # for example for a query without a batch yet
            self._say(f"cannot drain the query, which stops at once: {error}")
            self._query.stop()
        else:
            self._report()
            # A signal to the process group also ends the coordinator, and with it the query, before it can drain.
            complete = result.drained and self._query.exception() is None
            self._say("stopped; nothing will be repeated" if complete else "stopped; the last batch may be repeated")

    def _report(self) -> None:
        if self._reporter.is_news(self._query.lastProgress):
            for line in self._reporter.news(list(self._query.recentProgress)):
                self._say(line)


def drained_by(error: Exception) -> str | None:
    """Return the message of the DrainedError that ended the query, or None if another error did.

    Spark passes on only the traceback of the error in the coordinator's process, as text.
    """
    found = _DRAINED.search(str(error))
    return None if found is None else found[1].strip()


def is_of_a_signal(error: Exception) -> bool:
    """Return whether a query has failed because a signal ended a command that Hadoop ran for it.

    Hadoop runs commands such as chmod for each file of a checkpoint. Only the stack trace contains their exit code.
    """
    return _ENDED_COMMAND.search(getattr(error, "_stackTrace", None) or "") is not None


class Reporter:
    """Makes log lines from a query's progress: one line for each batch with rows.

    Spark's progress has the log ends from before the batch, so the newest batch gets its lag from `log_ends`.
    """

    def __init__(self, log_ends: LogEnds) -> None:
        self._log_ends = log_ends
        self._reported = -1

    def news(self, recent: Iterable[Mapping[str, Any]]) -> list[str]:
        """Return the lines for the batches of `recent` (Spark's progress, oldest first) that are not reported yet."""
        news = []
        for progress in recent:
            batch = int(progress["batchId"])
            if batch > self._reported and int(progress["numInputRows"]) > 0:
                self._reported = batch
                news.append(progress)
        # One listing for each report: a broker that does not respond would delay the handling of signals.
        return [line_of(one, lag_of(one, self._log_ends) if one is news[-1] else None) for one in news]

    def is_news(self, last: Mapping[str, Any] | None) -> bool:
        """Return whether the query's last progress is of an unreported batch. Fetching all progress is slower."""
        return last is not None and int(last["batchId"]) > self._reported and int(last["numInputRows"]) > 0


def line_of(progress: Mapping[str, Any], lag: int | None) -> str:
    """Return the log line of a batch: `batch 12: 1000 rows in 0.4 s (2500 rows/s), lag 0 | event=batch batch=12 ...`.

    The fields after `event` are for programs (docs/jobs.md). The line has no lag if it is None, and no rate for a batch
    without a duration.
    """
    rows = int(progress["numInputRows"])
    phases = progress["durationMs"]
    ms = int(progress.get("batchDuration") or phases.get("triggerExecution", 0))
    rate = round(rows * 1000 / ms) if ms > 0 else None
    words = f"batch {progress['batchId']}: {counted(rows, 'row')} in {ms / 1000:.1f} s"
    if rate is not None:
        words += f" ({rate} rows/s)"
    if lag is not None:
        words += f", lag {lag}"
    fields = {"batch": progress["batchId"], "rows": rows, "duration_ms": ms, "rows_per_second": rate, "lag": lag}
    return logline.render(words, "batch", **fields, **{key: phases.get(name) for name, key in _PHASES.items()})


def lag_of(progress: Mapping[str, Any], log_ends: LogEnds) -> int | None:
    """Return the offsets from the batch's end to the log ends of its partitions, or None if no end is known."""
    ends = documents_in(progress.get("sources", ()), "endOffset")
    behind = [n for end in ends for n in offsets_behind(end, log_ends(end))]
    return sum(behind) if behind else None


def ends_of_logs(spark: SparkSession) -> LogEnds:
    """Return a function that asks the coordinator processes of this driver for the ends of their logs."""
    return SunkNotifier(jvm_pid(spark.sparkContext)).log_ends

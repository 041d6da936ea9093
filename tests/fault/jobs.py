"""A Spark application that the tests command: its session is up and warm before the first query is wanted.

    STREAMGROUP_FAULTS=<directory> python jobs.py

A line of standard input is a command, a line of standard output an event: JSON both. Its driver, its JVM and its
coordinators are processes of one process group, as under spark-submit. Standard output's end means that it is gone.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import named_points
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamgroup

LONGEST_HOLD_S = 120.0
STARTS = 6
NOT_STARTED = "Python worker failed to connect back"
"""Spark gives a query's process 10 s to start, which a machine full of starting JVMs may not keep: then nothing of the
query has run yet, and it is started again."""


def make_session(home: Path) -> SparkSession:
    """A session as small and as quick to start as can be."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": os.environ.get("STREAMGROUP_FAULTS_JAVA", ""),
        # How often an idle query asks for news (Spark: every 10 ms); several of them share two cores here.
        "spark.sql.streaming.pollingDelay": "50ms",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.local.dir": str(home / "local"),
        "spark.master": "local[1]",
        **{f"spark.executorEnv.{name}": os.environ[name] for name in ("STREAMGROUP_FAULTS", "PYTHONPATH")},
        **json.loads(os.environ.get("STREAMGROUP_FAULTS_SETTINGS", "{}")),
    }
    builder = SparkSession.builder.appName(home.name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


class Sink:
    """`foreachBatch` into a file: a line when a batch has begun, a line with its values when it is on the disk.

    Between the two it takes `pause_s`, and as long as there is a file `hold-<query>`.
    """

    def __init__(self, query: str, path: Path, pause_s: float) -> None:
        self.path = path
        self.pause_s = pause_s
        self._gate = named_points.home() / f"hold-{query}"

    def __call__(self, frame: DataFrame, batch: int) -> None:
        named_points.append(self.path, {"at": time.monotonic(), "begun": batch})
        values = [bytes(row.value).decode() for row in frame.select("value").collect()]
        time.sleep(self.pause_s)
        if self._gate.exists():
            named_points.append(self.path, {"at": time.monotonic(), "held": batch})
            deadline = time.monotonic() + LONGEST_HOLD_S
            while self._gate.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
        named_points.append(self.path, {"at": time.monotonic(), "batch": batch, "values": values})
        named_points.pass_point(named_points.SUNK)


WIDTHS = "repeat(cast(value as string), IF(partition = 0, 200, 10)) as value"
"""The rows of partition 0 are so wide that a task loads them into a staging table; the driver gets the others."""


class JdbcSink:
    """`foreachBatch` into a table by Spark's own sink."""

    def __init__(self, url: str, dbtable: str, **properties: str) -> None:
        self._url, self._dbtable, self._properties = "jdbc:" + url, dbtable, properties

    def __call__(self, frame: DataFrame, _: int) -> None:
        frame.write.jdbc(self._url, self._dbtable, "append", {**self._properties, "driver": "org.postgresql.Driver"})
        named_points.pass_point(named_points.STORED)


class PlainSink:
    """`foreachBatch` into a topic without transactions."""

    def __init__(self, **options: str) -> None:
        self._options = options

    def __call__(self, frame: DataFrame, _: int) -> None:
        frame.write.format("streamgroup").options(**self._options).mode("append").save()
        named_points.pass_point(named_points.STORED)


def sink_into(format: str, access: dict[str, str]) -> Callable[[DataFrame, int], None]:  # noqa: A002
    """Return the function for `foreachBatch` that writes into a table of a database, or into a topic."""
    kinds: dict[str, Callable[..., Callable[[DataFrame, int], None]]] = {
        "jdbc": JdbcSink,
        "sql_sink": streamgroup.sql_sink,
        "exactly_once": streamgroup.exactly_once,
        "plain": PlainSink,
    }
    return kinds[format](**access)


class Driver:
    """Carries the commands out, one after the other."""

    def __init__(self, session: SparkSession, events: IO[str]) -> None:
        self._session = session
        self._events = events
        self._writing = threading.Lock()
        self._queries: dict[str, StreamingQuery] = {}

    def tell(self, event: str, **details: Any) -> None:
        """Report an event."""
        with self._writing:
            print(json.dumps({"event": event, **details}), file=self._events, flush=True)

    def start(
        self,
        query: str,
        *,
        options: dict[str, str],
        checkpoint: str,
        sink: str,
        pause_s: float,
        table: dict[str, str] | None = None,
    ) -> None:
        """Start a query; `ended` tells of its end, whoever ended it. With `table`, it writes into a database."""
        columns: list[str] = ["*"]
        write: Callable[[DataFrame, int], None] = Sink(query, Path(sink), pause_s)
        if table is not None:
            columns = ["value"] if "topic" in table else [WIDTHS]
            write = sink_into(table.pop("format"), table)
        begin = functools.partial(self._begin, options, checkpoint, columns, write)
        self._queries[query] = begin()
        self.tell("started", query=query)
        threading.Thread(target=self._await_end, args=(query, begin), daemon=True).start()

    def _begin(
        self, options: dict[str, str], checkpoint: str, columns: list[str], sink: Callable[[DataFrame, int], None]
    ) -> StreamingQuery:
        return (
            self._session.readStream.format("streamgroup")
            .options(**options)
            .load()
            .selectExpr(*columns)
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", checkpoint)
            .start()
        )

    def drain(self, query: str, timeout: float) -> None:
        """Drain a query."""
        result = streamgroup.drain(self._queries[query], timeout)
        print(f"{query}: {result}", file=sys.stderr, flush=True)  # no groups: no coordinator answered
        self.tell("drained", query=query, drained=result.drained)

    def stop(self, query: str) -> None:
        """Stop a query, as a user does who does not drain."""
        self.tell("stopping", query=query)
        self._queries[query].stop()

    def end(self) -> None:
        """Stop every query that runs, whichever test has started it."""
        for query in self._session.streams.active:
            query.stop()
        self.tell("idle")

    def _await_end(self, query: str, begin: Callable[[], StreamingQuery]) -> None:
        error = ""
        for _ in range(STARTS):
            error = end_of(self._queries[query])
            if NOT_STARTED not in error:
                break
            self._queries[query] = begin()
        self.tell("ended", query=query, error=error)


def end_of(query: StreamingQuery) -> str:
    """Wait for the end of a query; the error that it ended with."""
    try:
        query.awaitTermination()
    except Exception as error:
        return str(error)
    return ""


def warm(session: SparkSession, home: Path) -> None:
    """Load the classes and start the processes that a query needs, before one is wanted."""
    query = (
        session.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 1)
        .load()
        .writeStream.foreachBatch(lambda frame, _: frame.collect())
        .option("checkpointLocation", str(home / "warm"))
        .trigger(once=True)
        .start()
    )
    query.awaitTermination()


def main() -> None:
    # Spark and its JVM print to standard output too: what the tests read has a descriptor of its own.
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    home = named_points.home()
    session = make_session(home)
    jvm = int(session._jvm.java.lang.ProcessHandle.current().pid())
    (home / "processes").write_text(json.dumps({"group": os.getpgrp(), "jvm": jvm}))
    warm(session, home)
    driver = Driver(session, events)
    driver.tell("ready")
    commands = {"start": driver.start, "drain": driver.drain, "stop": driver.stop, "end": driver.end}
    for line in sys.stdin:
        command = json.loads(line)
        name = command.pop("command")
        try:
            commands[name](**command)
        except Exception as error:
            driver.tell("failed", command=name, error=str(error), **command)
    session.stop()


if __name__ == "__main__":
    main()

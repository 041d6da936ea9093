"""A Spark application that reads and writes with secrets, by `python -m tests.spark.canary_application <home> <plan>`.

It writes all that Spark and streamgroup show about its queries to files below `<home>`. The plan is a JSON file with
the options of each case and of each run that fails. It lies elsewhere, since it may hold secrets.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import resource
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import streamgroup
from streamgroup import Parser, SchemaRegistry, dead_letters
from streamgroup.coordinator.control import channel
from streamgroup.options.secrets import REDACTION_REGEX
from streamgroup.spark.parsing.framing import SCHEMA_ID

Options = Mapping[str, str]

TIMEOUT_S = 60.0
PAGES = ("/jobs/", "/stages/", "/SQL/", "/StreamingQuery/", "/environment/", "/executors/", "/storage/")
RESOURCES = ("sql?details=true", "environment", "jobs", "stages?details=true")
CHANGING_REQUESTS = {"sunk", "drain", "end", "pause"}
"""The requests of a control channel after which a query goes on in another way, or ends."""
LINK = re.compile(r'href="(/(?:SQL|StreamingQuery|jobs|stages)/[^"#]*)"')
MOST_PAGES = 300
LOGGING = """
rootLogger.level = debug
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c: %m%n%ex
logger.jetty.name = org.sparkproject.jetty
logger.jetty.level = info
"""
"""Spark's own log at DEBUG, with every plan that the planner makes on the way."""


def make_session(home: Path, spark_home: Path) -> SparkSession:
    """Start a session with an executor of its own, an event log, logs at DEBUG and a user interface."""
    make_spark_home(spark_home, home / "work")
    os.environ |= {"SPARK_HOME": str(spark_home), "SPARK_LOCAL_IP": "127.0.0.1"}
    (home / "events").mkdir()
    flags = {}
    for process in ("driver", "executor"):
        logging = home / f"{process}-log4j2.properties"
        logging.write_text(LOGGING.format(log=home / f"{process}.log"))
        flags[process] = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.configurationFile={logging}"
    settings = {
        "spark.driver.extraJavaOptions": flags["driver"],
        "spark.executor.extraJavaOptions": flags["executor"],
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.port": "0",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (home / "events").as_uri(),
        "spark.local.dir": str(home / "local"),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.sql.ui.explainMode": "extended",
        "spark.sql.planChangeLog.level": "warn",
        "spark.redaction.regex": REDACTION_REGEX,
    }
    builder: Any = SparkSession.builder.master("local-cluster[1,2,768]").appName("streamgroup-canary")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    return session


def make_spark_home(spark_home: Path, work: Path) -> None:
    """Make a home of Spark whose workers write into `work`, from links to PySpark's."""
    spark_home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != work.name:
            (spark_home / entry.name).symlink_to(entry)
    work.mkdir()
    (spark_home / "work").symlink_to(work)


class Application:
    """A session, and the directory for all that it shows."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.spark, self.home, self.shown = spark, home, home / "shown"
        self.shown.mkdir()
        java: Any = spark._jvm
        self.jvm = int(java.java.lang.ProcessHandle.current().pid())
        self._modes = java.org.apache.spark.sql.execution.ExplainMode

    def show(self, name: str, text: str) -> None:
        (self.shown / name).write_text(text)

    def explain(self, name: str, frame: DataFrame) -> None:
        execution: Any = frame._jdf.queryExecution()
        for mode in ("simple", "extended", "formatted", "cost", "codegen"):
            self.show(f"{name}-explain-{mode}", execution.explainString(self._modes.fromString(mode)))

    # -- runs that succeed ---------------------------------------------------------------------------------------------

    def read_and_write(self, name: str, case: Mapping[str, Any]) -> None:
        """Run a batch read, a batch write, and a stream that does both."""
        options: Options = case["options"]
        frame = self.spark.read.format("streamgroup").options(**options, subscribe=case["topic"]).load()
        assert frame.count() > 0
        self.explain(f"{name}-read", frame)
        rows = frame.select("value")
        rows.write.format("streamgroup").options(**options, topic=case["to"]).mode("append").save()
        stream = self.spark.readStream.format("streamgroup").options(**options, subscribe=case["topic"])
        stream = stream.option("kafka.group.id", case["group"]).option("startingOffsets", "earliest")
        loaded = stream.load()
        self.explain(f"{name}-stream", loaded)
        writer = loaded.select("value").writeStream.format("streamgroup").options(**options, topic=case["to"])
        query = writer.option("checkpointLocation", str(self.home / f"{name}-checkpoint")).start()
        deadline = time.monotonic() + TIMEOUT_S
        while not any(progress["numInputRows"] for progress in query.recentProgress):
            assert time.monotonic() < deadline, "the stream has read nothing"
            assert query.isActive, query.exception()
            time.sleep(0.1)
        progress = json.dumps([dict(each) for each in query.recentProgress], default=str)
        self.show(f"{name}-progress", f"{progress}\n{query._jsq.lastProgress()}\n{query.status}")
        for extended in (False, True):
            self.show(f"{name}-query-explain-{extended}", query._jsq.explainInternal(extended))
        self.ask_coordinators(name)
        self.look_at_processes(name)
        query.stop()

    def store(self, name: str, case: Mapping[str, Any]) -> None:
        """Write a stream and a batch into the database of `offsets.store`, then again with a wrong password."""
        options: Options = case["options"]
        names = {"offsets.store": "url", "offsets.store.user": "user", "offsets.store.password": "password"}
        access = {names[key]: text for key, text in options.items() if key in names}
        table = f"canary_{name}"
        for kind, password in case["database"]["passwords"].items():
            stream = self.spark.readStream.format("streamgroup").options(**options, subscribe=case["topic"])
            stream = stream.option("kafka.group.id", f"{case['group']}-{kind}").option("startingOffsets", "earliest")
            rows = stream.load().selectExpr("repeat(hex(value), 8000) as value")  # so large that the tasks stage them
            given = {**access, "password": password}
            sink = streamgroup.sql_sink(**given, dbtable=table, create_table=True)
            query = rows.writeStream.foreachBatch(sink).trigger(availableNow=True)
            query = query.option("checkpointLocation", str(self.home / f"{name}-database-{kind}-checkpoint"))
            self.show(f"{name}-database-{kind}-stream", error_of(partial(_run, query)))
            frame = self.spark.createDataFrame([("v",)], "value string")
            writer = frame.write.format("streamgroup-sql").options(**given, dbtable=table).mode("append")
            self.show(f"{name}-database-{kind}-write", error_of(writer.save))

    def ask_coordinators(self, name: str) -> None:
        """Keep the answers of all coordinators to each request that changes nothing, and to one that is unknown."""
        runs = list(channel.statuses(self.jvm))
        assert runs, "no coordinator answers on its control channel"
        for request in reading_requests():
            answers = {run: channel.ask(self.jvm, run, request) for run in runs}
            self.show(f"{name}-control-{request}", json.dumps({"streamgroup": answers}))
        for run in runs:
            self.show(f"{name}-control-unknown-{run}", error_of(partial(channel.ask, self.jvm, run, "unknown")))

    def look_at_processes(self, name: str) -> None:
        """Copy command lines, environments and limits of this process and all that it has started."""
        for pid in descendants(self.jvm):
            for file in ("cmdline", "environ", "limits"):
                with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                    (self.shown / f"{name}-process-{pid}-{file}").write_bytes(Path(f"/proc/{pid}/{file}").read_bytes())

    def statement(self, options: Options, topic: str) -> None:
        """Explain a statement of SQL with the options, whose plan shows them."""
        self.spark.sparkContext.setLogLevel("INFO")  # at DEBUG Spark logs the statement itself
        listed = ", ".join(f"`{key}` '{value}'" for key, value in {**options, "subscribe": topic}.items())
        explained = self.spark.sql(f"EXPLAIN EXTENDED CREATE TEMPORARY VIEW v USING streamgroup OPTIONS ({listed})")
        self.show("statement-explain", explained.collect()[0][0])

    # -- runs that fail ------------------------------------------------------------------------------------------------

    def fail(self, name: str, options: Options, case: Mapping[str, Any]) -> None:
        """Let a batch read, a batch write and a stream fail; keep what they say."""
        read = self.spark.read.format("streamgroup").options(**options, subscribe=case["topic"])
        rows = self.spark.createDataFrame([("v",)], "value string")
        write = rows.write.format("streamgroup").options(**options, topic=case["to"]).mode("append")
        stream = self.spark.readStream.format("streamgroup").options(**options, subscribe=case["topic"])

        def run_stream() -> None:
            frame = stream.option("kafka.group.id", f"{case['group']}-failing").load()
            writer = frame.writeStream.format("noop")
            query = writer.option("checkpointLocation", str(self.home / f"{name}-checkpoint")).start()
            query.awaitTermination(TIMEOUT_S)
            query.stop()

        attempts: dict[str, Callable[[], object]] = {
            "read": lambda: read.load().count(),
            "write": write.save,
            "stream": run_stream,
        }
        for kind, attempt in attempts.items():
            self.show(f"failing-{name}-{kind}", error_of(attempt))

    # -- a schema registry ---------------------------------------------------------------------------------------------

    def parse(self, name: str, case: Mapping[str, Any]) -> None:
        """Read Avro by a registry that takes the password, then by one that refuses another; keep what they say."""
        for kind, password in case["registry"]["passwords"].items():
            registry = SchemaRegistry(case["registry"]["url"], "etl", password)
            parser = Parser("avro", case["registry"]["schema"], framing=SCHEMA_ID, registry=registry)
            seen: list[DataFrame] = []
            letters = dead_letters(
                parser, lambda rows, _, seen=seen: seen.append(rows), path=str(self.home / f"{name}-dead"), max_share=1
            )
            stream = self.spark.readStream.format("streamgroup").options(**case["options"], subscribe=case["topic"])
            rows = stream.option("kafka.group.id", f"{case['group']}-{kind}").option("startingOffsets", "earliest")
            writer = rows.load().writeStream.foreachBatch(letters).trigger(availableNow=True)
            writer = writer.option("checkpointLocation", str(self.home / f"{name}-{kind}-checkpoint"))
            said = error_of(partial(finish, writer))
            self.show(f"{name}-registry-{kind}", f"{said}\n{parser!r}\n{registry}\n{letters.error!r}")
            for rows in seen:
                self.explain(f"{name}-registry-{kind}", rows)

    # -- the user interface --------------------------------------------------------------------------------------------

    def visit(self) -> None:
        """Copy all pages and resources of Spark's user interface."""
        home = str(self.spark.sparkContext.uiWebUrl)
        seen: set[str] = set()
        waiting = [*PAGES, *self._resources()]
        while waiting and len(seen) < MOST_PAGES:
            page = waiting.pop()
            if page in seen:
                continue
            seen.add(page)
            try:
                with urllib.request.urlopen(home + page, timeout=TIMEOUT_S) as answer:
                    text = answer.read().decode()
            except urllib.error.HTTPError as error:
                text = error.read().decode()
            self.show(f"ui-{len(seen)}", f"{page}\n{text}")
            waiting += [link.replace("&amp;", "&") for link in LINK.findall(text)]

    def _resources(self) -> Iterator[str]:
        for name in RESOURCES:
            yield f"/api/v1/applications/{self.spark.sparkContext.applicationId}/{name}"


def finish(writer: DataStreamWriter) -> None:
    """Run a query that reads what there is."""
    assert writer.start().awaitTermination(TIMEOUT_S), "the query has not ended"


def reading_requests() -> list[str]:
    """Return the requests of a control channel that change nothing: a new one is among them until it is listed."""
    all_of_them = {name for name, value in vars(channel.ControlledRun).items() if inspect.isfunction(value)}
    return sorted(name for name in all_of_them - CHANGING_REQUESTS if not name.startswith("_"))


def _run(writer: DataStreamWriter) -> None:
    """Run a query to its end."""
    assert writer.start().awaitTermination(TIMEOUT_S)


def error_of(attempt: Callable[[], object]) -> str:
    """Return the whole text of the exception, with its causes and traceback."""
    try:
        attempt()
    except Exception as error:
        java = getattr(error, "_stackTrace", "")
        return f"{error}\n{error!r}\n{error.__cause__!r}\n{java}"
    return "no error"


def descendants(pid: int) -> list[int]:
    """Return a process and all below it."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


def main(home: str, plan: str) -> None:
    wanted = json.loads(Path(plan).read_text())
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))  # Spark's processes may write core files
    application = Application(make_session(Path(home), Path(plan).with_name("spark")), Path(home))
    for name, case in wanted["cases"].items():
        application.read_and_write(name, case)
        for failing, options in case["failing"].items():
            application.fail(f"{name}-{failing}", options, case)
        if "registry" in case:
            application.parse(name, case)
        if "database" in case:
            application.store(name, case)
    application.statement(wanted["statement"], "canary")
    application.visit()
    application.spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The job that ingests: how it follows its query, and how it writes rows."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamgroup.coordinator.planning.document import to_value
from streamgroup.errors import ConfigError
from streamgroup.jobs import ingest
from streamgroup.jobs.config import JobConfig, Sink, load
from streamgroup.jobs.following import Following, Reporter, is_of_a_signal, lag_of, line_of, trigger_options
from streamgroup.jobs.ingest import writer_of
from streamgroup.jobs.job_file import Trigger
from streamgroup.jobs.keys import SECTIONS
from streamgroup.jobs.signals import StopRequest
from streamgroup.logline import message_of, parse
from streamgroup.model import Document, Position, TopicPartition
from streamgroup.spark import drain as drain_module
from streamgroup.spark.drain import DrainResult


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


@pytest.mark.parametrize(
    ("batch", "line"),
    [
        (progress(12, rows=1000), "batch 12: 1000 rows in 0.4 s (2500 rows/s)"),
        (progress(0, rows=1, batchDuration=0), "batch 0: 1 row in 0.0 s"),
        (
            progress(0, batchDuration=None, durationMs={"triggerExecution": 2000}),
            "batch 0: 10 rows in 2.0 s (5 rows/s)",
        ),
    ],
    ids=["as of Spark 4.2", "no time has passed", "an older Spark has the duration elsewhere"],
)
def test_a_batch_is_one_line(batch: dict[str, Any], line: str) -> None:
    assert message_of(line_of(batch, None)) == line


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


def test_each_batch_is_reported_once_and_empty_ones_never() -> None:
    reporter = Reporter(no_ends)
    first = [progress(0), progress(1, rows=0), progress(2)]
    assert [line.split(":")[0] for line in reporter.news(first)] == ["batch 0", "batch 2"]
    assert reporter.news([*first, progress(3, rows=0)]) == []
    assert len(reporter.news([*first, progress(3)])) == 1


def test_only_a_new_batch_with_rows_is_worth_a_look() -> None:
    reporter = Reporter(no_ends)
    reporter.news([progress(4)])
    looks = (None, progress(4), progress(5, rows=0), progress(5))
    assert [reporter.is_news(each) for each in looks] == [False, False, False, True]


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


ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "conf" / "ingest.toml"


@pytest.fixture
def job() -> JobConfig:
    return load(EXAMPLE, "a", {})


class EndingQuery:
    """A query that ends after some looks at it, with one more batch at each."""

    def __init__(self, looks: int, at_look: Any = None) -> None:
        self.looks, self.at_look = looks, at_look
        self.recentProgress: list[dict[str, Any]] = []
        self.stopped = False
        self.failure: Exception | None = None

    def exception(self) -> Exception | None:
        return self.failure

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802 (Spark's)
        return self.recentProgress[-1] if self.recentProgress else None

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802 (Spark's)
        assert 0 < timeout < 1, "signals wait so long"
        self.looks -= 1
        batch = {"batchId": len(self.recentProgress), "numInputRows": 5, "durationMs": {}, "sources": []}
        self.recentProgress.append(batch)
        if self.at_look is not None:
            self.at_look()
        return self.looks == 0

    def stop(self) -> None:
        self.stopped = True


def test_every_batch_is_printed_until_the_query_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert not Following(EndingQuery(3), ingest.say, no_ends).follow(StopRequest()), "it has ended"
    said = capsys.readouterr().out
    assert [line.split(":")[1] for line in said.splitlines()[:3]] == [" batch 0", " batch 1", " batch 2"]
    assert said.endswith("it has read the whole backlog\n")


def test_a_signal_ends_the_watch(capsys: pytest.CaptureFixture[str]) -> None:
    stop = StopRequest()
    assert Following(EndingQuery(100, lambda: stop.receive(15)), ingest.say, no_ends).follow(stop), (
        "the query still runs"
    )
    assert "read the whole backlog" not in capsys.readouterr().out


FAILED = """[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR]
Failed when running Python streaming data source: latestOffset: Traceback (most recent call last):
  File "streamgroup/coordinator/run/lifecycle.py", line 142, in wait_for_end
    raise DrainedError(said)
streamgroup.errors.{error}: group g: {text}
 SQLSTATE: 38000"""


def failing(error: str, text: str) -> EndingQuery:
    def fail() -> None:
        raise StreamingQueryException(FAILED.format(error=error, text=text))

    return EndingQuery(100, fail)


@pytest.mark.parametrize(
    "text",
    [
        "the query was drained, and no batch will be repeated. Start the query again to continue",
        "a drain has stopped the query before the last batch was completed and committed, so that batch may be "
        "repeated. The drain's timeout expired, or another member owns the partitions now",
    ],
)
def test_a_drain_by_another_process_is_a_clean_end(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    stop = StopRequest()
    assert not Following(failing("DrainedError", text), ingest.say, no_ends).follow(stop)
    batch, end = capsys.readouterr().out.splitlines()
    assert batch.startswith("ingest: batch 0: 5 rows"), "the last batch before the drain is reported, too"
    assert end == f"ingest: group g: {text}"


def test_another_error_that_mentions_a_drain_is_a_failure() -> None:
    with pytest.raises(StreamingQueryException):
        Following(failing("TransportError", "DrainedError: not really"), ingest.say, no_ends).follow(StopRequest())


@pytest.mark.parametrize(
    ("result", "failure", "said"),
    [
        (DrainResult(True, ("g",)), None, "stopped; nothing will be repeated"),
        (DrainResult(False, ("g",)), None, "the last batch may be repeated"),
        (DrainResult(True, ("g",)), RuntimeError("its member ended"), "the last batch may be repeated"),
        (DrainResult(False, ()), None, "the last batch may be repeated"),
        (DrainResult(True, ()), None, "stopped; nothing will be repeated"),
    ],
    ids=["drained", "too slow", "the query failed before", "no member answered", "nothing was planned yet"],
)
def test_a_stop_prints_whether_a_batch_may_be_repeated(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    result: DrainResult,
    failure: Exception | None,
    said: str,
) -> None:
    asked: list[float] = []

    def drain(_: object, timeout: float) -> DrainResult:
        asked.append(timeout)
        query.awaitTermination(0.5)
        return result

    monkeypatch.setattr(drain_module, "drain", drain)
    query = EndingQuery(1)
    query.failure = failure
    Following(query, ingest.say, no_ends).finish_on_signal("SIGTERM", 7.0)
    assert asked == [7.0]
    out = capsys.readouterr().out
    assert said in out
    assert "batch 0: 5 rows" in out, "the batch that sank during the drain"


def test_a_query_that_cannot_be_drained_is_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def drain(*_: object) -> DrainResult:
        raise ConfigError("no batch yet")

    monkeypatch.setattr(drain_module, "drain", drain)
    query = EndingQuery(1)
    Following(query, ingest.say, no_ends).finish_on_signal("SIGINT", 7.0)
    assert query.stopped
    assert "cannot drain the query, which stops at once: no batch yet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("trigger", "options"),
    [
        (Trigger(), {}),
        (Trigger(processing_time="5 seconds"), {"processingTime": "5 seconds"}),
        (Trigger(available_now=True), {"availableNow": True}),
        (Trigger(once=True), {"once": True}),
    ],
)
def test_triggers_are_sparks(trigger: Trigger, options: dict[str, Any]) -> None:
    assert trigger_options(trigger) == options


def test_a_job_is_described_without_its_secrets(job: JobConfig) -> None:
    assert ingest.describe(job) == "orders as group orders-ingest, member a -> parquet in demo-output/orders/rows/a"
    into_table = dataclasses.replace(job, sink=Sink("iceberg", checkpoint="/c", table="lake.db.orders"))
    assert ingest.describe(into_table).endswith("member a -> iceberg in table lake.db.orders")
    assert ingest.query_name(job) == "orders-ingest-a", "members have names of their own in Spark's pages"


class Catalog:
    """A session with one table of a provider."""

    def __init__(self, provider: str) -> None:
        self.provider = provider

    @property
    def catalog(self) -> Catalog:
        return self

    def tableExists(self, name: str) -> bool:  # noqa: N802 (Spark's)
        return name == "t"

    def sql(self, text: str) -> Catalog:
        assert text == "DESCRIBE TABLE EXTENDED t"
        return self

    def collect(self) -> list[dict[str, str]]:
        return [{"col_name": "value", "data_type": "binary"}, {"col_name": "Provider", "data_type": self.provider}]


def test_a_table_of_files_is_refused_and_others_are_not() -> None:
    with pytest.raises(ConfigError, match="cannot write into table t: its format is 'parquet'"):
        ingest.refuse_table_of_files(Catalog("PARQUET"), "t")  # type: ignore[arg-type]
    ingest.refuse_table_of_files(Catalog("iceberg"), "t")  # type: ignore[arg-type]
    ingest.refuse_table_of_files(Catalog("parquet"), "new")  # type: ignore[arg-type]


# -- the documented file -----------------------------------------------------------------------------------------------


def test_the_documented_file_and_the_docs_name_every_key() -> None:
    example, docs = EXAMPLE.read_text(), (ROOT / "docs" / "jobs.md").read_text()
    for section, keys in SECTIONS.items():
        for key in keys:
            assert key.name in example, f"[{section}] {key.name}"
            assert f"| `{key.name}` |" in docs, f"[{section}] {key.name}"


@pytest.mark.parametrize("name", ["ingest", "ingest-postgres"])
def test_the_documented_file_explains_every_line(name: str) -> None:
    lines = EXAMPLE.with_stem(name).read_text().splitlines()
    for number, line in enumerate(lines):
        # What stands within a list is explained at its first line, what a section is above it.
        if "=" in line and not line.startswith((" ", "#")) and "#" not in line:
            above = lines[number - 1], lines[number - 2]
            assert (above[0][:1], above[1][:1]) == ("[", "#"), line


def test_the_documented_file_is_toml_that_any_reader_reads() -> None:
    assert list(tomllib.loads(EXAMPLE.read_text())) == ["source", "trigger", "sink", "spark", "stop"]


class Rows:
    """A batch as Spark's DataFrame, which keeps the calls that write it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self._jdf = self

    @property
    def write(self) -> Rows:
        return self

    def __getattr__(self, name: str) -> Any:
        def keep(*given: Any, **named: Any) -> Rows:
            self.calls.append((name, named or given))
            return self

        return keep

    @property
    def options_set(self) -> dict[str, str]:
        """All options of the write, those that were set together and those that were set alone."""
        (together,) = [dict(given) for call, given in self.calls if call == "options"]
        return together | {given[0]: given[1] for call, given in self.calls if call == "option"}


class Columns(list[str]):
    """The names of a schema of Spark's JVM."""

    def add(self, name: str, _: str) -> Columns:
        return Columns([*self, name])


class Jvm:
    """Spark's JVM with its sink of files, which keeps what it is made with and the batches that it is given."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []
        self.batches: list[tuple[int, object]] = []
        sink = SimpleNamespace(addBatch=lambda batch, rows: self.batches.append((batch, rows)))
        self.sink_arguments: tuple[Any, ...] = ("append",)
        self.source = SimpleNamespace(createSink=lambda *given: sink if given == self.sink_arguments else None)
        of_python = SimpleNamespace(toScalaMap=dict, toSeq=tuple)
        sql = SimpleNamespace(
            execution=SimpleNamespace(datasources=SimpleNamespace(DataSource=self._make)),
            streaming=SimpleNamespace(OutputMode=SimpleNamespace(Append=lambda: "append")),
            types=SimpleNamespace(StructType=Columns),
        )
        spark = SimpleNamespace(api=SimpleNamespace(python=SimpleNamespace(PythonUtils=of_python)), sql=sql)
        self.org = SimpleNamespace(apache=SimpleNamespace(spark=spark))
        self.scala = SimpleNamespace(Option=SimpleNamespace(empty=lambda: None))

    def _make(self, *given: Any) -> Any:
        self.made.append(given)
        return self.source


def written(sink: Sink, batch: int = 7) -> Rows:
    """Write a batch by a sink that needs no JVM, and return its rows."""
    rows = Rows()
    writer_of(cast("SparkSession", None), sink)(cast("DataFrame", rows), batch)
    return rows


def session(jvm: object, version: str = "4.2.0") -> SparkSession:
    return cast("SparkSession", SimpleNamespace(_jvm=jvm, _jsparkSession="session", version=version))


@pytest.fixture
def of_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this thread write the batches of the query `q-1`."""
    names = {"sql.streaming.queryId": "q-1"}
    monkeypatch.setattr(
        SparkContext, "_active_spark_context", SimpleNamespace(_jvm=object(), getLocalProperty=names.get)
    )


# -- tables and other formats ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sink", "end"),
    [
        (Sink("jdbc", "/p"), ("save", ("/p",))),
        (Sink("console"), ("save", (None,))),
        (Sink("jdbc", table="lake.orders"), ("saveAsTable", ("lake.orders",))),
    ],
    ids=["a path", "no target", "a table"],
)
def test_rows_are_appended_to_the_target_of_the_sink(sink: Sink, end: tuple[str, Any]) -> None:
    rows = written(sink)
    assert rows.calls[:2] == [("format", (sink.format,)), ("mode", ("append",))]
    assert rows.calls[-1] == end


def test_the_options_of_the_sink_are_those_of_the_write_and_no_number_of_the_batch_is_among_them() -> None:
    options = {"url": "jdbc:x", "batchsize": "5"}
    assert written(Sink("jdbc", "/p", options=options)).options_set == options


def test_only_a_sink_with_columns_and_partitions_selects_and_partitions() -> None:
    rows = written(Sink("jdbc", "/p", columns=("id", "id % 2 AS odd"), partition_by=("odd", "id")))
    assert rows.calls[0] == ("selectExpr", ("id", "id % 2 AS odd"))
    assert ("partitionBy", ("odd", "id")) in rows.calls
    plain = {name for name, _ in written(Sink("jdbc", "/p")).calls}
    assert not plain & {"selectExpr", "partitionBy"}


@pytest.mark.usefixtures("of_query")
@pytest.mark.parametrize("name", ["delta", "Delta"])
def test_delta_gets_the_query_and_the_number_of_the_batch_to_take_it_once(name: str) -> None:
    for batch in (0, 7):
        rows = written(Sink(name, "/p", options={"mergeSchema": "true"}), batch)
        assert rows.options_set == {"mergeSchema": "true", "txnAppId": "q-1", "txnVersion": str(batch)}
        assert rows.calls[-1] == ("save", ("/p",))


def test_delta_outside_of_the_driver_is_an_error_that_names_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    with pytest.raises(ConfigError, match=r"cannot call the ingest job in this process: .*Call it in the driver"):
        written(Sink("delta", "/p"))


# -- a database --------------------------------------------------------------------------------------------------------


def test_the_error_of_a_database_is_raised_without_the_stack_traces_of_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    options = {"url": f"sqlite:///{tmp_path}/shop.db", "dbtable": "orders"}
    job = dataclasses.replace(load(EXAMPLE, "a", {}), sink=Sink("streamgroup-sql", options=options))
    store = ingest.store_of(cast("SparkSession", None), job)
    assert isinstance(store, ingest.RowsWithOffsets)
    with pytest.raises(ConfigError):
        store(cast("DataFrame", Rows()), 0)
    following = Following(failing("ConfigError", "a trace"), ingest.say, no_ends)
    with pytest.raises(ConfigError, match=r"^cannot call sql_sink in this process: "):
        ingest.follow_to_the_end(following, store, StopRequest())
    store.error = None
    with pytest.raises(StreamingQueryException):
        ingest.follow_to_the_end(following, store, StopRequest())


# -- files -------------------------------------------------------------------------------------------------------------


def test_files_are_written_by_sparks_own_sink_which_knows_the_number_of_each_batch() -> None:
    jvm, rows = Jvm(), Rows()
    sink = Sink("parquet", "/p", partition_by=("day",), options={"compression": "zstd"})
    write = writer_of(session(jvm), sink)
    for batch in (3, 3, 4):
        write(cast("DataFrame", rows), batch)
    ((made),) = jvm.made
    assert made[:2] == ("session", "parquet")
    assert made[4] == ("day",)
    assert made[6] == {"compression": "zstd", "path": "/p"}
    assert jvm.batches == [(3, rows), (3, rows), (4, rows)]
    assert rows.calls == [], "a plain write would append the files of a repeated batch again"


def test_the_sink_of_files_of_spark_43_takes_a_schema_with_the_partition_columns_and_another() -> None:
    jvm, rows = Jvm(), Rows()
    jvm.sink_arguments = ("append", Columns(["day", "hour", "value"]))
    writer_of(session(jvm, "4.3.0"), Sink("parquet", "/p", partition_by=("day", "hour")))(cast("DataFrame", rows), 3)
    assert jvm.batches == [(3, rows)]


def test_the_columns_of_files_are_selected_first() -> None:
    jvm, rows = Jvm(), Rows()
    writer_of(session(jvm), Sink("json", "/p", columns=("id",)))(cast("DataFrame", rows), 0)
    assert rows.calls == [("selectExpr", ("id",))]
    assert jvm.batches == [(0, rows)]


def test_a_spark_whose_file_sink_has_changed_is_an_error_before_the_first_batch() -> None:
    jvm = Jvm()
    jvm.org.apache.spark.sql.execution.datasources.DataSource = "a package of Java"
    with pytest.raises(
        ConfigError, match=r"cannot write files with \[parser\]: .* not callable\. Use Spark 4\.2 or 4\.3"
    ):
        writer_of(session(jvm), Sink("parquet", "/p"))

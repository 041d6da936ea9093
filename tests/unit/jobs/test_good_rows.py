"""The rows of a batch that a parser has read go into the sink with the guarantees of a plain stream."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from streamgroup.errors import ConfigError
from streamgroup.jobs.config import Sink
from streamgroup.jobs.good_rows import writer_of


class Rows:
    """A batch as Spark's DataFrame, which keeps the calls that write it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self._jdf = self

    @property
    def write(self) -> Rows:
        return self

    def _keep(self, name: str, *given: Any, **named: Any) -> Rows:
        self.calls.append((name, named if named else given))
        return self

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: self._keep(name, *given, **named)

    @property
    def options_set(self) -> dict[str, str]:
        """All options of the write, those that were set together and those that were set alone."""
        (together,) = [dict(given) for call, given in self.calls if call == "options"]
        return together | {given[0]: given[1] for call, given in self.calls if call == "option"}

    def last(self) -> tuple[str, Any]:
        return self.calls[-1]


class Jvm:
    """Spark's JVM with its sink of files, which keeps what it is made with and the batches that it is given."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []
        self.batches: list[tuple[int, object]] = []
        sink = SimpleNamespace(addBatch=lambda batch, rows: self.batches.append((batch, rows)))
        self.source = SimpleNamespace(createSink=lambda mode: sink if mode == "append" else None)
        of_python = SimpleNamespace(toScalaMap=dict, toSeq=tuple)
        sql = SimpleNamespace(
            execution=SimpleNamespace(datasources=SimpleNamespace(DataSource=self._make)),
            streaming=SimpleNamespace(OutputMode=SimpleNamespace(Append=lambda: "append")),
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


def session(jvm: object) -> SparkSession:
    return cast("SparkSession", SimpleNamespace(_jvm=jvm, _jsparkSession="session"))


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
    assert rows.last() == end


def test_the_options_of_the_sink_are_those_of_the_write_and_no_number_of_the_batch_is_among_them() -> None:
    assert written(Sink("jdbc", "/p", options={"url": "jdbc:x", "batchsize": "5"})).options_set == {
        "url": "jdbc:x",
        "batchsize": "5",
    }


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
        assert rows.last() == ("save", ("/p",))


def test_delta_outside_of_the_driver_is_an_error_that_names_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    with pytest.raises(ConfigError, match=r"cannot call the ingest job in this process: .*Call it in the driver"):
        written(Sink("delta", "/p"))


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


def test_the_columns_of_files_are_selected_first() -> None:
    jvm, rows = Jvm(), Rows()
    writer_of(session(jvm), Sink("json", "/p", columns=("id",)))(cast("DataFrame", rows), 0)
    assert rows.calls == [("selectExpr", ("id",))]
    assert jvm.batches == [(0, rows)]


def test_a_spark_whose_file_sink_has_changed_is_an_error_before_the_first_batch() -> None:
    jvm = Jvm()
    jvm.org.apache.spark.sql.execution.datasources.DataSource = "a package of Java"
    with pytest.raises(ConfigError, match=r"cannot write files with \[parser\]: .* not callable\. Use Spark 4\.2"):
        writer_of(session(jvm), Sink("parquet", "/p"))

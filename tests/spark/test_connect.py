"""Clients of a real Spark Connect server, a process of its own that no Python driver has started."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.connect.session import SparkSession as ConnectSession

import streamgroup
from streamgroup.errors import ConfigError
from streamgroup.testing.ports import LOOPBACK, free_ports
from streamgroup.testing.probe import accepts
from streamgroup.testing.processes import ServerProcess, on_free_ports
from tests.conftest import MakeTopic
from tests.read_back import read_back
from tests.spark.class_archive import jvm_flags
from tests.spark.submitting import SUBMIT
from tests.spark.support import SHORT_SESSION, Load, committed, log_ends, rows_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.timeout(180)]

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    home = tmp_path_factory.mktemp("connect")
    started: list[ServerProcess] = []

    def start() -> None:
        (port,) = free_ports(1)
        settings = {
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(port),
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
        }
        confs = [argument for name, value in settings.items() for argument in ("--conf", f"{name}={value}")]
        jvm = ["--driver-memory", "512m", "--driver-java-options", jvm_flags()]
        process = ServerProcess(
            f"connect-{port}",
            [str(SUBMIT), "--class", SERVER, "--master", "local[2]", *jvm, *confs, "spark-internal"],
            home / "server.log",
            lambda: accepts(LOOPBACK, port),
            environment={"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": LOOPBACK, "PYTHONPATH": ""},
        )
        process.start()
        started.append(process)

    on_free_ports(start, fixed=False)
    yield started[0]
    started[0].kill()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[ConnectSession]:
    port = server.name.removeprefix("connect-")
    session = ConnectSession.builder.remote(f"sc://{LOOPBACK}:{port}").create()
    yield session
    for query in session.streams.active:
        query.stop()
    session.stop()


def read(reader: Any, load: Load, **options: object) -> Any:
    """`reader` is that of a batch or of a stream; `__` in an option's name is a dot."""
    return (
        reader.format("streamgroup")
        .option("kafka.bootstrap.servers", load.server.bootstrap_servers)
        .option("subscribe", load.topic)
        .option("startingOffsets", "earliest")
        .options(**{name.replace("__", "."): str(value) for name, value in options.items()})
        .load()
    )


def member(client: ConnectSession, load: Load, **options: object) -> Any:
    """A stream of the topic as a member of a group of the topic's name."""
    return read(client.readStream, load, kafka__group__id=load.topic, **options, **SHORT_SESSION)


def to_parquet(frame: Any, home: Path, **trigger: object) -> Any:
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(home / "checkpoint"))
    return writer.trigger(**trigger).start(str(home / "rows")) if trigger else writer.start(str(home / "rows"))


def sunk(home: Path) -> list[str]:
    return [bytes(value).decode() for (value,) in rows_of(home / "rows", "value")]


def test_a_client_reads_streams_and_writes(
    client: ConnectSession, tmp_path: Path, load: Load, make_topic: MakeTopic
) -> None:
    """It finds the source by its name: the server's Python has the package."""
    load.send(100)
    rows = read(client.read, load).selectExpr("CAST(value AS STRING) AS value").collect()
    assert sorted(row.value for row in rows) == sorted(load.sent)

    query = to_parquet(member(client, load), tmp_path, availableNow=True)
    assert query.awaitTermination(90)
    assert sorted(sunk(tmp_path)) == sorted(load.sent)
    assert committed(load.server, load.topic, load.topic) == log_ends(load.server, load.topic, 2)

    target = make_topic(load.server)
    out = read(client.read, load).select("key", "value").write.format("streamgroup").mode("append")
    out.option("kafka.bootstrap.servers", load.server.bootstrap_servers).option("topic", target).save()
    (written,) = read_back(load.server, target)
    assert sorted((record.value() or b"").decode() for record in written) == sorted(load.sent)


@pytest.mark.long
def test_a_function_for_each_batch_writes_and_does_not_get_the_offsets(
    client: ConnectSession, tmp_path: Path, load: Load
) -> None:
    """Since Spark 4.3 its DataFrame is bound to a clone of the client's session."""
    load.send(100)

    def run(function: Any, name: str) -> None:
        writer = member(client, load).writeStream.foreachBatch(function).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / name)).start()
        query.awaitTermination(90)

    def write(batch: Any, _: int) -> None:
        values = batch.selectExpr("CAST(value AS STRING) AS value")
        values.createOrReplaceTempView("batch")
        batch.sparkSession.sql("SELECT * FROM batch").write.mode("append").parquet(rows)

    def ask(batch: Any, _: int) -> None:
        import streamgroup  # noqa: PLC0415

        streamgroup.ranges()

    rows = str(tmp_path / "rows")
    run(write, "first")
    assert sorted(row.value for row in client.read.parquet(rows).collect()) == sorted(load.sent)
    assert committed(load.server, load.topic, load.topic) == log_ends(load.server, load.topic, 2)
    load.send(10)
    with pytest.raises(PySparkException, match="cannot call ranges in this process"):
        run(ask, "first")
    with pytest.raises(PySparkException, match="Cannot serialize the function"):
        run(streamgroup.sql_sink(f"sqlite:///{tmp_path}/rows.db", "rows", create_table=True), "second")


@pytest.mark.long
def test_a_drain_through_connect_repeats_nothing(client: ConnectSession, tmp_path: Path, load: Load) -> None:
    load.send(400)
    query = to_parquet(member(client, load, maxOffsetsPerTrigger=20), tmp_path)
    wait_until(lambda: len(sunk(tmp_path)) >= 40, "some batches have sunk", 60)
    result = streamgroup.drain(query, timeout=60)
    assert result.drained
    assert result.groups == (load.topic,)
    assert not query.isActive
    offsets = committed(load.server, load.topic, load.topic)
    assert sorted(sunk(tmp_path)) == sorted(v for p, end in offsets.items() for v in load.sent[p::2][:end])
    assert len(sunk(tmp_path)) < len(load.sent)


@pytest.mark.long
def test_a_drain_through_connect_under_a_long_trigger_does_not_wait_for_it(
    client: ConnectSession, tmp_path: Path, load: Load
) -> None:
    load.send(100)
    query = to_parquet(member(client, load), tmp_path, processingTime="1 hour")
    wait_until(lambda: query.lastProgress is not None, "the first batch has sunk", 60)
    ends = log_ends(load.server, load.topic, 2)
    assert committed(load.server, load.topic, load.topic) != ends, "without a listener the next trigger commits"
    assert streamgroup.drain(query, timeout=60).drained
    assert committed(load.server, load.topic, load.topic) == ends


@pytest.mark.long
def test_a_listener_of_a_client_commits_what_has_sunk(client: ConnectSession, tmp_path: Path, load: Load) -> None:
    listener = streamgroup.listen(client)
    assert streamgroup.listen(client) is listener, "a session has one"
    load.send(100)
    to_parquet(member(client, load), tmp_path, processingTime="1 hour")
    ends = log_ends(load.server, load.topic, 2)
    wait_until(lambda: committed(load.server, load.topic, load.topic) == ends, "the batch is committed", 60, every=0.2)


@pytest.mark.long
def test_a_drain_of_a_query_of_another_source_is_refused(client: ConnectSession, tmp_path: Path) -> None:
    rate = client.readStream.format("rate").load()
    query = rate.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(ConfigError, match="none of its sources is a streamgroup member"):
        streamgroup.drain(query, timeout=60)

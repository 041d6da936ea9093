"""The tasks of reads and writes: their content, what they must not hold, and what a write logs."""

from __future__ import annotations

import logging
import pickle
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_streamgroup import DefaultSource
from streamgroup.advice import StoredIn
from streamgroup.coordinator.log_output import NOTES
from streamgroup.errors import DataLossError, TransportError
from streamgroup.executor.read import fetcher
from streamgroup.executor.write import sink_writer
from streamgroup.executor.write.written import WriteTotals
from streamgroup.kafka.producer.kafka07 import Kafka07Config, Kafka07Target
from streamgroup.model import ClusterSnapshot, FetchTask, TopicPartition
from streamgroup.options.database import parse_database
from streamgroup.options.parse import parse_sink, parse_source
from streamgroup.options.types import FetchOptions, SinkOptions
from streamgroup.spark import sink, sql_sink, tasks
from streamgroup.spark.sink import RecordsWritten, TaskOptions
from streamgroup.spark.source import GroupBatchReader, row_schema
from streamgroup.spark.sql_sink import SqlDataSource, Stage
from streamgroup.spark.tasks import TaskPartition, network_timeout_ms, read_task, task_options
from streamgroup.sql.columns import Target
from tests.unit.coordinator.test_process import no_logging
from tests.unit.kafka.net.delayed import delayed_connection, is_prompt

READ = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
WRITE = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}
ROWS = StructType([StructField("value", BinaryType())])
ZOOKEEPER = {"zookeeper.connect": "zk1:2181/kafka", "zookeeper.username": "etl", "zookeeper.password": "swordfish"}
REGISTERED, REGISTERED_WRITE = {**ZOOKEEPER, "subscribe": "events"}, {**ZOOKEEPER, "topic": "t"}


@pytest.mark.parametrize(
    ("given", "streaming", "group", "stored_in"),
    [
        ({"kafka.group.id": "drain"}, True, "drain", StoredIn.ZOOKEEPER),
        ({"kafka.group.id": "drain", "kafka.offsets.storage": "kafka"}, True, "drain", StoredIn.BOTH),
        ({"group.mode": "off"}, True, None, StoredIn.KAFKA),
        ({}, False, None, StoredIn.KAFKA),
    ],
    ids=["in ZooKeeper", "in both", "mode off", "a batch read"],
)
def test_a_task_knows_where_offsets_are_stored_but_no_zookeeper_address(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], streaming: bool, group: str | None, stored_in: StoredIn
) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr(fetcher, "read", lambda *args, **others: told.update(others) or iter(()))
    sent = pickle.dumps(task_options(parse_source(REGISTERED | given, streaming=streaming)))
    assert not any(word in sent for word in (b"zk1", b"swordfish"))
    assert list(read_task(TaskPartition(FetchTask(())), pickle.loads(sent))) == []
    assert (told["group"], told["stored_in"]) == (group, stored_in)


@pytest.mark.parametrize(
    ("given", "setting", "seconds"),
    [
        ({}, "77s", 77.0),
        ({}, "90", 90.0),  # a number alone counts seconds, as in Spark
        ({}, "2min", 120.0),
        ({}, None, 120.0),
        ({"kafkaConsumer.pollTimeoutMs": "512"}, "77s", 0.512),
    ],
)
def test_a_task_waits_for_records_as_long_as_spark_waits_for_its_network(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], setting: str | None, seconds: float
) -> None:
    properties = {} if setting is None else {"spark.network.timeout": setting}
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(getLocalProperty=properties.get))
    fetches: list[FetchOptions] = []
    monkeypatch.setattr(fetcher, "read", lambda _, __, fetch, **others: fetches.append(fetch) or iter(()))
    options = task_options(parse_source(REGISTERED | given, streaming=True))
    assert list(read_task(TaskPartition(FetchTask(())), options)) == []
    assert [fetch.poll_timeout_s for fetch in fetches] == [seconds]


def test_outside_of_a_task_the_timeout_is_sparks_default() -> None:
    assert network_timeout_ms() is None
    assert FetchOptions().poll_timeout_s == 120.0


def test_records_that_a_batch_read_has_lost_since_its_plan_are_an_error_that_tells_how_to_plan_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lose(*_: Any, **__: Any) -> Iterator[Any]:
        yield "rows"
        raise DataLossError("t-0: the offsets [0, 3) were planned and cannot be read any more")

    monkeypatch.setattr(fetcher, "read", lose)
    rows = GroupBatchReader(parse_source(REGISTERED, streaming=False)).read(TaskPartition(FetchTask(())))
    assert next(rows) == "rows"  # type: ignore[comparison-overlap]
    with pytest.raises(DataLossError, match=r"^t-0: the offsets .* any more\. Spark plans .*\. Call load\(\) again"):
        next(rows)


def test_a_warning_of_a_read_has_its_time_and_level_in_the_executors_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with no_logging(monkeypatch) as logger:
        monkeypatch.setattr(fetcher, "read", lambda *_, **__: logger.warning("throttled") or iter(()))
        assert list(read_task(TaskPartition(FetchTask(())), parse_source(REGISTERED, streaming=True))) == []
    assert re.search(r"^\S+ \S+ WARNING streamgroup: throttled$", capsys.readouterr().err, re.MULTILINE)


_MEASURE = """
import gc, pyarrow
from streamgroup.spark.tasks import exempt_modules
{first}
alive = len(gc.get_objects())
exempt_modules()
class Node: pass
node = Node()
node.itself = node
import weakref
ref = weakref.ref(node)
del node
later = gc.collect()
print(gc.get_freeze_count(), alive, ref() is None)
"""


def _measure(first: str = "") -> list[str]:
    return subprocess.check_output([sys.executable, "-c", _MEASURE.format(first=first)], text=True).split()


def test_later_collections_walk_over_no_module_and_still_find_garbage() -> None:
    frozen, alive, is_collected = _measure("gc.collect()")
    assert int(frozen) > 10_000
    assert int(frozen) >= 0.95 * int(alive)
    assert is_collected == "True"


def test_the_second_task_of_a_process_exempts_nothing_more() -> None:
    once = int(_measure()[0])
    twice = int(_measure("exempt_modules(); kept = [[] for _ in range(10_000)]")[0])
    assert twice < once + 5_000


def test_modules_that_a_later_task_loads_are_exempt_as_well() -> None:
    """A worker that has read a source may stage rows for a database afterwards."""
    once = int(_measure()[0])
    assert int(_measure("exempt_modules(); import sqlalchemy")[0]) > once + 5_000


def test_each_task_ends_with_the_exemption(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[str] = []
    monkeypatch.setattr(sink, "exempt_modules", lambda: calls.append("sink"))
    monkeypatch.setattr(tasks, "exempt_modules", lambda: calls.append("tasks"))
    options = parse_sink(WRITE)
    sink.check_write(ROWS, options)
    writer = sink.GroupStreamWriter(options)
    monkeypatch.setattr(sink_writer, "write", lambda *_: WriteTotals())
    writer.write(iter(()))
    writer.commit([], 0)
    assert calls == ["sink"] * 3
    rows = read_task(TaskPartition(FetchTask(())), parse_source(READ, streaming=False))
    assert calls == ["sink"] * 3, "the modules of a read are loaded at its end"
    assert list(rows) == []
    assert calls[3:] == ["tasks"]
    monkeypatch.setattr(sql_sink, "exempt_modules", lambda: calls.append("sql_sink"))
    (tmp_path / "of.db").touch()
    database = parse_database({"url": f"sqlite:///{tmp_path}/of.db", "dbtable": "t"})
    Stage(database, Target(None, "t", ("value",)), "staging_").stage(iter(()))
    assert calls[4:] == ["sql_sink"]


_LOADS = """
import gc
from streamgroup.spark.tasks import loading_modules
collections = []
gc.callbacks.append(lambda phase, info: collections.append(phase) if phase == "start" else None)
{before}
try:
    with loading_modules():
        kept = [[] for _ in range(100_000)]
        print(len(collections))
        {inside}
except ImportError:
    pass
print(gc.get_freeze_count() > 100_000, gc.isenabled())
"""


@pytest.mark.parametrize(
    ("before", "inside", "shown"),
    [("", "", "0 True True"), ("", "raise ImportError", "0 False True"), ("gc.disable()", "", "0 True False")],
    ids=["loaded", "failed", "off before"],
)
def test_no_collection_runs_while_modules_load_and_none_walks_over_them_later(
    before: str, inside: str, shown: str
) -> None:
    code = _LOADS.format(before=before, inside=inside)
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == shown.split()


@pytest.fixture
def worker_end() -> Iterator[socket.socket]:
    with delayed_connection() as end:
        yield end


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has TCP_QUICKACK")
@pytest.mark.parametrize(
    "kind", ["batch read", "stream read", "batch write", "stream write", "database, batch", "database, stream"]
)
def test_each_reader_and_writer_asks_for_it_when_a_task_unpickles_it(
    worker_end: socket.socket, tmp_path: Path, kind: str
) -> None:
    database = {"url": f"sqlite:///{tmp_path}/of.db", "dbtable": "t"}
    made = {
        "batch read": lambda: DefaultSource(dict(READ)).reader(row_schema(False, False)),
        "stream read": lambda: DefaultSource({**READ, "kafka.group.id": "g"}).streamReader(row_schema(False, False)),
        "batch write": lambda: DefaultSource(dict(WRITE)).writer(ROWS, overwrite=False),
        "stream write": lambda: DefaultSource(dict(WRITE)).streamWriter(ROWS, overwrite=False),
        "database, batch": lambda: SqlDataSource({**database, "createTable": "true"}).writer(ROWS, overwrite=False),
        "database, stream": lambda: Stage(parse_database(database), Target(None, "t", ("value",)), "staging_"),
    }[kind]()
    pickled = cloudpickle.dumps(made)
    assert not is_prompt(worker_end)
    assert vars(cloudpickle.loads(pickled)).keys() == vars(made).keys()
    assert is_prompt(worker_end)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[SinkOptions]:
    """The options of the writes that were planned. Each plan is one for Kafka 0.7."""
    found: list[SinkOptions] = []

    def plan(options: SinkOptions) -> TaskOptions:
        found.append(options)
        without = SinkOptions(options.client.__class__(()), options.producer, options.topic)
        return TaskOptions(without, Kafka07Target(ClusterSnapshot({}, {}), Kafka07Config()))

    monkeypatch.setattr(sink, "planned", plan)
    return found


def test_a_batch_write_looks_for_its_brokers_once(plans: list[SinkOptions]) -> None:
    writer = DefaultSource(dict(REGISTERED_WRITE)).writer(ROWS, overwrite=False)
    assert pickle.loads(pickle.dumps(writer))._task.kafka07 is not None
    assert len(plans) == 1


def test_a_stream_looks_for_its_brokers_where_it_is_planned_and_not_where_it_is_committed(
    plans: list[SinkOptions],
) -> None:
    """Spark pickles the planner's writer twice for each batch. The process that commits makes another one."""
    writer = DefaultSource(dict(REGISTERED_WRITE)).streamWriter(ROWS, overwrite=False)
    writer.commit([None], batchId=0)
    assert plans == []
    assert [pickle.loads(cloudpickle.dumps(writer))._task.kafka07 is not None for _ in range(2)] == [True, True]
    assert len(plans) == 1


@pytest.mark.parametrize("method", ["writer", "streamWriter"])
def test_no_secret_and_no_zookeeper_travels_to_the_executors(method: str, plans: list[SinkOptions]) -> None:
    travels = pickle.dumps(getattr(DefaultSource(dict(REGISTERED_WRITE)), method)(ROWS, overwrite=False))
    assert not any(word in travels for word in (b"zk1", b"swordfish"))


def test_brokers_that_are_not_found_are_an_error_that_pyspark_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(_: SinkOptions) -> TaskOptions:
        raise TransportError("no brokers in ZooKeeper")

    monkeypatch.setattr(sink, "planned", plan)
    writer = DefaultSource(dict(REGISTERED_WRITE)).streamWriter(ROWS, overwrite=False)
    with pytest.raises(pickle.PickleError, match=r"^no brokers in ZooKeeper$"):
        cloudpickle.dumps(writer)


# -- the log -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[int, str]]]:
    """Levels and lines of the log since the last call, in a process that has said nothing yet."""
    NOTES.forget()
    caplog.set_level(logging.DEBUG, "streamgroup")

    def lines() -> list[tuple[int, str]]:
        found = [(record.levelno, record.getMessage()) for record in caplog.records]
        caplog.clear()
        return found

    return lines


Said = Callable[[], list[tuple[int, str]]]


def of_a_task(records: int, partition: int, *notes: str) -> RecordsWritten:
    written = WriteTotals(notes=set(notes))
    written.add(TopicPartition("t", partition), records, 10 * records, 0)
    return RecordsWritten(written)


def test_a_batch_write_logs_what_its_options_cause_and_what_it_has_written(said: Said) -> None:
    for _ in range(2):
        writer = DefaultSource({**WRITE, "kafka.acks": "1"}).writer(ROWS, overwrite=False)
    assert said() == [(logging.INFO, "idempotence is off, because kafka.acks is 1: a retry may repeat records")]
    old = "this task writes without idempotence: the broker has no producer ids"
    writer.commit([of_a_task(3, 0, old), None, of_a_task(4, 1, old)])
    assert said() == [
        (logging.INFO, old),
        (logging.INFO, "wrote 7 records (70 bytes) to 2 partitions"),
        (logging.DEBUG, "wrote t-0: 3 records (30 bytes) at offsets 0 to 2"),
        (logging.DEBUG, "wrote t-1: 4 records (40 bytes) at offsets 0 to 3"),
    ]


def test_a_stream_logs_what_its_options_cause_once_and_counts_for_debugging_only(said: Said) -> None:
    for _ in range(2):
        cloudpickle.dumps(DefaultSource({**WRITE, "kafka.acks": "1"}).streamWriter(ROWS, overwrite=False))
    writer = DefaultSource({**WRITE, "kafka.acks": "1"}).streamWriter(ROWS, overwrite=False)
    assert [line for _, line in said()] == ["idempotence is off, because kafka.acks is 1: a retry may repeat records"]
    writer.commit([of_a_task(3, 0)], batchId=0)
    assert said() == [
        (logging.DEBUG, "wrote 3 records (30 bytes) to 1 partition"),
        (logging.DEBUG, "wrote t-0: 3 records (30 bytes) at offsets 0 to 2"),
    ]


def test_a_write_that_fails_warns_of_the_records_that_stay_in_kafka(said: Said) -> None:
    batch = DefaultSource(dict(WRITE)).writer(ROWS, overwrite=False)
    stream = DefaultSource(dict(WRITE)).streamWriter(ROWS, overwrite=False)
    batch.abort([None, of_a_task(3, 0)])
    stream.abort([of_a_task(3, 0), None], batchId=7)
    warning = "the write has failed after 3 records were written, which stay in Kafka: writing again repeats them"
    detail = "the failed write wrote t-0: 3 records (30 bytes) at offsets 0 to 2"
    assert said() == [(logging.WARNING, warning), (logging.DEBUG, detail)] * 2
    batch.abort([None])
    assert said() == []


def test_a_warning_of_a_task_has_its_time_and_level_in_the_executors_log(
    plans: list[SinkOptions], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = DefaultSource(dict(WRITE)).writer(ROWS, overwrite=False)
    monkeypatch.setattr(writer, "_task", TaskOptions(parse_sink(WRITE), None))
    with no_logging(monkeypatch) as logger:
        monkeypatch.setattr(sink_writer, "write", lambda *_: logger.warning("cannot write topic t") or WriteTotals())
        writer.write(iter(()))
    assert re.search(r"^\S+ \S+ WARNING streamgroup: cannot write topic t$", capsys.readouterr().err, re.MULTILINE)

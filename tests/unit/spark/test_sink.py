"""When the writers look for brokers in ZooKeeper, what they carry into the tasks, and what they log."""

from __future__ import annotations

import logging
import pickle
import re
from collections.abc import Callable

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_streamgroup import DefaultSource
from streamgroup.coordinator.log_output import NOTES
from streamgroup.errors import TransportError
from streamgroup.executor.write import sink_writer
from streamgroup.executor.write.written import WriteTotals
from streamgroup.kafka.producer.kafka07 import Kafka07Config, Kafka07Target
from streamgroup.model import ClusterSnapshot, TopicPartition
from streamgroup.options.parse import parse_sink
from streamgroup.options.types import SinkOptions
from streamgroup.spark import sink
from streamgroup.spark.sink import RecordsWritten, TaskOptions
from tests.unit.coordinator.test_process import no_logging

ROWS = StructType([StructField("value", StringType())])
WRITE = {
    "zookeeper.connect": "localhost:2181",
    "zookeeper.username": "bob",
    "zookeeper.password": "canary",
    "topic": "t",
}


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
    writer = DefaultSource(dict(WRITE)).writer(ROWS, overwrite=False)
    assert pickle.loads(pickle.dumps(writer))._task.kafka07 is not None
    assert len(plans) == 1


def test_a_stream_looks_for_its_brokers_where_it_is_planned_and_not_where_it_is_committed(
    plans: list[SinkOptions],
) -> None:
    """Spark pickles the planner's writer twice for each batch. The process that commits makes another one."""
    writer = DefaultSource(dict(WRITE)).streamWriter(ROWS, overwrite=False)
    writer.commit([None], batchId=0)
    assert plans == []
    assert [pickle.loads(cloudpickle.dumps(writer))._task.kafka07 is not None for _ in range(2)] == [True, True]
    assert len(plans) == 1


@pytest.mark.parametrize("method", ["writer", "streamWriter"])
def test_no_secret_and_no_zookeeper_travels_to_the_executors(method: str, plans: list[SinkOptions]) -> None:
    travels = pickle.dumps(getattr(DefaultSource(dict(WRITE)), method)(ROWS, overwrite=False))
    assert b"canary" not in travels
    assert b"2181" not in travels


def test_brokers_that_are_not_found_are_an_error_that_pyspark_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(_: SinkOptions) -> TaskOptions:
        raise TransportError("no brokers in ZooKeeper")

    monkeypatch.setattr(sink, "planned", plan)
    writer = DefaultSource(dict(WRITE)).streamWriter(ROWS, overwrite=False)
    with pytest.raises(pickle.PickleError, match=r"^no brokers in ZooKeeper$"):
        cloudpickle.dumps(writer)


# -- the log -----------------------------------------------------------------------------------------------------------

PLAIN = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}


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
        writer = DefaultSource({**PLAIN, "kafka.acks": "1"}).writer(ROWS, overwrite=False)
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
        cloudpickle.dumps(DefaultSource({**PLAIN, "kafka.acks": "1"}).streamWriter(ROWS, overwrite=False))
    writer = DefaultSource({**PLAIN, "kafka.acks": "1"}).streamWriter(ROWS, overwrite=False)
    assert [line for _, line in said()] == ["idempotence is off, because kafka.acks is 1: a retry may repeat records"]
    writer.commit([of_a_task(3, 0)], batchId=0)
    assert said() == [
        (logging.DEBUG, "wrote 3 records (30 bytes) to 1 partition"),
        (logging.DEBUG, "wrote t-0: 3 records (30 bytes) at offsets 0 to 2"),
    ]


def test_a_write_that_fails_warns_of_the_records_that_stay_in_kafka(said: Said) -> None:
    batch = DefaultSource(dict(PLAIN)).writer(ROWS, overwrite=False)
    stream = DefaultSource(dict(PLAIN)).streamWriter(ROWS, overwrite=False)
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
    writer = DefaultSource(dict(PLAIN)).writer(ROWS, overwrite=False)
    monkeypatch.setattr(writer, "_task", TaskOptions(parse_sink(PLAIN), None))
    with no_logging(monkeypatch) as logger:
        monkeypatch.setattr(sink_writer, "write", lambda *_: logger.warning("cannot write topic t") or WriteTotals())
        writer.write(iter(()))
    assert re.search(r"^\S+ \S+ WARNING streamgroup: cannot write topic t$", capsys.readouterr().err, re.MULTILINE)

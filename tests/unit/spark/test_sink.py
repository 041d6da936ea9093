"""When the writers look for brokers in ZooKeeper, and what they carry into the tasks."""

from __future__ import annotations

import pickle

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_streamgroup import DefaultSource
from streamgroup.errors import TransportError
from streamgroup.model import ClusterSnapshot
from streamgroup.options.types import SinkOptions
from streamgroup.producer.kafka07 import Kafka07Config, Kafka07Target
from streamgroup.spark import sink
from streamgroup.spark.sink import TaskOptions

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

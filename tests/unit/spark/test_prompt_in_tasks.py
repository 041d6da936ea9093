"""A task that unpickles a reader or writer acknowledges at once what the JVM sends it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_streamgroup import DefaultSource
from streamgroup.spark.source import row_schema
from tests.unit.net.delayed import delayed_connection, is_prompt

READ = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
WRITE = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}
ROWS = StructType([StructField("value", BinaryType())])

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has TCP_QUICKACK")


@pytest.fixture
def worker_end() -> Iterator[socket.socket]:
    with delayed_connection() as end:
        yield end


@pytest.mark.parametrize("kind", ["batch read", "stream read", "batch write", "stream write"])
def test_each_reader_and_writer_asks_for_it_when_a_task_unpickles_it(worker_end: socket.socket, kind: str) -> None:
    made = {
        "batch read": lambda: DefaultSource(dict(READ)).reader(row_schema(False, False)),
        "stream read": lambda: DefaultSource({**READ, "kafka.group.id": "g"}).streamReader(row_schema(False, False)),
        "batch write": lambda: DefaultSource(dict(WRITE)).writer(ROWS, overwrite=False),
        "stream write": lambda: DefaultSource(dict(WRITE)).streamWriter(ROWS, overwrite=False),
    }[kind]()
    pickled = cloudpickle.dumps(made)
    assert not is_prompt(worker_end)
    assert vars(cloudpickle.loads(pickled)).keys() == vars(made).keys()
    assert is_prompt(worker_end)

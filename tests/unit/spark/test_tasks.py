"""The content of a task, and what it must not hold."""

from __future__ import annotations

import pickle
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_streamgroup import DefaultSource
from streamgroup.advice import StoredIn
from streamgroup.errors import DataLossError
from streamgroup.executor.read import fetcher
from streamgroup.executor.write import sink_writer
from streamgroup.executor.write.written import WriteTotals
from streamgroup.model import FetchTask
from streamgroup.options.parse import parse_sink, parse_source
from streamgroup.options.types import FetchOptions
from streamgroup.spark import sink, tasks
from streamgroup.spark.source import GroupBatchReader, row_schema
from streamgroup.spark.tasks import TaskPartition, network_timeout_ms, read_task, task_options
from tests.unit.coordinator.test_process import no_logging
from tests.unit.kafka.net.delayed import delayed_connection, is_prompt

REGISTERED = {
    "zookeeper.connect": "zk1:2181/kafka",
    "zookeeper.username": "etl",
    "zookeeper.password": "swordfish",
    "subscribe": "events",
}


@pytest.mark.parametrize(
    ("given", "group", "stored_in"),
    [
        ({"kafka.group.id": "drain"}, "drain", StoredIn.ZOOKEEPER),
        ({"kafka.group.id": "drain", "kafka.offsets.storage": "kafka"}, "drain", StoredIn.BOTH),
        ({"group.mode": "off"}, None, StoredIn.KAFKA),
    ],
)
def test_a_task_knows_where_offsets_are_stored_but_no_zookeeper_address(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], group: str | None, stored_in: StoredIn
) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr(fetcher, "read", lambda *args, **others: told.update(others) or iter(()))
    sent = pickle.dumps(task_options(parse_source(REGISTERED | given, streaming=True)))
    assert not any(word in sent for word in (b"zk1", b"swordfish"))
    assert list(read_task(TaskPartition(FetchTask(())), pickle.loads(sent))) == []
    assert (told["group"], told["stored_in"]) == (group, stored_in)


def test_a_batch_read_has_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr(fetcher, "read", lambda *args, **others: told.update(others) or iter(()))
    options = task_options(parse_source(REGISTERED, streaming=False))
    assert list(read_task(TaskPartition(FetchTask(())), options)) == []
    assert told["group"] is None


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
    code = _MEASURE.format(first=first)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_later_collections_walk_over_no_module_and_still_find_garbage() -> None:
    frozen, alive, is_collected = _measure("gc.collect()")
    assert int(frozen) > 10_000
    assert int(frozen) >= 0.95 * int(alive)
    assert is_collected == "True"


def test_the_second_task_of_a_process_exempts_nothing_more() -> None:
    once = int(_measure()[0])
    twice = int(_measure("exempt_modules(); kept = [[] for _ in range(10_000)]")[0])
    assert twice < once + 5_000


def test_each_task_ends_with_the_exemption(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(sink, "exempt_modules", lambda: calls.append("sink"))
    monkeypatch.setattr(tasks, "exempt_modules", lambda: calls.append("tasks"))
    given = {"kafka.bootstrap.servers": "localhost:1"}
    options = parse_sink({**given, "topic": "t"})
    sink.check_write(StructType([StructField("value", BinaryType())]), options)
    writer = sink.GroupStreamWriter(options)
    monkeypatch.setattr(sink_writer, "write", lambda *_: WriteTotals())
    writer.write(iter(()))
    writer.commit([], 0)
    assert calls == ["sink"] * 3
    rows = tasks.read_task(
        tasks.TaskPartition(FetchTask(())), parse_source({**given, "subscribe": "t"}, streaming=False)
    )
    assert calls == ["sink"] * 3, "the modules of a read are loaded at its end"
    assert list(rows) == []
    assert calls[3:] == ["tasks"]


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
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.split() == shown.split()


READ = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
WRITE = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}
ROWS = StructType([StructField("value", BinaryType())])


@pytest.fixture
def worker_end() -> Iterator[socket.socket]:
    with delayed_connection() as end:
        yield end


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has TCP_QUICKACK")
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

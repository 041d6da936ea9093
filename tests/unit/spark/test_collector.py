"""The garbage collector and the modules of a worker process, in a process of its own: the exemption lasts."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from streamgroup.executor import sink_writer
from streamgroup.executor.written import WriteTotals
from streamgroup.model import FetchTask
from streamgroup.options.parse import parse_source
from streamgroup.options.parse_sink import parse_sink
from streamgroup.spark import sink, tasks

_MEASURE = """
import gc, pyarrow
from streamgroup.spark.collector import exempt_modules
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
from streamgroup.spark.collector import loading_modules
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
    [
        ("", "", "0 True True"),
        ("", "raise ImportError", "0 False True"),
        ("gc.disable()", "", "0 True False"),
    ],
    ids=["loaded", "failed", "off before"],
)
def test_no_collection_runs_while_modules_load_and_none_walks_over_them_later(
    before: str, inside: str, shown: str
) -> None:
    code = _LOADS.format(before=before, inside=inside)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.split() == shown.split()

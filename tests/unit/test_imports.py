"""The package is imported without PySpark, and a query's processes load no slow package that few queries need."""

from __future__ import annotations

import subprocess
import sys

import pytest

_WITHOUT = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "pyspark":
            raise ModuleNotFoundError("No module named 'pyspark'", name=name)
sys.meta_path.insert(0, Hidden())
{code}
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT.format(code=code)], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "code",
    [
        "import streamgroup; streamgroup.StreamGroupError, streamgroup.SchemaRegistry, streamgroup.Parser",
        "import streamgroup.cli.main",
        "import streamgroup.monitoring.page.server",
    ],
)
def test_what_needs_no_spark_is_imported(code: str) -> None:
    found = run(code)
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize("name", ["listen", "dead_letters", "metrics"])
def test_what_needs_spark_says_how_to_get_it(name: str) -> None:
    found = run(f"from streamgroup import {name}")
    last = found.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: cannot import streamgroup.{name}: this Python has no PySpark.")
    assert last.endswith("pip install 'streamgroup[spark]'")


SLOW = ("cryptography", "pandas", "kazoo", "regex")
"""The first take a tenth and a quarter of a second of CPU time, the others some 60 ms of a coordinator's 400."""


@pytest.mark.parametrize(
    "code",
    [
        "import streamgroup.spark.source, streamgroup.coordinator.process",
        "import streamgroup.executor.read.fetcher, streamgroup.executor.write.sink_writer; "
        "from streamgroup.kafka.records import columns; import pyarrow as pa; columns.constant('t', pa.string(), 10)",
    ],
    ids=["coordinator", "task"],
)
def test_no_process_of_a_query_loads_a_slow_package(code: str) -> None:
    for package in SLOW:
        pytest.importorskip(package)
    shown = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*(p for p in {SLOW} if p in sys.modules))"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert shown.stdout == "\n"

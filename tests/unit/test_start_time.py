"""The processes of a query start without packages that take long to load and that few queries need."""

from __future__ import annotations

import subprocess
import sys

import pytest

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

"""Scalars and arrays are those of pyarrow, and cost no import of pandas."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamgroup.records.arrow_values import numbers, scalar
from streamgroup.records.columns import TIMESTAMP


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (0, pa.int32()),
        (-(2**31), pa.int32()),
        (2**63 - 1, pa.int64()),
        (-1000, TIMESTAMP),
        ("", pa.string()),
        ("\u00fc\u4e2d", pa.string()),
        (b"", pa.large_binary()),
        (b"\x00\xff", pa.large_binary()),
        (b"x", pa.binary()),
    ],
    ids=str,
)
def test_a_scalar_is_that_of_pyarrow(value: Any, kind: pa.DataType) -> None:
    assert scalar(value, kind).equals(pa.scalar(value, kind))
    assert scalar(value, kind).type == kind


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8])
def test_numbers_are_those_of_pyarrow(kind: type[np.generic]) -> None:
    values = np.arange(10, dtype=kind)
    assert numbers(values).equals(pa.array(values))
    assert numbers(values[::2]).equals(pa.array(values[::2]))
    assert numbers(values[:0]).equals(pa.array(values[:0]))


@pytest.mark.parametrize(
    "code",
    [
        "import streamgroup.spark.stream, streamgroup.driver.process",
        "import streamgroup.executor.fetcher, streamgroup.executor.sink_writer; "
        "from streamgroup.records import columns; import pyarrow as pa; columns.constant('t', pa.string(), 10)",
    ],
    ids=["coordinator", "task"],
)
def test_no_process_of_a_query_loads_pandas(code: str) -> None:
    pytest.importorskip("pandas")
    shown = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print('pandas' in sys.modules)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert shown.stdout == "False\n", "it takes a quarter of a second of each process"

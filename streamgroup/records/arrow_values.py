"""Arrow scalars and arrays of numbers without pandas.

`pyarrow.scalar` and `pyarrow.array` import pandas where it is installed, in case that a value is one of pandas. That
takes a quarter of a second of each process that runs a task.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def numbers(values: npt.NDArray[Any]) -> pa.Array:
    """Return a one-dimensional array of numbers as an Arrow array, without a copy if its items lie side by side."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def scalar(value: str | bytes | int, kind: pa.DataType) -> pa.Scalar:
    """Return a value as an Arrow scalar of a type of integers, times, texts or bytes. A time is its integer."""
    if isinstance(value, int):
        return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(np.array([value], f"int{kind.bit_width}"))])[0]
    data = value.encode() if isinstance(value, str) else value
    width = np.int64 if kind in (pa.large_binary(), pa.large_string()) else np.int32
    offsets = pa.py_buffer(np.array([0, len(data)], width))
    return pa.Array.from_buffers(kind, 1, [None, offsets, pa.py_buffer(data)])[0]

"""Scalars and arrays are those of pyarrow."""

from __future__ import annotations

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

"""Which implementation of the hot loops is used: the compiled one where it has been built, else numpy. They are equal.

The environment variable `STREAMGROUP_KERNEL` (`python` or `compiled`) forces one, as `use` does within a process.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa

from streamgroup.errors import ConfigError
from streamgroup.records import scan as _scan
from streamgroup.records.fields import Bytes, Fault, Fields, HeaderFields, Ints, RecordFault, Regions

VARIABLE = "STREAMGROUP_KERNEL"

Name = Literal["python", "compiled"]


class Kernel(Protocol):
    """The hot loops. `start` and `length` are positions in `buffer`, ascending, without overlap; -1 is null."""

    name: Name

    def scan(self, buffer: Bytes, regions: Regions) -> Fields:
        """Find the fields of all records of `regions`. Raises RecordFault."""

    def headers(self, buffer: Bytes, start: Ints, count: Ints) -> HeaderFields:
        """Find the headers of scanned records: `start` and `count` are those of `Fields`."""

    def gather(self, buffer: Bytes, start: Ints, length: Ints) -> tuple[pa.Buffer, pa.Buffer]:
        """Copy pieces of `buffer` together: the offsets and the data of an Arrow binary array."""


class _Python:
    name: Name = "python"
    scan = staticmethod(_scan.scan)
    headers = staticmethod(_scan.headers)
    gather = staticmethod(_scan.gather)


class _Compiled:
    name: Name = "compiled"

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def scan(self, buffer: Bytes, regions: Regions) -> Fields:
        regions.check_counts()
        fields = Fields.empty(regions.rows)
        wrong = self._module.scan(buffer, *regions.arrays(), *fields.arrays())
        if wrong is not None:
            batch, fault = wrong
            raise RecordFault(batch, Fault(fault))
        return fields

    def headers(self, buffer: Bytes, start: Ints, count: Ints) -> HeaderFields:
        found = HeaderFields.empty(int(count.sum()))
        if not self._module.headers(buffer, start, count, *found.arrays()):
            raise ValueError("headers of records that have not been scanned")
        return found

    def gather(self, buffer: Bytes, start: Ints, length: Ints) -> tuple[pa.Buffer, pa.Buffer]:
        # Arrow's pool keeps its pages; numpy would ask the system for new ones with each fetch.
        offsets = pa.allocate_buffer(4 * (len(start) + 1))
        data = pa.allocate_buffer(int(np.maximum(length, 0).sum(dtype=np.int64)))
        self._module.gather(buffer, start, length, offsets, data)
        return offsets, data


def _load(wanted: str | None) -> Kernel:
    """The kernel that is asked for by name, or the best there is. Raises ConfigError."""
    if wanted not in {None, "", "python", "compiled"}:
        raise ConfigError(f"{VARIABLE}={wanted}: the kernels are 'python' and 'compiled'")
    if wanted == "python":
        return _Python()
    try:
        return _Compiled(import_module("streamgroup.records._kernel"))
    except ImportError as error:
        if wanted == "compiled":
            what = "the compiled kernel is not there: reinstall streamgroup where a C compiler and Python's headers are"
            raise ConfigError(what) from error
        return _Python()


_kernel: Kernel = _load(os.environ.get(VARIABLE))


def current() -> Kernel:
    """The kernel in use."""
    return _kernel


def name() -> Name:
    """The name of the kernel in use."""
    return _kernel.name


def use(wanted: Name) -> None:
    """Use this kernel from now on in this process. Raises ConfigError where it has not been built."""
    global _kernel  # noqa: PLW0603
    _kernel = _load(wanted)

"""Selects the implementation of the hot loops: compiled if the extension is built, otherwise numpy.

Both return the same results. The environment variable `STREAMGROUP_KERNEL` (`python` or `compiled`) selects one; `use`
does so within a process.
"""

from __future__ import annotations

import os
import zlib
from importlib import import_module
from types import ModuleType
from typing import Literal, Protocol, cast

import numpy as np
import pyarrow as pa

from streamgroup.errors import ConfigError, EncodeError
from streamgroup.kafka.records import encode_numpy as _encode
from streamgroup.kafka.records import scan as _scan
from streamgroup.kafka.records.fields import Bytes, FaultCode, Fields, HeaderFields, Ints, Longs, RecordFault, Regions
from streamgroup.kafka.records.message_sets import (
    MessageFaultKind,
    MessageFields,
    MessageFields07,
    MessageSetFault,
    MessageSets,
    MessageSets07,
    Walk,
)
from streamgroup.kafka.records.record_columns import BinaryColumn, ColumnBuffers

VARIABLE = "STREAMGROUP_KERNEL"

Name = Literal["python", "compiled"]


class RecordKernel(Protocol):
    """The hot loops that find and copy the fields of records, and those that encode records.

    `start` and `length` are positions in `buffer`, ascending, without overlap; a length of -1 is null. An encoder
    writes `reserve` zeros before the records, and raises EncodeError if a record or the result is too long for its
    length field.
    """

    name: Name

    def scan(self, buffer: Bytes, regions: Regions) -> Fields:
        """Find the fields of all records of `regions`. Raises RecordFault."""

    def headers(self, buffer: Bytes, start: Ints, count: Ints) -> HeaderFields:
        """Find the headers of scanned records. `start` and `count` come from `Fields`."""

    def gather(self, buffer: Bytes, start: Ints, length: Ints) -> tuple[pa.Buffer, pa.Buffer]:
        """Copy pieces of `buffer` into one array: return the offsets and the data of an Arrow binary array."""

    def walk(self, data: memoryview, position: int, least: int, until: int) -> Walk:
        """Walk uncompressed messages (magic 0 and 1) from `position` on whose offsets ascend in `[least, until)`."""

    def messages(self, buffer: Bytes, sets: MessageSets, checked: bool) -> MessageFields:
        """Find the fields of all messages of `sets`, and check the CRC-32 of each if `checked`.

        Raises MessageSetFault for an invalid message.
        """

    def walk07(self, data: memoryview, position: int, stop: int) -> Walk:
        """Walk the uncompressed messages of Kafka 0.7 from `position` on that begin before `stop`."""

    def messages07(self, buffer: Bytes, sets: MessageSets07, checked: bool) -> MessageFields07:
        """Find the payloads of all messages of Kafka 0.7, as `messages` does. Raises MessageSetFault."""

    def crc32(self, data: memoryview) -> int:
        """Return the CRC-32 of `data`, the same as zlib's."""

    def record_sizes(self, columns: ColumnBuffers, deltas: int) -> Longs:
        """Return the bytes of each record of a batch v2, if its two deltas take `deltas` bytes."""

    def encode_records(self, columns: ColumnBuffers, start: int, stop: int, reserve: int) -> tuple[bytearray, int]:
        """Encode the records `[start, stop)` of a batch v2, and return the latest timestamp too.

        Deltas count from the first record. There is at least one.
        """

    def message_sizes(self, key: BinaryColumn, value: BinaryColumn, rows: int, head: int) -> Longs:
        """Return the bytes of each message: key, value and `head` bytes."""

    def encode_messages(self, columns: ColumnBuffers, magic: int, start: int, stop: int, reserve: int) -> bytearray:
        """Encode the messages `[start, stop)` of magic 0 or 1, with offsets from 0 on."""

    def encode_messages07(self, value: BinaryColumn, magic: int, start: int, stop: int, reserve: int) -> bytearray:
        """Encode the messages `[start, stop)` of Kafka 0.7."""


class _Python:
    name: Name = "python"
    scan = staticmethod(_scan.scan)
    headers = staticmethod(_scan.headers)
    gather = staticmethod(_scan.gather)
    walk = staticmethod(_scan.walk)
    messages = staticmethod(_scan.messages)
    walk07 = staticmethod(_scan.walk07)
    messages07 = staticmethod(_scan.messages07)
    crc32 = staticmethod(zlib.crc32)
    record_sizes = staticmethod(_encode.record_sizes)
    encode_records = staticmethod(_encode.encode_records)
    message_sizes = staticmethod(_encode.message_sizes)
    encode_messages = staticmethod(_encode.encode_messages)
    encode_messages07 = staticmethod(_encode.encode_messages07)


class _Compiled:
    name: Name = "compiled"

    def __init__(self, module: ModuleType) -> None:
        if not hasattr(module, "encode_records"):
            raise ImportError("the compiled kernel was built from older sources. Install streamgroup again to build it")
        self._module = module

    def scan(self, buffer: Bytes, regions: Regions) -> Fields:
        regions.check_counts()
        fields = Fields.empty(regions.rows)
        wrong = self._module.scan(buffer, *regions.arrays(), *fields.arrays())
        if wrong is not None:
            batch, fault = wrong
            raise RecordFault(batch, FaultCode(fault))
        return fields

    def headers(self, buffer: Bytes, start: Ints, count: Ints) -> HeaderFields:
        found = HeaderFields.empty(int(count.sum()))
        if not self._module.headers(buffer, start, count, *found.arrays()):
            raise ValueError("headers of records that have not been scanned")
        return found

    def gather(self, buffer: Bytes, start: Ints, length: Ints) -> tuple[pa.Buffer, pa.Buffer]:
        # Arrow's pool reuses its pages; numpy would request new ones from the system for each fetch.
        offsets = pa.allocate_buffer(4 * (len(start) + 1))
        data = pa.allocate_buffer(int(np.maximum(length, 0).sum(dtype=np.int64)))
        self._module.gather(buffer, start, length, offsets, data)
        return offsets, data

    def walk(self, data: memoryview, position: int, least: int, until: int) -> Walk:
        return Walk(*self._module.walk(data, position, least, until))

    def walk07(self, data: memoryview, position: int, stop: int) -> Walk:
        return Walk(*self._module.walk07(data, position, stop))

    def messages(self, buffer: Bytes, sets: MessageSets, checked: bool) -> MessageFields:
        found = MessageFields.empty(_counted(self._module.count(buffer, sets.begin, sets.end)))
        _raise_fault(self._module.messages(buffer, *sets.arrays(), checked, *found.arrays()))
        return found

    def messages07(self, buffer: Bytes, sets: MessageSets07, checked: bool) -> MessageFields07:
        found = MessageFields07.empty(_counted(self._module.count07(buffer, sets.begin, sets.end)))
        _raise_fault(self._module.messages07(buffer, *sets.arrays(), checked, *found.arrays()))
        return found

    def crc32(self, data: memoryview) -> int:
        return int(self._module.crc32(data, False))

    def record_sizes(self, columns: ColumnBuffers, deltas: int) -> Longs:
        sizes = np.empty(len(columns.timestamp_ms), np.int64)
        with _length_errors:
            self._module.record_sizes(*columns.arguments(), deltas, sizes)
        return sizes

    def encode_records(self, columns: ColumnBuffers, start: int, stop: int, reserve: int) -> tuple[bytearray, int]:
        with _length_errors:
            return cast(
                "tuple[bytearray, int]", self._module.encode_records(*columns.arguments(), start, stop, reserve)
            )

    def message_sizes(self, key: BinaryColumn, value: BinaryColumn, rows: int, head: int) -> Longs:
        sizes = np.empty(rows, np.int64)
        with _length_errors:
            self._module.message_sizes(*key.buffers, *value.buffers, head, sizes)
        return sizes

    def encode_messages(self, columns: ColumnBuffers, magic: int, start: int, stop: int, reserve: int) -> bytearray:
        arguments = columns.timestamp_ms, *columns.key.buffers, *columns.value.buffers, magic, start, stop, reserve
        with _length_errors:
            return cast(bytearray, self._module.encode_messages(*arguments))

    def encode_messages07(self, value: BinaryColumn, magic: int, start: int, stop: int, reserve: int) -> bytearray:
        with _length_errors:
            return cast(bytearray, self._module.encode_messages07(*value.buffers, magic, start, stop, reserve))


class _LengthErrors:
    """Context manager that converts an OverflowError of the compiled kernel to an EncodeError: a length is too large.

    A class takes a tenth of the time of a context manager from a generator, and it is used for each batch.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is OverflowError:
            raise EncodeError(str(error)) from None


_length_errors = _LengthErrors()


def _counted(count: int | tuple[int, int, int]) -> int:
    if isinstance(count, tuple):
        _raise_fault(count)
    return cast(int, count)


def _raise_fault(wrong: tuple[int, int, int] | None) -> None:
    if wrong is not None:
        index, position, fault = wrong
        raise MessageSetFault(index, position, MessageFaultKind(fault))


def _load(wanted: str | None) -> RecordKernel:
    """Return the kernel `wanted`; without a name the compiled one if it is built. Raises ConfigError."""
    if wanted not in {None, "", "python", "compiled"}:
        raise ConfigError(f"{VARIABLE}={wanted}: the kernels are 'python' and 'compiled'")
    if wanted == "python":
        return _Python()
    try:
        return _Compiled(import_module("streamgroup.kafka.records._kernel"))
    except ImportError as error:
        if wanted == "compiled":
            what = "the compiled kernel is not built: install a C compiler and Python's headers, and streamgroup again"
            raise ConfigError(what) from error
        return _Python()


_kernel: RecordKernel = _load(os.environ.get(VARIABLE))


def current() -> RecordKernel:
    return _kernel


def name() -> Name:
    return _kernel.name


def use(wanted: Name) -> None:
    """Use this kernel in this process from now on. Raises ConfigError if it is not built."""
    global _kernel  # noqa: PLW0603
    _kernel = _load(wanted)

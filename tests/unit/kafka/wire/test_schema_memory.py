"""The memory that a message takes, however its sender divides the bytes of the frame into elements."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any, cast

import pytest

from streamgroup.kafka.wire.fields import FieldSpec, Struct, specs_of
from streamgroup.kafka.wire.schema import Message, decode, encode
from tests.unit.kafka.wire.declared import MESSAGES, VERSIONS_OF

ELEMENTS = 1_000
MOST_PER_BYTE = 96
"""Python needs an object for each element and a view for each byte string, be they ever so small."""
CONSTANT = 8_192
_LEAST = {"bool": False, "string": "", "bytes": b"", "records": b"", "uuid": ""}


def untagged(cls: type[Struct], version: int) -> list[FieldSpec]:
    return [spec for spec in specs_of(cls) if version in spec.versions and version not in spec.tagged]


def smallest(type_: str | type[Struct], version: int) -> Any:
    """Return the value that takes the fewest bytes of a frame, without a null."""
    if isinstance(type_, str):
        return _LEAST.get(type_, 0)
    given = {s.name: () if s.is_array else smallest(s.type, version) for s in untagged(type_, version)}
    return cast(Any, type_)(**given)


def wide(cls: type[Struct], version: int) -> Iterator[Any]:
    """Yield a message for each of its arrays, at any depth, with many of the smallest elements in that array."""
    for spec in untagged(cls, version):
        if spec.is_array:
            yield cast(Any, cls)(**{spec.name: (smallest(spec.type, version),) * ELEMENTS})
        if not isinstance(spec.type, str):
            for inner in wide(spec.type, version):
                yield cast(Any, cls)(**{spec.name: (inner,) if spec.is_array else inner})


@pytest.mark.slow
@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_a_message_of_the_smallest_elements_takes_a_bounded_multiple_of_its_frame(cls: type[Message]) -> None:
    measured: set[bytes] = set()
    for version in VERSIONS_OF[cls]:
        decode(cls, encode(smallest(cls, version), version), version)  # its decoders are made once
        for message in wide(cls, version):
            frame = bytes(encode(message, version))
            if frame in measured:  # by an earlier version, which has the same elements
                continue
            measured.add(frame)
            tracemalloc.start()
            try:
                decode(cls, frame, version)
                taken = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert taken < MOST_PER_BYTE * len(frame) + CONSTANT, f"{version}: {taken} bytes for {len(frame)}"

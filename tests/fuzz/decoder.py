"""A decoder under the fuzzer: what it reads, what it may raise, and the samples of which the cases are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from streamgroup.errors import DecodeError
from tests.fuzz.mutations import Mutate, mutated_bytes


@dataclass(frozen=True, slots=True)
class Sample:
    """Sound bytes. `kind` tells the decoder how to read them, as `response 4`. `marks` are the positions of lengths."""

    kind: str
    data: bytes
    marks: tuple[int, ...] = ()


Mend = Callable[[str, bytes, Random], bytes]
"""Makes a mutated case sound again in places, so that it comes further: checksums, compression, sizes of frames."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """One decoder. `decode` takes the kind of a sample and bytes."""

    name: str
    samples: Callable[[], Sequence[Sample]]
    decode: Callable[[str, bytes], object]
    refuses: tuple[type[Exception], ...] = (DecodeError,)
    """The errors that the decoder documents. Any other is a finding."""
    mutate: Mutate = mutated_bytes
    mend: Mend | None = None
    cap: int = 0
    """Bytes that a case may take beyond four times its size and a constant, such as the limit of decompression."""
    enough: int = 500
    """So many cases find each bug that is planted in the decoder. `make test` tries as many without a bug."""

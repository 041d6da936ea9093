"""xxHash, 32 bits, with seed 0: the checksum in the headers of lz4 frames, which are short."""

from __future__ import annotations

import struct
from functools import lru_cache

_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_MASK = 0xFFFFFFFF
_STRIPE = struct.Struct("<4I")


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> 32 - bits) & _MASK


@lru_cache(maxsize=64)
def xxh32(data: bytes) -> int:
    """Return XXH32 of `data`, as the xxHash specification describes it.

    In plain Python, with a cache: headers are a few bytes, and few of them differ.
    """
    size, position = len(data), 0
    if size >= _STRIPE.size:
        lanes = [_P1 + _P2, _P2, 0, -_P1]
        while size - position >= _STRIPE.size:
            stripe = _STRIPE.unpack_from(data, position)
            lanes = [_rotated(lane + word * _P2, 13) * _P1 for lane, word in zip(lanes, stripe, strict=True)]
            position += _STRIPE.size
        total = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        total = _P5
    total += size
    while size - position >= 4:
        (word,) = struct.unpack_from("<I", data, position)
        total = _rotated(total + word * _P3, 17) * _P4
        position += 4
    for byte in data[position:]:
        total = _rotated(total + byte * _P5, 11) * _P1
    total &= _MASK
    total = (total ^ total >> 15) * _P2 & _MASK
    total = (total ^ total >> 13) * _P3 & _MASK
    return total ^ total >> 16

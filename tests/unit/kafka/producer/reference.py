"""One record at a time: what the vectorised partitioners must equal."""

from __future__ import annotations

import random


def murmur2(key: bytes) -> int:
    """`org.apache.kafka.common.utils.Utils.murmur2`, as an unsigned number."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    for at in range(0, len(key) & ~3, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if tail := key[len(key) & ~3 :]:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def string_hash(key: str) -> int:
    """`String.hashCode`, as an unsigned number."""
    units = key.encode("utf-16-be")
    h = 0
    for at in range(0, len(units), 2):
        h = (31 * h + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return h


def bytes_hash(key: bytes) -> int:
    """`Arrays.hashCode(byte[])`, as an unsigned number."""
    h = 1
    for byte in key:
        h = (31 * h + (byte - 256 if byte > 127 else byte)) & 0xFFFFFFFF
    return h


def to_positive(number: int) -> int:
    """`Utils.toPositive`."""
    return number & 0x7FFFFFFF


def kafka08_abs(number: int) -> int:
    """0.8's `Utils.abs` of an unsigned number as an int."""
    signed = number - (1 << 32) if number >= 1 << 31 else number
    return 0 if signed == -(1 << 31) else abs(signed)


def keys(count: int, seed: int) -> list[bytes]:
    """Keys as they are: numbers, words, UUIDs, text beyond ASCII, single bytes, and a few long ones. All are UTF-8."""
    rng = random.Random(seed)
    alphabet = "abcXYZ0189-_./ äß€\uff5e😀\0"
    made: list[bytes] = [b"", b"\0", b"a", b"polygenelubricants", "😀".encode()]
    while len(made) < count:
        kind = rng.randrange(6)
        if kind == 0:
            text = str(rng.randrange(10 ** rng.randint(1, 12)))
        elif kind == 1:
            text = f"user-{rng.randrange(100_000)}"
        elif kind == 2:
            text = f"{rng.getrandbits(128):032x}"
        elif kind == 3:
            text = "".join(rng.choices(alphabet, k=rng.randint(1, 30)))
        elif kind == 4:
            text = rng.choice(alphabet) * rng.randint(1, 9)
        else:
            text = "".join(rng.choices(alphabet, k=rng.choice([40, 50, 60])))
        made.append(text.encode())
    return made

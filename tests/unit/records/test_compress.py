"""The framing and levels of each codec, as Java's producer writes them."""

from __future__ import annotations

import gzip
import random
import struct
from pathlib import Path

import pytest

from streamgroup.records import compression
from streamgroup.records.compress import CODECS, LEVELS, compressor
from tests.unit.records.encoder_sets import lz4_broken

VECTORS = Path(__file__).parents[2] / "vectors"
JAVA_LZ4_HEADER = 7
REPETITIVE = b"".join(b"value %d; " % (index % 97) for index in range(30_000))
NOISE = random.Random(1).randbytes(200_000)


def compressed(codec: str, data: bytes, level: int | None = None, *, broken_lz4: bool = False) -> bytes:
    chosen = compressor(codec, level, broken_lz4=broken_lz4)
    assert chosen is not None
    assert chosen.number == CODECS[codec]
    return chosen.compress(memoryview(data))


@pytest.mark.parametrize("data", [b"", b"x", NOISE, REPETITIVE, NOISE[: 1 << 16], REPETITIVE[: (1 << 16) + 1]])
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_level_is_decompressed(codec: str, data: bytes) -> None:
    levels = [None, *{"gzip": (1, 9), "lz4": (1, 9, 17), "zstd": (-131_072, -5, 1, 22)}.get(codec, ())]
    for level in levels:
        frame = memoryview(compressed(codec, data, level))
        assert bytes(compression.inflated(CODECS[codec], frame, 1 << 24)) == data


@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", 1, 9), ("lz4", None, 12), ("zstd", -100, 19)])
def test_a_higher_level_makes_less_of_the_same_bytes(codec: str, low: int | None, high: int) -> None:
    words = [b"%x" % random.Random(index).randrange(1 << 20) for index in range(300)]
    text = b" ".join(random.Random(2).choices(words, k=40_000))
    assert len(compressed(codec, text, high)) < 0.97 * len(compressed(codec, text, low))


def test_the_default_levels_are_javas() -> None:
    for codec, level in (("gzip", 6), ("lz4", 9), ("zstd", 3)):
        assert compressed(codec, REPETITIVE) == compressed(codec, REPETITIVE, level)
        assert level in LEVELS[codec]


def test_no_codec_is_no_compressor() -> None:
    assert compressor("none", None) is None


def test_gzip_is_one_member_with_nothing_that_changes() -> None:
    data = compressed("gzip", REPETITIVE)
    assert gzip.decompress(data) == REPETITIVE
    assert data[4:8] == bytes(4)  # no time
    assert struct.unpack("<I", data[-4:]) == (len(REPETITIVE),)


def test_snappy_has_the_blocks_of_snappy_java() -> None:
    data = compressed("snappy", REPETITIVE)
    assert data[:16] == bytes.fromhex("82534e41505059 00 00000001 00000001")
    sizes, position = [], 16
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position)
        block = memoryview(data)[position + 4 : position + 4 + length]
        sizes.append(compression.bound(compression.SNAPPY, block))
        position += 4 + length
    assert position == len(data)
    assert sizes == [32 << 10] * (len(REPETITIVE) >> 15) + [len(REPETITIVE) % (32 << 10)]


def test_an_lz4_frame_begins_as_javas() -> None:
    java = (VECTORS / "records" / "java-lz4.bin").read_bytes()[61:]
    assert compressed("lz4", REPETITIVE)[:JAVA_LZ4_HEADER] == java[:JAVA_LZ4_HEADER]


def test_an_lz4_frame_for_old_brokers_begins_as_old_javas() -> None:
    wrapper = (VECTORS / "message_sets" / "java-0.8.2.2-producer-lz4.bin").read_bytes()
    broken = compressed("lz4", REPETITIVE, broken_lz4=True)
    assert broken[:JAVA_LZ4_HEADER] == wrapper[26 : 26 + JAVA_LZ4_HEADER]
    assert bytes(compression.mend_lz4(memoryview(broken))) == compressed("lz4", REPETITIVE)
    assert lz4_broken(b"")[6] != compressed("lz4", b"")[6]


def test_lz4_stores_blocks_that_do_not_shrink_and_ends_as_java_does() -> None:
    data = compressed("lz4", NOISE[: 3 << 16])
    assert len(data) == JAVA_LZ4_HEADER + 3 * (4 + (1 << 16)) + 4
    for block in range(3):
        (length,) = struct.unpack_from("<I", data, JAVA_LZ4_HEADER + block * (4 + (1 << 16)))
        assert length == 1 << 31 | 1 << 16
    assert data[-4:] == bytes(4)


def test_javas_own_lz4_and_snappy_are_made_of_the_same_records() -> None:
    for name in ("java-lz4.bin", "java-snappy.bin"):
        body = (VECTORS / "records" / name).read_bytes()[61:]
        codec = name[5:-4]
        records = bytes(compression.inflated(CODECS[codec], memoryview(body), 1 << 20))
        assert compressed(codec, records) == body

"""Codecs: what others write can be read, and nothing expands beyond its cap."""

from __future__ import annotations

import gzip
import random
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import cramjam
import numpy as np
import pytest
import snappy

from streamgroup.errors import DecodeError, TooLarge, UnsupportedCodec
from streamgroup.kafka.records import codecs
from streamgroup.kafka.records.codecs import (
    CODEC_NUMBERS,
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    bound,
    fix_lz4_checksum,
    inflated,
    xxh32,
)
from tests.unit.kafka.records.encoder import compress, unsigned_varint, xerial
from tests.unit.kafka.records.encoder_sets import lz4_broken

TEXT = b"".join(b"record %d of many; " % i for i in range(20_000))
NOISE = random.Random(1).randbytes(300_000)
REPETITIVE = b"".join(b"value %d; " % (index % 97) for index in range(30_000))
NAMES = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
CAP = 64 * 1024


def undo(codec: int, data: bytes, cap: int = 1 << 30) -> bytes:
    """Decompress as `regions` does: into as much as the bound allows, at most `cap`."""
    out = np.empty(min(bound(codec, memoryview(data)), cap), np.uint8)
    return bytes(out[: codecs.inflate(codec, memoryview(data), out)])


def lz4_with(data: bytes = TEXT, **options: object) -> bytes:
    compressor = cramjam.lz4.Compressor(**options)
    compressor.compress(data)
    return bytes(compressor.finish())


def zstd_in_pieces() -> bytes:
    """A frame without a content size, as Java's streams write it."""
    compressor = cramjam.zstd.Compressor()
    for start in range(0, len(TEXT), 10_000):
        compressor.compress(TEXT[start : start + 10_000])
    return bytes(compressor.finish())


def zstd_frame(blocks: bytes, *, declared: int | None = None) -> bytes:
    """A zstd frame around `blocks`, with or without a content size."""
    if declared is None:
        return struct.pack("<IBB", 0xFD2FB528, 0x00, 0x58) + blocks
    return struct.pack("<IBBQ", 0xFD2FB528, 0xC0, 0x58, declared) + blocks


def zstd_block(kind: int, size: int, data: bytes, last: bool = True) -> bytes:
    return struct.pack("<I", last | kind << 1 | size << 3)[:3] + data


WRITTEN = {
    "gzip": (GZIP, compress("gzip", TEXT)),
    "gzip by zlib": (GZIP, gzip.compress(TEXT, 1)),
    "gzip with a name in its header": (GZIP, b"\x1f\x8b\x08\x08" + bytes(6) + b"name\0" + gzip.compress(TEXT)[10:]),
    "gzip of two members": (GZIP, gzip.compress(TEXT[:70_000]) + gzip.compress(TEXT[70_000:])),
    "gzip of a large and an empty member": (GZIP, gzip.compress(TEXT) + gzip.compress(b"")),
    "gzip with bytes behind it": (GZIP, gzip.compress(TEXT) + b"\0\0\0\0 no member"),
    "snappy in xerial blocks": (SNAPPY, xerial(TEXT)),
    "snappy in small xerial blocks": (SNAPPY, xerial(TEXT, 1_000)),
    "snappy of two xerial streams": (SNAPPY, xerial(TEXT[:50_000]) + xerial(TEXT[50_000:])),
    "snappy raw": (SNAPPY, snappy.compress(TEXT)),
    "lz4": (LZ4, compress("lz4", TEXT)),
    "lz4 with its size": (LZ4, lz4_with(content_checksum=True, block_linked=False)),
    "lz4 with bytes behind the frame": (LZ4, compress("lz4", TEXT) + b"ignored"),
    "zstd": (ZSTD, compress("zstd", TEXT)),
    "zstd without a content size": (ZSTD, zstd_in_pieces()),
    "zstd of two frames": (ZSTD, compress("zstd", TEXT[:9_000]) + compress("zstd", TEXT[9_000:])),
    "zstd with a skippable frame": (ZSTD, struct.pack("<II", 0x184D2A53, 3) + b"abc" + compress("zstd", TEXT)),
}


@pytest.mark.parametrize(("codec", "data"), WRITTEN.values(), ids=WRITTEN.keys())
def test_what_others_write_is_read(codec: int, data: bytes) -> None:
    assert undo(codec, data) == TEXT


@pytest.mark.parametrize("codec", NAMES)
@pytest.mark.parametrize("text", [b"", b"a", NOISE, bytes(500_000)], ids=["empty", "one", "noise", "zeros"])
def test_round_trips(codec: int, text: bytes) -> None:
    data = compress(NAMES[codec], text)
    assert undo(codec, data) == text
    assert len(text) <= bound(codec, memoryview(data))


@pytest.mark.parametrize("codec", NAMES)
def test_an_exact_cap_is_enough_and_one_byte_less_is_too_large(codec: int) -> None:
    data = compress(NAMES[codec], TEXT)
    assert undo(codec, data, len(TEXT)) == TEXT
    with pytest.raises(TooLarge, match=NAMES[codec]):
        undo(codec, data, len(TEXT) - 1)


BOMBS = {
    "gzip": (GZIP, compress("gzip", bytes(8 * CAP))),
    "gzip of many members": (GZIP, compress("gzip", bytes(1_000)) * 600),
    "gzip with a small size in its trailer": (GZIP, compress("gzip", bytes(8 * CAP))[:-4] + struct.pack("<I", 10)),
    "gzip with a large size in its trailer": (GZIP, compress("gzip", bytes(8 * CAP))[:-4] + b"\xff" * 4),
    "xerial": (SNAPPY, xerial(bytes(8 * CAP))),
    "snappy": (SNAPPY, compress("snappy-raw", bytes(8 * CAP))),
    "lz4": (LZ4, compress("lz4", bytes(8 * CAP))),
    "zstd": (ZSTD, compress("zstd", bytes(8 * CAP))),
    "zstd of many frames": (ZSTD, compress("zstd", bytes(1_000)) * 600),
    "zstd blocks of one byte": (ZSTD, zstd_frame(zstd_block(1, CAP, b"x", False) * 3 + zstd_block(1, 9, b"x"))),
}


@pytest.mark.parametrize(("codec", "data"), BOMBS.values(), ids=BOMBS.keys())
def test_a_bomb_stops_at_the_cap(codec: int, data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            undo(codec, data, CAP)
        assert tracemalloc.get_traced_memory()[1] < 4 * CAP
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD, SNAPPY])
def test_resident_memory_stays_below_twice_the_cap(codec: int) -> None:
    """In a process of its own: what the codecs allocate is seen by no tracer, only by the system."""
    cap = 12 << 20
    data = compress(NAMES[codec], bytes(6 * cap))
    program = (
        "import sys, resource\n"
        "from streamgroup.errors import TooLarge\n"
        "from streamgroup.kafka.records import regions\n"
        "from streamgroup.kafka.records.batches import Batch\n"
        "data = memoryview(b'\\0' * 61 + sys.stdin.buffer.read())\n"
        f"batch = Batch(0, 0, 0, 2, 0, {codec}, 9, 0, 0, -1, -1, -1, 1, 0, len(data))\n"
        "def resident():\n"
        "    with open('/proc/self/status') as status:\n"
        "        return next(int(line.split()[1]) for line in status if line.startswith('VmHWM'))\n"
        "before = resident()\n"
        "try:\n"
        f"    regions.lay_out(data, [batch], {cap})\n"
        "except TooLarge:\n"
        "    print(resident() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], input=data, capture_output=True, check=True, timeout=60)
    assert int(done.stdout) * 1024 < 2 * cap


def test_a_zstd_frame_that_lies_about_its_size_is_refused() -> None:
    sound = zstd_frame(zstd_block(0, 5, b"hello"), declared=5)
    assert undo(ZSTD, sound) == b"hello"
    for declared in (4, 6, 2**31, 2**63):
        lying = zstd_frame(zstd_block(0, 5, b"hello"), declared=declared)
        assert bound(ZSTD, memoryview(lying)) == 5
        with pytest.raises(DecodeError):
            undo(ZSTD, lying)


@pytest.mark.parametrize("declared", [2**31 - 1, 2**32 - 1, 2**35 - 1])
def test_a_snappy_length_that_its_bytes_cannot_expand_to_is_refused_before_allocation(declared: int) -> None:
    with pytest.raises(DecodeError, match="cannot expand"):
        bound(SNAPPY, memoryview(unsigned_varint(declared) + bytes(20)))


@pytest.mark.parametrize("codec", NAMES)
def test_data_cut_anywhere_is_damaged(codec: int) -> None:
    data = compress(NAMES[codec], TEXT[:3_000])
    for size in range(len(data)):
        if codec == SNAPPY and size == 16:
            continue  # xerial's header without blocks is a whole stream of nothing
        with pytest.raises(DecodeError):
            undo(codec, data[:size], CAP)


@pytest.mark.parametrize("codec", NAMES)
def test_damaged_data_gives_only_decode_errors_and_never_more_than_the_cap(codec: int) -> None:
    chance, sound = random.Random(codec), compress(NAMES[codec], TEXT[:5_000])
    for _ in range(300):
        data = bytearray(sound)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            assert len(undo(codec, bytes(data), CAP)) <= CAP
        except DecodeError:
            continue


def test_a_snappy_length_of_zero_with_nothing_behind_it_is_nothing() -> None:
    for data in (b"\0", b"\x80\0", xerial(b"") + b"\0\0\0\1\0"):  # raw, over-long, in a xerial block
        assert undo(SNAPPY, data) == b""


@pytest.mark.parametrize("junk", [b"x" * 42, b"\0", b"\0a", b"\1\1", b"\1\1\0\0"])
def test_a_snappy_length_of_zero_before_other_bytes_is_damaged(junk: bytes) -> None:
    block = b"\0" + junk
    framed = struct.pack(">i", len(block)) + block
    for data in (block, xerial(b"") + framed, xerial(TEXT) + framed, xerial(b"") + framed + xerial(TEXT)[16:]):
        with pytest.raises(DecodeError, match="its snappy data is damaged"):
            undo(SNAPPY, data)


def test_an_unknown_codec_is_named_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedCodec, match=r"codec 6; supported: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd"):
        bound(6, memoryview(b""))


def test_uncompressed_bytes_beyond_the_room_are_too_large() -> None:
    assert set(codecs.CODECS_BY_NUMBER) == {codecs.NONE, GZIP, SNAPPY, LZ4, ZSTD}
    with pytest.raises(TooLarge):
        codecs.inflate(codecs.NONE, memoryview(b"abc"), np.empty(2, np.uint8))


@pytest.mark.parametrize("options", [{}, {"content_checksum": True}, {"block_linked": False}, {"level": 9}])
def test_the_header_checksum_of_an_lz4_frame_is_mended_where_it_covers_the_magic(options: dict[str, object]) -> None:
    sound = lz4_with(**options)
    at = 6 + (8 if sound[4] & 8 else 0)
    assert sound[at] == xxh32(sound[4:at]) >> 8 & 0xFF
    assert fix_lz4_checksum(memoryview(sound)) == sound
    broken = bytearray(sound)
    broken[at] = xxh32(sound[:at]) >> 8 & 0xFF
    with pytest.raises(DecodeError):
        undo(LZ4, bytes(broken))
    assert fix_lz4_checksum(memoryview(bytes(broken))) == sound
    broken[at] ^= 0x10
    with pytest.raises(DecodeError, match="a damaged header"):
        fix_lz4_checksum(memoryview(bytes(broken)))
    for size in range(at + 1):
        with pytest.raises(DecodeError, match="ends too early"):
            fix_lz4_checksum(memoryview(sound)[:size])


@pytest.mark.parametrize("codec", NAMES)
def test_by_itself_nothing_expands_beyond_its_limit(codec: int) -> None:
    data = memoryview(compress(NAMES[codec], TEXT))
    assert inflated(codec, data, len(TEXT)) == TEXT
    for limit in (len(TEXT) - 1, 0, -5):
        with pytest.raises(TooLarge):
            inflated(codec, data, limit)


def test_every_length_around_words_and_stripes_has_the_xxh32_that_an_lz4_library_writes_behind_a_frame() -> None:
    """A stripe has 16 bytes, a word 4: each length ends in another mix of stripes, words and single bytes."""
    noise = random.Random(32).randbytes(70)
    for size in range(len(noise) + 1):
        frame = lz4_with(noise[:size], content_checksum=True)
        assert xxh32(noise[:size]) == int.from_bytes(frame[-4:], "little"), size


VECTORS = Path(__file__).parents[3] / "vectors"
JAVA_LZ4_HEADER = 7


def compressed(codec: str, data: bytes, level: int | None = None, *, broken_lz4: bool = False) -> bytes:
    chosen = codecs.compressor(codec, level, broken_lz4=broken_lz4)
    assert chosen is not None
    assert chosen.number == CODEC_NUMBERS[codec]
    return chosen.compress(memoryview(data))


@pytest.mark.parametrize("data", [b"", b"x", NOISE, REPETITIVE, NOISE[: 1 << 16], REPETITIVE[: (1 << 16) + 1]])
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_level_is_decompressed(codec: str, data: bytes) -> None:
    levels = [None, *{"gzip": (1, 9), "lz4": (1, 9, 17), "zstd": (-131_072, -5, 1, 22)}.get(codec, ())]
    for level in levels:
        frame = memoryview(compressed(codec, data, level))
        assert bytes(inflated(CODEC_NUMBERS[codec], frame, 1 << 24)) == data


@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", 1, 9), ("lz4", None, 12), ("zstd", -100, 19)])
def test_a_higher_level_makes_less_of_the_same_bytes(codec: str, low: int | None, high: int) -> None:
    words = [b"%x" % random.Random(index).randrange(1 << 20) for index in range(300)]
    text = b" ".join(random.Random(2).choices(words, k=40_000))
    assert len(compressed(codec, text, high)) < 0.97 * len(compressed(codec, text, low))


def test_the_default_levels_are_javas() -> None:
    for codec, level in (("gzip", 6), ("lz4", 9), ("zstd", 3)):
        assert compressed(codec, REPETITIVE) == compressed(codec, REPETITIVE, level)
        assert level in codecs.LEVELS[codec]


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
        sizes.append(bound(SNAPPY, block))
        position += 4 + length
    assert position == len(data)
    assert sizes == [32 << 10] * (len(REPETITIVE) >> 15) + [len(REPETITIVE) % (32 << 10)]


def test_an_lz4_frame_for_old_brokers_begins_as_old_javas() -> None:
    wrapper = (VECTORS / "message_sets" / "java-0.8.2.2-producer-lz4.bin").read_bytes()
    broken = compressed("lz4", REPETITIVE, broken_lz4=True)
    assert broken[:JAVA_LZ4_HEADER] == wrapper[26 : 26 + JAVA_LZ4_HEADER]
    assert bytes(fix_lz4_checksum(memoryview(broken))) == compressed("lz4", REPETITIVE)
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
        records = bytes(inflated(CODEC_NUMBERS[codec], memoryview(body), 1 << 20))
        assert compressed(codec, records) == body

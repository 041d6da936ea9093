"""Headers of lz4 frames get and are checked against the checksum that every other lz4 library computes."""

from __future__ import annotations

import random

import cramjam
import pytest

from streamgroup.records.xxhash import xxh32


def sequence(size: int) -> bytes:
    """The input of xxHash's own self-test: the high bytes of a number that is squared again and again."""
    out, state = bytearray(), 2654435761
    for _ in range(size):
        out.append(state >> 24)
        state = state * state & 0xFFFFFFFF
    return bytes(out)


def checksum_of_content(data: bytes) -> int:
    """The XXH32 that an lz4 library writes behind the blocks of a frame."""
    compressor = cramjam.lz4.Compressor(content_checksum=True)
    compressor.compress(data)
    return int.from_bytes(bytes(compressor.finish())[-4:], "little")


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"abc", 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
        (sequence(1), 0xB85CBEE5),
        (sequence(14), 0xE5AA0AB4),
        (sequence(101), 0x1F1AA412),
    ],
)
def test_published_inputs_have_their_published_checksums(data: bytes, digest: int) -> None:
    assert xxh32(data) == digest


def test_every_length_around_words_and_stripes_has_the_checksum_of_an_lz4_library() -> None:
    """A stripe has 16 bytes, a word 4: each length ends in another mix of stripes, words and single bytes."""
    noise = random.Random(32).randbytes(70)
    for size in range(len(noise) + 1):
        assert xxh32(noise[:size]) == checksum_of_content(noise[:size]), size


@pytest.mark.parametrize("data", [b"\xff" * 5, b"\xff" * 64, bytes(64)], ids=["short ones", "ones", "zeros"])
def test_words_of_extreme_bits_wrap_as_in_32_bits(data: bytes) -> None:
    assert xxh32(data) == checksum_of_content(data)
    assert 0 <= xxh32(data) < 2**32


def test_each_flipped_bit_of_a_frame_header_changes_the_checksum() -> None:
    header = b"\x60\x40"
    flipped = {
        xxh32(bytes([header[0] ^ one, header[1] ^ other]))
        for one, other in ([(1 << bit, 0) for bit in range(8)] + [(0, 1 << bit) for bit in range(8)])
    }
    assert len(flipped - {xxh32(header)}) == 16

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import EncodeError
from streamgroup.producer import hashing
from streamgroup.producer.hashing import Hashes, KeyBytes
from tests.unit.producer import reference

VECTORS = Path(__file__).parents[2] / "vectors" / "partitioners" / "java.tsv"

HASHES: list[tuple[Callable[[KeyBytes], Hashes], Callable[[bytes], int]]] = [
    (hashing.murmur2, reference.murmur2),
    (hashing.crc32, zlib.crc32),
    (hashing.java_bytes_hash, reference.bytes_hash),
    (hashing.java_string_hash, lambda key: reference.string_hash(key.decode())),
]
NAMES = [ours.__name__ for ours, _ in HASHES]

each_hash = pytest.mark.parametrize(("ours", "theirs"), HASHES, ids=NAMES)


def binary(keys: list[bytes]) -> KeyBytes:
    return KeyBytes.of(pa.array(keys, pa.binary()))


@pytest.mark.slow
@each_hash
@given(texts=st.lists(st.text(max_size=20), max_size=100))
def test_keys_hash_as_one_by_one(
    ours: Callable[[KeyBytes], Hashes], theirs: Callable[[bytes], int], texts: list[str]
) -> None:
    keys = [text.encode() for text in texts]
    assert ours(binary(keys)).tolist() == [theirs(key) for key in keys]


@pytest.mark.parametrize(("ours", "theirs"), HASHES[:3], ids=NAMES[:3])
@given(keys=st.lists(st.binary(max_size=20), max_size=100))
def test_keys_of_any_bytes_hash_as_one_by_one(
    ours: Callable[[KeyBytes], Hashes], theirs: Callable[[bytes], int], keys: list[bytes]
) -> None:
    assert ours(binary(keys)).tolist() == [theirs(key) for key in keys]


@each_hash
@pytest.mark.parametrize("short", [0, 3, 200], ids=["alone", "beside few keys", "beside many keys"])
def test_a_key_that_is_much_longer_than_the_others(
    ours: Callable[[KeyBytes], Hashes], theirs: Callable[[bytes], int], short: int
) -> None:
    keys = [b"k" * (n % 9) for n in range(short)] + ["täglich €".encode() * 9_000, b"end"]
    assert ours(binary(keys)).tolist() == [theirs(key) for key in keys]


@each_hash
def test_ten_thousand_keys_hash_as_one_by_one(
    ours: Callable[[KeyBytes], Hashes], theirs: Callable[[bytes], int]
) -> None:
    keys = reference.keys(10_000, seed=1)
    assert ours(binary(keys)).tolist() == [theirs(key) for key in keys]


@each_hash
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()], ids=str)
def test_every_arrow_type_of_keys_and_slices_of_them(
    ours: Callable[[KeyBytes], Hashes], theirs: Callable[[bytes], int], kind: pa.DataType
) -> None:
    keys = reference.keys(500, seed=2)
    array = pa.array(keys, pa.binary()).cast(kind)
    for start, stop in ((0, 500), (13, 490), (499, 500), (7, 7)):
        part = array.slice(start, stop - start)
        assert ours(KeyBytes.of(part)).tolist() == [theirs(key) for key in keys[start:stop]]


@pytest.mark.parametrize("keys", [[b"\xff"], [b"ok", b"\xc3", b"\xa4"]], ids=["no UTF-8", "one character in two keys"])
def test_a_key_that_is_not_utf8_has_no_string_hash(keys: list[bytes]) -> None:
    with pytest.raises(EncodeError, match=r"the key is not UTF-8\. Choose the partitioner hashcode_bytes"):
        hashing.java_string_hash(binary(keys))


def test_the_keys_of_the_vectors_hash_as_java_hashed_them() -> None:
    rows = [line.split("\t") for line in VECTORS.read_text().splitlines()]
    assert len(rows) == 10_000
    keys = binary([bytes.fromhex(row[0]) for row in rows])
    signed = (hashing.murmur2, hashing.java_string_hash, hashing.java_bytes_hash)
    for column, ours in enumerate(signed, start=1):
        assert ours(keys).view(np.int32).tolist() == [int(row[column]) for row in rows], ours.__name__
    assert hashing.crc32(keys).tolist() == [int(row[4]) for row in rows]

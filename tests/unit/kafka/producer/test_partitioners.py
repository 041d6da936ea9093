from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.errors import EncodeError
from streamgroup.kafka.producer import partitioners
from streamgroup.kafka.producer.partitioners import PARTITIONERS, Hashes, KeyBytes, Partitioner, ProducerTopic
from streamgroup.model import NO_LEADER, PartitionInfo, TopicInfo
from tests.unit.kafka.producer import reference

KEYS = reference.keys(3_000, seed=3)
BATCH = 1_000


def topic(count: int = 7, available: Any = None, queued: Any = None, name: str = "orders") -> ProducerTopic:
    leaders = {p: 0 if available is None or p in available else NO_LEADER for p in range(count)}
    partitions = tuple(PartitionInfo(p, leaders[p]) for p in reversed(range(count)))
    return ProducerTopic.of(TopicInfo(name, partitions), queued)


def partitioner(name: str = "default", seed: int = 1, **options: Any) -> Partitioner:
    return Partitioner(name, **{"batch_size": BATCH, "rng": np.random.default_rng(seed), **options})


def chosen(
    by: Partitioner, of: ProducerTopic, keys: list[bytes | None] | None = None, sizes: Any = None, count: int = 0
) -> list[int]:
    lengths = np.full(count or len(keys or []), 100, np.int64) if sizes is None else np.array(sizes, np.int64)
    array = None if keys is None else pa.array(keys, pa.binary())
    partitions = by.partitions(of, array, lengths)
    assert partitions.dtype == np.int32
    return partitions.tolist()


# -- keys --------------------------------------------------------------------------------------------------------------

ONE_BY_ONE = {
    "default": lambda key: reference.to_positive(reference.murmur2(key)),
    "sticky": lambda key: reference.to_positive(reference.murmur2(key)),
    "murmur2_random": lambda key: reference.to_positive(reference.murmur2(key)),
    "consistent": zlib.crc32,
    "consistent_random": zlib.crc32,
    "hashcode": lambda key: reference.kafka08_abs(reference.string_hash(key.decode())),
    "hashcode_bytes": lambda key: reference.kafka08_abs(reference.bytes_hash(key)),
}


def test_every_partitioner_but_those_without_a_hash_has_its_reference() -> None:
    assert PARTITIONERS.keys() - ONE_BY_ONE.keys() == {"round_robin", "random"}


@pytest.mark.parametrize("name", ONE_BY_ONE)
@pytest.mark.parametrize("count", [1, 2, 7, 100, 5_000])
def test_a_key_has_the_partition_of_the_reference(name: str, count: int) -> None:
    keys = [key for key in KEYS if key]
    assert chosen(partitioner(name), topic(count), keys) == [ONE_BY_ONE[name](key) % count for key in keys]


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_a_key_keeps_its_partition_while_that_has_no_leader(name: str) -> None:
    keys = [key for key in KEYS if key]
    assert chosen(partitioner(name), topic(available=[1]), keys) == chosen(partitioner(name), topic(), keys)


def test_the_smallest_hash_is_zero_as_in_kafka08() -> None:
    assert reference.string_hash("polygenelubricants") == 1 << 31
    assert chosen(partitioner("hashcode"), topic(7), [b"polygenelubricants"]) == [0]


@given(
    keys=st.lists(st.one_of(st.none(), st.binary(max_size=9)), min_size=1, max_size=60),
    name=st.sampled_from(["default", "sticky", "murmur2_random", "hashcode_bytes"]),
)
def test_records_with_and_without_keys_in_one_batch(keys: list[bytes | None], name: str) -> None:
    partitions = chosen(partitioner(name), topic(available=[2, 5]), keys)
    for key, partition in zip(keys, partitions, strict=True):
        assert partition in (2, 5) if key is None else partition == ONE_BY_ONE[name](key) % 7


def test_an_empty_key_counts_as_none_for_librdkafkas_default() -> None:
    partitions = chosen(partitioner("consistent_random"), topic(), [b"", None] * 500)
    assert set(partitions[::2]) == set(partitions[1::2]) == set(range(7))


def test_consistent_hashes_a_missing_key_as_an_empty_one() -> None:
    assert chosen(partitioner("consistent"), topic(), [None, b"", b"a"]) == [0, 0, zlib.crc32(b"a") % 7]
    assert chosen(partitioner("consistent"), topic(), count=3) == [0, 0, 0]


def test_ignored_keys_choose_no_partition() -> None:
    partitions = chosen(partitioner(ignore_keys=True), topic(), [b"the same"] * 1_000)
    assert set(partitions) == set(range(7))


def test_no_records() -> None:
    for name in PARTITIONERS:
        assert chosen(partitioner(name), topic(), [], sizes=[]) == []
        assert chosen(partitioner(name), topic(), sizes=[]) == []


def test_a_topic_without_partitions_is_refused() -> None:
    with pytest.raises(ValueError, match="topic orders has no partitions"):
        topic(0)


# -- uniform (KIP-794) and sticky (KIP-480), against one record at a time ----------------------------------------------


def switches(partitions: list[int]) -> list[int]:
    return [row for row in range(1, len(partitions)) if partitions[row] != partitions[row - 1]]


def uniform_switches(sizes: list[int]) -> list[int]:
    """The first record of each new choice: a choice ends with the record that brings it to the batch's size."""
    taken, rows = 0, []
    for row, size in enumerate(sizes):
        taken += size
        if taken >= BATCH:
            rows.append(row + 1)
            taken = 0
    return rows


def sticky_switches(sizes: list[int]) -> list[int]:
    """The first record of each batch but the first."""
    taken, rows = 0, []
    for row, size in enumerate(sizes):
        if taken and taken + size > BATCH:
            rows.append(row)
            taken = 0
        taken += size
    return rows


MANY = ProducerTopic("orders", np.arange(10_000_000, dtype=np.int32), np.arange(10_000_000, dtype=np.int32))
"""So many partitions that none is drawn twice."""
SIZES = st.lists(st.integers(min_value=1, max_value=1_500), min_size=1, max_size=80)


@given(sizes=SIZES, cut=st.integers(min_value=0, max_value=80))
def test_sticky_goes_to_another_partition_with_each_batch(sizes: list[int], cut: int) -> None:
    by, of = partitioner("sticky"), topic()
    partitions = chosen(by, of, sizes=sizes[:cut]) + chosen(by, of, sizes=sizes[cut:])
    assert switches(partitions) == sticky_switches(sizes)


@pytest.mark.slow
@given(sizes=SIZES, cut=st.integers(min_value=0, max_value=80))
def test_uniform_draws_a_partition_after_each_batch_of_bytes(sizes: list[int], cut: int) -> None:
    by = partitioner()
    partitions = chosen(by, MANY, sizes=sizes[:cut]) + chosen(by, MANY, sizes=sizes[cut:])
    assert switches(partitions) == [row for row in uniform_switches(sizes) if row < len(sizes)]


def test_uniform_gives_every_partition_the_same_bytes() -> None:
    rng = random.Random(5)
    sizes = [rng.randint(1, 400) for _ in range(60_000)]
    bytes_of = Counter[int]()
    for partition, size in zip(chosen(partitioner(), topic(), sizes=sizes), sizes, strict=True):
        bytes_of[partition] += size
    assert max(bytes_of.values()) < 1.15 * min(bytes_of.values())


def test_a_batch_size_of_zero_switches_with_each_record() -> None:
    assert len(switches(chosen(partitioner("sticky", batch_size=0), topic(), count=50))) == 49


def test_longer_queues_get_less_in_javas_proportions() -> None:
    """Queues of 0, 3 and 1 batches: 4, 1 and 3 of 8 batches go there."""
    of = topic(4, available=[0, 1, 3], queued={1: 3, 3: 1})
    partitions = Counter(chosen(partitioner(), of, sizes=[BATCH] * 8_000))
    assert [round(partitions[p] / 1_000) for p in range(4)] == [4, 1, 0, 3]


def test_without_adaptation_queues_do_not_count() -> None:
    partitions = Counter(chosen(partitioner(adaptive=False), topic(3, queued={1: 99}), sizes=[BATCH] * 9_000))
    assert [round(partitions[p] / 1_000) for p in range(3)] == [3, 3, 3]


@pytest.mark.parametrize("name", ["default", "sticky"])
def test_a_partition_that_loses_its_leader_is_left_at_once(name: str) -> None:
    by = partitioner(name)
    (first,) = chosen(by, topic(), count=1)
    others = [p for p in range(7) if p != first]
    assert set(chosen(by, topic(available=others), count=1)) <= set(others)


@pytest.mark.parametrize("name", ["default", "sticky", "random", "round_robin"])
def test_records_without_keys_avoid_partitions_without_a_leader(name: str) -> None:
    assert set(chosen(partitioner(name), topic(available=[1, 4]), count=500)) == {1, 4}


@pytest.mark.parametrize("name", ["default", "sticky", "random", "round_robin"])
def test_without_any_leader_all_partitions_take_part(name: str) -> None:
    assert set(chosen(partitioner(name), topic(3, available=[]), count=500)) == {0, 1, 2}


@pytest.mark.parametrize("name", ["default", "sticky"])
def test_one_partition_takes_all(name: str) -> None:
    assert set(chosen(partitioner(name), topic(1), count=100)) == {0}


def test_each_topic_has_its_own_sticky_partition() -> None:
    by, left, right = partitioner("sticky"), topic(50, name="left"), topic(50, name="right")
    (first,) = set(chosen(by, left, count=3))
    chosen(by, right, count=9)
    assert set(chosen(by, left, count=3)) == {first}


def test_round_robin_takes_the_available_partitions_in_turn() -> None:
    by, of = partitioner("round_robin"), topic(available=[0, 3, 6])
    assert chosen(by, of, count=4) == [0, 3, 6, 0]
    assert chosen(by, of, [b"same", b"same"]) == [3, 6]


def test_random_takes_all_partitions_alike() -> None:
    partitions = Counter(chosen(partitioner("random"), topic(4), [b"same"] * 40_000))
    assert [round(partitions[p] / 10_000, 1) for p in range(4)] == [1.0, 1.0, 1.0, 1.0]


VECTORS = Path(__file__).parents[3] / "vectors" / "partitioners" / "java.tsv"

HASHES: list[tuple[Callable[[KeyBytes], Hashes], Callable[[bytes], int]]] = [
    (partitioners.murmur2, reference.murmur2),
    (partitioners.crc32, zlib.crc32),
    (partitioners.java_bytes_hash, reference.bytes_hash),
    (partitioners.java_string_hash, lambda key: reference.string_hash(key.decode())),
]
NAMES = [ours.__name__ for ours, _ in HASHES]

each_hash = pytest.mark.parametrize(("ours", "theirs"), HASHES, ids=NAMES)


def binary(keys: list[bytes]) -> KeyBytes:
    return KeyBytes.of(pa.array(keys, pa.binary()))


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
        partitioners.java_string_hash(binary(keys))


def test_the_keys_of_the_vectors_hash_as_java_hashed_them() -> None:
    rows = [line.split("\t") for line in VECTORS.read_text().splitlines()]
    assert len(rows) == 10_000
    keys = binary([bytes.fromhex(row[0]) for row in rows])
    signed = (partitioners.murmur2, partitioners.java_string_hash, partitioners.java_bytes_hash)
    for column, ours in enumerate(signed, start=1):
        assert ours(keys).view(np.int32).tolist() == [int(row[column]) for row in rows], ours.__name__
    assert partitioners.crc32(keys).tolist() == [int(row[4]) for row in rows]

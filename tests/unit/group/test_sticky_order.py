"""Java's hash tables: the orders are those of a JVM; tests/live compares more of them with one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.group.sticky_order import PartitionHashSet, hash_map_order, string_hash
from streamgroup.model import TopicPartition


@pytest.mark.parametrize(
    ("text", "hash_code"),
    [("", 0), ("a", 97), ("Aa", 2112), ("BB", 2112), ("polygenelubricants", -(2**31)), ("😀", 1772899)],
)
def test_strings_hash_over_their_utf_16(text: str, hash_code: int) -> None:
    assert string_hash(text) == hash_code % 2**32


def test_keys_come_by_bucket_and_within_one_as_they_were_put_in() -> None:
    keys = ["first", "second", "third", "A", "B", "Aa", "BB", "AaAa", "BBBB", "AaBB", "é", "😀"]
    assert hash_map_order(keys) == ["Aa", "BB", "A", "B", "third", "😀", "é", "first", "second", "AaAa", "BBBB", "AaBB"]
    assert hash_map_order(["BB", "Aa"]) == ["BB", "Aa"]
    assert hash_map_order(["Aa", "BB", "Aa"]) == ["Aa", "BB"]


def test_the_thirteenth_key_doubles_the_buckets() -> None:
    # "A" is 65: bucket 1 of 16, bucket 1 of 32; "Q" is 81: bucket 1 of 16, bucket 17 of 32.
    few = ["Q", "A", *"bcdefghijk"]
    assert hash_map_order(few)[:2] == ["Q", "A"]
    assert hash_map_order([*few, "l"]).index("A") < hash_map_order([*few, "l"]).index("Q") - 1


@pytest.mark.parametrize(
    ("topic", "put", "taken", "first"),
    [
        ("orders", [0, 1, 2, 3, 40], [], 40),
        ("t", list(range(20)), [7], 19),
        ("t", [0, 16], [], 0),
        ("t", [16, 0], [], 16),
        ("t", [5], [], 5),
    ],
)
def test_the_first_partition_of_a_set_is_that_of_the_lowest_bucket(
    topic: str, put: list[int], taken: list[int], first: int
) -> None:
    row = PartitionHashSet(topic)
    for partition in put:
        row.add(TopicPartition(topic, partition))
    for partition in taken:
        row.remove(TopicPartition(topic, partition))
    assert row.first() == TopicPartition(topic, first)
    assert len(row) == len(put) - len(taken)


def test_a_set_does_not_shrink_its_buckets() -> None:
    # t-17 is in bucket 4 of 16 or of 32, t-3 in bucket 2 of 16, but 18 of 32.
    grown, small = PartitionHashSet("t"), PartitionHashSet("t")
    for partition in range(13):
        grown.add(TopicPartition("t", partition))
    for partition in range(13):
        grown.remove(TopicPartition("t", partition))
    for row, first in ((grown, 17), (small, 3)):
        row.add(TopicPartition("t", 3))
        row.add(TopicPartition("t", 17))
        assert row.first() == TopicPartition("t", first)


@given(st.lists(st.text(max_size=5), max_size=40))
def test_each_key_comes_once(keys: list[str]) -> None:
    assert sorted(hash_map_order(keys)) == sorted(set(keys))

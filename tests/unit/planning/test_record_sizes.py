"""The estimate of the bytes of an offset."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamgroup.model import OffsetRange, TopicPartition
from streamgroup.planning.limits import byte_limit
from streamgroup.planning.record_sizes import KEPT, UNIT, UNKNOWN, RecordSizes

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))
OTHER = TopicPartition("u", 0)


def test_a_partition_without_a_sample_has_the_largest_density_of_its_topic() -> None:
    sizes = RecordSizes()
    sizes.add(P0, 0, 1_000, 10)
    sizes.add(P1, 0, 700, 10)
    assert sizes.densities([P0, P1, P2, OTHER]) == {P0: 100 * UNIT, P1: 70 * UNIT, P2: 100 * UNIT, OTHER: UNKNOWN}


def test_less_than_a_byte_for_an_offset_counts_with_its_fraction_and_is_rounded_up() -> None:
    sizes = RecordSizes()
    sizes.add(P0, 0, 1, 3)
    assert sizes.densities([P0]) == {P0: 342}


def test_the_largest_of_the_last_samples_counts_until_it_is_old() -> None:
    sizes = RecordSizes()
    sizes.add(P0, 0, 1_000, 1)
    for position in range(1, KEPT):
        sizes.add(P0, position, 10, 1)
        assert sizes.densities([P0]) == {P0: 1_000 * UNIT}
    sizes.add(P0, KEPT, 10, 1)
    assert sizes.densities([P0]) == {P0: 10 * UNIT}


def test_partitions_without_a_sample_come_first_then_those_with_the_oldest() -> None:
    sizes = RecordSizes()
    sizes.add(P0, 5, 10, 1)
    sizes.add(P1, 5, 10, 1)
    sizes.add(P0, 6, 10, 1)
    assert list(sizes.wanted({P0: 7, P1: 7, P2: 7})) == [P2, P1, P0]
    assert sizes.wanted({P0: 6, P1: 7}) == {P1: 7}, "the sample of P0 is of this position"


def test_a_partition_that_is_not_held_any_more_is_forgotten() -> None:
    sizes = RecordSizes()
    sizes.add(P0, 5, 10, 1)
    sizes.wanted({OTHER: 0})
    assert sizes.densities([P0]) == {P0: UNKNOWN}
    assert sizes.wanted({P0: 5}) == {P0: 5}


@given(st.lists(st.integers(1, 10**6), min_size=KEPT + 2, max_size=40), st.integers(1, 10**7))
def test_batches_of_records_that_do_not_grow_stay_below_the_limit(records: list[int], limit: int) -> None:
    """Each batch is sampled where it begins: records that shrink from there on make it smaller, never larger."""
    records = sorted(records, reverse=True)
    sizes, position = RecordSizes(), 0
    while position < len(records):
        sizes.add(P0, position, records[position], 1)
        until = byte_limit({P0: OffsetRange(P0, position, len(records))}, limit, sizes.densities([P0]))[P0]
        assert until > position, "never stuck"
        assert sum(records[position:until]) <= max(limit, records[position])
        position = until

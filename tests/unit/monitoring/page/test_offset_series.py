from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.model import TopicPartition
from streamgroup.monitoring.page.history.offset_series import UNKNOWN, OffsetSeries, advance, lags

A, B, C = (TopicPartition("orders", number) for number in range(3))
OFFSETS = st.dictionaries(st.sampled_from((A, B, C)), st.integers(0, 1 << 40))
SAMPLES = st.lists(st.tuples(st.sets(st.sampled_from((A, B, C))), OFFSETS, OFFSETS), max_size=20)


@given(st.integers(2, 6), SAMPLES)
def test_a_ring_holds_the_newest_samples_of_the_partitions_there_are(
    capacity: int, samples: list[tuple[set[TopicPartition], dict[TopicPartition, int], dict[TopicPartition, int]]]
) -> None:
    series = OffsetSeries(capacity)
    for at, (wanted, committed, ends) in enumerate(samples):
        series.add(float(at), sorted(wanted), committed, ends)
    kept = list(enumerate(samples))[-capacity:]
    assert series.times().tolist() == [float(at) for at, _ in kept]
    for column, tp in enumerate(series.partitions):
        for row, (at, (wanted, committed, ends)) in enumerate(kept):
            later = all(tp in s[0] for s in samples[at:])  # it was never forgotten since
            known = tp in wanted and later
            assert series.committed()[row, column] == (committed.get(tp, UNKNOWN) if known else UNKNOWN)
            assert series.ends()[row, column] == (ends.get(tp, UNKNOWN) if known else UNKNOWN)


@given(st.integers(2, 6), st.integers(2, 6), st.integers(0, 12), st.integers(0, 12))
def test_a_ring_of_another_size_goes_on_with_the_newest_samples(before: int, after: int, first: int, more: int) -> None:
    series = OffsetSeries(before)
    for at in range(first):
        series.add(float(at), [A], {A: at}, {A: at + 1})
    series.resize(after)
    for at in range(first, first + more):
        series.add(float(at), [A], {A: at}, {A: at + 1})
    kept = list(range(first))[-before:][-after:] + list(range(first, first + more))
    assert series.times().tolist() == kept[-after:]
    if kept:
        assert series.committed()[:, 0].tolist() == kept[-after:]


def test_a_lag_is_unknown_where_an_offset_is_and_never_negative() -> None:
    committed, ends = np.array([[5, UNKNOWN, 3, 9]]), np.array([[9, 4, UNKNOWN, 7]])
    assert lags(committed, ends).tolist() == [[4, UNKNOWN, UNKNOWN, 0]]


def test_a_reset_and_an_unknown_offset_are_no_advance() -> None:
    offsets = np.array([[10, 50], [15, 0], [UNKNOWN, 7], [20, 9]])
    assert advance(offsets).tolist() == [5, 7, 2]

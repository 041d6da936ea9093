"""The bounds that keep the memory of the page flat, however many groups and partitions a cluster has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.monitoring.page.history.group import Limits


@pytest.mark.parametrize(
    ("partitions", "samples"),
    [(0, 720), (1, 720), (2777, 720), (2778, 360), (5555, 360), (5556, 180), (1_000_000, 2), (10**9, 2)],
)
def test_series_are_halved_until_the_offsets_of_all_partitions_fit(partitions: int, samples: int) -> None:
    assert Limits().samples_for(partitions) == samples


@pytest.mark.parametrize(
    ("partitions", "assignments"), [(0, 100), (40_000, 100), (40_001, 50), (80_000, 50), (80_001, 25), (10**9, 1)]
)
def test_timelines_are_halved_until_the_owners_of_all_partitions_fit(partitions: int, assignments: int) -> None:
    assert Limits().assignments_for(partitions) == assignments


@given(st.integers(1, 1000), st.integers(2, 100_000), st.integers(0, 2000))
def test_what_is_kept_fits_or_is_the_least_that_shows_a_change(samples: int, offsets: int, partitions: int) -> None:
    limits = Limits(samples=samples, offsets=offsets)
    kept = limits.samples_for(partitions)
    assert 1 <= kept <= samples
    assert kept <= 2 or 2 * kept * partitions <= offsets


@given(st.integers(0, 5000), st.integers(0, 5000))
def test_more_partitions_never_give_longer_series(one: int, other: int) -> None:
    limits = Limits(samples=64, assignments=16, offsets=10_000, owners=10_000)
    fewer, more = sorted((one, other))
    assert limits.samples_for(more) <= limits.samples_for(fewer)
    assert limits.assignments_for(more) <= limits.assignments_for(fewer)

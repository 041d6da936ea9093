"""Questions for the log: where partitions start, where logs end."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from streamgroup.cluster.requests import ListedOffset
from streamgroup.driver.starts import log_ends, offsets_of
from streamgroup.errors import ConfigError
from streamgroup.model import EARLIEST, LATEST, ConfiguredOffsets, TopicPartition
from streamgroup.options.types import Isolation, Subscription
from streamgroup.planning.starts import RangeBound
from tests.fakes.cluster import FakeCluster, logs_of

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))
COMMITTED = Isolation.READ_COMMITTED
NEVER = float("inf")


def test_a_spec_becomes_offsets_with_one_listing_for_what_only_the_log_knows() -> None:
    logs = logs_of([10, 20, 30])
    logs.starts, logs.stable = {P0: 3}, {P2: 25}
    spec = ConfiguredOffsets(LATEST, offsets={P0: EARLIEST, P1: 7, P2: LATEST})
    found = offsets_of(FakeCluster(logs), NEVER, spec, [P0, P1, P2], isolation=COMMITTED)  # type: ignore[arg-type]
    assert found == {P0: 3, P1: 7, P2: 25}
    assert logs.listings == [(EARLIEST, (P0,)), (LATEST, (P2,))]


def test_offsets_that_are_given_ask_nobody() -> None:
    logs = logs_of([10])
    spec = ConfiguredOffsets(LATEST, offsets={P0: 4})
    assert offsets_of(FakeCluster(logs), NEVER, spec, [P0], isolation=COMMITTED) == {P0: 4}  # type: ignore[arg-type]
    assert logs.listings == []


def test_the_ends_are_those_of_all_partitions_as_far_as_they_may_be_read() -> None:
    logs = logs_of([10, 20])
    logs.stable = {P1: 15}
    ends = log_ends(FakeCluster(logs), NEVER, Subscription(topics=("t",)), COMMITTED)  # type: ignore[arg-type]
    assert ends == {P0: 10, P1: 15}


class OfSegments(FakeCluster):
    """Brokers before 0.10.1."""

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float
    ) -> dict[TopicPartition, ListedOffset]:
        return {tp: ListedOffset(3, coarse=True) for tp in wanted}


def test_where_brokers_know_the_times_of_segments_only_a_start_is_early_and_an_end_is_refused() -> None:
    cluster, tp = OfSegments(logs_of([10])), TopicPartition("t", 0)
    spec = ConfiguredOffsets(LATEST, timestamp=1_000)
    assert offsets_of(cluster, 0.0, spec, [tp], isolation=Isolation.READ_UNCOMMITTED) == {tp: 3}
    with pytest.raises(ConfigError, match=r"ending timestamp for t-0: brokers before 0\.10\.1 .*Use endingOffsets"):
        offsets_of(cluster, 0.0, spec, [tp], isolation=Isolation.READ_UNCOMMITTED, bound=RangeBound.BATCH_END)

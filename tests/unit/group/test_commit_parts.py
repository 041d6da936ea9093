"""One commit in several requests: how large they are, and what happens when the broker takes less."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from streamgroup.group.commit_metadata import CommitMetadata
from streamgroup.group.commit_parts import DOUBTFUL_BYTES, PART_BYTES, Offsets, PartSize
from streamgroup.model import CommittedOffset, TopicPartition
from tests.fakes.offsets import batch_bytes

MAX_MESSAGE_BYTES = 1_048_588
"""The default of brokers and topics."""
OURS = CommitMetadata(*("0123456789abcdef",) * 2, 2**40, 2**40, 2**31 - 1, "a" * 36, 2**40).text()


def offsets(partitions: int, topic: str = "orders", metadata: str = OURS) -> Offsets:
    return {TopicPartition(topic, n): CommittedOffset(2**60, metadata, 7) for n in range(partitions)}


def joined(parts: tuple[Offsets, ...]) -> Offsets:
    return {tp: offset for part in parts for tp, offset in part.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("group", "topic"), [("g", "t"), ("etl", "orders"), ("g" * 200, "t" * 249), ("Gruppe-ä", "t")])
@pytest.mark.parametrize("metadata", ["", OURS, "x" * 4096])
def test_every_part_fits_into_a_record_batch_of_the_default_size(group: str, topic: str, metadata: str) -> None:
    wanted = offsets(20_000 if len(metadata) < 4096 else 2_000, topic, metadata)
    size = PartSize(group)
    parts = size.split(wanted)
    assert joined(parts) == wanted
    assert all(batch_bytes(group, part) <= size.bytes_of(part) + 61 <= MAX_MESSAGE_BYTES for part in parts)
    assert len(parts) <= 2 * size.bytes_of(wanted) / PART_BYTES + 1, "no more requests than it takes"


def test_a_share_of_a_common_size_is_one_request() -> None:
    assert len(PartSize("etl").split(offsets(1_500))) == 1


def test_nothing_is_nothing() -> None:
    assert PartSize("etl").split({}) == ()


def test_a_part_that_is_refused_for_its_size_is_halved_down_to_one_partition() -> None:
    size = PartSize("etl")
    part = offsets(1_000)
    seen = [len(part)]
    while size.shrink(part, certain=True):
        assert joined(size.split(part)) == part
        part = size.split(part)[0]
        seen.append(len(part))
    assert seen[-1] == 1
    assert all(after <= before // 2 + 1 for before, after in pairwise(seen))
    assert len(size.split(offsets(10))) == 10


def test_a_failure_that_may_mean_anything_makes_only_large_requests_smaller() -> None:
    size = PartSize("etl")
    assert not size.shrink(offsets(2), certain=False)
    assert size.most == PART_BYTES
    large = offsets(1_000)
    assert size.bytes_of(large) > DOUBTFUL_BYTES
    assert size.shrink(large, certain=False)
    assert size.most == size.bytes_of(large) // 2


@pytest.mark.slow
def test_a_hundred_thousand_partitions_are_divided_in_linear_time() -> None:
    began = time.process_time()
    parts = PartSize("etl").split(offsets(100_000))
    assert time.process_time() - began < 5
    assert sum(map(len, parts)) == 100_000

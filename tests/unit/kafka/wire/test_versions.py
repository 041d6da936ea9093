from __future__ import annotations

import pytest

from streamgroup.errors import UnsupportedVersionError
from streamgroup.kafka.wire.messages.cluster import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from streamgroup.kafka.wire.messages.log import FetchRequest
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest
from streamgroup.kafka.wire.versions import BrokerVersions


def broker(**ranges: tuple[int, int]) -> BrokerVersions:
    keys = {"fetch": 1, "metadata": 3, "commit": 8}
    rows = tuple(ApiVersion(api_key=keys[k], min_version=r[0], max_version=r[1]) for k, r in ranges.items())
    return BrokerVersions.of(ApiVersionsResponse(api_keys=rows), "b:9092")


@pytest.mark.parametrize(("level", "is_on"), [(None, False), (0, False), (1, True)])
def test_the_consumer_protocol_is_a_feature_of_the_cluster(level: int | None, is_on: bool) -> None:
    others = [FinalizedFeatureKey(name="metadata.version", max_version_level=27)]
    mine = [] if level is None else [FinalizedFeatureKey(name="group.version", max_version_level=level)]
    versions = BrokerVersions.of(ApiVersionsResponse(finalized_features=(*others, *mine)), "b:9092")
    assert versions.has_consumer_protocol is is_on


@pytest.mark.parametrize(
    ("theirs", "ceiling", "highest"),
    [
        ((0, 5), None, 5),
        ((4, 18), None, 18),
        ((4, 30), None, 18),
        ((4, 18), 12, 12),
        ((0, 5), 12, 5),
        ((18, 25), None, 18),
    ],
)
def test_the_highest_common_version(theirs: tuple[int, int], ceiling: int | None, highest: int) -> None:
    assert broker(fetch=theirs).highest(FetchRequest, ceiling) == highest


@pytest.mark.parametrize(("theirs", "ceiling"), [((19, 21), None), ((13, 18), 12)])
def test_no_common_version_names_broker_api_and_both_ranges(theirs: tuple[int, int], ceiling: int | None) -> None:
    with pytest.raises(UnsupportedVersionError) as caught:
        broker(fetch=theirs).highest(FetchRequest, ceiling)
    for part in ("Fetch (API 1)", "b:9092", f"{theirs[0]} to {theirs[1]}", f"0 to {ceiling or 18}"):
        assert part in str(caught.value)


def test_a_version_with_topic_ids_is_not_used_even_if_the_broker_supports_it() -> None:
    assert broker(commit=(2, 10)).highest(OffsetCommitRequest) == 9

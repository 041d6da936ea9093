from __future__ import annotations

from typing import Any

import pytest

from streamgroup.errors import DecodeError
from streamgroup.kafka.wire.messages import offsets
from streamgroup.kafka.wire.messages.offsets import CommittedPartition, fetched_offsets, offset_fetch_request
from streamgroup.kafka.wire.schema import decode, encode
from streamgroup.model import CommittedOffset, TopicPartition

A1, A0, B0 = TopicPartition("a", 1), TopicPartition("a", 0), TopicPartition("b", 0)


def answer(version: int, group_error: int = 0) -> offsets.OffsetFetchResponse:
    rows = (("a", ((0, 7, "m", 0), (1, -1, "", 0))), ("b", ((0, -1, None, 29),)))
    is_old = version < 8
    row = offsets.OffsetFetchResponsePartition if is_old else offsets.OffsetFetchResponsePartitions
    topic = offsets.OffsetFetchResponseTopic if is_old else offsets.OffsetFetchResponseTopics
    topics: Any = tuple(
        topic(
            name=name,
            partitions=tuple(
                row(partition_index=p, committed_offset=o, metadata=m, error_code=e) for p, o, m, e in partitions
            ),
        )
        for name, partitions in rows
    )
    if is_old:
        return offsets.OffsetFetchResponse(error_code=group_error, topics=topics)
    group = offsets.OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=group_error)
    return offsets.OffsetFetchResponse(groups=(offsets.OffsetFetchResponseGroup(group_id="other"), group))


@pytest.mark.parametrize("version", range(10))
def test_every_version_is_asked_for_the_same_partitions(version: int) -> None:
    request = offset_fetch_request(version, "g", [B0, A1, A0])
    read = decode(type(request), encode(request, version), version)
    if version < 8:
        assert read.group_id == "g"
        asked = [(t.name, t.partition_indexes) for t in read.topics or ()]
    else:
        (group,) = read.groups
        assert group.group_id == "g"
        asked = [(t.name, t.partition_indexes) for t in group.topics or ()]
    assert asked == [("a", (0, 1)), ("b", (0,))]
    assert read.require_stable is (version >= 7)


@pytest.mark.parametrize("version", range(2, 10))
def test_all_partitions_of_the_group_are_asked_for_with_none(version: int) -> None:
    request = offset_fetch_request(version, "g", None)
    read = decode(type(request), encode(request, version), version)
    assert (read.topics if version < 8 else read.groups[0].topics) is None


def test_no_partitions_are_not_all_partitions() -> None:
    assert offset_fetch_request(7, "g", []).topics == ()
    assert offset_fetch_request(9, "g", []).groups[0].topics == ()


@pytest.mark.parametrize("version", [0, 1])
def test_the_oldest_versions_ask_for_what_is_known_in_place_of_all(version: int) -> None:
    request = offset_fetch_request(version, "g", None, known=(B0, A0, A1))
    assert decode(offsets.OffsetFetchRequest, encode(request, version), version) == request
    assert request.topics is not None
    assert [(t.name, t.partition_indexes) for t in request.topics] == [("a", (0, 1)), ("b", (0,))]
    assert offset_fetch_request(2, "g", None, known=(B0,)).topics is None


@pytest.mark.parametrize("version", range(10))
def test_every_version_answers_the_same(version: int) -> None:
    response = decode(offsets.OffsetFetchResponse, encode(answer(version), version), version)
    found = fetched_offsets(response, version, "g")
    assert found.error_code == 0
    assert found.partitions == {
        A0: CommittedPartition(0, CommittedOffset(7, "m" if version else offsets.NO_METADATA)),
        A1: CommittedPartition(0, None),
        B0: CommittedPartition(29, None),
    }


@pytest.mark.parametrize("version", range(2, 10))
def test_the_error_of_the_whole_group(version: int) -> None:
    assert fetched_offsets(answer(version, group_error=16), version, "g").error_code == 16


def test_zookeepers_unknown_partition_is_one_without_a_commit() -> None:
    row = offsets.OffsetFetchResponsePartition(partition_index=0, committed_offset=-1, metadata="", error_code=3)
    response = offsets.OffsetFetchResponse(topics=(offsets.OffsetFetchResponseTopic(name="a", partitions=(row,)),))
    assert fetched_offsets(response, 0, "g").partitions == {A0: CommittedPartition(0, None)}
    assert fetched_offsets(response, 1, "g").partitions == {A0: CommittedPartition(3, None)}


def test_an_answer_about_another_group_is_an_error() -> None:
    with pytest.raises(DecodeError, match="group 'mine' is missing"):
        fetched_offsets(answer(8), 8, "mine")

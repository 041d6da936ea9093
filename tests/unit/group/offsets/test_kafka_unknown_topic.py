"""Whether a broker that calls a partition unknown in OffsetFetch v0 knows its topic at all."""

from __future__ import annotations

import pytest

from streamgroup.group.offsets.kafka import UnknownTopicCheck, all_topics
from streamgroup.kafka.wire.messages.cluster import MetadataRequest, MetadataResponse, MetadataResponseTopic
from streamgroup.kafka.wire.schema import decode, encode


def told(*names: str, error: int = 0) -> MetadataResponse:
    return MetadataResponse(topics=tuple(MetadataResponseTopic(name=name, error_code=error) for name in names))


def test_nothing_is_believed_before_the_broker_has_reported_its_topics_and_after_the_connection() -> None:
    check = UnknownTopicCheck()
    assert check.knows(()), "nothing is missing"
    assert not check.knows({"t"})
    check.learn(told("t", "u"))
    assert check.knows({"t"})
    assert not check.knows({"t", "v"})
    check.reset()
    assert not check.has_topics
    assert not check.knows({"t"})


def test_a_topic_that_is_only_coming_up_is_not_known() -> None:
    check = UnknownTopicCheck()
    check.learn(told("t", error=5))
    assert check.has_topics
    assert not check.knows({"t"})


@pytest.mark.parametrize("version", [0, 1, 5])
def test_all_topics_are_asked_for_in_every_version(version: int) -> None:
    asked = decode(MetadataRequest, encode(all_topics(version), version), version)
    assert asked.topics == (() if version == 0 else None)

"""Every API in every version that a real broker and we have in common."""

from __future__ import annotations

import pytest

from streamgroup.kafka.wire.frames import decode_response
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest
from streamgroup.kafka.wire.schema import encode
from streamgroup.testing import KafkaServer
from tests.live.wire_conversation import converse
from tests.servers import each_of
from tests.unit.kafka.wire.declared import REQUESTS, lowest

pytestmark = pytest.mark.live


kafka = each_of("kafka39", "kafka41")


def test_every_version_is_understood_by_the_broker_and_by_us(kafka: KafkaServer) -> None:
    talk = converse(kafka)
    for cls in REQUESTS:
        for version in range(lowest(cls, talk.versions), talk.versions.highest(cls) + 1):
            answer = talk.exchanges[cls.NAME, version].response
            _, response = decode_response(cls, version, answer)
            header = 5 if cls.is_flexible(version) and cls is not ApiVersionsRequest else 4
            assert encode(response, version) == answer[header:], (cls.NAME, version)

"""Every API in every version that a real broker and we have in common."""

from __future__ import annotations

import pytest

from streamgroup.testing import KafkaServer
from tests.live.wire_conversation import converse, require_understood
from tests.servers import each_of

pytestmark = pytest.mark.live


kafka = each_of("kafka39", "kafka4")


def test_every_version_is_understood_by_the_broker_and_by_us(kafka: KafkaServer) -> None:
    require_understood(converse(kafka))

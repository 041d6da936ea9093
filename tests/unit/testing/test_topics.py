from __future__ import annotations

import pytest

from streamgroup.errors import ConfigError
from streamgroup.testing import KafkaServer, create_topic
from streamgroup.testing.topics import spread


def test_leaders_and_replicas_go_round() -> None:
    assert spread([0, 1, 2], 4, 2) == [[0, 1], [1, 2], [2, 0], [0, 1]]
    assert spread([5], 2, 1) == [[5], [5]]


@pytest.mark.parametrize("version", ["0.8.2.2", "4.1.1"])
def test_a_server_that_was_not_started_says_so(version: str) -> None:
    with pytest.raises(ConfigError, match="is not started"):
        create_topic(KafkaServer(version), "t")

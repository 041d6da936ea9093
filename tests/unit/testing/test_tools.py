from __future__ import annotations

import pytest

from streamgroup.errors import ConfigError
from streamgroup.testing import java_tool


def test_an_emulated_kafka_has_no_tools() -> None:
    with pytest.raises(ConfigError, match=r"no jars of Kafka 0\.7"):
        java_tool("0.7", "kafka.tools.ConsoleConsumer")

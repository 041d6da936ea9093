from __future__ import annotations

from pathlib import Path

from streamgroup.testing.kafka07 import BrokerServer
from tests.kafka07_replay import LEFT_OUT, PROPERTIES, replay
from tests.kafka07_samples import samples
from tests.unit.testing.kafka07.brokers import config


def test_every_captured_sample_is_answered_byte_by_byte(tmp_path: Path) -> None:
    with BrokerServer(config(tmp_path, **PROPERTIES)) as broker:
        assert replay(broker.address) == []


def test_the_produces_before_a_sample_belong_to_one_sample(tmp_path: Path) -> None:
    assert LEFT_OUT.keys() <= {sample.name for sample in samples()}

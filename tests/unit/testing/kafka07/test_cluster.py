"""A cluster of emulated 0.7 brokers checks its configuration before it starts anything."""

from __future__ import annotations

import pytest

from streamgroup.errors import ConfigError
from streamgroup.testing.kafka07 import Kafka07Server


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"config": {"zk.connect": "elsewhere:2181"}}, r"zk\.connect"),
        ({"broker_configs": {0: {"log.dir": "/"}}}, r"log\.dir"),
        ({"config": {"log.flush.intervals": 1}}, r"invalid config: unsupported property log\.flush\.intervals"),
        ({"broker_configs": {0: {"num.partitions": -1}}}, r"invalid config: invalid num\.partitions=-1"),
        ({"broker_configs": {2: {"num.partitions": 1}}}, r"unknown broker 2, the brokers are 0 to 0"),
        ({"brokers": 0}, "at least one"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_before_anything_starts(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Kafka07Server(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["log_dir", "registered"])
def test_a_cluster_that_was_not_started_says_so(name: str) -> None:
    kafka = Kafka07Server(2, {"log.retention.hours": 0.5}, broker_configs={1: {"num.partitions": 2}})
    with pytest.raises(ConfigError, match="is not started"):
        kafka.log_dir(0) if name == "log_dir" else kafka.registered()


def test_a_broker_that_the_cluster_does_not_have_is_named_with_those_that_it_has() -> None:
    with pytest.raises(ConfigError, match=r"unknown broker -1, the brokers are 0 to 2"):
        Kafka07Server(3, broker_configs={0: {}, -1: {}, 7: {}})


def test_a_value_of_one_broker_is_checked_together_with_those_of_all() -> None:
    """The configuration of all brokers is valid by itself, and so is the cluster without the second broker."""
    with pytest.raises(ConfigError, match=r"invalid config: invalid log\.retention\.hours=soon"):
        Kafka07Server(2, {"num.partitions": 3}, broker_configs={0: {}, 1: {"log.retention.hours": "soon"}})

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from streamgroup.errors import ConfigError
from streamgroup.testing.kafka07 import BrokerConfig, Kafka07Server, broker_config
from streamgroup.testing.kafka07.__main__ import main
from streamgroup.testing.kafka07.config import read_properties

LEAST = {"brokerid": "3", "log.dir": "/data", "zk.connect": "zk:2181/kafka"}


def test_the_defaults_are_kafkas() -> None:
    assert broker_config(LEAST) == BrokerConfig(
        broker_id=3,
        log_dir=Path("/data"),
        port=6667,
        host="127.0.0.1",
        num_partitions=1,
        max_message_size=1_000_000,
        max_request_bytes=104_857_600,
        log_file_size=1 << 30,
        flush_interval=500,
        flush_interval_ms=3_000,
        flush_scheduler_ms=3_000,
        retention_ms=7 * 24 * 3_600_000,
        retention_bytes=-1,
        cleanup_interval_ms=600_000,
        use_zookeeper=True,
        zookeeper="zk:2181/kafka",
        session_timeout_ms=6_000,
        connection_timeout_ms=6_000,
    )


ALL = {
    "port": ("9092", {"port": 9092}),
    "hostname": ("kafka1", {"host": "kafka1"}),
    "advertised.port": ("1", {"advertised_port": 1}),
    "num.partitions": ("4", {"num_partitions": 4}),
    "topic.partition.count.map": ("a:2, b:c:3", {"topic_partitions": {"a": 2, "b:c": 3}}),
    "max.message.size": ("10", {"max_message_size": 10}),
    "max.socket.request.bytes": ("100", {"max_request_bytes": 100}),
    "log.file.size": ("200", {"log_file_size": 200}),
    "log.flush.interval": ("1", {"flush_interval": 1}),
    "log.default.flush.interval.ms": ("5", {"flush_interval_ms": 5.0}),
    "topic.flush.intervals.ms": ("a:7", {"topic_flush_intervals_ms": {"a": 7.0}}),
    "log.default.flush.scheduler.interval.ms": ("9", {"flush_scheduler_ms": 9.0, "flush_interval_ms": 9.0}),
    "log.retention.hours": ("0.5", {"retention_ms": 1_800_000.0}),
    "topic.log.retention.hours": ("a:2", {"topic_retention_ms": {"a": 7_200_000.0}}),
    "log.retention.size": ("1000", {"retention_bytes": 1000}),
    "log.cleanup.interval.mins": ("2", {"cleanup_interval_ms": 120_000.0}),
    "enable.zookeeper": ("false", {"use_zookeeper": False}),
    "zk.connect": ("a:1,b:2", {"zookeeper": "a:1,b:2"}),
    "zk.sessiontimeout.ms": ("400", {"session_timeout_ms": 400.0}),
    "zk.connectiontimeout.ms": ("500", {"connection_timeout_ms": 500.0}),
}


@pytest.mark.parametrize("name", ALL)
def test_each_property_sets_what_it_says(name: str) -> None:
    text, values = ALL[name]
    assert broker_config({**LEAST, name: text}) == dataclasses.replace(broker_config(LEAST), **values)  # type: ignore[arg-type]


def test_partitions_are_those_of_the_topic_or_of_all() -> None:
    config = broker_config({**LEAST, "num.partitions": "3", "topic.partition.count.map": "wide:8"})
    assert (config.partitions_of("wide"), config.partitions_of("other")) == (8, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num.partition": "1"}, "unsupported property num.partition: the emulated"),
        ({"port": "ninety"}, "port=ninety"),
        ({"num.partitions": "0"}, "num.partitions=0: the minimum is 1"),
        ({"enable.zookeeper": "yes"}, "true or false"),
        ({"topic.partition.count.map": "a:b"}, "topic.partition.count.map=a:b"),
        ({"zk.connect": ""}, r"missing property zk\.connect"),
    ],
)
def test_an_invalid_configuration_is_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        broker_config({**LEAST, **change})


def test_a_missing_property_is_named() -> None:
    for name in ("brokerid", "log.dir"):
        with pytest.raises(ConfigError, match=f"missing property {name}"):
            broker_config({key: value for key, value in LEAST.items() if key != name})


def test_properties_are_lines() -> None:
    assert read_properties("# comment\n\na=b\n  c.d = e=f \nx=a\\\\b\n") == {"a": "b", "c.d": "e=f", "x": "a\\b"}
    with pytest.raises(ConfigError, match="invalid line 2: expected name=value"):
        read_properties("a=b\nnonsense\n")


def test_a_process_without_its_file_tells_how_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: python -m streamgroup.testing.kafka07" in capsys.readouterr().err


# -- a cluster checks its configuration before it starts anything -----------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"config": {"zk.connect": "elsewhere:2181"}}, r"zk\.connect"),
        ({"broker_configs": {0: {"log.dir": "/"}}}, r"log\.dir"),
        ({"config": {"log.flush.intervals": 1}}, r"invalid config: unsupported property log\.flush\.intervals"),
        ({"broker_configs": {0: {"num.partitions": -1}}}, r"invalid config: invalid num\.partitions=-1"),
        ({"broker_configs": {2: {"num.partitions": 1}}}, r"unknown broker 2, the brokers are 0 to 0"),
        ({"brokers": 0}, "at least one"),
        ({"brokers": 3, "broker_configs": {0: {}, -1: {}, 7: {}}}, r"unknown broker -1, the brokers are 0 to 2"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_before_anything_starts(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Kafka07Server(**given)  # type: ignore[arg-type]


def test_a_cluster_that_was_not_started_says_so() -> None:
    kafka = Kafka07Server(2, {"log.retention.hours": 0.5}, broker_configs={1: {"num.partitions": 2}})
    for ask in (lambda: kafka.log_dir(0), kafka.registered):
        with pytest.raises(ConfigError, match="is not started"):
            ask()


def test_a_value_of_one_broker_is_checked_together_with_those_of_all() -> None:
    """The configuration of all brokers is valid by itself, and so is the cluster without the second broker."""
    with pytest.raises(ConfigError, match=r"invalid config: invalid log\.retention\.hours=soon"):
        Kafka07Server(2, {"num.partitions": 3}, broker_configs={0: {}, 1: {"log.retention.hours": "soon"}})

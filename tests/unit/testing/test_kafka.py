"""A KafkaServer without starting one; tests/live/test_servers.py starts them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamgroup.errors import ConfigError
from streamgroup.testing import KafkaServer, ZooKeeperServer, kafka
from streamgroup.testing.releases import DEFAULT_VERSION, RELEASES
from streamgroup.testing.zookeeper import configuration


def test_an_unknown_version_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"unsupported Kafka 2\.0\.0: available are 0\.7.*3\.9\.1.*4\.1\.1"):
        KafkaServer("2.0.0")


def test_a_zookeeper_for_brokers_that_know_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"zookeeper=127\.0\.0\.1:2181: Kafka 4\.1\.1 runs in KRaft mode"):
        KafkaServer("4.1.1", zookeeper="127.0.0.1:2181")
    with pytest.raises(ConfigError, match="zookeeper_port=2181: Kafka 4"):
        KafkaServer("4.1.1", zookeeper_port=2181)


def test_a_port_is_for_a_zookeeper_that_is_started() -> None:
    with pytest.raises(ConfigError, match=r"zookeeper=zk1:2181 with zookeeper_port=2181"):
        KafkaServer("0.8.2.2", zookeeper="zk1:2181", zookeeper_port=2181)


def test_a_zookeeper_of_an_unknown_version_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unsupported ZooKeeper 3\.4\.6: available are 3\.3\.6"):
        ZooKeeperServer(version="3.4.6")


def test_no_brokers_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least one"):
        KafkaServer(brokers=0)


def test_racks_are_for_all_brokers_or_none() -> None:
    with pytest.raises(ConfigError, match="expected one for each of 2 brokers"):
        KafkaServer(brokers=2, racks=("a",))


def test_the_default_version_can_be_started() -> None:
    assert DEFAULT_VERSION in RELEASES


def test_proxies_cannot_outlive_the_process_that_they_are_threads_of() -> None:
    with pytest.raises(ConfigError, match="proxied=True with detached=True"):
        KafkaServer(proxied=True, detached=True)


@pytest.mark.parametrize(
    "name", ["bootstrap_servers", "direct_servers", "controller", "data_dir", "zookeeper", "zookeeper_connect"]
)
def test_a_server_that_was_not_started_says_so(name: str) -> None:
    with pytest.raises(ConfigError, match="is not started"):
        getattr(KafkaServer(), name)


def test_a_zookeeper_that_was_not_started_says_so_and_can_be_stopped() -> None:
    server = ZooKeeperServer()
    with pytest.raises(ConfigError, match="is not started"):
        server.kill()
    server.stop()
    assert not server.alive


def test_a_data_directory_of_another_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "kafka_classpath", lambda _: ())
    monkeypatch.setattr("streamgroup.testing.kraft.bootstrap_checkpoint", lambda *_: tmp_path / "none")
    (tmp_path / "streamgroup.json").write_text(json.dumps({"cluster_id": "x", "brokers": 3}))
    with pytest.raises(ConfigError, match="its cluster has 3"):
        KafkaServer(data_dir=tmp_path).start()


def test_zookeeper_listens_on_the_loopback_without_its_admin_server() -> None:
    values = configuration(Path("/data"), 2181, 200)
    assert values["clientPortAddress"] == "127.0.0.1"
    assert values["admin.enableServer"] == "false"
    assert values["tickTime"] == "200"

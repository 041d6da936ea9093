from __future__ import annotations

from pathlib import Path

import pytest

from streamgroup.errors import ConfigError
from streamgroup.testing import KafkaServer, kraft

DATA = Path("/data")


def test_one_broker_is_its_own_controller() -> None:
    (node,) = kraft.plan_nodes([9092], 9093)
    values = kraft.properties(node, [node], DATA, {})
    assert values["process.roles"] == "broker,controller"
    assert values["controller.quorum.voters"] == "0@127.0.0.1:9093"
    assert values["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert values["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092"
    assert values["offsets.topic.replication.factor"] == "1"


def test_several_brokers_have_their_controller_apart_so_that_each_of_them_may_die() -> None:
    nodes = kraft.plan_nodes([1, 2, 3, 4], 9)
    written = [kraft.properties(node, nodes, DATA, {}) for node in nodes]
    assert [values["process.roles"] for values in written] == ["controller", *["broker"] * 4]
    assert [values["node.id"] for values in written] == ["1000", "0", "1", "2", "3"]
    assert {values["controller.quorum.voters"] for values in written} == {"1000@127.0.0.1:9"}
    assert {values["transaction.state.log.replication.factor"] for values in written} == {"3"}
    assert "advertised.listeners" not in written[0]
    assert [node.name for node in nodes[:2]] == ["controller", "broker-0"]


def test_brokers_behind_proxies_advertise_those_and_talk_among_themselves_past_them() -> None:
    nodes = kraft.plan_nodes([1, 2], 9, advertised=[11, 12], internal=[21, 22])
    values = kraft.properties(nodes[2], nodes, DATA, {})
    assert values["listeners"] == "PLAINTEXT://127.0.0.1:2,INTERNAL://127.0.0.1:22"
    assert values["advertised.listeners"] == "PLAINTEXT://127.0.0.1:12,INTERNAL://127.0.0.1:22"
    assert values["inter.broker.listener.name"] == "INTERNAL"
    (single,) = kraft.plan_nodes([1], 9, advertised=[11], internal=[21])
    assert kraft.properties(single, [single], DATA, {})["listeners"].endswith(",CONTROLLER://127.0.0.1:9")


def test_config_overrides_the_defaults() -> None:
    (node,) = kraft.plan_nodes([9092], 9093)
    values = kraft.properties(node, [node], DATA, {"num.partitions": "7", "log.retention.ms": "1"})
    assert (values["num.partitions"], values["log.retention.ms"]) == ("7", "1")


def test_records_with_old_timestamps_are_kept() -> None:
    """A broker that deleted them lost the records of a test which wrote timestamps of 2023."""
    assert kraft.defaults(1)["log.retention.hours"] == "-1"


@pytest.mark.parametrize("key", sorted(kraft.RESERVED))
def test_reserved_properties_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        KafkaServer(config={key: "x"})


def test_ids_are_those_that_kafka_accepts() -> None:
    ids = {kraft.random_id() for _ in range(500)}
    assert len(ids) == 500
    assert all(len(each) == 22 and not each.startswith("-") for each in ids)


def test_a_node_is_formatted_once(tmp_path: Path) -> None:
    (node,) = kraft.plan_nodes([9092], 9093)
    bootstrap = tmp_path / "made-by-kafka"
    bootstrap.write_bytes(b"features")
    kraft.format_node(node, tmp_path / "data", "cluster", bootstrap)
    meta = tmp_path / "data" / "meta.properties"
    first = meta.read_text()
    assert first.startswith("version=1\ncluster.id=cluster\nnode.id=0\ndirectory.id=")
    assert (tmp_path / "data" / "bootstrap.checkpoint").read_bytes() == b"features"
    kraft.format_node(node, tmp_path / "data", "another", bootstrap)
    assert meta.read_text() == first

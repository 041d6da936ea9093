"""How brokers that register in ZooKeeper are told their places; tests/live/test_servers.py starts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroup.errors import ConfigError
from streamgroup.testing import KafkaServer
from streamgroup.testing.node import NodePlan
from streamgroup.testing.releases import RELEASES, Listeners, Quorum, release_of
from streamgroup.testing.zookeeper_mode import RESERVED, ZooKeeperMode, defaults, places

HOME = Path("/home")
REGISTERED = [release.version for release in RELEASES.values() if release.quorum is Quorum.ZOOKEEPER]


def mode(version: str, brokers: int = 1) -> ZooKeeperMode:
    return ZooKeeperMode(
        release_of(version), brokers, zookeeper="127.0.0.1:2181/k", detached=False, start_timeout_s=1.0
    )


def test_a_broker_of_0_8_has_host_and_port_and_advertises_its_proxy() -> None:
    assert places(NodePlan(0, 9092, advertised_port=9), Listeners.HOST_AND_PORT) == {
        "host.name": "127.0.0.1",
        "port": "9092",
        "advertised.host.name": "127.0.0.1",
        "advertised.port": "9",
    }


def test_a_broker_of_0_9_has_one_listener_for_all() -> None:
    assert places(NodePlan(0, 9092, advertised_port=9), Listeners.ONE) == {
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:9",
    }


def test_later_brokers_meet_past_their_proxies() -> None:
    values = places(NodePlan(0, 9092, advertised_port=9, internal_port=5), Listeners.NAMED)
    assert values["listeners"] == "PLAINTEXT://127.0.0.1:9092,INTERNAL://127.0.0.1:5"
    assert values["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9,INTERNAL://127.0.0.1:5"
    assert values["inter.broker.listener.name"] == "INTERNAL"


@pytest.mark.parametrize(("version", "apart"), [("0.8.2.2", 0), ("0.9.0.1", 0), ("0.10.2.2", 2), ("1.1.1", 2)])
def test_only_brokers_that_can_have_two_listeners_get_two_ports(version: str, apart: int) -> None:
    plans = mode(version, 2).plan(20_000, [1, 2])
    assert [(plan.node_id, plan.port, plan.advertised_port) for plan in plans] == [(0, 20_000, 1), (1, 20_001, 2)]
    assert sum(plan.internal_port is not None for plan in plans) == apart


@pytest.mark.parametrize(
    ("version", "names"),
    [("0.7", ("brokerid", "log.dir", "zk.connect")), ("0.8.2.2", ("broker.id", "log.dirs", "zookeeper.connect"))],
)
def test_config_overrides_the_defaults_and_not_the_place(version: str, names: tuple[str, ...]) -> None:
    node = NodePlan(3, 9092)
    values = mode(version).properties(node, [node], HOME, {"num.partitions": "7", names[2]: "elsewhere"})
    assert values["num.partitions"] == "7"
    assert tuple(values[name] for name in names) == ("3", "/home/data", "127.0.0.1:2181/k")


def test_a_request_has_only_the_fields_of_its_version() -> None:
    known = {version: defaults(release_of(version), 3) for version in REGISTERED}
    with_groups = [version for version in REGISTERED if "group.min.session.timeout.ms" in known[version]]
    with_transactions = [version for version in REGISTERED if "transaction.state.log.min.isr" in known[version]]
    assert with_groups == ["0.9.0.1", "0.10.2.2", "1.1.1"]
    assert with_transactions == ["1.1.1"]
    assert known["1.1.1"]["transaction.state.log.replication.factor"] == "3"
    keeping = [version for version in REGISTERED if known[version].get("log.retention.hours") == "-1"]
    assert keeping == ["0.10.2.2", "1.1.1"], "older ones do not look at timestamps, and 0.8 refuses the value"
    assert known["0.8.2.2"]["offsets.topic.replication.factor"] == "3"
    assert not known["0.7"].keys() & known["0.8.2.2"].keys()


@pytest.mark.parametrize("key", sorted(RESERVED))
def test_reserved_properties_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        KafkaServer("0.8.2.2", config={key: "x"})


def test_a_zookeeper_that_others_use_is_left_in_good_order() -> None:
    own = ZooKeeperMode(release_of("0.8.2.2"), 1, zookeeper=None, detached=False, start_timeout_s=1.0)
    assert (own.needs_clean_shutdown, mode("0.8.2.2").needs_clean_shutdown) == (False, True)

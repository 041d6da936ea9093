"""SCRAM credentials and ACLs of a test cluster in ZooKeeper mode: the nodes that brokers read, and when they did."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError

from streamgroup.errors import StreamGroupError
from streamgroup.testing.security import zookeeper_admin
from streamgroup.testing.security.acls import Acl, acl_of
from streamgroup.testing.security.scram import ScramCredential
from streamgroup.testing.security.settings import SaslMechanism
from streamgroup.testing.security.zookeeper_admin import create_acl, store_scram

SHA_256, SHA_512 = SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512
TAKEN = b"[2026-01-01 00:00:00,000] INFO Processing notification(s) to /kafka-acl-changes (kafka.common)\n"
ACL = acl_of("User:client", "READ", topic="orders")


class Nodes:
    """The methods of kazoo's client that these functions call, over nodes in memory, and the logs of brokers.

    A broker logs that it takes a notification, as often as `takes` says for its log.
    """

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.notifications: list[tuple[str, bytes]] = []
        self.takes: dict[Path, int] = {}

    def get(self, path: str) -> tuple[bytes, None]:
        if path not in self.values:
            raise NoNodeError
        return self.values[path], None

    def ensure_path(self, path: str) -> None:
        self.values.setdefault(path, b"")

    def set(self, path: str, value: bytes) -> None:
        if path not in self.values:
            raise NoNodeError
        self.values[path] = value

    def create(self, path: str, value: bytes, sequence: bool, makepath: bool) -> None:
        assert (sequence, makepath) == (True, True), "each notification has a name of its own"
        self.notifications.append((path, value))
        for log in self.takes:
            if self.takes[log] > 0:
                self.takes[log] -= 1
                log.write_bytes(log.read_bytes() + TAKEN)

    def value(self, path: str) -> Any:
        return json.loads(self.values[path])


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """The nodes at `zk:1`. A wait passes at once, and moves the clock on by seven seconds."""
    made, now = Nodes(), [0.0]

    def sleep(_: float) -> None:
        now[0] += 7.0

    monkeypatch.setattr(zookeeper_admin, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(zookeeper_admin, "zookeeper_client", {"zk:1": nullcontext(made)}.__getitem__)
    return made


def log(nodes: Nodes, path: Path, takes: int = 2, content: bytes = b"") -> Path:
    """The log of a broker that takes as many notifications from now on."""
    path.write_bytes(content)
    nodes.takes[path] = takes
    return path


def test_each_user_has_a_node_with_the_credentials_of_all_mechanisms(nodes: Nodes) -> None:
    credentials = [
        ScramCredential("a", SHA_256, b"s1", b"p1", 4096),
        ScramCredential("b", SHA_256, b"s2", b"p2", 4096),
        ScramCredential("a", SHA_512, b"s3", b"p3", 8192),
    ]
    store_scram("zk:1", credentials)
    assert sorted(nodes.values) == ["/config/users/a", "/config/users/b"]
    assert nodes.value("/config/users/a") == {
        "version": 1,
        "config": {"SCRAM-SHA-256": credentials[0].text(), "SCRAM-SHA-512": credentials[2].text()},
    }
    assert nodes.value("/config/users/b")["config"] == {"SCRAM-SHA-256": credentials[1].text()}
    assert nodes.notifications == [], "brokers that start later read the nodes"


def test_a_cluster_without_users_gets_no_node(nodes: Nodes) -> None:
    store_scram("zk:1", [])
    assert nodes.values == {}


@pytest.mark.parametrize(
    ("acl", "path", "entry"),
    [
        (ACL, "/kafka-acl/Topic/orders", ("User:client", "Allow", "Read", "*")),
        (acl_of("User:a", "ALL", group="g", allow=False), "/kafka-acl/Group/g", ("User:a", "Deny", "All", "*")),
        (
            acl_of("User:a", "CREATE", cluster=True),
            "/kafka-acl/Cluster/kafka-cluster",
            ("User:a", "Allow", "Create", "*"),
        ),
        (
            acl_of("User:a", "DESCRIBE", transactional_id="x"),
            "/kafka-acl/TransactionalId/x",
            ("User:a", "Allow", "Describe", "*"),
        ),
    ],
)
def test_an_acl_is_an_entry_of_the_node_of_its_resource(
    nodes: Nodes, acl: Acl, path: str, entry: tuple[str, ...]
) -> None:
    create_acl("zk:1", acl, [])
    names = ("principal", "permissionType", "operation", "host")
    assert nodes.value(path) == {"version": 1, "acls": [dict(zip(names, entry, strict=True))]}


def test_a_further_acl_keeps_those_of_the_resource(nodes: Nodes) -> None:
    create_acl("zk:1", ACL, [])
    create_acl("zk:1", acl_of("User:b", "WRITE", topic="orders"), [])
    create_acl("zk:1", acl_of("User:c", "READ", topic="audit"), [])
    acls = nodes.value("/kafka-acl/Topic/orders")["acls"]
    assert [(acl["principal"], acl["operation"]) for acl in acls] == [("User:client", "Read"), ("User:b", "Write")]
    assert len(nodes.value("/kafka-acl/Topic/audit")["acls"]) == 1


def test_brokers_are_notified_twice_of_the_resource(nodes: Nodes, tmp_path: Path) -> None:
    create_acl("zk:1", ACL, [log(nodes, tmp_path / "0.log"), log(nodes, tmp_path / "1.log")])
    # A broker that begins with the second notification has finished with the first one.
    assert nodes.notifications == [("/kafka-acl-changes/acl_changes_", b"Topic:orders")] * 2


@pytest.mark.parametrize("takes", [0, 1])
def test_a_broker_that_does_not_take_both_notifications_within_a_minute_is_named_by_its_log(
    nodes: Nodes, tmp_path: Path, takes: int
) -> None:
    logs = [log(nodes, tmp_path / "0.log"), log(nodes, tmp_path / "1.log", takes)]
    with pytest.raises(StreamGroupError) as caught:
        create_acl("zk:1", ACL, logs)
    assert str(caught.value) == f"a broker did not take {ACL} within 60 s. Look at its log, {logs[1]}"


def test_notifications_that_a_broker_took_before_do_not_count(nodes: Nodes, tmp_path: Path) -> None:
    earlier = log(nodes, tmp_path / "0.log", 0, TAKEN * 5)
    with pytest.raises(StreamGroupError, match="a broker did not take"):
        create_acl("zk:1", ACL, [earlier])
    nodes.takes[earlier] = 2
    create_acl("zk:1", ACL, [earlier])
    assert earlier.read_bytes().count(TAKEN) == 7

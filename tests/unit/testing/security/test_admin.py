"""SCRAM credentials and ACLs of a test cluster in ZooKeeper mode: the nodes that brokers read, and when they did."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from kazoo.exceptions import NoNodeError

from streamgroup.errors import StreamGroupError
from streamgroup.testing.security import admin
from streamgroup.testing.security.acls import Acl, acl_of
from streamgroup.testing.security.admin import CreateAclsRequest, CredentialInfo, create_acl_in_zookeeper, store_scram
from streamgroup.testing.security.scram import ScramCredential
from streamgroup.testing.security.settings import SaslMechanism
from tests.fakes.broker import CLOSE, FakeBroker

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


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait passes at once, and moves the clock on by seven seconds."""
    now = [0.0]

    def sleep(_: float) -> None:
        now[0] += 7.0

    monkeypatch.setattr(admin, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """The nodes at `zk:1`."""
    made = Nodes()
    monkeypatch.setattr(admin, "zookeeper_client", {"zk:1": nullcontext(made)}.__getitem__)
    return made


def log(nodes: Nodes, path: Path, takes: int = 2, content: bytes = b"") -> Path:
    """The log of a broker that takes as many notifications from now on."""
    path.write_bytes(content)
    nodes.takes[path] = takes
    return path


def test_each_user_has_a_node_with_the_credentials_of_all_mechanisms(nodes: Nodes) -> None:
    admin.store_scram_in_zookeeper("zk:1", [])
    assert nodes.values == {}
    credentials = [
        ScramCredential("a", SHA_256, b"s1", b"p1", 4096),
        ScramCredential("b", SHA_256, b"s2", b"p2", 4096),
        ScramCredential("a", SHA_512, b"s3", b"p3", 8192),
    ]
    admin.store_scram_in_zookeeper("zk:1", credentials)
    assert sorted(nodes.values) == ["/config/users/a", "/config/users/b"]
    assert nodes.value("/config/users/a") == {
        "version": 1,
        "config": {"SCRAM-SHA-256": credentials[0].text(), "SCRAM-SHA-512": credentials[2].text()},
    }
    assert nodes.value("/config/users/b")["config"] == {"SCRAM-SHA-256": credentials[1].text()}
    assert nodes.notifications == [], "brokers that start later read the nodes"


@pytest.mark.parametrize(
    ("acl", "path", "entry"),
    [
        (ACL, "Topic/orders", ("User:client", "Allow", "Read", "*")),
        (acl_of("User:a", "ALL", group="g", allow=False), "Group/g", ("User:a", "Deny", "All", "*")),
        (acl_of("User:a", "CREATE", cluster=True), "Cluster/kafka-cluster", ("User:a", "Allow", "Create", "*")),
        (acl_of("User:a", "DESCRIBE", transactional_id="x"), "TransactionalId/x", ("User:a", "Allow", "Describe", "*")),
    ],
)
def test_an_acl_is_an_entry_of_the_node_of_its_resource(
    nodes: Nodes, acl: Acl, path: str, entry: tuple[str, ...]
) -> None:
    create_acl_in_zookeeper("zk:1", acl, [])
    names = ("principal", "permissionType", "operation", "host")
    assert nodes.value(f"/kafka-acl/{path}") == {"version": 1, "acls": [dict(zip(names, entry, strict=True))]}


def test_a_further_acl_keeps_those_of_the_resource(nodes: Nodes) -> None:
    create_acl_in_zookeeper("zk:1", ACL, [])
    create_acl_in_zookeeper("zk:1", acl_of("User:b", "WRITE", topic="orders"), [])
    create_acl_in_zookeeper("zk:1", acl_of("User:c", "READ", topic="audit"), [])
    acls = nodes.value("/kafka-acl/Topic/orders")["acls"]
    assert [(acl["principal"], acl["operation"]) for acl in acls] == [("User:client", "Read"), ("User:b", "Write")]
    assert len(nodes.value("/kafka-acl/Topic/audit")["acls"]) == 1


def test_brokers_are_notified_twice_of_the_resource(nodes: Nodes, tmp_path: Path) -> None:
    create_acl_in_zookeeper("zk:1", ACL, [log(nodes, tmp_path / "0.log"), log(nodes, tmp_path / "1.log")])
    # A broker that begins with the second notification has finished with the first one.
    assert nodes.notifications == [("/kafka-acl-changes/acl_changes_", b"Topic:orders")] * 2


@pytest.mark.parametrize("takes", [0, 1])
def test_a_broker_that_does_not_take_both_notifications_within_a_minute_is_named_by_its_log(
    nodes: Nodes, tmp_path: Path, takes: int
) -> None:
    logs = [log(nodes, tmp_path / "0.log"), log(nodes, tmp_path / "1.log", takes)]
    with pytest.raises(StreamGroupError) as caught:
        create_acl_in_zookeeper("zk:1", ACL, logs)
    assert str(caught.value) == f"a broker did not take {ACL} within 60 s. Look at its log, {logs[1]}"


def test_notifications_that_a_broker_took_before_do_not_count(nodes: Nodes, tmp_path: Path) -> None:
    earlier = log(nodes, tmp_path / "0.log", 0, TAKEN * 5)
    with pytest.raises(StreamGroupError, match="a broker did not take"):
        create_acl_in_zookeeper("zk:1", ACL, [earlier])
    nodes.takes[earlier] = 2
    create_acl_in_zookeeper("zk:1", ACL, [earlier])
    assert earlier.read_bytes().count(TAKEN) == 7


def credential(user: str, mechanism: SaslMechanism, iterations: int = 8192) -> ScramCredential:
    return ScramCredential(user, mechanism, b"salt", b"salted password", iterations)


class Cluster:
    """Two brokers. The second one has credentials and ACLs after it was asked for them `behind` times."""

    def __init__(self) -> None:
        self.behind = 0
        self.keeps_the_older = False
        self.error: tuple[int, str | None] = (0, None)
        self.described_error = 0
        self.known: dict[str, tuple[CredentialInfo, ...]] = {}
        self.acls: list[Any] = []
        self.brokers = [FakeBroker(self._handlers(0)), FakeBroker(self._handlers(1))]
        self.ports = [broker.port for broker in self.brokers]

    def asked(self, broker: int, name: str) -> list[Any]:
        return self.brokers[broker].asked(name)

    def _handlers(self, broker: int) -> Any:
        return {
            admin.AlterUserScramCredentialsRequest: lambda request, _: self._alter(request),
            admin.DescribeUserScramCredentialsRequest: lambda *_: self._describe_scram(self._is_behind(broker)),
            CreateAclsRequest: lambda request, _: self._create(request),
            admin.DescribeAclsRequest: lambda request, _: self._describe_acls(request, self._is_behind(broker)),
        }

    def _is_behind(self, broker: int) -> bool:
        if broker and self.behind:
            self.behind -= 1
            return True
        return False

    def _alter(self, request: admin.AlterUserScramCredentialsRequest) -> Any:
        code, text = self.error
        for each in request.upsertions:
            info = CredentialInfo(mechanism=each.mechanism, iterations=each.iterations)
            if not self.keeps_the_older:
                self.known[each.name] = (*self.known.get(each.name, ()), info)
        users = [each.name for each in request.upsertions]
        results = (
            admin.AlterUserScramCredentialsResult(user=user, error_code=code, error_message=text) for user in users
        )
        return admin.AlterUserScramCredentialsResponse(results=tuple(results))

    def _describe_scram(self, is_behind: bool) -> Any:
        known = [] if is_behind else self.known.items()
        results = (admin.DescribeUserScramCredentialsResult(user=user, credential_infos=infos) for user, infos in known)
        return admin.DescribeUserScramCredentialsResponse(error_code=self.described_error, results=tuple(results))

    def _create(self, request: CreateAclsRequest) -> Any:
        code, text = self.error
        self.acls += request.creations
        return admin.CreateAclsResponse(results=(admin.AclCreationResult(error_code=code, error_message=text),))

    def _describe_acls(self, request: admin.DescribeAclsRequest, is_behind: bool) -> Any:
        wanted = (request.resource_name_filter, request.principal_filter)
        found = [each for each in self.acls if (each.resource_name, each.principal) == wanted]
        # Brokers may answer with the resource before it has the ACL.
        acls = () if is_behind else tuple(admin.AclDescription(principal=each.principal) for each in found)
        resource = admin.DescribeAclsResource(resource_name=str(request.resource_name_filter), acls=acls)
        return admin.DescribeAclsResponse(error_code=self.described_error, resources=(resource,))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    for broker in made.brokers:
        broker.stop()


def test_the_credentials_of_each_mechanism_are_in_a_request_of_their_own(cluster: Cluster) -> None:
    store_scram(cluster.ports, [credential("a", SHA_256), credential("a", SHA_512, 4096), credential("b", SHA_256)])
    requests = cluster.asked(0, "AlterUserScramCredentials")
    assert [[(u.name, u.mechanism, u.iterations) for u in request.upsertions] for request in requests] == [
        [("a", 1, 8192), ("b", 1, 8192)],
        [("a", 2, 4096)],
    ]
    first = requests[0].upsertions[0]
    assert (bytes(first.salt), bytes(first.salted_password)) == (b"salt", b"salted password")
    assert cluster.asked(1, "AlterUserScramCredentials") == [], "the first broker forwards them to the controller"


class Change(NamedTuple):
    """A change of a cluster, the request by which it is awaited, and its names in errors."""

    make: Callable[[list[int]], None]
    api: str
    failed: str
    described: str
    awaited: str


CHANGES = {
    "credentials": Change(
        lambda ports: store_scram(ports, [credential("a", SHA_512)]),
        "DescribeUserScramCredentials",
        "store SCRAM credentials of user a",
        "SCRAM credentials",
        "SCRAM credentials of the users",
    ),
    "acl": Change(
        lambda ports: admin.create_acl(ports, ACL),
        "DescribeAcls",
        "create the ACL ALLOW READ on TOPIC orders for User:client",
        "ACLs",
        "the ACL ALLOW READ on TOPIC orders for User:client",
    ),
}
both_changes = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)


@both_changes
def test_every_broker_is_asked_until_it_knows_what_was_stored(cluster: Cluster, change: Change) -> None:
    cluster.behind = 3
    change.make(cluster.ports)
    assert (len(cluster.asked(0, change.api)), len(cluster.asked(1, change.api))) == (1, 4)


def test_a_broker_that_knows_one_credential_and_an_older_one_of_another_user_is_behind(cluster: Cluster) -> None:
    cluster.known = {user: (CredentialInfo(mechanism=1, iterations=4096),) for user in ("a", "b")}
    cluster.keeps_the_older = True
    with pytest.raises(StreamGroupError, match="does not have SCRAM credentials"):
        store_scram(cluster.ports, [credential("a", SHA_256, 4096), credential("b", SHA_256, 8192)])
    store_scram(cluster.ports, [credential("a", SHA_256, 4096), credential("b", SHA_256, 4096)])


@pytest.mark.parametrize(
    ("acl", "sent"),
    [
        (ACL, (2, "orders", 3, "User:client", "*", 3, 3)),
        (acl_of("User:a", "ALL", group="g", prefixed=True), (3, "g", 4, "User:a", "*", 2, 3)),
        (acl_of("User:a", "CREATE", cluster=True, allow=False), (4, "kafka-cluster", 3, "User:a", "*", 5, 2)),
        (acl_of("User:a", "WRITE", transactional_id="x"), (5, "x", 3, "User:a", "*", 4, 3)),
    ],
)
def test_an_acl_is_created_and_awaited_with_the_numbers_of_the_protocol(
    cluster: Cluster, acl: Acl, sent: tuple[object, ...]
) -> None:
    admin.create_acl(cluster.ports, acl)
    ((created,),) = [request.creations for request in cluster.asked(0, "CreateAcls")]
    names = "resource_type resource_name resource_pattern_type principal host operation permission_type"
    assert attrgetter(*names.split())(created) == sent
    filters = "resource_type_filter resource_name_filter pattern_type_filter principal_filter host_filter"
    for broker in range(2):
        (asked,) = cluster.asked(broker, "DescribeAcls")
        assert attrgetter(*filters.split(), "operation", "permission_type")(asked) == sent


@both_changes
def test_the_error_of_the_controller_is_told_with_the_user_or_the_acl(cluster: Cluster, change: Change) -> None:
    cluster.error = (58, "too weak")
    with pytest.raises(StreamGroupError) as caught:
        change.make(cluster.ports)
    assert str(caught.value) == f"cannot {change.failed}: error 58, too weak. Look at the log of the controller"


@both_changes
def test_a_broker_that_refuses_to_describe_is_not_asked_again(cluster: Cluster, change: Change) -> None:
    cluster.described_error = 31
    with pytest.raises(StreamGroupError, match=f"cannot describe {change.described}: error 31"):
        change.make(cluster.ports)


@both_changes
def test_a_broker_that_learns_nothing_within_a_minute_is_named_with_its_address(
    cluster: Cluster, change: Change
) -> None:
    cluster.behind = 1000
    with pytest.raises(StreamGroupError) as caught:
        change.make(cluster.ports)
    address = f"127.0.0.1:{cluster.ports[1]}"
    assert str(caught.value) == f"the broker at {address} does not have {change.awaited} after 60 s. Look at its log"


def test_a_port_without_a_broker_is_an_error_that_names_the_request(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(StreamGroupError, match=rf"^cannot send CreateAcls to the broker at 127\.0\.0\.1:{port}: "):
        admin.call(port, CreateAclsRequest())


def test_a_broker_that_hangs_up_is_an_error_that_names_the_request() -> None:
    broker = FakeBroker({CreateAclsRequest: lambda *_: CLOSE})
    try:
        refused = r"cannot send CreateAcls to the broker at .*: it closed the connection\. Look at its log"
        with pytest.raises(StreamGroupError, match=refused):
            admin.call(broker.port, CreateAclsRequest())
    finally:
        broker.stop()

"""Transactions where there are none: judged by what can be read, then carried out one after the other."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NoAuthError, NodeExistsError, NoNodeError
from kazoo.security import OPEN_ACL_UNSAFE

from streamgroup.options.types import ZooKeeperOptions
from streamgroup.znodes import Check, Create, Delete, Operation, Refusal, Set, ZNode
from streamgroup.zookeeper.writing import Writer
from tests.fakes.nodes import NodeTree, Refused

OPTIONS = ZooKeeperOptions((("zk", 2181),))
ERRORS = {
    Refusal.NO_NODE: NoNodeError,
    Refusal.NODE_EXISTS: NodeExistsError,
    Refusal.BAD_VERSION: BadVersionError,
}


class Nodes:
    """kazoo's asynchronous methods over nodes in memory; what they give is called to have it."""

    def __init__(self, *paths: str) -> None:
        self.tree = NodeTree.of(dict.fromkeys(paths, b""))
        self.forbidden: set[str] = set()
        self.written: list[str] = []

    def exists_async(self, path: str) -> Any:
        return lambda: self._stat(path)

    def _stat(self, path: str) -> ZNode | None:
        node = self.tree.get(path)
        return None if node is None else node.read(children=False)

    def create_async(self, path: str, value: bytes, acl: Any, ephemeral: bool = False) -> Any:
        assert acl == OPEN_ACL_UNSAFE
        return lambda: self._write("create", Create(path, value, ephemeral))

    def set_async(self, path: str, value: bytes, version: int) -> Any:
        return lambda: self._write("set", Set(path, value, version))

    def delete_async(self, path: str, version: int) -> Any:
        return lambda: self._write("delete", Delete(path, version))

    def _write(self, what: str, operation: Operation) -> None:
        if operation.path in self.forbidden:
            raise NoAuthError
        try:
            self.tree.transact([operation])
        except Refused as refused:
            raise ERRORS[refused.refusal] from None
        self.written.append(f"{what} {operation.path}")


def writer(nodes: Any) -> Writer:
    client: KazooClient = nodes
    return Writer(client, OPTIONS, lambda ask: ask())


def test_operations_that_pass_the_check_are_applied_in_order() -> None:
    nodes = Nodes("/a", "/b")
    operations: list[Operation] = [
        Check("/a", 0),
        Set("/a", b"x", 0),
        Set("/a", b"y", 1),
        Delete("/b"),
        Create("/b"),
        Create("/a/c"),
    ]
    assert writer(nodes).apply_one_by_one(operations) is None
    assert nodes.written == ["set /a", "set /a", "delete /b", "create /b", "create /a/c"]


@pytest.mark.parametrize(
    ("operation", "refusal"),
    [
        (Check("/none"), Refusal.NO_NODE),
        (Check("/a", 3), Refusal.BAD_VERSION),
        (Set("/a", b"", 3), Refusal.BAD_VERSION),
        (Set("/none", b""), Refusal.NO_NODE),
        (Delete("/none"), Refusal.NO_NODE),
        (Create("/a"), Refusal.NODE_EXISTS),
    ],
)
def test_a_refused_operation_keeps_all_others_from_being_applied(operation: Operation, refusal: Refusal) -> None:
    nodes = Nodes("/a")
    refused = writer(nodes).apply_one_by_one([Set("/a", b"x"), operation])
    assert refused == (operation.path, refusal)
    assert nodes.written == []


def test_a_write_in_between_is_detected_by_its_version() -> None:
    nodes = Nodes("/a")
    exists = nodes.exists_async

    def seen(path: str) -> Any:
        stat = exists(path)()
        nodes.tree.transact([Set("/a", b"other")])
        return lambda: stat

    nodes.exists_async = seen  # type: ignore[method-assign]
    assert writer(nodes).apply_one_by_one([Set("/a", b"x", 0)]) == ("/a", Refusal.BAD_VERSION)


def test_missing_nodes_are_made_with_their_parents_and_what_may_not_be_is_named() -> None:
    nodes = Nodes("/consumers")
    nodes.forbidden = {"/consumers/x"}
    refused = writer(nodes).ensure(["/consumers/g/ids", "/consumers/g/owners/t", "/consumers/x/ids", "/consumers"])
    assert refused == {"/consumers/x/ids": ("/consumers/x", Refusal.NO_AUTH)}
    assert nodes.written == [
        "create /consumers/g",
        "create /consumers/g/ids",
        "create /consumers/g/owners",
        "create /consumers/g/owners/t",
    ]

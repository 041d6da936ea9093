"""The nodes of a ZooKeeper in memory. Sessions and connections are those of `zookeeper.py`.

A transaction has one zxid. It is carried out whole or not at all, and it fires watches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from streamgroup.znodes import (
    ANY_VERSION,
    NOT_EPHEMERAL,
    Check,
    Create,
    Delete,
    Operation,
    Refusal,
    Set,
    Subtree,
    ZNode,
)

Watch = tuple[str, bool]
"""A path; whether its children are watched, else its data and whether it exists."""


@dataclass(eq=False, slots=True)
class Node:
    """A node as the server keeps it."""

    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    version: int = 0
    owner: int = NOT_EPHEMERAL
    children: set[str] = field(default_factory=set)

    def read(self, *, children: bool) -> ZNode:
        """Return it as a client reads it."""
        names = tuple(sorted(self.children)) if children else ()
        return ZNode(self.data, self.version, self.czxid, self.mzxid, self.pzxid, self.owner, names)


class Refused(Exception):
    """An operation of a transaction cannot be carried out."""

    def __init__(self, path: str, refusal: Refusal) -> None:
        super().__init__(path, refusal)
        self.path = path
        self.refusal = refusal


class NodeTree:
    """Nodes by path."""

    def __init__(self) -> None:
        self.zxid = 0
        self._nodes = {"/": Node(b"", 0, 0, 0)}

    @classmethod
    def of(cls, values: Mapping[str, str | bytes], sessions: Mapping[str, int] | None = None) -> NodeTree:
        """Return these nodes and all above them, created in this order; `sessions`: who has made ephemeral ones."""
        tree = cls()
        for path, value in values.items():
            for above in steps_to(parent_of(path)):
                if above not in tree:
                    tree.transact([Create(above)])
            tree.transact([tree.write(path, value, ephemeral=path in (sessions or {}))], (sessions or {}).get(path, 0))
        return tree

    def __contains__(self, path: str) -> bool:
        return path in self._nodes

    def get(self, path: str) -> Node | None:
        """Return the node, or None where there is none."""
        return self._nodes.get(path)

    def write(self, path: str, value: str | bytes, *, ephemeral: bool = False) -> Operation:
        """Return what gives the node this value: its creation where there is none."""
        data = value.encode() if isinstance(value, str) else value
        return Set(path, data) if path in self._nodes else Create(path, data, ephemeral=ephemeral)

    def read(self, subtrees: Iterable[Subtree], watches: set[Watch] | None = None) -> dict[str, ZNode]:
        """Return what is there; `watches` gets those of the subtrees that are watched."""
        found: dict[str, ZNode] = {}
        for subtree in subtrees:
            self._read(subtree.path, subtree.depth, watches if subtree.watch else None, found)
        return found

    def _read(self, path: str, depth: int, watches: set[Watch] | None, found: dict[str, ZNode]) -> None:
        if watches is not None:
            watches |= {(path, False), (path, depth > 0)}
        node = self._nodes.get(path)
        if node is None:
            return
        read = node.read(children=depth > 0)
        if path not in found or depth:
            found[path] = read
        for name in read.children:
            self._read(f"{path.rstrip('/')}/{name}", depth - 1, watches, found)

    def owned_by(self, session: int) -> list[str]:
        """Return the paths of a session's ephemeral nodes, the oldest first."""
        return [path for path, node in self._nodes.items() if node.owner == session]

    def transact(self, operations: Iterable[Operation], session: int = NOT_EPHEMERAL) -> tuple[Watch, ...]:
        """Carry out the operations of a session; return the watches that fire, in order. Raise Refused."""
        self.zxid += 1
        transaction = _Transaction(self._nodes, self.zxid, session)
        try:
            for operation in operations:
                transaction.carry_out(operation)
        except Refused:
            transaction.take_back()
            raise
        return tuple(transaction.fired)


class _Transaction:
    """Operations carried out one after the other, and how to take them back."""

    def __init__(self, nodes: dict[str, Node], zxid: int, session: int) -> None:
        self._nodes = nodes
        self._zxid = zxid
        self._session = session
        self._undo: list[Callable[[], object]] = []
        self.fired: dict[Watch, None] = {}

    def carry_out(self, operation: Operation) -> None:
        match operation:
            case Check(path, version):
                self._existing(path, version)
            case Create(path, data, ephemeral):
                self._create(path, data, self._session if ephemeral else NOT_EPHEMERAL)
            case Set(path, data, version):
                self._set(self._existing(path, version), path, data)
            case Delete(path, version):
                self._delete(self._existing(path, version), path)

    def _existing(self, path: str, version: int) -> Node:
        node = self._nodes.get(path)
        if node is None:
            raise Refused(path, Refusal.NO_NODE)
        if version not in {ANY_VERSION, node.version}:
            raise Refused(path, Refusal.BAD_VERSION)
        return node

    def _parent(self, path: str) -> tuple[str, Node]:
        above = parent_of(path)
        parent = self._nodes.get(above)
        if parent is None:
            raise Refused(path, Refusal.NO_NODE)
        return above, parent

    def _create(self, path: str, data: bytes, owner: int) -> None:
        above, parent = self._parent(path)
        assert parent.owner == NOT_EPHEMERAL, f"{above} is ephemeral and can have no children"
        if path in self._nodes:
            raise Refused(path, Refusal.NODE_EXISTS)
        self._nodes[path] = Node(data, self._zxid, self._zxid, self._zxid, owner=owner)
        self._undo.append(lambda: self._nodes.pop(path))
        self._change_children(parent, path)
        self.fired[path, False] = self.fired[above, True] = None

    def _change_children(self, parent: Node, path: str) -> None:
        """Add the child, or remove it."""
        before, children = parent.pzxid, set(parent.children)

        def undo() -> None:
            parent.pzxid, parent.children = before, children

        self._undo.append(undo)
        parent.children ^= {path.rpartition("/")[2]}
        parent.pzxid = self._zxid

    def _set(self, node: Node, path: str, data: bytes) -> None:
        before = (node.data, node.version, node.mzxid)

        def undo() -> None:
            node.data, node.version, node.mzxid = before

        self._undo.append(undo)
        node.data, node.version, node.mzxid = data, node.version + 1, self._zxid
        self.fired[path, False] = None

    def _delete(self, node: Node, path: str) -> None:
        if node.children:
            raise Refused(path, Refusal.NOT_EMPTY)
        above, parent = self._parent(path)
        del self._nodes[path]
        self._undo.append(lambda: self._nodes.update({path: node}))
        self._change_children(parent, path)
        self.fired[path, False] = self.fired[path, True] = self.fired[above, True] = None

    def take_back(self) -> None:
        while self._undo:
            self._undo.pop()()


def nodes_of(values: Mapping[str, str | bytes], sessions: Mapping[str, int] | None = None) -> dict[str, ZNode]:
    """Return `NodeTree.of` these values as a look at all of it finds it."""
    return NodeTree.of(values, sessions).read([Subtree("/", 1 << 10, watch=False)])


def parent_of(path: str) -> str:
    """Return `/a` of `/a/b`, and `/` of `/a`."""
    return path.rpartition("/")[0] or "/"


def steps_to(path: str) -> Iterator[str]:
    """Yield the paths of a node's parents from the root on, and its own."""
    steps = path.split("/")[1:]
    for depth in range(1, len(steps) + 1):
        yield "/" + "/".join(steps[:depth])

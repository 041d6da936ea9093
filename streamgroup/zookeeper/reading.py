"""Reads subtrees level by level: the requests for one level of all subtrees are pipelined."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from streamgroup.znodes import Subtree, ZNode

T = TypeVar("T")
Wait = Callable[[Any], Any]
"""Waits for an asynchronous result of kazoo, and returns its value or raises its exception."""


class DeniedError(Exception):
    """`path` may not be read."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@dataclass(frozen=True, slots=True)
class _NodeToRead:
    """A node of `subtree` to read, with `remaining` levels below it."""

    path: str
    subtree: Subtree
    remaining: int


class SubtreeReader:
    """Reads subtrees in one session. `wait` bounds every wait by the deadline of the read."""

    def __init__(self, client: KazooClient, watches: Watches, wait: Wait) -> None:
        self._client = client
        self._watches = watches
        self._wait = wait

    def read(self, subtrees: Iterable[Subtree]) -> dict[str, ZNode]:
        """Return all existing nodes by path. Raises DeniedError.

        The read takes one round trip per level of the deepest subtree, however many subtrees there are.
        """
        nodes: dict[str, ZNode] = {}
        wanted = list(subtrees)
        while wanted:
            self._read_levels(wanted, nodes)
            wanted = self._watch_absent([s for s in wanted if s.watch and s.path not in nodes])
        return nodes

    def _read_levels(self, subtrees: list[Subtree], nodes: dict[str, ZNode]) -> None:
        level = [_NodeToRead(subtree.path, subtree, subtree.depth) for subtree in subtrees]
        while level:
            below = []
            for target, node in self._read_level(level):
                known = nodes.get(target.path)
                nodes[target.path] = node if node.children or known is None else replace(node, children=known.children)
                below += [
                    _NodeToRead(join(target.path, c), target.subtree, target.remaining - 1) for c in node.children
                ]
            level = below

    def _read_level(self, level: list[_NodeToRead]) -> Iterator[tuple[_NodeToRead, ZNode]]:
        """Yield the nodes of one level. A node that is recreated between its two responses is read again."""
        while level:
            asked = [
                (target, *self._request(target.path, target.subtree, with_children=target.remaining > 0))
                for target in level
            ]
            level = []
            for target, data, children in asked:
                try:
                    node = _node(self._wait(data), None if children is None else self._wait(children))
                except NoNodeError:
                    continue
                except NoAuthError:
                    raise DeniedError(target.path) from None
                if node is None:
                    level.append(target)
                else:
                    yield target, node

    def _request(self, path: str, subtree: Subtree, *, with_children: bool) -> tuple[Any, Any]:
        watch = self._watches.fired if subtree.watch else None
        if watch is not None:
            self._watches.arm(path, Aspect.DATA, subtree.path)
            if with_children:
                self._watches.arm(path, Aspect.CHILDREN, subtree.path)
        data = self._client.get_async(path, watch)
        return data, self._client.get_children_async(path, watch, include_data=True) if with_children else None

    def _watch_absent(self, absent: list[Subtree]) -> list[Subtree]:
        """Watch the creation of `absent` subtrees, and return those that exist by now."""
        asked = []
        for subtree in absent:
            self._watches.arm(subtree.path, Aspect.DATA, subtree.path)
            asked.append(self._client.exists_async(subtree.path, self._watches.fired))
        return [subtree for subtree, answer in zip(absent, asked, strict=True) if self._wait(answer) is not None]


def join(path: str, child: str) -> str:
    return f"{path.rstrip('/')}/{child}"


def _node(data: Any, children: Any) -> ZNode | None:
    """Return the node of a getData and a getChildren response; None if it was recreated between the two.

    The names of children and `pzxid` are from one response: a group identifies the assignment that it computes from the
    names by `pzxid`.
    """
    content, stat = data
    names, listed = ([], stat) if children is None else children
    if listed.czxid != stat.czxid:
        return None
    return ZNode(
        data=content,
        version=stat.version,
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        pzxid=listed.pzxid,
        owner=stat.ephemeralOwner,
        children=tuple(sorted(names)),
    )


class Aspect(Enum):
    """The aspects of a node that a watch covers."""

    DATA = "its data, and whether it exists"
    CHILDREN = "its children"


_FIRES = {
    EventType.CREATED: (Aspect.DATA,),
    EventType.CHANGED: (Aspect.DATA,),
    EventType.CHILD: (Aspect.CHILDREN,),
    EventType.DELETED: (Aspect.DATA, Aspect.CHILDREN),
}


class Watches:
    """The watches that the owner's thread arms and kazoo's threads fire. Any thread may call `notify` with a path."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        self._lock = threading.Lock()
        self._armed: dict[tuple[str, Aspect], str] = {}
        """The root of the subtree that was read, by path and aspect. Bounded by the existing nodes that the session has
        read, since the deletion of a node fires its watches."""
        self._lost: set[str] = set()

    def arm(self, path: str, aspect: Aspect, root: str) -> None:
        """Record a watch before reading `path` in the subtree of `root`, which sets it."""
        with self._lock:
            self._armed[path, aspect] = root

    def fired(self, event: WatchedEvent) -> None:
        """Handle kazoo's watch event. `connected` reports watches lost with the connection (NONE events)."""
        with self._lock:
            armed = [self._armed.pop((event.path, aspect), None) for aspect in _FIRES.get(event.type, ())]
        if any(root is not None for root in armed):
            self._notify(event.path)

    def disconnected(self) -> None:
        """Mark all watches as lost with the connection: kazoo does not set them again."""
        with self._lock:
            self._lost.update(self._armed.values())
            self._armed.clear()

    def connected(self) -> None:
        """Report the roots of all lost watches as changed, now that the session can read them again."""
        with self._lock:
            lost, self._lost = self._lost, set()
        for root in sorted(lost):
            self._notify(root)

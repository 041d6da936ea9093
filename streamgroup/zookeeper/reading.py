"""Reads subtrees level by level: the requests for one level of all subtrees are pipelined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError

from streamgroup.znodes import Subtree, ZNode
from streamgroup.zookeeper.watches import Aspect, Watches

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

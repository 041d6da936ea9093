"""Reading subtrees: level by level, all nodes of a level of all subtrees in one go on the connection."""

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
"""The value of one of kazoo's asynchronous results, or its exception."""


class DeniedError(Exception):
    """`path` may not be read."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@dataclass(frozen=True, slots=True)
class _Place:
    """A node to read, as a part of `subtree`; `remaining` levels of it are below."""

    path: str
    subtree: Subtree
    remaining: int


class Reader:
    """Reads for one session. `wait` bounds every wait by the deadline of the whole."""

    def __init__(self, client: KazooClient, watches: Watches, wait: Wait) -> None:
        self._client = client
        self._watches = watches
        self._wait = wait

    def read(self, subtrees: Iterable[Subtree]) -> dict[str, ZNode]:
        """Return all nodes by their path, without what does not exist. Raises DeniedError.

        It takes as many round trips as the deepest subtree has levels, however many subtrees there are.
        """
        nodes: dict[str, ZNode] = {}
        wanted = list(subtrees)
        while wanted:
            self._levels(wanted, nodes)
            wanted = self._come_to_be([s for s in wanted if s.watch and s.path not in nodes])
        return nodes

    def _levels(self, subtrees: list[Subtree], nodes: dict[str, ZNode]) -> None:
        level = [_Place(subtree.path, subtree, subtree.depth) for subtree in subtrees]
        while level:
            below = []
            for place, node in self._level(level):
                known = nodes.get(place.path)
                nodes[place.path] = node if node.children or known is None else replace(node, children=known.children)
                below += [_Place(join(place.path, c), place.subtree, place.remaining - 1) for c in node.children]
            level = below

    def _level(self, places: list[_Place]) -> Iterator[tuple[_Place, ZNode]]:
        """Return the nodes of one level. A node that is deleted and made anew between its two answers is read again."""
        while places:
            asked = [
                (place, *self._ask(place.path, place.subtree, with_children=place.remaining > 0)) for place in places
            ]
            places = []
            for place, data, children in asked:
                try:
                    node = _node(self._wait(data), None if children is None else self._wait(children))
                except NoNodeError:
                    continue
                except NoAuthError:
                    raise DeniedError(place.path) from None
                if node is None:
                    places.append(place)
                else:
                    yield place, node

    def _ask(self, path: str, subtree: Subtree, *, with_children: bool) -> tuple[Any, Any]:
        watch = self._watches.fired if subtree.watch else None
        if watch is not None:
            self._watches.arm(path, Aspect.DATA, subtree.path)
            if with_children:
                self._watches.arm(path, Aspect.CHILDREN, subtree.path)
        data = self._client.get_async(path, watch)
        return data, self._client.get_children_async(path, watch, include_data=True) if with_children else None

    def _come_to_be(self, absent: list[Subtree]) -> list[Subtree]:
        """Return those that are there by now; the coming to be of the others is watched from now on."""
        asked = []
        for subtree in absent:
            self._watches.arm(subtree.path, Aspect.DATA, subtree.path)
            asked.append(self._client.exists_async(subtree.path, self._watches.fired))
        return [subtree for subtree, answer in zip(absent, asked, strict=True) if self._wait(answer) is not None]


def join(path: str, child: str) -> str:
    """Return the path of a child."""
    return f"{path.rstrip('/')}/{child}"


def _node(data: Any, children: Any) -> ZNode | None:
    """Return the node of two answers, each true at its time; None where they are of two nodes.

    Names and `pzxid` are of one answer: an assignment is computed from the names and called by the number.
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

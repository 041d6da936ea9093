"""Reads of subtrees: the nodes that exist, with the watches for their next change, in one round trip per level."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent, ZnodeStat

from streamgroup.znodes import Create, Delete, Set, Subtree
from streamgroup.zookeeper.reading import Aspect, DeniedError, SubtreeReader, Watches, join
from tests.fakes.nodes import NodeTree

PATHS = {"/g": b"group", "/g/ids": b"", "/g/ids/b": b"2", "/g/ids/a": b"1", "/g/offsets": b"", "/other": b""}


class Nodes:
    """kazoo's asynchronous methods over nodes in memory. The server answers a request when the reader waits for it."""

    def __init__(self) -> None:
        self.tree = NodeTree.of(PATHS)
        self.forbidden: set[str] = set()
        self.events: list[str] = []
        """Requests, and `wait` for each answer."""
        self.watched: set[tuple[str, str]] = set()
        self.before: dict[str, Callable[[], object]] = {}
        """Called once before the server answers the request."""

    def wait(self, answer: Callable[[], Any]) -> Any:
        self.events.append("wait")
        return answer()

    def get_async(self, path: str, watch: Any) -> Any:
        return self._ask("get", path, watch, lambda: self._read(path))

    def get_children_async(self, path: str, watch: Any, include_data: bool) -> Any:
        assert include_data, "without the stat the reader cannot tell a recreated node"
        return self._ask(
            "children", path, watch, lambda: (sorted(self._node(path).children, reverse=True), self._read(path)[1])
        )

    def exists_async(self, path: str, watch: Any) -> Any:
        return self._ask("exists", path, watch, lambda: self._read(path)[1] if path in self.tree else None)

    def _ask(self, what: str, path: str, watch: Any, answer: Callable[[], Any]) -> Any:
        request = f"{what} {path}"
        self.events.append(request)
        if watch is not None:
            self.watched.add((what, path))

        def answered() -> Any:
            self.before.pop(request, lambda: None)()
            return answer()

        return answered

    def _node(self, path: str) -> Any:
        if path in self.forbidden:
            raise NoAuthError
        node = self.tree.get(path)
        if node is None:
            raise NoNodeError
        return node

    def _read(self, path: str) -> tuple[bytes, ZnodeStat]:
        node = self._node(path)
        return node.data, ZnodeStat(
            node.czxid, node.mzxid, 0, 0, node.version, 0, 0, node.owner, len(node.data), len(node.children), node.pzxid
        )


class World:
    """A reader of the nodes, and the paths whose changes its watches report."""

    def __init__(self) -> None:
        self.nodes = Nodes()
        self.reported: list[str] = []
        self.watches = Watches(self.reported.append)
        client: Any = self.nodes
        kazoo: KazooClient = client
        self.reader = SubtreeReader(kazoo, self.watches, self.nodes.wait)

    def read(self, *subtrees: Subtree) -> dict[str, Any]:
        return self.reader.read(subtrees)

    def fire(self, kind: str, path: str) -> list[str]:
        """Fire a watch. Return what it reports."""
        self.reported.clear()
        self.watches.fired(WatchedEvent(kind, KeeperState.CONNECTED, path))
        return list(self.reported)


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("depth", "paths"),
    [
        (0, ["/g"]),
        (1, ["/g", "/g/ids", "/g/offsets"]),
        (2, ["/g", "/g/ids", "/g/ids/a", "/g/ids/b", "/g/offsets"]),
        (9, ["/g", "/g/ids", "/g/ids/a", "/g/ids/b", "/g/offsets"]),
    ],
)
def test_a_read_has_the_node_and_as_many_levels_below_it_as_were_asked_for(
    world: World, depth: int, paths: list[str]
) -> None:
    found = world.read(Subtree("/g", depth))
    assert sorted(found) == paths
    assert found == world.nodes.tree.read([Subtree("/g", depth)])


def test_a_node_has_its_data_its_versions_its_owner_and_the_sorted_names_of_its_children(world: World) -> None:
    world.nodes.tree.transact([Create("/g/ids/c", b"me", ephemeral=True)], 77)
    world.nodes.tree.transact([Set("/g/ids", b"new")])
    found = world.read(Subtree("/g/ids"))
    ids = found["/g/ids"]
    assert (ids.data, ids.version, ids.children) == (b"new", 1, ("a", "b", "c"))
    assert ids.czxid < ids.pzxid < ids.mzxid, "created, then given a child, then written"
    assert (found["/g/ids/c"].owner, found["/g/ids/c"].data) == (77, b"me")


def test_the_requests_of_one_level_are_sent_before_the_first_answer_is_awaited(world: World) -> None:
    world.read(Subtree("/g", 2), Subtree("/other", 0))
    events = world.nodes.events
    assert events[:4] == ["get /g", "children /g", "get /other", "wait"]
    rounds = [one for one, following in itertools.pairwise(events) if one != "wait" and following == "wait"]
    assert len(rounds) == 3, "one round trip for each level of the deeper subtree"


def test_a_subtree_that_does_not_exist_is_absent_and_its_creation_is_watched(world: World) -> None:
    assert world.read(Subtree("/none"), Subtree("/gone", watch=False)) == {}
    assert ("exists", "/none") in world.nodes.watched
    assert "exists /gone" not in world.nodes.events
    assert world.fire(EventType.CREATED, "/gone") == []
    assert world.fire(EventType.CREATED, "/none") == ["/none"]


def test_a_subtree_that_is_created_while_its_watch_is_set_is_read_again(world: World) -> None:
    world.nodes.before["exists /none"] = lambda: world.nodes.tree.transact([Create("/none", b"new"), Create("/none/a")])
    assert sorted(world.read(Subtree("/none"), Subtree("/g", 0))) == ["/g", "/none", "/none/a"]
    assert world.nodes.events.count("get /g") == 1, "the subtree that was found is not read again"


def test_a_child_that_is_deleted_during_the_read_is_absent(world: World) -> None:
    world.nodes.before["get /g/ids/a"] = lambda: world.nodes.tree.transact([Delete("/g/ids/a")])
    found = world.read(Subtree("/g/ids"))
    assert sorted(found) == ["/g/ids", "/g/ids/b"]
    assert found["/g/ids"].children == ("a", "b"), "the names are those of the response"


def test_a_node_that_is_recreated_between_its_two_responses_is_read_again(world: World) -> None:
    def recreate() -> None:
        world.nodes.tree.transact([Delete("/g/offsets"), Create("/g/offsets", b"new")])

    world.nodes.before["children /g/offsets"] = recreate
    found = world.read(Subtree("/g/offsets"))
    assert (found["/g/offsets"].data, world.nodes.events.count("get /g/offsets")) == (b"new", 2)


def test_a_node_that_may_not_be_read_is_an_error_that_has_its_path(world: World) -> None:
    world.nodes.forbidden.add("/g/ids/b")
    with pytest.raises(DeniedError) as caught:
        world.read(Subtree("/g", 2))
    assert caught.value.path == "/g/ids/b"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_node_that_two_subtrees_share_keeps_its_children(world: World, order: tuple[int, int]) -> None:
    found = world.read(*(Subtree("/g", depth) for depth in order))
    assert found["/g"].children == ("ids", "offsets")
    assert sorted(found) == ["/g", "/g/ids", "/g/offsets"]


def test_watches_cover_the_data_of_all_nodes_and_the_children_of_all_but_the_last_level(world: World) -> None:
    world.read(Subtree("/g", 1), Subtree("/other", watch=False))
    assert world.nodes.watched == {("get", "/g"), ("children", "/g"), ("get", "/g/ids"), ("get", "/g/offsets")}
    assert world.fire(EventType.CHILD, "/g/ids") == []
    assert world.fire(EventType.CHANGED, "/g/ids") == ["/g/ids"]
    assert world.fire(EventType.CHILD, "/g") == ["/g"]
    assert world.fire(EventType.CHANGED, "/other") == []


def test_watches_that_the_connection_loses_are_those_of_the_subtree(world: World) -> None:
    world.read(Subtree("/g", 1))
    world.watches.disconnected()
    world.watches.connected()
    assert world.reported == ["/g"]


@pytest.mark.parametrize(("path", "child"), [("/", "/a"), ("/g", "/g/a"), ("/g/", "/g/a")])
def test_a_child_is_below_its_node_with_one_slash_between(path: str, child: str) -> None:
    assert join(path, "a") == child


def event(kind: str, path: str | None = "/g/ids") -> WatchedEvent:
    return WatchedEvent(kind, KeeperState.CONNECTED, path)


@pytest.fixture
def told_by_watches() -> list[str]:
    return []


@pytest.fixture
def watches(told_by_watches: list[str]) -> Watches:
    made = Watches(told_by_watches.append)
    made.arm("/g/ids", Aspect.DATA, "/g")
    made.arm("/g/ids", Aspect.CHILDREN, "/g")
    return made


@pytest.mark.parametrize(
    ("kind", "again"),
    [
        (EventType.CREATED, EventType.CHANGED),
        (EventType.CHANGED, EventType.CREATED),
        (EventType.CHILD, EventType.CHILD),
        (EventType.DELETED, EventType.CHILD),
        (EventType.DELETED, EventType.CHANGED),
    ],
)
def test_a_watch_is_reported_once(watches: Watches, told_by_watches: list[str], kind: str, again: str) -> None:
    watches.fired(event(kind))
    watches.fired(event(kind))
    watches.fired(event(again))
    assert told_by_watches == ["/g/ids"]


def test_data_and_children_are_watched_apart(watches: Watches, told_by_watches: list[str]) -> None:
    watches.fired(event(EventType.CHILD))
    watches.fired(event(EventType.CHANGED))
    assert told_by_watches == ["/g/ids", "/g/ids"]


def test_a_node_that_is_read_again_is_watched_again(watches: Watches, told_by_watches: list[str]) -> None:
    watches.fired(event(EventType.CHILD))
    watches.arm("/g/ids", Aspect.CHILDREN, "/g")
    watches.fired(event(EventType.CHILD))
    assert told_by_watches == ["/g/ids", "/g/ids"]


def test_events_of_unwatched_nodes_are_not_reported(watches: Watches, told_by_watches: list[str]) -> None:
    watches.fired(event(EventType.CHILD, "/elsewhere"))
    assert told_by_watches == []


def test_watches_lost_with_the_connection_are_reported_after_the_reconnect(
    watches: Watches, told_by_watches: list[str]
) -> None:
    watches.disconnected()
    watches.fired(event(EventType.NONE, None))
    watches.fired(event(EventType.CHILD))
    assert told_by_watches == [], "nobody can look now"
    watches.connected()
    assert told_by_watches == ["/g"], "once a subtree"
    watches.connected()
    assert told_by_watches == ["/g"]

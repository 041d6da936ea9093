"""Events of watched nodes: each watch fires once, and a lost one counts as a change."""

from __future__ import annotations

import pytest
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent

from streamgroup.zookeeper.watches import Aspect, Watches


def event(kind: str, path: str | None = "/g/ids") -> WatchedEvent:
    return WatchedEvent(kind, KeeperState.CONNECTED, path)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def watches(told: list[str]) -> Watches:
    made = Watches(told.append)
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
def test_a_watch_is_reported_once(watches: Watches, told: list[str], kind: str, again: str) -> None:
    watches.fired(event(kind))
    watches.fired(event(kind))
    watches.fired(event(again))
    assert told == ["/g/ids"]


def test_data_and_children_are_watched_apart(watches: Watches, told: list[str]) -> None:
    watches.fired(event(EventType.CHILD))
    watches.fired(event(EventType.CHANGED))
    assert told == ["/g/ids", "/g/ids"]


def test_a_node_that_is_read_again_is_watched_again(watches: Watches, told: list[str]) -> None:
    watches.fired(event(EventType.CHILD))
    watches.arm("/g/ids", Aspect.CHILDREN, "/g")
    watches.fired(event(EventType.CHILD))
    assert told == ["/g/ids", "/g/ids"]


def test_events_of_unwatched_nodes_are_not_reported(watches: Watches, told: list[str]) -> None:
    watches.fired(event(EventType.CHILD, "/elsewhere"))
    assert told == []


def test_watches_lost_with_the_connection_are_reported_after_the_reconnect(watches: Watches, told: list[str]) -> None:
    watches.disconnected()
    watches.fired(event(EventType.NONE, None))
    watches.fired(event(EventType.CHILD))
    assert told == [], "nobody can look now"
    watches.connected()
    assert told == ["/g"], "once a subtree"
    watches.connected()
    assert told == ["/g"]

"""The watches of a session: each change is reported once, and a lost watch counts as a change.

ZooKeeper keeps one watch per session and path, and kazoo a set of callbacks for it. This module registers one callback
for all paths, so reading a path repeatedly arms one watch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum

from kazoo.protocol.states import EventType, WatchedEvent


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

"""Which nodes are watched, and what is told when they change: each watch once, a lost one as a change.

ZooKeeper keeps a watch per session and path, kazoo a set of callbacks for it. Here is the only callback; so reading a
path again and again arms one watch, and leaves nothing behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum

from kazoo.protocol.states import EventType, WatchedEvent


class Aspect(Enum):
    """What of a node is watched."""

    DATA = "its data, and whether it exists"
    CHILDREN = "its children"


_FIRES = {
    EventType.CREATED: (Aspect.DATA,),
    EventType.CHANGED: (Aspect.DATA,),
    EventType.CHILD: (Aspect.CHILDREN,),
    EventType.DELETED: (Aspect.DATA, Aspect.CHILDREN),
}


class Watches:
    """Armed by the owner's thread, fired by kazoo's. `tell` is called with a path, from any thread."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._armed: dict[tuple[str, Aspect], str] = {}
        """With the root of the subtree that was read. Bounded by the nodes that this session has read and that still
        exist: deleting one fires its watches."""
        self._lost: set[str] = set()

    def arm(self, path: str, aspect: Aspect, root: str) -> None:
        """A watch is about to be set, by reading `path` as a part of the subtree of `root`."""
        with self._lock:
            self._armed[path, aspect] = root

    def fired(self, event: WatchedEvent) -> None:
        """kazoo's callback. What it tells of a lost connection (NONE) is told by `connected`."""
        with self._lock:
            armed = [self._armed.pop((event.path, aspect), None) for aspect in _FIRES.get(event.type, ())]
        if any(root is not None for root in armed):
            self._tell(event.path)

    def disconnected(self) -> None:
        """The connection is lost, and kazoo sets no watch again."""
        with self._lock:
            self._lost.update(self._armed.values())
            self._armed.clear()

    def connected(self) -> None:
        """The session is connected again: whatever was watched may have changed, and can be looked at now."""
        with self._lock:
            lost, self._lost = self._lost, set()
        for root in sorted(lost):
            self._tell(root)

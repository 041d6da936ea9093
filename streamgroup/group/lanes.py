"""The connections of a member to its brokers, one for each lane, and the requests on them.

A lane is one of the connections of a member, for example the one for JoinGroup and SyncGroup. `RequestLanes` is pure.
It decides to which broker a lane connects, which connection is closed, and which requests fail with it. Its caller owns
the sockets: it opens and closes the connections, and reports each change.

    if not lanes.is_open(send.lane):
        lanes.opened(send.lane, connect(lanes.broker_of(send.lane)))
    if lanes.add(send, now):                              # else `ready` returns it, after the handshake
        lanes.sent(send, correlation_id, version)         # after the request was written
    answered = lanes.answered(lane, correlation_id)       # after a response
    events = lanes.closed(lane, reason)                   # after the connection has broken, or was closed
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from streamgroup.group import events as ev
from streamgroup.group.events import Lane, Send
from streamgroup.model import Broker

C = TypeVar("C")

COORDINATOR_LANES = (Lane.COORDINATOR, Lane.JOIN)


@dataclass(slots=True)
class _LaneConnection(Generic[C]):
    """The connection of one lane, with requests that wait for its handshake and pending requests."""

    handle: C
    is_ready: bool
    waiting: list[Send] = field(default_factory=list)
    unanswered: dict[int, tuple[Send, int]] = field(default_factory=dict)
    """By correlation id: the request and the version in which it was sent."""

    @property
    def sends(self) -> list[Send]:
        """All requests that fail with the connection."""
        return [*(send for send, _ in self.unanswered.values()), *self.waiting]


class RequestLanes(Generic[C]):
    """Which connection each request of one member uses, which request waits, and which has timed out.

    Times are `time.monotonic()` values. `C` is the type of the caller's connections.
    """

    __slots__ = ("_connections", "_coordinator", "_due")

    def __init__(self) -> None:
        self._connections: dict[Lane, _LaneConnection[C]] = {}
        self._coordinator: Broker | None = None
        self._due: dict[int, float] = {}  # by token; a response or the end of the connection removes each entry

    # -- connections ---------------------------------------------------------------------------------------------------

    def is_open(self, lane: Lane) -> bool:
        """Return whether the lane has a connection, which may still be in its handshake."""
        return lane in self._connections

    def handle(self, lane: Lane) -> C | None:
        connection = self._connections.get(lane)
        return None if connection is None else connection.handle

    def lane_of(self, handle: C) -> Lane | None:
        """Return the lane of a connection; None if the connection was given up."""
        return next((lane for lane, each in self._connections.items() if each.handle == handle), None)

    def broker_of(self, lane: Lane) -> Broker | None:
        """Return the broker that the lane connects to; None: any broker."""
        return None if lane is Lane.ANY else self._coordinator

    def found(self, coordinator: Broker) -> tuple[Lane, ...]:
        """Store the group coordinator. Return the lanes to close, which are connected to another broker."""
        if coordinator == self._coordinator:
            return ()
        self._coordinator = coordinator
        return COORDINATOR_LANES

    def opened(self, lane: Lane, handle: C, *, is_ready: bool = False) -> None:
        """Record the new connection of a lane. `is_ready`: it needs no handshake."""
        self._connections[lane] = _LaneConnection(handle, is_ready)

    def ready(self, lane: Lane) -> list[Send]:
        """Record that a lane's handshake has ended. Return the requests that waited for it."""
        connection = self._connections[lane]
        connection.is_ready = True
        waiting, connection.waiting = connection.waiting, []
        return waiting

    def closed(self, lane: Lane, reason: str, *, moved: bool = False) -> list[ev.Event]:
        """Record that a lane's connection was lost or closed. Return the failures of its requests.

        `moved`: it was closed because another broker is the group coordinator now.
        """
        connection = self._connections.pop(lane, None)
        if connection is None:
            return []
        for send in connection.sends:
            del self._due[send.token]
        return [ev.RequestFailed(send.token, reason, moved=moved) for send in connection.sends]

    def broken(self, lane: Lane, reason: str) -> list[ev.Event]:
        """Record that a lane's connection was lost. Return the events for the member.

        The end of an idle JOIN connection is not reported: brokers close connections that are idle for long.
        """
        is_idle = not self._connections[lane].sends
        failed = self.closed(lane, reason)
        return [ev.CoordinatorGone(reason)] if is_idle and lane is Lane.COORDINATOR else failed

    def overdue(self, now: float) -> Iterator[tuple[Lane, list[str]]]:
        """Yield the lanes to reset, each with the names of its overdue requests.

        A late response on such a connection must not be taken for the response to a later request (R18). The caller
        closes each lane before it takes the next one.
        """
        late = {token for token, due in self._due.items() if now >= due}
        for lane, connection in tuple(self._connections.items()):
            names = [send.api.NAME for send in connection.sends if send.token in late]
            if names and self._connections.get(lane) is connection:  # closing the lane before may have reset this one
                yield lane, names

    # -- requests ------------------------------------------------------------------------------------------------------

    @property
    def next_due(self) -> float:
        """When the first request is overdue; infinity if there is none."""
        return min(self._due.values(), default=math.inf)

    def add(self, send: Send, now: float) -> bool:
        """Add a request to an open lane. Return whether to send it now, or else after the handshake."""
        self._due[send.token] = now + send.timeout_ms / 1000
        connection = self._connections[send.lane]
        if not connection.is_ready:
            connection.waiting.append(send)
        return connection.is_ready

    def sent(self, send: Send, correlation_id: int, version: int) -> None:
        self._connections[send.lane].unanswered[correlation_id] = (send, version)

    def not_sent(self, send: Send) -> None:
        """Note that a request cannot be written: the connection is lost, and `broken` will fail the request."""
        self._connections[send.lane].waiting.append(send)

    def forget(self, send: Send) -> None:
        """Drop a request that gets no response."""
        del self._due[send.token]

    def answered(self, lane: Lane, correlation_id: int) -> tuple[Send, int] | None:
        """Handle a response. Return its request and version; None if the request was given up."""
        answered = self._connections[lane].unanswered.pop(correlation_id, None)
        if answered is not None:
            del self._due[answered[0].token]
        return answered

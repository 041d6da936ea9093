"""The purposes of a member's requests to brokers, and its timers."""

from __future__ import annotations

from enum import Enum
from typing import Any

from streamgroup.group.events import Lane
from streamgroup.wire.messages import coordinator as c
from streamgroup.wire.messages import group as m


class Purpose(Enum):
    """A request of membership: the API, the lane that it takes, and what the member does by it, in words."""

    FIND = (c.FindCoordinatorRequest, Lane.ANY, "find its coordinator")
    JOIN = (m.JoinGroupRequest, Lane.JOIN, "join")
    SYNC = (m.SyncGroupRequest, Lane.JOIN, "get the assignment")
    HEARTBEAT = (m.HeartbeatRequest, Lane.COORDINATOR, "send a heartbeat")
    LEAVE = (m.LeaveGroupRequest, Lane.COORDINATOR, "leave")

    def __init__(self, api: type[Any], lane: Lane, doing: str) -> None:
        self.api = api
        self.lane = lane
        self.doing = doing

    def __str__(self) -> str:
        return str(self.api.NAME)


class Timer(Enum):
    """A timer of membership, in the order in which due ones are handled: a session that is over needs no heartbeat."""

    SESSION = "session over"
    REJOIN = "rejoin due"
    RETRY = "retry due"
    TOPICS = "topics overdue"
    HEARTBEAT = "heartbeat due"

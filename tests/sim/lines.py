"""The group's thread of a process: carries the member's actions out on one simulated connection a lane.

The real `RequestLanes` decides to which broker a lane connects, which connection is reset, and which requests fail with
it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from streamgroup.errors import ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.events import Lane, Send
from streamgroup.group.lanes import RequestLanes
from streamgroup.group.member import MemberAction
from streamgroup.group.offsets.kafka import KafkaOffsetStore
from streamgroup.group.offsets.store import OffsetStore
from streamgroup.kafka.wire.messages.group import (
    ConsumerGroupHeartbeatResponse,
    HeartbeatResponse,
    SyncGroupResponse,
)
from streamgroup.kafka.wire.messages.offsets import OffsetCommitResponse
from streamgroup.model import TopicPartition
from tests.sim.clock import Sleep, Steps, Until
from tests.sim.network import Line, Network
from tests.sim.settings import QUESTION_S

if TYPE_CHECKING:
    from tests.sim.broker import SimBroker
    from tests.sim.process import Process


class GroupLines:
    """The group's thread: carries out the member's actions on one connection a lane."""

    def __init__(self, process: Process, network: Network, broker: SimBroker) -> None:
        self._process = process
        self._network = network
        self._broker = broker
        self._clock = network.clock
        self._lanes: RequestLanes[Line] = RequestLanes()
        self._sent_at: dict[int, float] = {}
        """When the requests that are out were sent, by token."""
        self.store: OffsetStore = KafkaOffsetStore()
        self.fragile: set[Lane] = set()
        """Lanes whose connection breaks soon after the next request."""
        self.client = None
        """It has no session with ZooKeeper."""
        self.keeps_timers = True
        """Whether the thread is never kept from the run's timers."""

    @property
    def lines(self) -> dict[Lane, Line]:
        """The connections."""
        return {lane: line for lane in Lane if (line := self._lanes.handle(lane)) is not None}

    def look(self) -> None:
        """Nothing here waits."""

    def heal(self) -> None:
        """Nothing stalls any more."""
        for line in self.lines.values():
            line.heal()

    def committed(self, stable: Collection[TopicPartition] = ()) -> Steps:
        """Return the offsets that the group has committed, asked of the coordinator on another connection, when none of
        `stable` is in an open transaction."""
        network = self._network
        yield Until(lambda: self._clock.now >= network.cut_until, QUESTION_S)
        yield Sleep(network.latency())
        while self._clock.now < max(self._broker.loaded_at, network.cut_until) or self._broker.is_unstable(stable):
            yield Sleep(0.2)
        seen = self._broker.fetched()
        self._process.world.checker.filtered(self._process, seen)
        yield Sleep(network.latency())
        return seen

    def carry_out(self, action: MemberAction) -> None:
        match action:
            case Send():
                self._send(action)
            case ev.ResetConnection(lane):
                self._reset(lane)
            case ev.CoordinatorFound(broker):
                for lane in self._lanes.found(broker):
                    self._reset(lane, moved=True)
            case _:
                raise AssertionError(f"the group's thread cannot carry out {action}")

    def _send(self, send: Send) -> None:
        lanes, lane = self._lanes, send.lane
        if not lanes.is_open(lane):
            broker = lanes.broker_of(lane)
            node = 0 if broker is None else broker.node_id
            lanes.opened(lane, Line(self._network, self._broker, self._process, lane, node), is_ready=True)
        lanes.add(send, self._clock.now)
        lanes.sent(send, send.token, self._broker.version(send.api))
        self._sent_at[send.token] = self._clock.now
        self._process.later(send.timeout_ms / 1000, self._look_for_overdue)
        line = lanes.handle(lane)
        assert line is not None
        line.send(send)
        self._befall(line, send)

    def _befall(self, line: Line, send: Send) -> None:
        """Let the faults happen that wait for a request: a connection that breaks, a process that is killed."""
        soon = 3 * self._network.latency()
        if line.lane in self.fragile:
            self.fragile.discard(line.lane)
            self._clock.after(soon * self._network.chance(), partial(line.break_, "connection reset by peer"))
        what = self._process.query.armed.pop(send.api.NAME, None)
        if what is not None:
            self._clock.after(soon * self._network.chance(), what)

    def _look_for_overdue(self) -> None:
        for lane, names in self._lanes.overdue(self._clock.now):
            self._abandon(lane)
            self._post(self._lanes.broken(lane, f"no response to {', '.join(names)} within the timeout"))

    def _reset(self, lane: Lane, *, moved: bool = False) -> None:
        """Give a lane's connection up; what is unanswered on it fails."""
        if self._lanes.is_open(lane):
            self._abandon(lane)
            self._post(self._lanes.closed(lane, "connection closed before the response", moved=moved))

    def _abandon(self, lane: Lane) -> None:
        line = self._lanes.handle(lane)
        assert line is not None
        line.abandon(reset=True)

    def _post(self, events: Iterable[ev.Event]) -> None:
        for event in events:
            if isinstance(event, ev.RequestFailed):
                del self._sent_at[event.token]
            self._process.post(event)

    def answered(self, line: Line, token: int, response: Any) -> None:
        lane = self._lanes.lane_of(line)
        answered = None if lane is None else self._lanes.answered(lane, token)
        line.unanswered.pop(token, None)
        if answered is not None:
            sent_at = self._sent_at.pop(token)
            # Under the consumer protocol a commit does not extend the session.
            is_late = isinstance(response, OffsetCommitResponse) and self._process.settings.consumers is not None
            if _is_to_a_member(response) and not is_late:
                self._process.heard_of(self._clock.now if isinstance(response, SyncGroupResponse) else sent_at)
            self._process.post(ev.RequestAnswered(token, response, answered[1]))

    def broken(self, line: Line, reason: str) -> None:
        lane = self._lanes.lane_of(line)
        if lane is not None:
            self._post(self._lanes.broken(lane, reason))

    def close(self) -> None:
        """The process is gone: its sockets are closed by the system, what was written still arrives, or not."""
        for line in self.lines.values():
            line.abandon(reset=False)
        self._lanes = RequestLanes()


def _is_to_a_member(response: Any) -> bool:
    """Whether only a member of the group is answered so."""
    match response:
        case HeartbeatResponse(error_code=ErrorCode.NONE | ErrorCode.REBALANCE_IN_PROGRESS):
            return True
        case SyncGroupResponse(error_code=ErrorCode.NONE):
            return True
        case ConsumerGroupHeartbeatResponse(error_code=ErrorCode.NONE):
            return response.member_epoch > 0
        case OffsetCommitResponse():
            return not any(p.error_code for t in response.topics for p in t.partitions)
    return False

"""The group's thread of a process: carries the member's actions out on one connection a lane.

Mirrors `driver/membership/group_thread.py`: deadlines, what a broken connection means, what is reset when. Where that
changes, this file changes with it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from streamgroup.errors import ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.events import Lane, Send
from streamgroup.group.member import MemberAction
from streamgroup.group.offsets.kafka import KafkaOffsetStore
from streamgroup.group.offsets.store import OffsetStore
from streamgroup.wire.messages.group import HeartbeatResponse, SyncGroupResponse
from streamgroup.wire.messages.offsets import OffsetCommitResponse
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
        self._node: int | None = None
        self._sent_at: dict[int, float] = {}
        """When the requests that are out were sent, by token."""
        self.store: OffsetStore = KafkaOffsetStore()
        self.fragile: set[Lane] = set()
        """Lanes whose connection breaks soon after the next request."""
        self.lines: dict[Lane, Line] = {}
        self.client = None
        """It has no session with ZooKeeper."""
        self.keeps_timers = True
        """Whether the thread is never kept from the run's timers."""

    def look(self) -> None:
        """Nothing here waits."""

    def heal(self) -> None:
        """Nothing stalls any more."""
        for line in self.lines.values():
            line.heal()

    def committed(self) -> Steps:
        """Return the offsets that the group has committed, asked of the coordinator on another connection."""
        network = self._network
        yield Until(lambda: self._clock.now >= network.cut_until, QUESTION_S)
        yield Sleep(network.latency())
        while self._clock.now < max(self._broker.loaded_at, network.cut_until):
            yield Sleep(0.2)
        seen = self._broker.fetched()
        self._process.world.checker.filtered(self._process, seen)
        yield Sleep(network.latency())
        return seen

    def carry_out(self, action: MemberAction) -> None:
        match action:
            case Send():
                self._send(action)
            case ev.Reset(lane):
                self.reset(lane, "given up")
            case ev.CoordinatorFound(broker):
                if self._node != broker.node_id:
                    self._node = broker.node_id
                    for lane in (Lane.COORDINATOR, Lane.JOIN):
                        self.reset(lane, "given up")
            case _:
                raise AssertionError(f"the group's thread cannot carry out {action}")

    def _send(self, send: Send) -> None:
        line = self.lines.get(send.lane)
        if line is None:
            node = self._node if send.lane is not Lane.ANY and self._node is not None else 0
            line = self.lines[send.lane] = Line(self._network, self._broker, self._process, send.lane, node)
        self._sent_at[send.token] = self._clock.now
        self._process.later(send.timeout_ms / 1000, partial(self._overdue, send.token))
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

    def _overdue(self, token: int) -> None:
        """A connection whose answer is overdue is given up (R18)."""
        if token in self._sent_at:
            lane = next(lane for lane, line in self.lines.items() if token in line.unanswered)
            self.reset(lane, "no answer in time")

    def reset(self, lane: Lane, reason: str) -> None:
        """Give a lane's connection up; what is unanswered on it fails."""
        line = self.lines.pop(lane, None)
        if line is not None:
            line.abandon(reset=True)
            self._fail(line, reason)

    def _fail(self, line: Line, reason: str) -> None:
        for token in line.unanswered:
            if self._sent_at.pop(token, None) is not None:
                self._process.post(ev.RequestFailed(token, reason))

    def answered(self, line: Line, token: int, response: Any) -> None:
        send = line.unanswered.pop(token, None)
        if send is not None and token in self._sent_at and self.lines.get(line.lane) is line:
            sent_at = self._sent_at.pop(token)
            if _is_to_a_member(response):
                self._process.heard_of(self._clock.now if isinstance(response, SyncGroupResponse) else sent_at)
            version = self._broker.version(send.api)
            self._process.post(ev.RequestAnswered(token, response, version))

    def broken(self, line: Line, reason: str) -> None:
        if self.lines.get(line.lane) is not line:
            return
        del self.lines[line.lane]
        if line.lane is Lane.COORDINATOR and not line.unanswered:
            self._process.post(ev.CoordinatorGone(reason))
        self._fail(line, reason)

    def close(self) -> None:
        """The process is gone: its sockets are closed by the system, what was written still arrives, or not."""
        for line in self.lines.values():
            line.abandon(reset=False)
        self.lines.clear()


def _is_to_a_member(response: Any) -> bool:
    """Whether only a member of the group is answered so."""
    match response:
        case HeartbeatResponse(error_code=ErrorCode.NONE | ErrorCode.REBALANCE_IN_PROGRESS):
            return True
        case SyncGroupResponse(error_code=ErrorCode.NONE):
            return True
        case OffsetCommitResponse():
            return not any(p.error_code for t in response.topics for p in t.partitions)
    return False

"""A group coordinator in memory, and machines that talk to it: every message goes through its bytes.

It keeps to what a broker does in the classic protocol: it gathers the members, takes the leader's assignments, tells of
a rebalance by heartbeat, refuses stale generations and unknown members; a static member that comes back takes its old
place, and in a group at rest that costs no rebalance. It never expires a session.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamgroup.errors import ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.membership import Membership
from streamgroup.group.timing import MemberConfig
from streamgroup.model import PartitionInfo, TopicInfo
from streamgroup.wire.messages.coordinator import Coordinator, FindCoordinatorResponse
from streamgroup.wire.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from streamgroup.wire.schema import decode, encode

Reply = Callable[[Any], None]


def topics_of(counts: Mapping[str, int], leader: Callable[[int], int] = lambda partition: partition % 2) -> Any:
    return {
        name: TopicInfo(name, tuple(PartitionInfo(p, leader(p)) for p in range(count)))
        for name, count in counts.items()
    }


@dataclass
class KnownMember:
    request: JoinGroupRequest
    join_reply: Reply | None = None
    sync_reply: Reply | None = None


@dataclass
class FakeCoordinator:
    version: int | None = None
    """The highest version of every API; None: the highest that we speak."""
    generation: int = 0
    members: dict[str, KnownMember] = field(default_factory=dict)
    assignments: dict[str, bytes] | None = None
    gathering: bool = False
    leader: str = ""
    protocol: str = ""
    fenced: set[str] = field(default_factory=set)
    """Member ids whose place another one with their instance id has taken."""
    ids: Any = field(default_factory=lambda: itertools.count(1))
    known_ids: set[str] = field(default_factory=set)

    def handle(self, request: Any, version: int, reply: Reply) -> None:
        match request:
            case JoinGroupRequest():
                self.join(request, version, reply)
            case SyncGroupRequest():
                self.sync(request, reply)
            case HeartbeatRequest():
                reply(HeartbeatResponse(error_code=self.check(request.member_id, request.generation_id)))
            case LeaveGroupRequest():
                for member in (request.member_id, *(m.member_id for m in request.members)):
                    if self.members.pop(member, None):
                        self.gather()
                reply(LeaveGroupResponse())
                self.complete()
            case _ if version >= 4:
                coordinator = Coordinator(key=request.coordinator_keys[0], node_id=1, host="localhost", port=9092)
                reply(FindCoordinatorResponse(coordinators=(coordinator,)))
            case _:
                reply(FindCoordinatorResponse(node_id=1, host="localhost", port=9092))

    def check(self, member_id: str, generation: int) -> int:
        if member_id in self.fenced:
            return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.REBALANCE_IN_PROGRESS if self.gathering else ErrorCode.NONE

    def join(self, request: JoinGroupRequest, version: int, reply: Reply) -> None:
        member_id = request.member_id
        if not member_id:
            member_id = f"member-{next(self.ids)}"
            self.known_ids.add(member_id)
            if self.replace(member_id, request, version, reply):
                return
            if version >= 4 and request.group_instance_id is None:
                reply(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id, protocol_name=""))
                return
        elif member_id not in self.known_ids:
            reply(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, protocol_name=""))
            return
        self.members[member_id] = KnownMember(request, reply)
        self.gather()
        self.complete()

    def replace(self, member_id: str, request: JoinGroupRequest, version: int, reply: Reply) -> bool:
        """A static member is back: whether it need not wait for the others."""
        instance_id = request.group_instance_id
        same = (m for m, known in self.members.items() if known.request.group_instance_id == instance_id)
        old = next(same, None) if instance_id is not None else None
        if old is None:
            return False
        self.fenced.add(old)
        self.members = {member_id if m == old else m: known for m, known in self.members.items()}
        self.members[member_id] = KnownMember(request, reply if self.gathering else None)
        led, self.leader = self.leader, member_id if self.leader == old else self.leader
        if self.gathering or self.assignments is None:
            return False
        self.assignments[member_id] = self.assignments.pop(old, b"")
        leads = led == old
        reply(
            JoinGroupResponse(
                generation_id=self.generation,
                protocol_name=self.protocol,
                leader=member_id if leads and version >= 9 else led,  # before, it is not to know that it leads
                skip_assignment=leads and version >= 9,
                member_id=member_id,
                members=self.described() if leads and version >= 9 else (),
            )
        )
        return True

    def described(self) -> tuple[JoinGroupResponseMember, ...]:
        return tuple(
            JoinGroupResponseMember(
                member_id=member_id,
                group_instance_id=m.request.group_instance_id,
                metadata=next(p.metadata for p in m.request.protocols if p.name == self.protocol),
            )
            for member_id, m in self.members.items()
        )

    def gather(self) -> None:
        """A rebalance begins: whoever waits for an assignment is told to join again."""
        self.gathering = True
        for member in self.members.values():
            if member.sync_reply:
                member.sync_reply(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
                member.sync_reply = None

    def complete(self) -> None:
        if not self.gathering or not self.members or any(m.join_reply is None for m in self.members.values()):
            return
        self.gathering, self.assignments = False, None
        self.generation += 1
        self.leader = self.leader if self.leader in self.members else next(iter(self.members))
        names = [{p.name for p in m.request.protocols} for m in self.members.values()]
        first = next(iter(self.members.values())).request.protocols
        self.protocol = next(p.name for p in first if all(p.name in offered for offered in names))
        described = self.described()
        for member_id, member in list(self.members.items()):
            join_reply, member.join_reply = member.join_reply, None
            assert join_reply is not None
            join_reply(
                JoinGroupResponse(
                    generation_id=self.generation,
                    protocol_name=self.protocol,
                    leader=self.leader,
                    member_id=member_id,
                    members=described if member_id == self.leader else (),
                )
            )

    def sync(self, request: SyncGroupRequest, reply: Reply) -> None:
        code = self.check(request.member_id, request.generation_id)
        if code:
            reply(SyncGroupResponse(error_code=code))
            return
        self.members[request.member_id].sync_reply = reply
        if request.member_id == self.leader and self.assignments is None:
            self.assignments = {a.member_id: bytes(a.assignment) for a in request.assignments}
        if self.assignments is not None:
            for member_id, member in self.members.items():
                if member.sync_reply:
                    member.sync_reply(SyncGroupResponse(assignment=self.assignments.get(member_id, b"")))
                    member.sync_reply = None


class Group:
    """Machines, one coordinator, and the time that both live in."""

    def __init__(self, counts: dict[str, int], version: int | None = None) -> None:
        self.counts = counts
        self.coordinator = FakeCoordinator(version)
        self.machines: dict[str, Membership] = {}
        self.assigned: dict[str, ev.Assigned] = {}
        self.log: dict[str, list[ev.Action]] = {}
        self.wake: dict[str, float] = {}
        self.now = 100.0
        self.queue: list[tuple[str, ev.Event]] = []

    def add(self, name: str, topics: tuple[str, ...] = ("t",), **config: Any) -> None:
        self.machines[name] = Membership(MemberConfig("g", **config), random.Random(name))
        self.log[name] = []
        self.tell(name, ev.Start(topics))

    def tell(self, name: str, event: ev.Event) -> None:
        self.queue.append((name, event))

    def run(self, seconds: float = 0.0) -> None:
        """Deliver everything, then let the time go on to each machine's wake-up, for so long."""
        end = self.now + seconds
        for _ in range(20_000):
            while self.queue:
                name, event = self.queue.pop(0)
                self.carry_out(name, self.machines[name].step(event, self.now))
            due = min(self.wake.items(), key=lambda item: item[1], default=None)
            if due is None or due[1] > end:
                self.now = end
                return
            self.now = max(self.now, due[1])
            self.tell(due[0], ev.Tick())
        raise AssertionError("the group does not come to rest")

    def carry_out(self, name: str, actions: list[ev.Action]) -> None:
        self.log[name] += actions
        self.wake.pop(name, None)
        for action in actions:
            match action:
                case ev.WakeAt(time):
                    self.wake[name] = time
                case ev.Send():
                    self.send(name, action)
                case ev.NeedTopics(topics, urgent=True):
                    self.tell_topics(name, topics)
                case ev.Assigned():
                    self.assigned[name] = action
                case ev.Joining() | ev.Left():
                    self.assigned.pop(name, None)

    def tell_topics(self, name: str, asked: frozenset[str]) -> None:
        self.tell(name, ev.TopicsKnown(topics_of({t: n for t, n in self.counts.items() if t in asked}), asked))

    def send(self, name: str, send: ev.Send) -> None:
        limit = self.coordinator.version
        version = send.api.VERSIONS[1] if limit is None else max(send.api.VERSIONS[0], min(send.api.VERSIONS[1], limit))

        def reply(response: Any) -> None:
            again = decode(send.api.RESPONSE, encode(response, version), version)
            self.tell(name, ev.Answered(send.token, again, version))

        self.coordinator.handle(decode(send.api, encode(send.build(version), version), version), version, reply)

    def shares(self) -> dict[str, list[str]]:
        return {name: [str(tp) for tp in assigned.partitions] for name, assigned in self.assigned.items()}

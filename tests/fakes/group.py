"""A classic consumer group as Kafka's GroupCoordinator keeps it: states, members, timers.

`group_coordinator.py` answers requests by it. Followed from `GroupCoordinator.scala` and `ClassicGroup`: who is asked
to rejoin when, whose session expires, what a static member's return does (KIP-345, KIP-814), what survives a move of
the group coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

from streamgroup.errors import ErrorCode as E
from streamgroup.kafka.wire.messages.admin import DescribedGroup, DescribedGroupMember
from streamgroup.kafka.wire.messages.group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequest,
    SyncGroupResponse,
)

DYNAMIC = "m"
"""The beginning of the ids of dynamic members; those of static ones begin with their instance's."""

Reply = Callable[[Any], None]


class Clock(Protocol):
    """The time that the group's timers follow; `tests.sim.clock.SimulatedClock` is one."""

    now: float

    def at(self, time: float, act: Callable[[], None]) -> None:
        """Call `act` at that time."""

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Call `act` so many seconds from now."""

    def note(self, who: str, what: str) -> None:
        """Write a line of the trace."""


class StoppedClock:
    """A clock on which no timer of the group ever goes off: no session expires, and a rebalance waits for everybody."""

    now = 0.0

    def at(self, time: float, act: Callable[[], None]) -> None:
        pass

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        pass

    def note(self, who: str, what: str) -> None:
        pass


class GroupState(Enum):
    """As `kafka-consumer-groups.sh --state` calls them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(eq=False, slots=True)
class GroupMember:
    """A member as the coordinator knows it. `join` and `sync` are the callbacks of requests that wait."""

    member_id: str
    instance_id: str | None
    session_s: float
    rebalance_s: float
    protocols: tuple[JoinGroupRequestProtocol, ...]
    deadline: float = 0.0
    join: Reply | None = None
    sync: Reply | None = None
    assignment: bytes = b""

    def metadata(self, protocol: str) -> bytes:
        return next(bytes(p.metadata) for p in self.protocols if p.name == protocol)


@dataclass
class Stored:
    """The state that the coordinator has written to its log of a group: it is left after a failover."""

    generation: int = 0
    protocol: str = ""
    leader: str = ""
    members: list[GroupMember] = field(default_factory=list)


class Group:
    """One group."""

    def __init__(self, clock: Clock, initial_delay_s: float) -> None:
        self.clock = clock
        self.state = GroupState.EMPTY
        self.generation = 0
        self.members: dict[str, GroupMember] = {}
        self.protocol = ""
        self.leader = ""
        self._initial_delay_s = initial_delay_s
        self._pending: dict[str, float] = {}
        self._pending_sync: set[str] = set()
        self._initial = False
        self._round = 0
        self._ids = 0
        self._stored = Stored()
        self._loads = 0

    # -- who is who ---------------------------------------------------------------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None) -> int:
        """UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or 0."""
        if instance_id is not None:
            static = self.static_member(instance_id)
            if static is None:
                return E.UNKNOWN_MEMBER_ID
            if static.member_id != member_id:
                return E.FENCED_INSTANCE_ID
        return 0 if member_id in self.members else E.UNKNOWN_MEMBER_ID

    def check(self, member_id: str, instance_id: str | None, generation: int) -> int:
        """The same, or ILLEGAL_GENERATION."""
        code = self.check_member(member_id, instance_id)
        return code or (0 if generation == self.generation else E.ILLEGAL_GENERATION)

    def static_member(self, instance_id: str) -> GroupMember | None:
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    def alive(self, member_id: str) -> None:
        """The member was heard of: its session starts anew."""
        member = self.members[member_id]
        member.deadline = self.clock.now + member.session_s

    def _watch_session(self, member: GroupMember, load: int) -> None:
        def look() -> None:
            if self._loads != load or self.members.get(member.member_id) is not member:
                return
            if member.join is not None or member.sync is not None:
                member.deadline = self.clock.now + member.session_s
            if self.clock.now >= member.deadline:
                self.clock.note("broker", f"session of {member.member_id} expired")
                self.remove(member.member_id)
            else:
                self.clock.at(member.deadline, look)

        self.clock.at(member.deadline, look)

    def remove(self, member_id: str) -> None:
        """A member leaves or is put out."""
        member = self.members.pop(member_id)
        self._pending_sync.discard(member_id)
        if member.join is not None:
            member.join(JoinGroupResponse(error_code=E.UNKNOWN_MEMBER_ID, protocol_name=""))
        if self.leader == member_id:
            self.leader = next(iter(self.members), "")
        if self.state in {GroupState.STABLE, GroupState.COMPLETING}:
            self.prepare()
        else:
            self._try_complete()

    # -- joining ------------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, version: int, reply: Reply) -> None:
        """JoinGroup: answered at once, or when the group has gathered."""
        member_id, instance_id = request.member_id, request.group_instance_id
        if not member_id:
            self._join_new(request, version, reply)
        elif member_id in self._pending:
            del self._pending[member_id]
            self._add(member_id, request, reply)
        else:
            code = self.check_member(member_id, instance_id)
            if code:
                reply(JoinGroupResponse(error_code=code, protocol_name="", member_id=member_id))
            else:
                self._join_known(self.members[member_id], request, reply)

    def _join_new(self, request: JoinGroupRequest, version: int, reply: Reply) -> None:
        self._ids += 1
        member_id = f"{request.group_instance_id or DYNAMIC}-{self._ids}"
        if request.group_instance_id is not None:
            static = self.static_member(request.group_instance_id)
            if static is not None:
                self._replace(static, member_id, request, version, reply)
            else:
                self._add(member_id, request, reply)
        elif version >= 4:
            self._pending[member_id] = deadline = self.clock.now + request.session_timeout_ms / 1000
            self.clock.at(deadline, lambda: self._expire_pending(member_id))
            reply(JoinGroupResponse(error_code=E.MEMBER_ID_REQUIRED, member_id=member_id, protocol_name=""))
        else:
            self._add(member_id, request, reply)

    def _expire_pending(self, member_id: str) -> None:
        if self._pending.pop(member_id, None) is not None:
            self._try_complete()

    def _add(self, member_id: str, request: JoinGroupRequest, reply: Reply) -> None:
        member = self._member(member_id, request)
        member.join = reply
        self.members[member_id] = member
        self._watch_session(member, self._loads)
        self.prepare()

    def _member(self, member_id: str, request: JoinGroupRequest) -> GroupMember:
        session_s = request.session_timeout_ms / 1000
        return GroupMember(
            member_id,
            request.group_instance_id,
            session_s,
            request.rebalance_timeout_ms / 1000,
            request.protocols,
            self.clock.now + session_s,
        )

    def _join_known(self, member: GroupMember, request: JoinGroupRequest, reply: Reply) -> None:
        same = member.protocols == request.protocols
        if self.state is GroupState.COMPLETING and same:
            reply(self._joined(member))  # the answer was lost: the same again
            return
        if self.state is GroupState.STABLE and same and member.member_id != self.leader:
            reply(self._joined(member))
            return
        member.protocols, member.join = request.protocols, reply
        self.prepare()

    def _replace(self, old: GroupMember, member_id: str, request: JoinGroupRequest, version: int, reply: Reply) -> None:
        """A static member is back under a new id: its predecessor is fenced, in a stable group nothing moves."""
        for callback, answer in (
            (old.join, JoinGroupResponse(error_code=E.FENCED_INSTANCE_ID, protocol_name="")),
            (old.sync, SyncGroupResponse(error_code=E.FENCED_INSTANCE_ID)),
        ):
            if callback is not None:
                callback(answer)
        new = replace(self._member(member_id, request), assignment=old.assignment)
        self.members = {m.member_id: m for m in (new if m is old else m for m in self.members.values())}
        self._pending_sync = {member_id if m == old.member_id else m for m in self._pending_sync}
        old_leader = self.leader
        if self.leader == old.member_id:
            self.leader = member_id
        self._watch_session(new, self._loads)
        if self.state is GroupState.STABLE:
            self._store()
            leads = self.leader == member_id
            if version >= 9:
                reply(replace(self._joined(new), skip_assignment=leads))
            else:  # told its predecessor's id as the leader's: it must not assign anew
                reply(replace(self._joined(new), leader=old_leader, members=()))
            return
        new.join = reply
        self.prepare()

    def _joined(self, member: GroupMember) -> JoinGroupResponse:
        described: tuple[JoinGroupResponseMember, ...] = ()
        if member.member_id == self.leader:
            described = tuple(
                JoinGroupResponseMember(
                    member_id=m.member_id, group_instance_id=m.instance_id, metadata=m.metadata(self.protocol)
                )
                for m in self.members.values()
            )
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_name=self.protocol,
            leader=self.leader,
            member_id=member.member_id,
            members=described,
        )

    # -- rebalancing --------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Begin a rebalance, unless one is under way: every member is to join again."""
        if self.state is not GroupState.PREPARING:
            if self.state is GroupState.COMPLETING:
                self._answer_syncs(SyncGroupResponse(error_code=E.REBALANCE_IN_PROGRESS))
            self._initial = self.state is GroupState.EMPTY and self._initial_delay_s > 0
            self.state = GroupState.PREPARING
            self._pending_sync.clear()
            self._arm(self._initial_delay_s if self._initial else self._patience())
        self._try_complete()

    def _patience(self) -> float:
        return max((m.rebalance_s for m in self.members.values()), default=0.0)

    def _arm(self, seconds: float) -> None:
        self._round += 1
        this_round = self._round

        def due() -> None:
            if self._round == this_round and self.state is GroupState.PREPARING:
                self._complete()

        self.clock.after(seconds, due)

    def _try_complete(self) -> None:
        gathered = all(m.join is not None for m in self.members.values()) and not self._pending
        if self.state is GroupState.PREPARING and not self._initial and gathered:
            self._complete()

    def _complete(self) -> None:
        """All have joined, or the time is over: dynamic members that have not are put out, static ones stay."""
        for member in tuple(self.members.values()):
            if member.join is None and member.instance_id is None:
                self.clock.note("broker", f"{member.member_id} did not rejoin in time")
                del self.members[member.member_id]
        joined = [m for m in self.members.values() if m.join is not None]
        if self.members and not joined:
            self._arm(self._patience())
            return
        self._initial = False
        self._round += 1
        self.generation += 1
        if not self.members:
            self.state = GroupState.EMPTY
            self._store()
            return
        if not any(m.member_id == self.leader for m in joined):
            self.leader = joined[0].member_id
        offered = [{p.name for p in m.protocols} for m in self.members.values()]
        self.protocol = next(p.name for p in joined[0].protocols if all(p.name in names for names in offered))
        self.state = GroupState.COMPLETING
        self._pending_sync = set(self.members)
        self.clock.note("broker", f"generation {self.generation}: {', '.join(self.members)}; {self.leader} leads")
        for member in tuple(self.members.values()):
            self.alive(member.member_id)
            member.assignment = b""
            callback, member.join = member.join, None
            if callback is not None:
                callback(self._joined(member))
        this_round = self._round
        self.clock.after(self._patience(), lambda: self._expire_syncs(this_round))

    def _expire_syncs(self, this_round: int) -> None:
        if self._round == this_round and self.state in {GroupState.COMPLETING, GroupState.STABLE}:
            for member_id in sorted(self._pending_sync & self.members.keys()):
                if member_id in self._pending_sync:
                    self.remove(member_id)

    # -- the assignment -----------------------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, reply: Reply) -> None:
        """SyncGroup: answered when the leader's has come."""
        code = self.check(request.member_id, request.group_instance_id, request.generation_id)
        if not code and self.state is GroupState.PREPARING:
            code = E.REBALANCE_IN_PROGRESS
        if code or self.state is GroupState.EMPTY:
            reply(SyncGroupResponse(error_code=code or E.UNKNOWN_MEMBER_ID))
            return
        member = self.members[request.member_id]
        self._pending_sync.discard(member.member_id)
        self.alive(member.member_id)
        if self.state is GroupState.STABLE:
            reply(SyncGroupResponse(assignment=member.assignment))
            return
        member.sync = reply
        if member.member_id == self.leader:
            given = {a.member_id: bytes(a.assignment) for a in request.assignments}
            for each in self.members.values():
                each.assignment = given.get(each.member_id, b"")
            self.state = GroupState.STABLE
            self._store()
            self._answer_syncs(None)

    def _answer_syncs(self, refusal: SyncGroupResponse | None) -> None:
        for member in tuple(self.members.values()):
            callback, member.sync = member.sync, None
            if callback is not None:
                self.alive(member.member_id)
                callback(refusal or SyncGroupResponse(assignment=member.assignment))

    def described(self, group_id: str) -> DescribedGroup:
        """Describe the members. Subscriptions and assignments are empty unless the group is stable."""
        is_stable = self.state is GroupState.STABLE
        members = tuple(
            DescribedGroupMember(
                member_id=m.member_id,
                group_instance_id=m.instance_id,
                member_metadata=m.metadata(self.protocol) if is_stable else b"",
                member_assignment=m.assignment if is_stable else b"",
            )
            for m in self.members.values()
        )
        return DescribedGroup(group_id=group_id, group_state=self.state.value, members=members)

    def delete(self) -> None:
        """The group, which is empty, expires: its generations begin at 1 again."""
        assert not self.members
        self.generation, self.protocol, self.leader = 0, "", ""
        self._pending.clear()
        self._stored = Stored()

    # -- a move of the coordinator ------------------------------------------------------------------------------------

    def _store(self) -> None:
        members = [replace(m, join=None, sync=None) for m in self.members.values()]
        self._stored = Stored(self.generation, self.protocol, self.leader, members)

    def reload(self, *, answer: bool, ready_at: float) -> None:
        """Another broker loads the group from its log: what was not stored is gone (a rebalance under way, too)."""
        waiting = list(self.members.values())
        stored = self._stored
        self._loads += 1
        self._round += 1
        self.generation, self.protocol, self.leader = stored.generation, stored.protocol, stored.leader
        self.members = {m.member_id: replace(m) for m in stored.members}
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self._pending.clear()
        self._pending_sync.clear()
        self._initial = False
        for member in self.members.values():
            member.deadline = ready_at + member.session_s
            self._watch_session(member, self._loads)
        for gone in waiting if answer else ():
            if gone.join is not None:
                gone.join(JoinGroupResponse(error_code=E.NOT_COORDINATOR, protocol_name=""))
            if gone.sync is not None:
                gone.sync(SyncGroupResponse(error_code=E.NOT_COORDINATOR))

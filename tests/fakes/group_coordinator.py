"""The coordinator of one group, in memory: membership (`group.py`), the offsets that it keeps, and its answers to both.

`GroupCoordinator` is what the simulation puts behind a network, and the unit tests behind `ScriptedCoordinator`, which
refuses or forgets what a test says. Checks are in Kafka's order: the member, its instance, its generation, the state.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Any

from streamgroup.errors import ErrorCode as E
from streamgroup.group.commits import CommitMetadata
from streamgroup.kafka.wire.messages.admin import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from streamgroup.kafka.wire.messages.cluster import MetadataRequest, MetadataResponse, MetadataResponseTopic
from streamgroup.kafka.wire.messages.group import (
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
)
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest
from streamgroup.kafka.wire.schema import decode, encode
from streamgroup.model import CommittedOffset, TopicPartition
from tests.fakes.consumer_group import ConsumerGroup
from tests.fakes.group import Clock, Group, GroupMember, GroupState, Reply, StoppedClock
from tests.fakes.offsets import (
    batch_bytes,
    commit_answer,
    fetch_answer,
    offsets_in,
    wanted_by,
    zookeepers_answer,
)


@dataclass(eq=False)
class GroupCoordinator:
    """The broker that is the coordinator, with the group loaded."""

    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    clock: Clock = field(default_factory=StoppedClock)
    initial_delay_s: float = 0.0
    consumers: ConsumerGroup | None = None
    """The group, if its members use the consumer protocol. None: they use the classic one."""

    def __post_init__(self) -> None:
        self._classic = Group(self.clock, self.initial_delay_s)

    @property
    def group(self) -> Group:
        """The group, whose members use the classic protocol."""
        assert self.consumers is None
        return self._classic

    @property
    def keeper(self) -> Group | ConsumerGroup:
        return self.consumers or self._classic

    @property
    def members(self) -> dict[str, GroupMember]:
        return self.group.members

    @property
    def generation(self) -> int:
        return self.keeper.generation

    def handle(self, request: Any, version: int, reply: Reply) -> None:
        """Answer a request, now or when the group has gathered."""
        match request:
            case JoinGroupRequest():
                self.group.join(request, version, reply)
            case SyncGroupRequest():
                self.group.sync(request, reply)
            case HeartbeatRequest():
                reply(HeartbeatResponse(error_code=self._heartbeat(request)))
            case LeaveGroupRequest():
                reply(self._leave(request))
            case DescribeGroupsRequest():
                reply(DescribeGroupsResponse(groups=tuple(map(self.keeper.described, request.groups))))
            case ConsumerGroupHeartbeatRequest():
                assert self.consumers is not None
                reply(self.consumers.heartbeat(request))
            case ConsumerGroupDescribeRequest():
                assert self.consumers is not None
                described = tuple(map(self.consumers.described_consumers, request.group_ids))
                reply(ConsumerGroupDescribeResponse(groups=described))
            case OffsetCommitRequest():
                reply(self.commit(request))
            case OffsetFetchRequest():
                assert request.require_stable, "R19"
                wanted = wanted_by(request)
                offsets = {tp: offset for tp, offset in self.offsets.items() if wanted is None or tp in wanted}
                unstable = [tp for tp in self.unstable() if wanted is None or tp in wanted]
                reply(fetch_answer(request.groups[0].group_id, offsets, self.refusal_of_fetch(), unstable))
            case _:
                raise AssertionError(f"a coordinator does not answer {request}")

    # -- membership ---------------------------------------------------------------------------------------------------

    def _heartbeat(self, request: HeartbeatRequest) -> int:
        code = self.group.check(request.member_id, request.group_instance_id, request.generation_id)
        if code:
            return code
        self.group.alive(request.member_id)
        return E.REBALANCE_IN_PROGRESS if self.group.state is GroupState.PREPARING else 0

    def _leave(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """Before v3 one member leaves, and its code is that of the answer."""
        if not request.members:
            return LeaveGroupResponse(error_code=self._leaves(MemberIdentity(member_id=request.member_id)))
        rows = [
            MemberResponse(member_id=each.member_id, group_instance_id=None, error_code=self._leaves(each))
            for each in request.members
        ]
        return LeaveGroupResponse(members=tuple(rows))

    def _leaves(self, identity: MemberIdentity) -> int:
        code = self.group.check_member(identity.member_id, identity.group_instance_id)
        if not code:
            self.clock.note("broker", f"{identity.member_id} leaves")
            self.group.remove(identity.member_id)
        return code

    # -- offsets ------------------------------------------------------------------------------------------------------

    def refusal_of_commit(self, request: OffsetCommitRequest) -> int:
        """Why a commit is not accepted, or 0. While members are gathered it is accepted, while they sync it is not."""
        member_id, generation = request.member_id, request.generation_id_or_member_epoch
        if is_of_no_member(request):
            return E.UNKNOWN_MEMBER_ID if self.keeper.members else 0
        if self.consumers is not None:
            return self.consumers.refusal_of_commit(member_id, request.group_instance_id, generation)
        code = self.group.check(member_id, request.group_instance_id, generation)
        if not code and self.group.state is GroupState.COMPLETING:
            return E.REBALANCE_IN_PROGRESS
        return code

    def refusal_of_partition(self, request: OffsetCommitRequest, tp: TopicPartition) -> int:
        """Why an accepted commit does not count for one partition, or 0."""
        if self.consumers is None or is_of_no_member(request):
            return 0
        return self.consumers.refusal_of_partition(request.member_id, request.generation_id_or_member_epoch, tp)

    def refusal_of_fetch(self) -> int:
        """Why the offsets are not told, or 0."""
        return 0

    def unstable(self) -> Set[TopicPartition]:
        """The partitions with an offset in an open transaction."""
        return frozenset()

    def commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        """Answer a commit at once."""
        code = self.refusal_of_commit(request)
        if not code and request.member_id in self.keeper.members:
            self.keeper.alive(request.member_id)
        rows = offsets_in(request)
        codes = {tp: code or self.refusal_of_partition(request, tp) for tp in rows}
        self.store(request, {tp: row for tp, row in rows.items() if not codes[tp]})
        return commit_answer(request, codes.__getitem__)

    def store(self, request: OffsetCommitRequest, accepted: dict[TopicPartition, CommittedOffset]) -> None:
        """Keep what is accepted of a commit."""
        self.offsets |= accepted


@dataclass(eq=False)
class ScriptedCoordinator(GroupCoordinator):
    """A coordinator whose refusals a test writes down, in a group whose members no time puts out.

    It is also the broker that is asked where the coordinator is, and which topics there are.
    """

    refusals: list[int] = field(default_factory=list)
    """Codes for the next commits; 0 accepts one."""
    batch_limit: tuple[int, int] | None = None
    """The bytes that the partitions of one commit may take as one record batch, and the code for more."""
    fetch_refusals: list[int] = field(default_factory=list)
    deleted: set[TopicPartition] = field(default_factory=set)
    commits: list[tuple[str, int, dict[TopicPartition, int]]] = field(default_factory=list)
    knows_topics: bool = True
    starting: int = 0
    """So many times it tells no topic: it has just started."""

    def handle(self, request: Any, version: int, reply: Reply) -> None:
        match request:
            case FindCoordinatorRequest() if version >= 4:
                found = FoundCoordinator(key=request.coordinator_keys[0], node_id=1, host="localhost", port=9092)
                reply(FindCoordinatorResponse(coordinators=(found,)))
            case FindCoordinatorRequest():
                reply(FindCoordinatorResponse(node_id=1, host="localhost", port=9092))
            case OffsetFetchRequest() if version == 0:
                reply(zookeepers_answer(request, self.offsets, () if self.knows_topics else ("t",)))
            case MetadataRequest():
                self.knows_topics = not self.starting
                self.starting = max(0, self.starting - 1)
                topics = (MetadataResponseTopic(name="t", error_code=0),) if self.knows_topics else ()
                reply(MetadataResponse(topics=topics))
            case _:
                super().handle(request, version, reply)

    def refusal_of_commit(self, request: OffsetCommitRequest) -> int:
        code = (self.refusals.pop(0) if self.refusals else 0) or super().refusal_of_commit(request)
        if not code and self.batch_limit is not None:
            most, too_large = self.batch_limit
            return too_large if batch_bytes(request.group_id, offsets_in(request)) > most else 0
        return code

    def refusal_of_partition(self, request: OffsetCommitRequest, tp: TopicPartition) -> int:
        return E.UNKNOWN_TOPIC_OR_PARTITION if tp in self.deleted else super().refusal_of_partition(request, tp)

    def refusal_of_fetch(self) -> int:
        return self.fetch_refusals.pop(0) if self.fetch_refusals else 0

    def store(self, request: OffsetCommitRequest, accepted: dict[TopicPartition, CommittedOffset]) -> None:
        super().store(request, accepted)
        if accepted:
            offsets = {tp: offset.offset for tp, offset in accepted.items()}
            self.commits.append((request.member_id, request.generation_id_or_member_epoch, offsets))

    def expel(self, member_id: str) -> None:
        """The member's session is over for the coordinator."""
        self.keeper.remove(member_id)

    def gather(self) -> None:
        """A rebalance begins, as if another member had come."""
        self.group.prepare()

    def metadata(self, tp: TopicPartition) -> CommitMetadata:
        metadata = CommitMetadata.parse(self.offsets[tp].metadata)
        assert metadata is not None
        return metadata


def is_of_no_member(request: OffsetCommitRequest) -> bool:
    """Whether the commit is a tool's or of a query that assigns itself: taken while the group has no members."""
    return (request.member_id, request.generation_id_or_member_epoch) == ("", -1)


def through_bytes(coordinator: GroupCoordinator, request: Any, version: int, reply: Callable[[Any], None]) -> None:
    """Have a request handled as a connection carries it: it and its answer go through their bytes."""
    api = type(request)

    def answered(response: Any) -> None:
        reply(decode(api.RESPONSE, encode(response, version), version))

    coordinator.handle(decode(api, encode(request, version), version), version, answered)

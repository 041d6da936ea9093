"""The simulated cluster: logs that grow, and three nodes between which the group's coordinator moves.

`SimBroker.handle` checks what the moves make of a request: is this node the coordinator, and has it loaded the group.
`tests/fakes/group_coordinator.py` answers the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, cast

from streamgroup.errors import ErrorCode as E
from streamgroup.group.commits import CommitMetadata
from streamgroup.group.consumer_membership import ConsumerMembership
from streamgroup.group.membership import Membership
from streamgroup.group.standalone import StandaloneMember
from streamgroup.kafka.wire.messages.admin import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from streamgroup.kafka.wire.messages.group import (
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
    JoinGroupRequest,
    JoinGroupResponse,
)
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from streamgroup.model import NO_TOPIC_ID, CommittedOffset, LogRange, PartitionInfo, TopicInfo, TopicPartition
from streamgroup.options.types import GroupMode
from tests.fakes.consumer_group import ConsumerGroup
from tests.fakes.group import Group, GroupState, Reply
from tests.fakes.group_coordinator import GroupCoordinator, is_of_no_member
from tests.fakes.offsets import OFFSETS_VERSION, commit_answer, fetch_answer, offsets_in
from tests.sim.clock import SimulatedClock
from tests.sim.lines import GroupLines
from tests.sim.modes import lone_backend
from tests.sim.network import Network, Sender
from tests.sim.settings import GROUP_ID, Settings

if TYPE_CHECKING:
    from tests.sim.checker import Checker
    from tests.sim.process import Process
    from tests.sim.transactions import SimTransactions

NODES = 3
VERSIONS = {FindCoordinatorRequest: 4, OffsetCommitRequest: OFFSETS_VERSION, OffsetFetchRequest: OFFSETS_VERSION}


class Logs:
    """The topics: logs from offset 0 that grow and may be cut, partitions that are only added.

    `tests/fakes/cluster.py` has logs that tests write down; these move by themselves and are never listed.
    """

    def __init__(self, counts: Mapping[str, int], *, topic_ids: bool = True) -> None:
        self._topic_ids = topic_ids
        self.counts = dict(counts)
        self.ends = {TopicPartition(topic, p): 0 for topic, count in counts.items() for p in range(count)}
        self._infos: dict[str, TopicInfo] = {}

    def produce(self, tp: TopicPartition, count: int) -> None:
        self.ends[tp] += count

    def range(self, tp: TopicPartition) -> LogRange:
        """The offsets that the log holds."""
        return LogRange(0, self.ends[tp])

    def behind(self, tp: TopicPartition, offset: int, count: int) -> int:
        """The offset behind `count` more records, at most the end."""
        return min(self.ends[tp], offset + count)

    def record_at(self, tp: TopicPartition, offset: int) -> int:
        """Where the record begins that `offset` is at or in."""
        return offset

    def records(self, tp: TopicPartition, start: int, until: int) -> Sequence[int]:
        """The offsets of the records in `[start, until)`."""
        return range(start, until)

    def is_boundary(self, tp: TopicPartition, offset: int) -> bool:
        """Whether a record begins, or the log ends, at this offset."""
        return True

    def limit(self, records: int | None) -> int | None:
        """`maxOffsetsPerTrigger` for about so many records."""
        return records

    def cut(self, tp: TopicPartition, end: int) -> None:
        """The log was lost, and has as many new records."""
        self.ends[tp] = end

    def add_partitions(self, topic: str, count: int) -> None:
        for partition in range(self.counts[topic], self.counts[topic] + count):
            self.ends[TopicPartition(topic, partition)] = 0
        self.counts[topic] += count
        self._infos.clear()

    def was_away(self, tp: TopicPartition, since: float) -> bool:
        """Whether the only broker with this log was away at that time or later."""
        return False

    def topics(self) -> dict[str, TopicInfo]:
        if not self._infos:
            for topic, count in self.counts.items():
                infos = tuple(PartitionInfo(p, p % NODES) for p in range(count))
                self._infos[topic] = TopicInfo(topic, infos, f"id-{topic}" if self._topic_ids else NO_TOPIC_ID)
        return self._infos


class SimCoordinator(GroupCoordinator):
    """The coordinator of the group, some of whose offsets may be in open transactions."""

    transactions: SimTransactions | None = None

    def unstable(self) -> Set[TopicPartition]:
        return frozenset() if self.transactions is None else self.transactions.unstable()


class SimBroker:
    """The coordinator of the one group, on one of three nodes."""

    def __init__(self, clock: SimulatedClock, logs: Logs, checker: Checker, settings: Settings):
        self.clock = clock
        self.logs = logs
        consumers = None
        if settings.consumers is not None:
            timeouts = {"session_s": settings.session_s, "heartbeat_s": settings.heartbeat_s}
            consumers = ConsumerGroup(clock, logs.topics, release=settings.consumers, **timeouts)
        self._coordinator = SimCoordinator(clock=clock, initial_delay_s=settings.initial_delay_s, consumers=consumers)
        self.group: Group | ConsumerGroup = self._coordinator.keeper
        self.offsets = self._coordinator.offsets
        self.node = 0
        self.loaded_at = 0.0
        """When the node that is the coordinator now has loaded the group."""
        self.crashed: set[int] = set()
        self.join_version = settings.join_version
        self.guests_until = 0.0
        """Until then a consumer that commits nothing is a member, beside a query that is not one."""
        self._checker = checker

    def version(self, api: type[Any]) -> int:
        """The version that connections agree on for `api`."""
        if api is JoinGroupRequest:
            return self.join_version
        highest: int = VERSIONS.get(api) or api.VERSIONS[1]
        return highest

    def handle(self, node: int, request: Any, reply: Reply, sender: Sender) -> None:
        """Answer a request that has reached `node`."""
        if isinstance(request, FindCoordinatorRequest):
            found = FoundCoordinator(key=GROUP_ID, node_id=self.node, host=f"node-{self.node}", port=9092)
            if self.node in self.crashed:
                found = FoundCoordinator(key=GROUP_ID, error_code=E.COORDINATOR_NOT_AVAILABLE)
            reply(FindCoordinatorResponse(coordinators=(found,)))
            return
        code = E.NOT_COORDINATOR if node != self.node else 0
        if not code and self.clock.now < self.loaded_at:
            code = E.COORDINATOR_LOAD_IN_PROGRESS
        if isinstance(request, OffsetCommitRequest) and is_of_no_member(request) and not self.is_empty:
            code = code or E.UNKNOWN_MEMBER_ID
        if code:
            reply(_refusal(request, code))
            return
        if isinstance(request, OffsetCommitRequest) and not self._coordinator.refusal_of_commit(request):
            self.accepted(sender, request)
        if isinstance(request, ConsumerGroupHeartbeatRequest):
            process = cast("Process", sender)
            process.was_replaced = self.is_replaced(process)
        if isinstance(request, OffsetFetchRequest) and isinstance(self.group, ConsumerGroup):
            # It was told that nothing is committed: what it has gained by then existed before the first commit, though
            # a member of an earlier epoch may make that commit while this one looks the log up (R7).
            self._checker.told(cast("Process", sender), nothing=not self.offsets)
        self._coordinator.handle(request, self.version(type(request)), reply)

    def accepted(self, sender: Sender, request: OffsetCommitRequest) -> None:
        """A commit is accepted, at least for some of its partitions."""
        rows = offsets_in(request)
        taken = {tp: row for tp, row in rows.items() if not self._coordinator.refusal_of_partition(request, tp)}
        offsets = {tp: row.offset for tp, row in taken.items()}
        process, generation = cast("Process", sender), request.generation_id_or_member_epoch
        founding = generation
        if isinstance(self.group, ConsumerGroup) and taken:
            metadata = CommitMetadata.parse(next(iter(taken.values())).metadata)
            assert metadata is not None
            founding = metadata.founding
        self._checker.committed(process, request.member_id, generation, offsets, founding)

    def is_unstable(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether an offset of these is in an open transaction: it is not told before that is over."""
        return not self._coordinator.unstable().isdisjoint(partitions)

    def keep_with(self, transactions: SimTransactions) -> None:
        """Transactions commit the group's offsets."""
        self._coordinator.transactions = transactions

    def refusal_in_transaction(self, request: OffsetCommitRequest, partitions: Collection[TopicPartition]) -> int:
        """Why a transaction may not commit these offsets, or 0: as a commit, but also while the members sync, and those
        of no member (clients before KIP-447 name none)."""
        if is_of_no_member(request):
            return 0
        code = self._coordinator.refusal_of_commit(request)
        if code and code != E.REBALANCE_IN_PROGRESS:
            return code
        refused = (self._coordinator.refusal_of_partition(request, tp) for tp in partitions)
        return next((code for code in refused if code), 0)

    def move(self, *, crash: bool, load_s: float) -> int:
        """Another node becomes the coordinator; returns the one that was. A crashed node is back when it is loaded."""
        was, self.node = self.node, (self.node + 1) % NODES
        self.loaded_at = self.clock.now + load_s
        if crash:
            self.crashed.add(was)
            self.clock.after(load_s, lambda: self.crashed.discard(was))
        self.group.reload(answer=not crash, ready_at=self.loaded_at)
        return was

    # -- as the keeper of the group -----------------------------------------------------------------------------------

    def backend(
        self, process: Process, network: Network
    ) -> tuple[Membership | ConsumerMembership | StandaloneMember, GroupLines]:
        """Return the machine that makes a process a member, and the lines that carry its actions out."""
        if process.settings.mode is not GroupMode.MEMBER:
            return lone_backend(process, network, self)
        query = process.query
        config = process.settings.member_config(query.instance_id)
        machine = Membership if process.settings.consumers is None else ConsumerMembership
        return machine(config, query.chance), GroupLines(process, network, self)

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return self.group.state is GroupState.EMPTY and self.clock.now >= self.guests_until

    def grew(self, topic: str) -> None:
        """A topic has more partitions: whoever asks for the metadata sees it."""

    def calm_down(self) -> None:
        """Let guests leave. Movements of the coordinator end by themselves."""
        self.guests_until = 0.0

    def is_put_out(self, process: Process) -> bool:
        """Whether the coordinator knows the member no more, or not in its generation."""
        ledger = process.ledger
        if isinstance(self.group, ConsumerGroup):
            return self.group.has_fenced(ledger.member_id, process.query.instance_id, ledger.generation)
        return bool(self.group.check(ledger.member_id, process.query.instance_id, ledger.generation))

    def is_member(self, process: Process) -> bool:
        """Whether the coordinator knows the member, in whatever generation."""
        return _member_id(process) in self.group.members

    def is_replaced(self, process: Process) -> bool:
        """Whether another process has the place of this one's static member."""
        instance_id = process.query.instance_id
        static = self.group.static_member(instance_id) if instance_id else None
        return static is not None and static.member_id != _member_id(process)

    def behind(self) -> list[TopicPartition]:
        """The partitions of which one of the group's stores lacks a commit that the other has: it has one store."""
        return []

    # -- offsets ------------------------------------------------------------------------------------------------------

    def fetched(self) -> dict[TopicPartition, CommittedOffset]:
        """The offsets that the group has committed, as another connection asks for them (R13)."""
        return dict(self.offsets)

    def delete_group(self) -> bool:
        """A group that is empty expires, with its offsets. Returns whether it did."""
        if not self.is_empty or self.clock.now < self.loaded_at:
            return False
        self.group.delete()
        self.offsets.clear()
        self._checker.group_deleted()
        return True

    def reset(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """An operator's `--reset-offsets`: a group without members takes commits from anybody."""
        if not self.is_empty or self.clock.now < self.loaded_at:
            return False
        for tp, offset in offsets.items():
            self._checker.reset(tp, self.offsets.get(tp), offset)
            self.offsets[tp] = CommittedOffset(offset)
        return True


def _refusal(request: Any, code: int) -> Any:
    """`code` in the shape that this request's answer has."""
    match request:
        case JoinGroupRequest():
            return JoinGroupResponse(error_code=code, protocol_name="", member_id=request.member_id)
        case OffsetCommitRequest():
            return commit_answer(request, lambda _: code)
        case OffsetFetchRequest():
            return fetch_answer(GROUP_ID, {}, code)
        case ConsumerGroupDescribeRequest():
            described = DescribedConsumerGroup(group_id=GROUP_ID, error_code=code)
            return ConsumerGroupDescribeResponse(groups=(described,))
        case DescribeGroupsRequest():
            return DescribeGroupsResponse(groups=(DescribedGroup(group_id=GROUP_ID, error_code=code),))
        case _:
            return type(request).RESPONSE(error_code=code)


def _member_id(process: Process) -> str:
    membership = process.membership
    assert isinstance(membership, Membership | ConsumerMembership | StandaloneMember), "its group is in ZooKeeper"
    return membership.member_id

"""One machine and what the coordinator answers it, written by hand: for the scenarios of one member."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamgroup.errors import ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.membership import Membership
from streamgroup.group.state_machine import State
from streamgroup.group.timing import MemberConfig
from streamgroup.kafka.wire.consumer import (
    ConsumerAssignment,
    ConsumerSubscription,
    by_topic,
    encode_assignment,
    encode_subscription,
)
from streamgroup.kafka.wire.messages.admin import (
    ConsumerGroupAssignment,
    ConsumerGroupDescribeResponse,
    ConsumerGroupMember,
    ConsumerGroupTopicPartitions,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from streamgroup.kafka.wire.messages.group import (
    FindCoordinatorResponse,
    FoundCoordinator,
    HeartbeatResponse,
    JoinGroupResponse,
    SyncGroupResponse,
)
from streamgroup.model import PartitionInfo, TopicInfo, TopicPartition


class Even:
    """Chance without any: the middle."""

    def random(self) -> float:
        return 0.5


def topics(**leaders: list[int]) -> Mapping[str, TopicInfo]:
    return {
        name: TopicInfo(name, tuple(PartitionInfo(i, leader) for i, leader in enumerate(of)))
        for name, of in leaders.items()
    }


def subscription_of(*names: str) -> bytes:
    return encode_subscription(ConsumerSubscription(topics=names))


def assignment_of(partitions: list[TopicPartition], user_data: bytes | None = None) -> bytes:
    return encode_assignment(ConsumerAssignment(assigned_partitions=by_topic(partitions), user_data=user_data))


def coordinator_is(node_id: int) -> FindCoordinatorResponse:
    row = FoundCoordinator(key="orders-ingest", node_id=node_id, host=f"kafka-{node_id}", port=9092)
    return FindCoordinatorResponse(coordinators=(row,))


def tps(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def group_of(state: str = "Stable", code: int = 0, **members: list[TopicPartition]) -> DescribeGroupsResponse:
    """A group whose members have these partitions, and subscribe to their topics."""
    described = tuple(
        DescribedGroupMember(
            member_id=name,
            member_metadata=subscription_of(*{tp.topic: None for tp in partitions}),
            member_assignment=assignment_of(partitions),
        )
        for name, partitions in members.items()
    )
    group = DescribedGroup(group_id="orders-ingest", group_state=state, error_code=code, members=described)
    return DescribeGroupsResponse(groups=(group,))


class Driver:
    """Feeds one machine, keeps its actions and the requests that are out."""

    strategy = "streamgroup-range"
    """Of the group that it joins."""

    def __init__(self, subscribed: tuple[str, ...] = ("t",), **config: Any) -> None:
        self.machine = Membership(MemberConfig("orders-ingest", **config), Even())
        self.subscribed = subscribed
        self.now = 1000.0
        self.actions: list[ev.Action] = []
        self.out: dict[str, ev.Send] = {}
        self.group: DescribeGroupsResponse | None = None
        """What the coordinator answers when a follower has its assignment and asks for all; None: it may not know."""

    def step(self, event: ev.Event, after: float = 0.0) -> list[ev.Action]:
        self.now += after
        self.actions = self.machine.step(event, self.now)
        self.out |= {a.api.NAME: a for a in self.actions if isinstance(a, ev.Send)}
        return self.actions

    def answer(self, response: Any, version: int | None = None, after: float = 0.0) -> list[ev.Action]:
        name = type(response).__name__.removesuffix("Response")
        send = self.out.pop(name)
        self.step(ev.RequestAnswered(send.token, response, send.api.VERSIONS[1] if version is None else version), after)
        if name == "SyncGroup" and "DescribeGroups" in self.out:
            notes = [action for action in self.actions if isinstance(action, ev.Note)]
            self.actions = notes + self.answer(self.group or group_of(code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return self.actions

    def fail(self, name: str, reason: str = "connection reset") -> list[ev.Action]:
        return self.step(ev.RequestFailed(self.out.pop(name).token, reason))

    def tick(self, after: float) -> list[ev.Action]:
        return self.step(ev.Tick(), after)

    def only(self, kind: type[Any]) -> Any:
        (found,) = (a for a in self.actions if isinstance(a, kind))
        return found

    def has(self, kind: type[Any]) -> bool:
        return any(isinstance(a, kind) for a in self.actions)

    def notes(self) -> str:
        return "\n".join(a.text for a in self.actions if isinstance(a, ev.Note))

    def request(self, name: str, version: int | None = None) -> Any:
        send = self.out[name]
        return send.build(send.api.VERSIONS[1] if version is None else version)

    # the way in, as far as a scenario needs it

    def started(self) -> Driver:
        self.step(ev.Start(self.subscribed))
        return self

    def found(self) -> Driver:
        self.started()
        self.answer(coordinator_is(3))
        return self

    def joined(self, generation: int = 1, member_id: str = "me", leader: str = "other", **more: Any) -> Driver:
        self.answer(
            JoinGroupResponse(
                generation_id=generation, protocol_name=self.strategy, leader=leader, member_id=member_id, **more
            )
        )
        return self

    def stable(self, partitions: list[TopicPartition], generation: int = 1, **more: Any) -> Driver:
        if self.machine.state is State.UNJOINED:
            self.found()
        self.joined(generation, **more)
        self.answer(SyncGroupResponse(assignment=assignment_of(partitions)))
        return self

    def begin(self) -> None:
        """A batch is planned, and its data asked for."""
        self.step(ev.Planned())
        self.step(ev.Asked())

    def beat(self, code: int = 0, after: float = 0.0) -> list[ev.Action]:
        return self.answer(HeartbeatResponse(error_code=code), after=after)


def described(
    code: int = 0, epoch: int = 3, assigned_in: int | None = None, group_epoch: int | None = None, **target: list[int]
) -> Any:
    """The group of one member in `epoch`, with this target. The epochs of group and target are the same by default."""
    topics = tuple(
        ConsumerGroupTopicPartitions(topic_name=name, partitions=tuple(numbers)) for name, numbers in target.items()
    )
    member = ConsumerGroupMember(
        member_id="streamgroup:abc:def",
        member_epoch=epoch,
        target_assignment=ConsumerGroupAssignment(topic_partitions=topics),
    )
    group = DescribedConsumerGroup(
        error_code=code,
        group_id="orders-ingest",
        group_epoch=epoch if group_epoch is None else group_epoch,
        assignment_epoch=epoch if assigned_in is None else assigned_in,
        members=(member,),
    )
    return ConsumerGroupDescribeResponse(groups=(group,))

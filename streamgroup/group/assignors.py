"""Who gets which partitions: pure functions in a table by the name that the group protocol knows them by.

`streamgroup-range` is ours: per topic, chunks of the partitions sorted by broker and partition, so that a member reads
from few brokers. `range` and `roundrobin` give what the Java client's RangeAssignor and RoundRobinAssignor give (its
members without racks), so that a Java consumer and ours may share a group, whoever leads it; so does
`cooperative-sticky` (`sticky.py`), which alone looks at what the members own.

All are disjoint and, but for what `cooperative-sticky` withholds until it is given up, total: each partition of a
subscribed topic has one owner. None depends on the order in which topics are handed in, and `cooperative-sticky` alone,
in rare cases, as Java's does, on that of the members.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence

from streamgroup.group.assigning import Assignment, Assignor, GroupMember, java_order, subscribed
from streamgroup.group.sticky import assign_cooperative_sticky
from streamgroup.model import NO_LEADER, PartitionInfo, TopicInfo, TopicPartition

__all__ = ["ASSIGNORS", "COOPERATIVE", "Assignment", "Assignor", "GroupMember", "chunks", "member_order"]


def member_order(members: Mapping[str, GroupMember]) -> list[str]:
    """The member ids as all assignors walk them (R24): by `group.instance.id` where present, these first, then by
    member id. It is the order of Java's `MemberInfo.compareTo`, so that a static member's restart moves no chunk."""

    def key(member_id: str) -> tuple[bool, bytes]:
        instance_id = members[member_id].instance_id
        return instance_id is None, java_order(member_id if instance_id is None else instance_id)

    return sorted(members, key=key)


def assign_streamgroup_range(members: Mapping[str, GroupMember], topics: Mapping[str, TopicInfo]) -> Assignment:
    """Per topic, contiguous chunks of the partitions sorted by (leader, partition); partitions without a leader last.

    3 members, 2 brokers with 3 partitions each: 0-0 0-1, 0-2 1-0, 1-1 1-2. 18 partitions, 4 members: 5-5-4-4.
    """
    return _assign_chunks(members, topics, _by_broker)


def assign_range(members: Mapping[str, GroupMember], topics: Mapping[str, TopicInfo]) -> Assignment:
    """Java's RangeAssignor: per topic, contiguous chunks of the partitions sorted by number."""
    return _assign_chunks(members, topics, _by_number)


def assign_roundrobin(members: Mapping[str, GroupMember], topics: Mapping[str, TopicInfo]) -> Assignment:
    """Java's RoundRobinAssignor: all partitions of all topics in one row, dealt in turn to those who subscribe."""
    assignment: Assignment = {member_id: [] for member_id in members}
    ordered = member_order(members)
    subscribers = _subscribers(members, ordered)
    turn = 0
    for topic in subscribed(members, topics):
        owners = subscribers[topic]
        for partition in _by_number(topics[topic].partitions):
            owner = owners[bisect_left(owners, turn) % len(owners)]  # the next in the circle that subscribes
            turn = owner + 1
            assignment[ordered[owner]].append(TopicPartition(topic, partition.partition))
    return assignment


ASSIGNORS: Mapping[str, Assignor] = {
    "streamgroup-range": assign_streamgroup_range,
    "range": assign_range,
    "roundrobin": assign_roundrobin,
    "cooperative-sticky": assign_cooperative_sticky,
}
"""By the name in JoinGroup."""

COOPERATIVE: frozenset[str] = frozenset({"cooperative-sticky"})
"""The strategies under which members join with what they hold and give up only what the assignment lacks (KIP-429).
Under all others partitions are given up before joining."""


def chunks(count: int, parts: int) -> Iterator[range]:
    """`count` things in `parts` contiguous chunks, the first ones one longer where it does not divide."""
    size, longer = divmod(count, parts)
    start = 0
    for part in range(parts):
        end = start + size + (part < longer)
        yield range(start, end)
        start = end


def _assign_chunks(
    members: Mapping[str, GroupMember],
    topics: Mapping[str, TopicInfo],
    sort: Callable[[Sequence[PartitionInfo]], list[PartitionInfo]],
) -> Assignment:
    assignment: Assignment = {member_id: [] for member_id in members}
    ordered = member_order(members)
    subscribers = _subscribers(members, ordered)
    for topic in subscribed(members, topics):
        owners = subscribers[topic]
        partitions = sort(topics[topic].partitions)
        # The chunks of members behind the last partition are empty.
        for owner, chunk in zip(owners, chunks(len(partitions), len(owners)), strict=False):
            if not chunk:
                break
            assignment[ordered[owner]] += [TopicPartition(topic, partitions[i].partition) for i in chunk]
    return assignment


def _subscribers(members: Mapping[str, GroupMember], ordered: Sequence[str]) -> dict[str, list[int]]:
    """Return, for each topic, the places in `ordered` of the members that subscribe to it, ascending.

    Made in one walk over the subscriptions: to look for each topic in each member's tuple takes the time of topics
    times topics times members.
    """
    subscribers: dict[str, list[int]] = {}
    for place, member_id in enumerate(ordered):
        for topic in dict.fromkeys(members[member_id].topics):  # a topic named twice counts once
            subscribers.setdefault(topic, []).append(place)
    return subscribers


def _by_number(partitions: Sequence[PartitionInfo]) -> list[PartitionInfo]:
    return sorted(partitions, key=lambda p: p.partition)


def _by_broker(partitions: Sequence[PartitionInfo]) -> list[PartitionInfo]:
    return sorted(partitions, key=lambda p: (p.leader == NO_LEADER, p.leader, p.partition))

"""The assignment strategies: pure functions, in a table by their names in the group protocol.

`streamgroup-range` is ours: per topic, chunks of the partitions sorted by broker and partition, so that a member reads
from few brokers. `range` and `roundrobin` assign as the Java client's RangeAssignor and RoundRobinAssignor do for
members without racks. `cooperative-sticky` (`sticky.py`) assigns as Java's, too; only it considers the partitions that
members own. Java consumers and our members may therefore share a group, whichever leads it.

Each partition of a subscribed topic gets one owner, except those that `cooperative-sticky` withholds until their owner
gives them up. No result depends on the order of the topics. The result of `cooperative-sticky` depends in rare cases on
the order of the members, as in Java.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence

from streamgroup.group.assignor_types import Assignment, Assignor, GroupMember, java_order, subscribed
from streamgroup.group.sticky import assign_cooperative_sticky
from streamgroup.model import NO_LEADER, PartitionInfo, TopicInfo, TopicPartition

__all__ = ["ASSIGNORS", "COOPERATIVE", "WEIGHTED", "Assignment", "Assignor", "GroupMember", "chunks", "member_order"]


def member_order(members: Mapping[str, GroupMember]) -> list[str]:
    """Return the member ids in the order of all assignors (R24): static ones by instance id, then others by member id.

    It is the order of Java's `MemberInfo.compareTo`. A static member's restart moves no chunk.
    """

    def key(member_id: str) -> tuple[bool, bytes]:
        instance_id = members[member_id].instance_id
        return instance_id is None, java_order(member_id if instance_id is None else instance_id)

    return sorted(members, key=key)


def assign_streamgroup_range(members: Mapping[str, GroupMember], topics: Mapping[str, TopicInfo]) -> Assignment:
    """Assign per topic contiguous chunks of the partitions by (leader, partition), those without a leader last.

    The chunks are in proportion to the weights of the members: 18 partitions and the weights 1, 2, 3 give 3-6-9.

    3 members, 2 brokers with 3 partitions each: 0-0 0-1, 0-2 1-0, 1-1 1-2. 18 partitions, 4 members: 5-5-4-4.
    """
    return _assign_chunks(members, topics, _by_broker, {member: each.weight for member, each in members.items()})


def assign_range(members: Mapping[str, GroupMember], topics: Mapping[str, TopicInfo]) -> Assignment:
    """Assign as Java's RangeAssignor: per topic, contiguous chunks of the partitions sorted by number."""
    return _assign_chunks(members, topics, _by_number)


def assign_roundrobin(members: Mapping[str, GroupMember], topics: Mapping[str, TopicInfo]) -> Assignment:
    """Assign as Java's RoundRobinAssignor: the partitions of all topics in turn to their subscribers."""
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
"""The strategies by their names in JoinGroup."""

WEIGHTED = "streamgroup-range"
"""The strategy that considers the weights of members."""

COOPERATIVE: frozenset[str] = frozenset({"cooperative-sticky"})
"""The strategies under which members keep their partitions while they join, and give up only revoked ones (KIP-429).
Under all others members give up all partitions before they join."""


def chunks(count: int, weights: Sequence[int]) -> Iterator[range]:
    """Yield `count` places in contiguous chunks, in proportion to `weights`.

    The places that the division leaves go to the chunks with the largest remainders; if some are equal, to the first.
    """
    total = sum(weights)
    left = count - sum(count * weight // total for weight in weights)
    by_remainder = sorted(range(len(weights)), key=lambda part: -(count * weights[part] % total))
    longer = set(by_remainder[:left])
    start = 0
    for part, weight in enumerate(weights):
        end = start + count * weight // total + (part in longer)
        yield range(start, end)
        start = end


def _assign_chunks(
    members: Mapping[str, GroupMember],
    topics: Mapping[str, TopicInfo],
    sort: Callable[[Sequence[PartitionInfo]], list[PartitionInfo]],
    weights: Mapping[str, int] | None = None,
) -> Assignment:
    assignment: Assignment = {member_id: [] for member_id in members}
    ordered = member_order(members)
    subscribers = _subscribers(members, ordered)
    for topic in subscribed(members, topics):
        owners = subscribers[topic]
        partitions = sort(topics[topic].partitions)
        shares = [1 if weights is None else weights[ordered[owner]] for owner in owners]
        for owner, chunk in zip(owners, chunks(len(partitions), shares), strict=True):
            assignment[ordered[owner]] += [TopicPartition(topic, partitions[i].partition) for i in chunk]
    return assignment


def _subscribers(members: Mapping[str, GroupMember], ordered: Sequence[str]) -> dict[str, list[int]]:
    """Return, for each topic, the places in `ordered` of the members that subscribe to it, ascending.

    One pass over the subscriptions: a search for each topic in each member's tuple would be quadratic in the topics.
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

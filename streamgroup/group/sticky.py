"""`cooperative-sticky` as Java's CooperativeStickyAssignor gives it (KIP-54, KIP-429; kafka-clients 3.9 and 4.1).

The assignment is balanced first, then every member keeps as many partitions as possible. The cooperative part follows:
a partition that changes its owner is withheld until the owner, which learns it from its own assignment, has given the
partition up and joined again. One rule decides: a claimed partition goes only to the member whose claim is of the
latest generation. Java has two rules, one for each of its algorithms. They agree as long as no partition is claimed
twice.

`members` are in the order of JoinGroup's answer. Where Java walks a hash table, it walks members in one bucket in that
order, which may decide which of several members gives a partition up.

The result differs from Java's on purpose where Java's would give a partition two owners, or an unsuitable one:

- A partition that a member owns and that the topic no longer has (recreated with fewer) goes to nobody. Java keeps it
  in the assignment, or fails.
- A partition goes to nobody while another member's claim of the same or of a later generation stands. Where the
  subscriptions differ, Java gives it at once to another member that claims it.
- Rivals are compared by their generations, wherever these are told. For the rival that it saw first, Java ignores a
  generation in user data (subscriptions below v2).
- The owner in an earlier generation is preferred only while it subscribes to the topic. Java gives it the partition
  nonetheless, or fails.
- A member without topics gets no partitions. If Java sees that member first, it treats it like a subscriber of all.

Racks (KIP-881) have no influence: our metadata have no racks of replicas. They have none in Java either where no
consumer has a rack, or where every partition has replicas in the same racks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamgroup.group.assigning import NO_GENERATION, Assignment, GroupMember, java_order, subscribed
from streamgroup.group.sticky_general import assign_unlike
from streamgroup.group.sticky_order import hash_map_order
from streamgroup.model import TopicInfo, TopicPartition
from streamgroup.wire.primitives import INT32, Bytes

Layout = Mapping[str, Sequence[TopicPartition]]


def assign_cooperative_sticky(members: Mapping[str, GroupMember], topics: Mapping[str, TopicInfo]) -> Assignment:
    """Return the partitions that each member may have now: kept ones in front, gained ones behind them."""
    if not members:
        return {}
    members = {member_id: members[member_id] for member_id in hash_map_order(members)}
    layout = _layout(members, topics)
    claims = _settle(members, layout)
    if len({frozenset(member.topics) for member in members.values()}) == 1:
        # Java's algorithm for this case lets nobody keep a disputed partition, even if a later claim decided it.
        claims.holders.update(dict.fromkeys(claims.disputed))
        assignment = _assign_alike(layout, claims)
    else:
        assignment = assign_unlike(members, layout, claims.owned)
    return {
        member_id: [tp for tp in share if claims.holders.get(tp, member_id) == member_id]
        for member_id, share in assignment.items()
    }


def encode_user_data(generation: int, extra: bytes = b"") -> bytes:
    """Return the user data of a subscription: the generation of the partitions that the member owns.

    It is for leaders that do not read `generationId` (Java before 3.4, KIP-792). Java's leaders read 4 bytes and leave
    alone the `extra` bytes that follow.
    """
    return INT32.pack(generation) + extra


def decode_user_data(data: Bytes | None) -> int:
    """Return the generation in a member's user data, -1 where there is none, as in data of fewer than 4 bytes."""
    return NO_GENERATION if data is None or len(data) < INT32.size else int(INT32.unpack_from(data)[0])


@dataclass(slots=True)
class _Claims:
    """The owners of partitions, as far as the members' claims decide them."""

    owned: dict[str, dict[TopicPartition, None]]
    """Each member's undisputed partitions, in the order in which it named them. A dict, since rivals take them out."""
    disputed: set[TopicPartition] = field(default_factory=set)
    """The partitions that two members of one generation claim: nobody owns them."""
    holders: dict[TopicPartition, str | None] = field(default_factory=dict)
    """The member whose claim is of the latest generation; None where several claims are."""


def _layout(members: Mapping[str, GroupMember], topics: Mapping[str, TopicInfo]) -> Layout:
    """Return the partitions to assign by topic, both sorted."""
    names = [name for name in subscribed(members, topics) if topics[name].partitions]
    return {
        name: [TopicPartition(name, p) for p in sorted(p.partition for p in topics[name].partitions)] for name in names
    }


def _settle(members: Mapping[str, GroupMember], layout: Layout) -> _Claims:
    """Decide the claims: the one of the latest generation wins, and of several such claims none."""
    there = {tp for partitions in layout.values() for tp in partitions}
    claims = _Claims({member_id: {} for member_id in members})
    last: dict[TopicPartition, str] = {}
    for member_id, member in members.items():
        for tp in member.owned:
            if tp not in there:
                continue
            rival = last.get(tp)
            if rival is None:
                claims.owned[member_id][tp] = None
                claims.holders[tp] = member_id
            elif member.generation < members[rival].generation:
                continue
            else:
                claims.owned[rival].pop(tp, None)
                if member.generation == members[rival].generation:
                    claims.disputed.add(tp)
                    claims.holders[tp] = None
                else:
                    claims.owned[member_id][tp] = None
                    claims.holders[tp] = member_id
            last[tp] = member_id
    return claims


def _assign_alike(layout: Layout, claims: _Claims) -> Assignment:
    """Assign by Java's constrained algorithm, for equal subscriptions, before anything is withheld.

    Every member gets `least` partitions, and `larger` members one more: first those that have one more now.
    """
    row = [tp for partitions in layout.values() for tp in partitions]
    topic_rank = {topic: rank for rank, topic in enumerate(layout)}
    least, larger = divmod(len(row), len(claims.owned))
    most = least + (larger > 0)
    assignment: Assignment = {}
    short: list[str] = []
    at_least: list[str] = []
    for member_id, partitions in claims.owned.items():
        owned = [tp for tp in partitions if tp not in claims.disputed]
        owned.sort(key=lambda tp: (tp.partition, topic_rank[tp.topic]))
        if len(owned) < least:
            kept = len(owned)
            short.append(member_id)
        elif len(owned) >= most and larger > 0:
            kept = most
            larger -= 1
        else:
            kept = least
            at_least.append(member_id)
        assignment[member_id] = owned[:kept]
    _deal(row, assignment, least, short, at_least)
    return assignment


def _deal(
    row: Sequence[TopicPartition], assignment: Assignment, least: int, short: list[str], at_least: list[str]
) -> None:
    """Assign the free partitions: in turn to members that are short, then one each to those that have the least."""
    turn, extra = deque(sorted(short, key=java_order)), deque(sorted(at_least, key=java_order))
    assigned = {tp for share in assignment.values() for tp in share}
    for tp in row:
        if tp in assigned:
            continue
        member_id = turn.popleft() if turn else extra.popleft()
        share = assignment[member_id]
        share.append(tp)
        if len(share) < least:
            turn.append(member_id)
        elif len(share) == least:
            extra.append(member_id)

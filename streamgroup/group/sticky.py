"""`cooperative-sticky` as Java's CooperativeStickyAssignor gives it (KIP-54, KIP-429; kafka-clients 3.9 and 4.1).

Balanced first, then everybody keeps as much as can be. Then the cooperative part: a partition that changes its owner
is withheld until the owner, told by its own assignment, has given it up and joined again. One rule decides: what is
claimed goes to nobody but the one member whose claim is of the latest generation. (Java has two rules, one for each of
its algorithms. As long as no partition is claimed twice they come to the same.)

`members` come as JoinGroup listed them: where Java walks a hash table, members whose ids fall into the same bucket are
walked in that order, and it may decide who of several gives something up.

It differs from Java's on purpose where that would give a partition two owners, or one that does not want it:

- A partition that a member owns and the topic no longer has (recreated with fewer) is nobody's. Java keeps it in the
  assignment, or fails.
- A partition goes to nobody while another's claim of the same or of a later generation stands. Java, where the
  subscriptions differ, gives it at once to one that claims it, too.
- Rivals are compared by the generations that they told, wherever. Java takes one told in user data (subscriptions below
  v2) as none, for the rival that it saw first.
- The owner in an earlier generation is preferred only while it subscribes to the topic. Java hands it the partition
  nonetheless, or fails.
- A member without topics gets none. Java, if it sees that member first, takes it for one that wants what all want.

Racks (KIP-881) play no part: our metadata hold no racks of replicas. Nor do they in Java where no consumer has one, or
where every partition has replicas in the same racks.
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
    """What each member may have now: kept partitions in front, gained ones behind them."""
    if not members:
        return {}
    members = {member_id: members[member_id] for member_id in hash_map_order(members)}
    layout = _layout(members, topics)
    claims = _settle(members, layout)
    if len({frozenset(member.topics) for member in members.values()}) == 1:
        # Java's algorithm for this case lets nobody keep what was disputed, even if a later claim decided it.
        claims.holders.update(dict.fromkeys(claims.disputed))
        assignment = _assign_alike(layout, claims)
    else:
        assignment = assign_unlike(members, layout, claims.owned)
    return {
        member_id: [tp for tp in share if claims.holders.get(tp, member_id) == member_id]
        for member_id, share in assignment.items()
    }


def encode_user_data(generation: int, extra: bytes = b"") -> bytes:
    """What a member puts into the user data of its subscription: the generation of what it owns, for leaders that read
    no `generationId` (Java before 3.4, KIP-792). Java's read 4 bytes and leave alone what follows, `extra`."""
    return INT32.pack(generation) + extra


def decode_user_data(data: Bytes | None) -> int:
    """The generation that a member's user data tell; -1 where there is none, as in data of fewer than 4 bytes."""
    return NO_GENERATION if data is None or len(data) < INT32.size else int(INT32.unpack_from(data)[0])


@dataclass(slots=True)
class _Claims:
    """Who owns what, as far as the members' claims allow to tell."""

    owned: dict[str, dict[TopicPartition, None]]
    """Each member's undisputed partitions, in the order in which it named them; a dict, since rivals take them out."""
    disputed: set[TopicPartition] = field(default_factory=set)
    """Claimed by two of one generation: nobody's."""
    holders: dict[TopicPartition, str | None] = field(default_factory=dict)
    """Whose claim is of the latest generation; None: several ones' are."""


def _layout(members: Mapping[str, GroupMember], topics: Mapping[str, TopicInfo]) -> Layout:
    """The partitions that there are to divide, by topic, both sorted."""
    names = [name for name in subscribed(members, topics) if topics[name].partitions]
    return {
        name: [TopicPartition(name, p) for p in sorted(p.partition for p in topics[name].partitions)] for name in names
    }


def _settle(members: Mapping[str, GroupMember], layout: Layout) -> _Claims:
    """Of those who claim a partition, the one with the latest generation owns it; of several none."""
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
    """Java's constrained algorithm, where all subscribe to the same, before anything is withheld.

    Everybody has `least` partitions, and `larger` members one more: those, first, who have it now.
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
    """Deal what nobody has: in turn to those who are short, then one each to those who have the least."""
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

"""The strategy `cooperative-sticky`, as in Java's CooperativeStickyAssignor (KIP-54, KIP-429; kafka-clients 3.9 and
4.3).

The assignment is balanced first, then every member keeps as many partitions as possible. The cooperative part follows:
a partition that changes its owner is withheld until the owner has given it up and joined again. One rule decides: a
claimed partition goes only to the member whose claim is of the latest generation. Java has two rules, one for each of
its algorithms. They agree as long as no partition is claimed twice.

`members` are in the order of the JoinGroup response. Where Java iterates over a hash table, it visits members in one
bucket in that order, which may decide which of several members gives a partition up.

The result differs from Java's on purpose where Java's would give a partition two owners, or an unsuitable one:

- A partition that a member owns and that the topic no longer has (recreated with fewer) is not assigned. Java keeps it
  in the assignment, or fails.
- A partition is not assigned while another member claims it with the same or a later generation. If the subscriptions
  differ, Java assigns it immediately to another member that claims it.
- Rival claims are compared by generation, from the subscription or its user data. For the rival that it reads first,
  Java ignores a generation in user data (subscriptions below v2).
- The owner in an earlier generation is preferred only while it subscribes to the topic. Java assigns the partition to
  it nevertheless, or fails.
- A member without topics gets no partitions. If Java reads that member first, it treats it like a subscriber of all.

Racks (KIP-881) have no influence: our metadata has no racks of replicas. They have none in Java either if no consumer
has a rack, or if every partition has replicas in the same racks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from streamgroup.group.assignor_types import NO_GENERATION, Assignment, GroupMember, java_order, subscribed
from streamgroup.kafka.wire.primitives import INT32, Bytes
from streamgroup.model import TopicInfo, TopicPartition

Layout = Mapping[str, Sequence[TopicPartition]]


def assign_cooperative_sticky(members: Mapping[str, GroupMember], topics: Mapping[str, TopicInfo]) -> Assignment:
    """Return the partitions that each member may own now: kept ones first, then newly assigned ones."""
    if not members:
        return {}
    members = {member_id: members[member_id] for member_id in hash_map_order(members)}
    layout = _layout(members, topics)
    claims = _settle(members, layout)
    if len({frozenset(member.topics) for member in members.values()}) == 1:
        # Java's algorithm for this case lets no member keep a disputed partition, even if a later claim decided it.
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
    """Return the generation in a member's user data; -1 if there is none, as in data of fewer than 4 bytes."""
    return NO_GENERATION if data is None or len(data) < INT32.size else int(INT32.unpack_from(data)[0])


@dataclass(slots=True)
class _Claims:
    """The owners of partitions, as the members' claims in JoinGroup decide them."""

    owned: dict[str, dict[TopicPartition, None]]
    """Each member's undisputed partitions, in the order in which it named them. A dict, since rivals take them out."""
    disputed: set[TopicPartition] = field(default_factory=set)
    """The partitions that two members of one generation claim: neither owns them."""
    holders: dict[TopicPartition, str | None] = field(default_factory=dict)
    """The member with the claim of the latest generation; None if several claims are."""


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


_BUCKETS = 16


def string_hash(text: str) -> int:
    """Return Java's `String.hashCode` as an unsigned number of 32 bits, over UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    result = 0
    for i in range(0, len(units), 2):
        result = (31 * result + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return result


def hash_map_order(keys: Iterable[str]) -> list[str]:
    """Return keys in the order in which Java walks a `HashMap` that they were put into in this order."""
    distinct = list(dict.fromkeys(keys))
    buckets = _grown(_BUCKETS, len(distinct))
    return sorted(distinct, key=lambda key: _bucket(string_hash(key), buckets))


class PartitionHashSet:
    """A `HashSet` of partitions of one topic, of which only the first matters."""

    __slots__ = ("_buckets", "_partitions", "_topic_hash")

    def __init__(self, topic: str) -> None:
        self._topic_hash = string_hash(topic)
        self._partitions: dict[TopicPartition, None] = {}
        self._buckets = _BUCKETS

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, tp: TopicPartition) -> None:
        self._partitions[tp] = None
        self._buckets = _grown(self._buckets, len(self._partitions))

    def remove(self, tp: TopicPartition) -> None:
        del self._partitions[tp]

    def first(self) -> TopicPartition:
        """Return the partition at which Java's iterator starts: the first one added of those in the lowest bucket."""
        return min(self._partitions, key=lambda tp: _bucket(31 * (31 + tp.partition) + self._topic_hash, self._buckets))


def _grown(buckets: int, size: int) -> int:
    while size > buckets * 3 // 4:
        buckets *= 2
    return buckets


def _bucket(hash_code: int, buckets: int) -> int:
    hash_code &= 0xFFFFFFFF
    return (hash_code ^ hash_code >> 16) & (buckets - 1)


def assign_unlike(
    members: Mapping[str, GroupMember],
    layout: Mapping[str, Sequence[TopicPartition]],
    owned: Mapping[str, Collection[TopicPartition]],
) -> Assignment:
    """Return each member's partitions, before anything is withheld.

    `layout` holds the partitions of the topics that exist, `owned` each member's undisputed partitions of these. All
    three in the order in which Java walks them.
    """
    return _General(members, layout, owned).assign()


class _General:
    def __init__(
        self,
        members: Mapping[str, GroupMember],
        layout: Mapping[str, Sequence[TopicPartition]],
        owned: Mapping[str, Collection[TopicPartition]],
    ) -> None:
        self._wants = {member_id: layout.keys() & member.topics for member_id, member in members.items()}
        self._subscribers = {topic: sum(topic in wants for wants in self._wants.values()) for topic in layout}
        self._row = [
            tp
            for topic in sorted(layout, key=lambda topic: (self._subscribers[topic], java_order(topic)))
            for tp in layout[topic]
        ]
        self._previous = _previous_owners(members)
        self._owned = owned
        self._shares = _Shares(self._wants)
        self._movements = _Movements()
        self._witness: str | None = None

    def assign(self) -> Assignment:
        keeps_all = self._keep_owned()
        initial = not self._shares.any_given
        free = [tp for tp in self._row if tp not in self._shares.owner]
        for tp in free:
            self._shares.give(tp, self._shares.poorest(tp.topic))
        self._leave_out_the_fixed()
        before = self._shares.copy()
        if keeps_all:  # a move of partitions that were free just now may already balance, and revokes nothing
            self._improve([tp for tp in free if self._shared(tp.topic)])
        moved = self._improve([tp for tp in self._row if self._shared(tp.topic)])
        if moved and not initial and self._shares.spread() >= before.spread():
            self._shares = before
        return {member: list(share) for member, share in self._shares.by_member.items()}

    def _keep_owned(self) -> bool:
        """Let each member keep its partitions of subscribed topics. Return whether these are all that it owns."""
        keeps_all = True
        for member, partitions in self._owned.items():
            for tp in partitions:
                if tp.topic in self._wants[member]:
                    self._shares.give(tp, member)
                else:
                    keeps_all = False
        return keeps_all

    def _shared(self, topic: str) -> bool:
        return self._subscribers[topic] >= 2

    def _leave_out_the_fixed(self) -> None:
        """Set members aside that have all partitions they want and that no other member wants.

        Nothing moves to them or from them, and their counts do not matter for the balance of the others.
        """
        for member, wants in self._wants.items():
            if not any(self._shared(topic) for topic in wants):
                self._shares.set_aside(member)

    def _improve(self, partitions: Sequence[TopicPartition]) -> bool:
        """Move partitions to members with fewer until no round changes anything. Return whether any moved.

        It is not proven that Java's loop ends for all inputs, so this one counts. A few rounds are usual.
        """
        moved_any = False
        for _ in range(len(partitions) + 1):
            moved = False
            for tp in partitions:
                if self._balanced():
                    break
                target = self._better_owner(tp)
                if target is not None:
                    self._move(tp, target)
                    moved = moved_any = True
            if not moved:
                break
        return moved_any

    def _better_owner(self, tp: TopicPartition) -> str | None:
        """Return the member to move it to: its earlier owner, else the one with the fewest. None: it stays."""
        count = self._shares.count
        enough = count(self._shares.owner[tp]) - 1
        previous = self._previous.get(tp)
        if previous is not None and tp.topic in self._wants[previous] and enough > count(previous):
            return previous
        poorest = self._shares.poorest(tp.topic)
        return poorest if enough > count(poorest) else None

    def _move(self, tp: TopicPartition, target: str) -> None:
        tp = self._movements.instead(tp, self._shares.owner[tp], target)
        source = self._shares.owner[tp]
        self._movements.record(tp, source, target)
        self._shares.move(tp, target)

    def _balanced(self) -> bool:
        """Return whether no move would help: no owner of any topic has two more than one of its subscribers."""
        if self._shares.differ_by_one():
            return True
        if self._witness is not None and self._unbalanced(self._witness):
            return False
        self._witness = next((topic for topic in self._subscribers if self._unbalanced(topic)), None)
        return self._witness is None

    def _unbalanced(self, topic: str) -> bool:
        if not self._shared(topic):
            return False
        count = self._shares.count
        return count(self._shares.richest(topic)) > count(self._shares.poorest(topic)) + 1


class _Shares:
    """The partitions of each member, and the members sorted by their number of partitions, then by id."""

    def __init__(self, wants: Mapping[str, Iterable[str]]) -> None:
        self.owner: dict[TopicPartition, str] = {}
        self.by_member: dict[str, dict[TopicPartition, None]] = {member: {} for member in wants}
        """The partitions of each member in the order in which it got them. A dict, since moves take out any of them."""
        self._wants = {member: frozenset(topics) for member, topics in wants.items()}
        self._ids = sorted(wants, key=java_order)
        self._rank = {member: rank for rank, member in enumerate(self._ids)}
        self._queue = [(0, rank) for rank in range(len(self._ids))]
        self._held: dict[tuple[str, str], int] = {}

    @property
    def any_given(self) -> bool:
        return bool(self.owner)

    def copy(self) -> _Shares:
        other = _Shares(self._wants)
        other.owner = self.owner.copy()
        other.by_member = {member: share.copy() for member, share in self.by_member.items()}
        other._queue = self._queue.copy()
        other._held = self._held.copy()
        return other

    def count(self, member: str) -> int:
        return len(self.by_member[member])

    def give(self, tp: TopicPartition, member: str) -> None:
        self._unqueue(member)
        self.by_member[member][tp] = None
        self._enqueue(member)
        self.owner[tp] = member
        self._held[tp.topic, member] = self._held.get((tp.topic, member), 0) + 1

    def move(self, tp: TopicPartition, member: str) -> None:
        source = self.owner[tp]
        self._unqueue(source)
        del self.by_member[source][tp]
        self._enqueue(source)
        self._held[tp.topic, source] -= 1
        self.give(tp, member)

    def set_aside(self, member: str) -> None:
        """Ignore a member from now on. It keeps its partitions."""
        self._unqueue(member)

    def poorest(self, topic: str) -> str:
        """Return the subscriber with the fewest partitions, of several the first by id."""
        members = (self._ids[rank] for _, rank in self._queue)
        return next(member for member in members if topic in self._wants[member])

    def richest(self, topic: str) -> str:
        """Return an owner of this topic's partitions that has the most partitions."""
        members = (self._ids[rank] for _, rank in reversed(self._queue))
        return next(member for member in members if self._held.get((topic, member)))

    def differ_by_one(self) -> bool:
        """Whether no member has two partitions more than another."""
        return not self._queue or self._queue[-1][0] - self._queue[0][0] <= 1

    def spread(self) -> int:
        """Return the sum of the differences between any two members' counts: 0 is perfect balance."""
        counts = [count for count, _ in self._queue]
        return sum((2 * i - len(counts) + 1) * count for i, count in enumerate(counts))

    def _enqueue(self, member: str) -> None:
        insort(self._queue, (self.count(member), self._rank[member]))

    def _unqueue(self, member: str) -> None:
        del self._queue[bisect_left(self._queue, (self.count(member), self._rank[member]))]


class _Movements:
    """The moves so far. If two members would exchange partitions of a topic, both keep their own instead."""

    def __init__(self) -> None:
        self._of: dict[TopicPartition, tuple[str, str]] = {}
        self._between: dict[tuple[str, str, str], PartitionHashSet] = {}

    def instead(self, tp: TopicPartition, source: str, target: str) -> TopicPartition:
        """Return the partition to move to `target`: one of the topic that moved the other way before, else `tp`."""
        if tp in self._of:
            source = self._of[tp][0]
        came = self._between.get((tp.topic, target, source))
        return tp if came is None else came.first()

    def record(self, tp: TopicPartition, source: str, target: str) -> None:
        """Note a move of `tp`. Two moves count as one from the first owner, and as none if it is back there."""
        if tp in self._of:
            source = self._forget(tp)
        if source != target:
            self._of[tp] = (source, target)
            key = (tp.topic, source, target)
            if key not in self._between:
                self._between[key] = PartitionHashSet(tp.topic)
            self._between[key].add(tp)

    def _forget(self, tp: TopicPartition) -> str:
        source, target = self._of.pop(tp)
        key = (tp.topic, source, target)
        self._between[key].remove(tp)
        if not self._between[key]:
            del self._between[key]
        return source


def _previous_owners(members: Mapping[str, GroupMember]) -> dict[TopicPartition, str]:
    """Return the owners by claims of an earlier generation: of several the latest, then the first."""
    latest = max(NO_GENERATION, *(member.generation for member in members.values()))
    previous: dict[TopicPartition, str] = {}
    for member_id, member in members.items():
        if member.generation < latest:
            for tp in member.owned:
                if tp not in previous or member.generation > members[previous[tp]].generation:
                    previous[tp] = member_id
    return previous

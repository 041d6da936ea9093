"""The sticky assignment for members that subscribe to different topics: Java's general algorithm.

Everybody keeps what it holds and still subscribes to; what is free goes to the member with the fewest partitions that
wants it, topics with few subscribers first; then partitions move, one at a time, from members with many to members with
few while that brings any two that could exchange one nearer to each other. If the moves did not make the whole better,
they are undone.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence

from streamgroup.group.assigning import NO_GENERATION, Assignment, GroupMember, java_order
from streamgroup.group.sticky_order import PartitionHashSet
from streamgroup.model import TopicPartition


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
        """Keep partitions, assign the free ones, and balance."""
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
        """Return whether the partitions of a topic can move at all."""
        return self._subscribers[topic] >= 2

    def _leave_out_the_fixed(self) -> None:
        """Set members aside that have all partitions they want and that nobody else wants.

        Nothing moves to them or from them, and their counts do not matter for the balance of the others.
        """
        for member, wants in self._wants.items():
            if not any(self._shared(topic) for topic in wants):
                self._shares.set_aside(member)

    def _improve(self, partitions: Sequence[TopicPartition]) -> bool:
        """Move partitions to members with fewer until no round changes anything. Return whether any moved.

        Nobody has shown that Java's loop ends for all inputs, so this one counts. A few rounds are usual.
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
    """The partitions of each member, and the members sorted by their number, then by id."""

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
        """Whether any member has a partition."""
        return bool(self.owner)

    def copy(self) -> _Shares:
        """Return a copy, to go back to."""
        other = _Shares(self._wants)
        other.owner = self.owner.copy()
        other.by_member = {member: share.copy() for member, share in self.by_member.items()}
        other._queue = self._queue.copy()
        other._held = self._held.copy()
        return other

    def count(self, member: str) -> int:
        """Return the number of partitions of a member."""
        return len(self.by_member[member])

    def give(self, tp: TopicPartition, member: str) -> None:
        """Give a member a partition that nobody has."""
        self._unqueue(member)
        self.by_member[member][tp] = None
        self._enqueue(member)
        self.owner[tp] = member
        self._held[tp.topic, member] = self._held.get((tp.topic, member), 0) + 1

    def move(self, tp: TopicPartition, member: str) -> None:
        """Give a member a partition that another member has."""
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
    """The moves so far, so that two members that exchange partitions of a topic keep their own instead."""

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
        """Note a move of `tp`. Two moves count as one from the first owner, and as none where it is back there."""
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

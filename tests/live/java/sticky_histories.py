"""Random groups under `cooperative-sticky`.

Histories: members and topics come and go, some members miss rounds. Snapshots: few members with arbitrary claims, out
of balance, where the general algorithm moves much and back again.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from streamgroup.group.assignors import Assignment, GroupMember
from streamgroup.model import TopicPartition
from tests.live.java.cases import Case, topics


@dataclass
class History:
    """One group through its generations. `alike`: all subscribe to the same topics, at any time."""

    rng: random.Random
    alike: bool
    members: dict[str, GroupMember] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    old: set[str] = field(default_factory=set)
    generation: int = 0
    named: int = 0

    def play(self, rounds: int) -> Iterator[Case]:
        """The cases of its rounds, the first with a new group."""
        big = self.rng.random() < 0.25
        for _ in range(self.rng.randint(1, 12 if big else 6)):
            self.add_topic()
        for _ in range(self.rng.randint(1, 40 if big else 7)):
            self.add_member()
        for _ in range(rounds):
            self.generation += 1
            case = Case("cooperative-sticky", dict(self.members), topics(self.counts), frozenset(self.old))
            yield case
            self.take(case.ours())
            for change in self.rng.sample(self.changes(), self.rng.randint(0, 4)):
                change()

    def changes(self) -> list[Callable[[], None]]:
        """The changes that may happen between two rounds."""
        return [
            self.add_member,
            self.add_member,
            self.lose_member,
            self.lose_member,
            self.add_topic,
            self.grow_topic,
            self.lose_topic,
            self.subscribe_anew,
            self.upheaval,
            self.reshuffle,
            self.claim_anothers,
        ]

    def take(self, assignment: Assignment) -> None:
        """Most members take what they were given; some miss it and go on with what they had."""
        reliable = self.rng.random() < 0.6
        for member_id, member in self.members.items():
            if reliable or self.rng.random() < 0.8:
                owned = tuple(sorted(assignment[member_id]))
                self.members[member_id] = replace(member, owned=owned, generation=self.generation)

    def add_member(self) -> None:
        tail = "".join(self.rng.choices(string.hexdigits, k=self.rng.choice([1, 2, 12])))
        member_id = self.rng.choice(["a-", "Z-", "é", "\uff5e", "😀", "consumer-app-1-"]) + tail
        if member_id not in self.members:
            self.members[member_id] = GroupMember(self.wanted())
            if self.rng.random() < 0.2:
                self.old.add(member_id)

    def lose_member(self) -> None:
        if len(self.members) > 1:
            member_id = self.rng.choice(list(self.members))
            del self.members[member_id]
            self.old.discard(member_id)

    def add_topic(self) -> None:
        """Each under a name of its own: what was owned of a topic that is gone is never owned of another."""
        self.named += 1
        name = f"{self.rng.choice(['t', 'T', 'orders-', 'é', '😀'])}{self.named}"
        self.counts[name] = self.rng.choice([1, 1, 2, 3, 4, 7, 20, 40])
        if self.alike:
            self.subscribe_anew()

    def grow_topic(self) -> None:
        name = self.rng.choice(list(self.counts))
        self.counts[name] += self.rng.randint(1, 9)

    def lose_topic(self) -> None:
        if len(self.counts) > 1:
            del self.counts[self.rng.choice(list(self.counts))]

    def subscribe_anew(self) -> None:
        """Subscriptions change; what a member owned before stays its claim."""
        if self.alike:
            wanted = tuple(self.rng.sample(list(self.counts), len(self.counts)))
            for member_id, member in self.members.items():
                self.members[member_id] = replace(member, topics=tuple(self.rng.sample(wanted, len(wanted))))
        elif self.members:
            member_id = self.rng.choice(list(self.members))
            self.members[member_id] = replace(self.members[member_id], topics=self.wanted())

    def upheaval(self) -> None:
        """Everybody's subscription changes, and half of the members forget what they owned."""
        for member_id, member in self.members.items():
            topics = member.topics if self.alike else self.wanted()
            forgets = self.rng.random() < 0.5
            self.members[member_id] = replace(member, topics=topics, owned=() if forgets else member.owned)

    def reshuffle(self) -> None:
        """JoinGroup lists the members otherwise, and their claims too."""
        members = self.rng.sample(list(self.members.items()), len(self.members))
        self.members = {
            member_id: replace(member, owned=tuple(self.rng.sample(member.owned, len(member.owned))))
            for member_id, member in members
        }

    def claim_anothers(self) -> None:
        """Of two members of one generation both claim a partition, or claims nobody has heard of."""
        member_id = self.rng.choice(list(self.members))
        claims = {tp for member in self.members.values() for tp in member.owned} - set(self.members[member_id].owned)
        row = sorted(claims) or [TopicPartition(name, 0) for name in self.counts]
        claimed = (*self.members[member_id].owned, self.rng.choice(row))
        self.members[member_id] = replace(self.members[member_id], owned=tuple(dict.fromkeys(claimed)))

    def wanted(self) -> tuple[str, ...]:
        if self.alike:
            some = next(iter(self.members.values()), None)
            return some.topics if some else tuple(self.counts)
        names = [*self.counts, "absent"]
        return tuple(self.rng.sample(names, self.rng.randint(1, len(names))))


def histories(seed: int, count: int, *, alike: bool) -> Iterator[Case]:
    """So many cases."""
    rng = random.Random(seed)
    made = 0
    while made < count:
        for case in History(rng, alike).play(rng.randint(1, 8)):
            yield case
            made += 1
            if made == count:
                return


def snapshots(seed: int, count: int) -> Iterator[Case]:
    """So many groups of members who do not subscribe alike."""
    rng = random.Random(seed)
    made = 0
    while made < count:
        case = _snapshot(rng)
        if len({frozenset(member.topics) for member in case.members.values()}) > 1:
            yield case
            made += 1


def _snapshot(rng: random.Random) -> Case:
    counts = {name: rng.randint(1, rng.choice([3, 8, 20])) for name in "tuvwx"[: rng.randint(2, 5)]}
    free = [TopicPartition(name, p) for name, count in counts.items() for p in range(count)]
    rng.shuffle(free)
    members: dict[str, GroupMember] = {}
    for member_id in rng.sample("ABCDEFGH", rng.randint(3, 6)):
        claims = rng.randint(0, len(free)) if rng.random() < 0.6 else 0
        owned, free = free[:claims], free[claims:]
        wanted = rng.sample(list(counts), rng.randint(1, len(counts)))
        members[member_id] = GroupMember(tuple(wanted), owned=tuple(sorted(owned)), generation=2 if owned else -1)
    for member_id in rng.sample(list(members), rng.randint(0, 2)):  # these missed a generation
        member = members[member_id]
        others = [tp for other in members.values() for tp in other.owned if tp.topic in member.topics]
        stale = set(rng.sample(others, min(len(others), rng.randint(1, 4))))
        members[member_id] = replace(member, owned=tuple(sorted({*member.owned, *stale})), generation=1)
    return Case("cooperative-sticky", members, topics(counts))

"""Cases in which sticky assignors were wrong before: the scenarios of Java's own tests of them, and some more.

A scenario is the rounds of a group, one text each: the topics with their partitions, then the members with what they
subscribe to, as in `t:3 u:2; A t u; B t`. From the second round on a member owns what the round before gave it, under
that round's generation (1, 2, ...), unless the text says otherwise: `B t [t-0 t-1 @7]`, without a number under none.
`B*` is a member whose subscription is v1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import permutations

from streamgroup.group.assignors import Assignment, GroupMember
from streamgroup.model import TopicPartition
from tests.live.java.cases import Case, partitions, topics


def staircase(steps: int, without: int | None = None) -> str:
    """Topics with 1, 2, ... partitions; member i subscribes to the first i of them."""
    names = [f"t{i:02}" for i in range(1, steps)]
    members = [f"member{i:02} {' '.join(names[:i])}" for i in range(1, steps) if i != without]
    return "; ".join((" ".join(f"{name}:{i}" for i, name in enumerate(names, 1)), *members))


def alike(counts: str, *members: str) -> str:
    """Members who all subscribe to all of these topics."""
    names = " ".join(count.split(":")[0] for count in counts.split())
    return "; ".join((counts, *(f"{member} {names}" for member in members)))


MANY = " ".join(f"t{i:02}:{i}" for i in range(1, 15))
EIGHT = [f"member{i}" for i in range(1, 9)]
NINE = [f"member{i:02}" for i in range(1, 10)]

SCENARIOS: dict[str, list[str]] = {
    "a member without topics": ["t:3; A"],
    "a topic that does not exist": ["; A t"],
    "one member takes one topic": ["t:3; A t"],
    "one member takes several topics": ["t:1 u:2; A t u"],
    "what is owned of topics that are gone does not count": ["t:2; A t [t-0 t-1 other-0 other-1 @1]"],
    "a partition for two": [alike("t:1", "A", "B")],
    "two partitions for two": [alike("t:2", "A", "B")],
    "two topics for two": [alike("t:3 u:3", "A", "B")],
    "only one wants the second topic": ["t:3 u:2; A t; B t u; C t"],
    "who has the least may have one more": ["t:2 u:3; A t u [t-0 u-1 @1]; B t u [t-1 u-2 @1]"],
    "more have the most than may": ["t:2 u:2; A t u [t-0 u-0 @1]; B t u [t-1 u-1 @1]; C t u"],
    "all have less than the least": ["t:2 u:3; A t u [t-0 @1]; B t u [t-1 @1]; C t u"],
    "a member comes, another goes": [alike("t:3", "A"), *[alike("t:3", "A", "B")] * 2, alike("t:3", "B")],
    "topics stay balanced when many come and go": [
        alike("t:12 u:12", "A"),
        *[alike("t:12 u:12", "A", "B")] * 2,
        *[alike("t:12 u:12", "A", "B", "C", "D")] * 2,
        alike("t:12 u:12", "C", "D"),
    ],
    "two come, two go": [
        alike("t:3 u:4", "A", "B"),
        *[alike("t:3 u:4", "A", "B", "C", "D")] * 2,
        alike("t:3 u:4", "C", "D"),
    ],
    "what dealing in turn does badly": [
        "t1:2 t2:1 t3:2 t4:1 t5:2; A t1 t2 t3 t4 t5; B t1 t3 t5; C t1 t3 t5; D t1 t2 t3 t4 t5"
    ],
    "a topic comes, another goes": [alike("t:3", "A", "B"), alike("t:3 u:3", "A", "B"), alike("u:3", "A", "B")],
    "a member of many unlike ones leaves": [staircase(20), *[staircase(20, without=10)] * 2],
    "a tenth member comes": [alike("t:20", *NINE), *[alike("t:20", *NINE, "member10")] * 2],
    "a member of many alike ones leaves": [alike(MANY, *EIGHT), *[alike(MANY, *EIGHT[:4], *EIGHT[5:])] * 2],
    **{
        f"three claim a partition in the generations {a} {b} {c}": [
            f"t:6 u:1; A t [t-0 t-2 @{a}]; B t [t-1 t-2 t-3 @{b}]; C t [t-2 t-4 t-5 @{c}]; D u [u-0 @2]"
        ]
        for a, b, c in permutations((1, 2, 3))
    },
    "a member wants a topic more": [
        "t1:1 t2:1 t3:1 t4:1; A t2; B t1; C t2 t3 t4",
        *["t1:1 t2:1 t3:1 t4:1; A t1 t2; B t1; C t2 t3 t4"] * 2,
    ],
    "what is owned moves where it must": [
        "t1:1 t2:1 t3:1 t4:1 t5:1 t6:1; A t1 t2 [t1-0 @1]; B t1 t2 t3 t4 [t2-0 t3-0 @1]; "
        "C t2 t3 t4 t5 t6 [t4-0 t5-0 t6-0 @1]",
        "t1:1 t2:1 t3:1 t4:1 t5:1 t6:1; A t1 t2; B t1 t2 t3 t4; C t2 t3 t4 t5 t6",
    ],
    "the first of four leaves": [alike("t:3", "A", "B", "C", "D"), alike("t:3", "B", "C", "D")],
    "one of three topics is gone": ["t:1 v:100; A t u v"],
    "the only topic is deleted": ["t:3; A t", "; A t"],
    "all have what they should": ["t:4; A t [t-0 t-1 @1]; B t [t-2 @1]; C t"],
    "a claim of the generation before is stale": [
        "t:3 u:3; A t u [t-0 t-2 u-1 @10]; B t u [t-0 t-2 u-1 @9]",
        alike("t:3 u:3", "A", "B"),
    ],
    "a claim without a generation is stale": ["t:3 u:3; A t u [t-0 t-2 u-1 @10]; B t u [t-0 t-2 u-1]"],
    "two claim one in the same generation, three partitions": [
        "t:3; A t [t-0 t-1 @1]; B t [t-0 t-2 @1]; C t",
        alike("t:3", "A", "B", "C"),
    ],
    "two claim one in the same generation, four partitions": [
        "t:4; A t [t-0 t-1 @1]; B t [t-0 t-2 @1]; C t",
        alike("t:4", "A", "B", "C"),
    ],
    "the latest generation has it": [
        "t:3 u:3 v:3; A t u v [t-0 u-0 v-0 @10]; B t u v [t-1 u-1 v-1 @9]; C t u v [u-1 v-0 v-2 @8]"
    ],
    "a new member takes nothing that somebody has": [
        "t:3 t1:3 t2:3 t3:3; A t t2 t3 t1; B t t2 t3 t1 [t-0 t2-0 t1-0 @9]; C t t2 t3 t1 [t3-2 t2-2 t1-1 @8]; "
        "D t t2 t3 t1 [t3-1 t-1 t-2 @7]"
    ],
    "a stale claim of some": ["t:3 u:3; A t u [t-0 u-1 t-1 @10]; B t u [t-0 u-1 u-2 @8]"],
    "old subscriptions tell their generation in the user data": ["t:3; A* t [t-0 @1]; B* t [t-1 @1]; C t"],
    "one was away for a round, all alike": [
        alike("t:6 u:6", "A", "B", "C"),
        alike("t:6 u:6", "A", "B"),
        "t:6 u:6; B t u; C t u [t-2 t-5 u-2 u-5 @1]",
    ],
    "one was away for a round, subscriptions differ": [
        "t:6 u:6; A t u; B t; C t u",
        *["t:6 u:6; A t u; B t"] * 2,
        "t:6 u:6; B t; C t u [u-1 u-3 u-5 @1]",
    ],
    "two were away for a round, subscriptions differ": [
        "t:4 u:4 v:4; A t; B t u v; C t u",
        "t:4 u:4 v:4; B t u v",
        "t:4 u:4 v:4; A t [t-0 t-1 t-2 t-3 @1]; B t u v; C t u [u-0 u-1 u-2 u-3 @1]",
        "t:4 u:4 v:4; A t; B t u v; C t u",
    ],
    "claims of two generations, all alike": [
        "t:4 u:4 v:4; A t u v [t-0 t-1 t-2 u-2 u-3 v-0 @1]; B t u v [t-0 t-1 u-0 u-1 u-2 u-3 @2]; "
        "C t u v [t-2 t-3 v-0 v-1 v-2 v-3 @2]"
    ],
    "claims of two generations, subscriptions differ": [
        "t:4 u:4 v:4; A t [t-0 t-1 t-2 t-3 @1]; B t u [t-0 t-1 u-0 u-1 u-2 u-3 @2]; "
        "C t u v [t-2 t-3 v-0 v-1 v-2 v-3 @2]",
        "t:4 u:4 v:4; A t; B t u; C t u v",
        "t:4 u:4 v:4; A t; B t u; C t u v",
    ],
    "of several who have one too many the first in Java's table keeps it": [
        "t:4; second t [t-2 t-3 @1]; first t [t-0 t-1 @1]; third t",
        *[alike("t:4", "first", "second", "third")] * 2,
    ],
    "ids in one bucket, Aa joined first": ["t:5; Aa t [t-0 t-1 @1]; BB t [t-2 t-3 @1]; C t; D t"],
    "ids in one bucket, BB joined first": ["t:5; BB t [t-2 t-3 @1]; Aa t [t-0 t-1 @1]; C t; D t"],
    "ids beyond the first plane sort by their surrogates": [
        alike("t:3", "\uff41", "\U0001d400"),
        "t:3 u:1; \uff41 t; \U0001d400 t u",
    ],
    "the table grows with the members": [
        "t:60; " + "; ".join(f"consumer-{i}-7f3a t [t-{2 * i} t-{2 * i + 1} @1]" for i in range(30)) + "; new t"
    ],
    "a partition moves back instead of another": ["t:7 u:7; A t u; B t u [t-1 t-2 t-3 t-5 t-0 u-2 u-3 @1]; H t"],
    "of several that may move back the first in Java's table does": [
        "t:9 u:5; H u; A t u; C t u [t-1 t-3 t-4 t-5 t-8 u-0 u-1 u-2 u-3 @2]"
    ],
    "what is new moves before what is owned": ["t:7 u:11 v:2; F u; E t u v [t-0 @1]; C t v; G t u"],
    "what is owned moves at once where a subscription ended": ["t:3 u:8; E t; D u [t-0 t-1 t-2 u-1 u-3 u-7 @1]; A t u"],
    "who had it in an earlier generation is preferred": [
        "t:2 u:5; D t u [t-0 u-0 u-1 u-2 u-4 @2]; F t u; C t u [t-0 u-0 u-1 u-3 @1]; H u"
    ],
}

DEVIATIONS: dict[str, tuple[str, str, str]] = {
    "claims of partitions that the topic no longer has": (
        "t:3; A t [t-3 t-4 t-5 @1]; B t [t-0 t-1 t-2 @1]",
        "A=,B=t-0+t-1",
        "! java.lang.IllegalStateException",
    ),
    "those claims, where subscriptions differ": (
        "t:1 u:1; A t [t-0 t-1 @1]; B t u [t-2 u-0 @1]",
        "A=t-0,B=u-0",
        "A=t-0+t-1,B=t-2+u-0",
    ),
    "a stale claim of what another has, where subscriptions differ": (
        "t:2 u:3; A t [t-0 t-1 @1]; B t u [t-0 t-1 @2]",
        "A=,B=u-0+u-1+u-2",
        "A=t-0+t-1,B=u-0+u-1+u-2",
    ),
    "two claims of one generation, where subscriptions differ": (
        "t:1 u:1; A t [t-0 @1]; B t u [t-0 @1]",
        "A=,B=u-0",
        "A=t-0,B=u-0",
    ),
    "rivals with old subscriptions": ("t:2; A* t [t-0 @5]; B* t [t-0 @3]", "A=t-0,B=t-1", "A=t-1,B=t-0"),
    "rivals with old subscriptions, of one generation": (
        "t:2; A* t [t-0 @5]; B* t [t-0 @5]",
        "A=,B=t-1",
        "A=t-1,B=t-0",
    ),
    "a stale claim of a topic no longer subscribed to": (
        "t:6 u:1; A t; B t [t-0 t-1 t-2 t-3 t-4 t-5 @2]; C u [t-0 @1]; D u",
        "A=,B=t-3+t-4+t-5,C=u-0,D=",
        "A=,B=t-3+t-4+t-5,C=t-0,D=u-0",
    ),
    "such a claim of one that has all that it wants": (
        "t:4 u:1; A t; B t [t-0 t-1 t-2 t-3 @2]; C u [t-0 @1]",
        "A=,B=t-2+t-3,C=u-0",
        "! java.lang.NullPointerException",
    ),
    "the first member wants nothing": ("t:2; A; B t", "A=,B=t-0+t-1", "A=t-0,B=t-1"),
}
"""Where ours differs on purpose (`streamgroup.group.sticky`): the group, what ours gives, what Java's does."""


def cases() -> Iterator[tuple[str, Case]]:
    """Every round of every scenario, with a name. Each round's assignment is ours: a test holds it against Java's."""
    for name, texts in SCENARIOS.items():
        given: Assignment = {}
        for number, text in enumerate(texts, 1):
            case = read(text, given, number - 1)
            yield f"{name}, round {number}", case
            given = case.ours()


def read(text: str, given: Assignment, generation: int) -> Case:
    """One round: `given` is what the round before gave, in `generation`."""
    layout, *members = (part.strip() for part in text.split(";"))
    counts = {name: int(count) for name, _, count in (pair.partition(":") for pair in layout.split())}
    found: dict[str, GroupMember] = {}
    old: set[str] = set()
    for member in members:
        match = re.fullmatch(r"([\w-]+)(\*?)((?: \w+)*)(?: \[([^@\]]*)(?:@(\d+))?\])?", member)
        assert match is not None, member
        member_id, is_old, names, owned, told = match.groups()
        has = tuple(given.get(member_id, ()) if owned is None else partitions(owned))
        since = int(told) if told else generation if owned is None and member_id in given else -1
        found[member_id] = GroupMember(tuple(names.split()), owned=sorted_as_sent(has), generation=since)
        if is_old:
            old.add(member_id)
    return Case("cooperative-sticky", found, topics(counts), frozenset(old))


def sorted_as_sent(owned: tuple[TopicPartition, ...]) -> tuple[TopicPartition, ...]:
    """By topic and partition, as clients write them."""
    return tuple(sorted(owned))

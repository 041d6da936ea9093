"""The group's leader reads the subscriptions, divides the partitions, and notices when a topic has more or fewer.

A follower reads them from the description of its group. Assignors: the examples of the design as tables, what holds for
all, and the order of strings as in Java. User data: round trips, and other clients' data is no error.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamgroup.errors import ErrorCode
from streamgroup.group.assignment import (
    Division,
    Leadership,
    MemberAssignment,
    Overview,
    Roster,
    changed_counts,
    divide,
    read_assignment,
    read_overview,
    read_roster,
)
from streamgroup.group.assignor_types import GroupMember, java_order, subscribed
from streamgroup.group.assignors import ASSIGNORS, COOPERATIVE, WEIGHTED, chunks, member_order
from streamgroup.group.events import MetadataRefreshed
from streamgroup.group.requests import JoinSubscription, join_group
from streamgroup.group.timing import MemberConfig
from streamgroup.group.user_data import RunIdentity, encode_identity
from streamgroup.kafka.wire.consumer import (
    ConsumerSubscription,
    by_topic,
    decode_assignment,
    decode_subscription,
    each_partition,
    encode_subscription,
)
from streamgroup.kafka.wire.messages.admin import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from streamgroup.kafka.wire.messages.group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupResponse,
)
from streamgroup.model import NO_LEADER, PartitionInfo, TopicInfo, TopicPartition
from tests.live.java.cases import partitions, topics
from tests.unit.group.drivers import Driver, assignment_of, group_of, subscription_of, tps

LEADER = TopicPartition("t", 1)


def row(member_id: str, *names: str) -> JoinGroupResponseMember:
    return JoinGroupResponseMember(member_id=member_id, metadata=subscription_of(*names))


def refreshed(counts: dict[str, int], *more: str) -> MetadataRefreshed:
    """Metadata of topics that exist, and of `more` that do not."""
    return MetadataRefreshed(topics(counts), frozenset({*counts, *more}))


def leading(*members: JoinGroupResponseMember, **more: Any) -> Leadership:
    leadership = Leadership()
    leadership.joined(JoinGroupResponse(leader="me", member_id="me", members=members, **more))
    return leadership


def following() -> Leadership:
    leadership = Leadership()
    leadership.joined(JoinGroupResponse(leader="other", member_id="me"))
    return leadership


def test_a_leader_reads_what_members_of_all_versions_hold() -> None:
    subscription = ConsumerSubscription(
        topics=("t",), user_data=b"\0\0\0\6", owned_partitions=by_topic([LEADER]), generation_id=7, rack_id="rack-1"
    )
    told = {f"v{v}": encode_subscription(subscription, v) for v in range(4)}
    members = [JoinGroupResponseMember(member_id=name, metadata=data) for name, data in told.items()]
    roster = read_roster([*members, JoinGroupResponseMember(member_id="broken", metadata=b"\0\1\0")])
    assert {name: (m.owned, m.generation, m.rack) for name, m in roster.members.items()} == {
        "v0": ((), 6, None),
        "v1": ((LEADER,), 6, None),
        "v2": ((LEADER,), 7, None),
        "v3": ((LEADER,), 7, "rack-1"),
        "broken": ((), -1, None),
    }
    assert list(roster.unreadable) == ["broken"]


def test_a_static_members_instance_id_is_read_also_where_its_subscription_is_not() -> None:
    members = [
        JoinGroupResponseMember(member_id="m1", group_instance_id="one", metadata=subscription_of("t")),
        JoinGroupResponseMember(member_id="m2", group_instance_id="two", metadata=b""),
    ]
    roster = read_roster(members)
    assert {name: member.instance_id for name, member in roster.members.items()} == {"m1": "one", "m2": "two"}
    assert (roster.topics, list(roster.unreadable)) == (frozenset({"t"}), ["m2"])
    assert read_roster([]) == Roster({}, {})


def test_each_member_gets_its_share_and_an_unreadable_one_gets_none() -> None:
    roster = read_roster([row("m1", "t", "gone"), row("m2", "t"), JoinGroupResponseMember(member_id="m3")])
    division = divide("streamgroup-range", roster, topics({"t": 3, "unread": 9}))
    told = {name: decode_assignment(data) for name, data in division.assignments.items()}
    assert {name: list(each_partition(one.assigned_partitions)) for name, one in told.items()} == {
        "m1": partitions("t-0 t-1"),
        "m2": partitions("t-2"),
        "m3": [],
    }
    assert division.overview == Overview({"gone": 0, "t": 3}, frozenset({"m1", "m2", "m3"}))
    assert division.missing == ["gone"]


def test_partitions_that_a_former_owner_has_to_give_up_first_are_counted_as_withheld() -> None:
    owner = GroupMember(("t",), owned=tuple(partitions("t-0 t-1 t-2 t-3")), generation=1)
    roster = Roster({"m1": owner, "m2": GroupMember(("t",))}, {})
    division = divide("cooperative-sticky", roster, topics({"t": 4}))
    assert division.overview == Overview({"t": 4}, frozenset({"m1", "m2"}), withheld=2)
    assert user_data(division) == [None, None]


def user_data(division: Division) -> list[Any]:
    return [decode_assignment(data).user_data for data in division.assignments.values()]


@pytest.mark.parametrize("leader", [GroupMember(("t",)), GroupMember(("t",), "one")], ids=["dynamic", "static"])
@pytest.mark.parametrize("strategy", ASSIGNORS)
def test_no_assignment_has_user_data(strategy: str, leader: GroupMember) -> None:
    """A consumer of KIP-848 cannot join a group whose assignments have user data."""
    division = divide(strategy, Roster({"me": leader, "m2": GroupMember(("t",), "two")}, {}), topics({"t": 4}))
    assert division.overview == Overview({"t": 4}, frozenset({"me", "m2"}))
    assert user_data(division) == [None, None]


def test_a_leader_compares_with_its_own_division() -> None:
    leadership = leading(row("me", "t"), row("m2", "t"))
    division = leadership.assign("range", refreshed({"t": 6}))
    assert leadership.divided == division.overview
    leadership.assigned(leadership.divided, restarted=False)
    assert leadership.changes(refreshed({"t": 12})) == ["t: 6 -> 12"], "also in the first metadata after it"
    leadership.joined(JoinGroupResponse(leader="m2", member_id="me"))
    assert leadership.divided is None, "another member leads the next generation"


def test_a_follower_reads_the_number_of_partitions_and_members_from_the_description_of_the_group() -> None:
    described = group_of(me=partitions("t-0 t-1"), m2=partitions("t-2 u-0"), m3=[])
    read = read_overview(described, {"t": 9, "w": 3}, cooperative=False)
    assert read == Overview({"t": 3, "u": 1}, frozenset({"me", "m2", "m3"}))
    assert read.total == 4


def test_under_a_cooperative_strategy_a_partition_without_an_owner_is_on_its_way() -> None:
    described = group_of(me=partitions("t-0"), m2=partitions("t-2 u-0"))
    read = read_overview(described, {"t": 4, "v": 1, "w": 0}, cooperative=True)
    assert read == Overview({"t": 4, "u": 1, "v": 1}, frozenset({"me", "m2"}), withheld=3)


def test_a_topic_that_does_not_exist_yet_is_among_those_to_compare() -> None:
    member = DescribedGroupMember(member_id="me", member_metadata=subscription_of("t", "gone"))
    group = DescribedGroup(group_id="g", group_state="Stable", members=(member,))
    assert read_overview(DescribeGroupsResponse(groups=(group,)), {}, cooperative=False) == Overview(
        {"t": 0, "gone": 0}, frozenset({"me"})
    )


UNREADABLE = DescribedGroupMember(member_id="m2", member_metadata=b"\0", member_assignment=b"\0")


@pytest.mark.parametrize(
    "described",
    [
        group_of("PreparingRebalance", me=[]),
        group_of("Dead"),
        group_of(code=69),  # a group of KIP-848
        group_of(code=30),
        DescribeGroupsResponse(),
        DescribeGroupsResponse(groups=(DescribedGroup(group_id="g", group_state="Stable", members=(UNREADABLE,)),)),
    ],
)
def test_a_group_that_is_not_described_gives_no_overview(described: DescribeGroupsResponse) -> None:
    assert read_overview(described, {"t": 4}, cooperative=True) is None


@pytest.mark.parametrize(
    ("counts", "asked", "changes"),
    [
        ({"t": 6, "u": 2}, {"t", "u"}, []),
        ({"t": 12, "u": 1}, {"t", "u"}, ["t: 6 -> 12", "u: 2 -> 1"]),
        ({"t": 12}, {"t"}, ["t: 6 -> 12"]),
        ({"t": 6}, {"t", "u"}, ["u: 2 -> 0"]),  # deleted
        ({"t": 6, "new": 3}, {"t", "new"}, []),  # not a topic of the assignment
        ({}, set(), []),
    ],
)
def test_counts_are_compared_for_the_topics_of_the_assignment_that_were_asked_for(
    counts: dict[str, int], asked: set[str], changes: list[str]
) -> None:
    assert changed_counts({"t": 6, "u": 2}, topics(counts), frozenset(asked)) == changes


@pytest.mark.parametrize("user_data", [None, b'{"streamgroup":1,"counts":{"t":3},"members":2}'])
def test_a_member_reads_its_partitions_sorted_and_leaves_topics_out_that_it_has_not_subscribed_to(
    user_data: bytes | None,
) -> None:
    """Leaders of streamgroup 0.1 put user data into assignments."""
    data = assignment_of(partitions("t-2 u-0 t-0 v-1"), user_data)
    read = read_assignment(SyncGroupResponse(assignment=data), {"t"})
    assert read == MemberAssignment(tuple(partitions("t-0 t-2")), ["u", "v"])


def test_a_leader_of_another_make_may_leave_a_member_out() -> None:
    assert read_assignment(SyncGroupResponse(), {"t"}) == MemberAssignment((), [])


def test_the_leader_assigns_once_and_only_with_the_metadata_of_all_members_topics() -> None:
    leadership = leading(row("me", "t"), row("m2", "u"))
    assert (leadership.leads, leadership.is_to_assign, leadership.topics) == (True, True, frozenset({"t", "u"}))
    assert leadership.assign("range", refreshed({"t": 1})) is None
    division = leadership.assign("range", refreshed({"t": 1}, "u"))
    assert division.missing == ["u"]
    assert not leadership.is_to_assign
    assert leadership.assign("range", refreshed({"t": 1}, "u")) is None


WITHOUT_A_LEADER = Overview({"t": 6, "u": 2}, frozenset({"me", "m2"}))
WITH_ITS_LEADER = Overview({"t": 6, "u": 2}, frozenset({"me", "other"}))


@pytest.mark.parametrize(
    ("leads", "restarted", "overview", "watches"),
    [
        (True, False, WITHOUT_A_LEADER, True),
        (False, False, WITHOUT_A_LEADER, False),
        (False, True, WITHOUT_A_LEADER, True),  # the answer has named its predecessor's id as the leader's
        (False, True, WITH_ITS_LEADER, False),
        (False, True, None, False),
    ],
)
def test_the_leader_or_a_member_that_may_be_it_follows_the_topics_of_the_whole_group(
    leads: bool, restarted: bool, overview: Overview | None, watches: bool
) -> None:
    leadership = leading(row("me", "t"), row("m2", "v")) if leads else following()
    leadership.assigned(overview, restarted=restarted)
    followed = leadership.followed(frozenset({"own"}))
    assert followed == frozenset({"own"} | ({"t", "u"} if watches else set()) | ({"v"} if leads else set()))
    assert leadership.changes(refreshed({"t": 12, "u": 2})) == (["t: 6 -> 12"] if watches else [])


def test_under_an_assignment_of_another_make_the_leader_compares_from_the_first_whole_metadata_on() -> None:
    leadership = leading(row("me", "t", "u"), skip_assignment=True)
    leadership.assigned(None, restarted=False)
    assert leadership.changes(refreshed({"t": 6})) == [], "not yet of all topics"
    assert leadership.changes(refreshed({"t": 7, "u": 2})) == []
    assert leadership.changes(refreshed({"t": 7, "u": 3})) == ["u: 2 -> 3"]


# -- assignors --------------------------------------------------------------------------------------------------------


def topic(name: str, leaders: Sequence[int]) -> TopicInfo:
    """A topic whose partition `i` is led by `leaders[i]`."""
    return TopicInfo(name, tuple(PartitionInfo(i, leader) for i, leader in enumerate(leaders)))


def numbers(strategy: str, members: Mapping[str, GroupMember], *topics: TopicInfo) -> dict[str, list[str]]:
    assigned = ASSIGNORS[strategy](members, {t.name: t for t in topics})
    return {member: [str(tp) for tp in partitions] for member, partitions in assigned.items()}


def three_members(*topics: str) -> dict[str, GroupMember]:
    return {member: GroupMember(topics) for member in "ABC"}


def test_chunks_follow_the_brokers_three_members_two_brokers() -> None:
    # Broker 0 leads 0, 2, 4; broker 1 leads 1, 3, 5: (broker, partition) sorted, two for each.
    assert numbers("streamgroup-range", three_members("t"), topic("t", [0, 1, 0, 1, 0, 1])) == {
        "A": ["t-0", "t-2"],
        "B": ["t-4", "t-1"],
        "C": ["t-3", "t-5"],
    }


@pytest.mark.parametrize(
    ("count", "parts", "sizes"),
    [(18, 4, [5, 5, 4, 4]), (6, 3, [2, 2, 2]), (2, 3, [1, 1, 0]), (0, 2, [0, 0]), (7, 1, [7]), (7, 2, [4, 3])],
)
def test_the_first_members_take_one_more(count: int, parts: int, sizes: list[int]) -> None:
    assert [len(chunk) for chunk in chunks(count, [1] * parts)] == sizes


@pytest.mark.parametrize(
    ("count", "weights", "sizes"),
    [
        (18, [1, 2, 3], [3, 6, 9]),
        (18, [3, 1, 2], [9, 3, 6]),
        (4, [2, 1], [3, 1]),  # 2.67 and 1.33
        (1, [1, 9, 9], [0, 1, 0]),
        (3, [1, 1_000_000], [0, 3]),
        (0, [1, 2], [0, 0]),
    ],
)
def test_chunks_are_in_proportion_to_the_weights(count: int, weights: list[int], sizes: list[int]) -> None:
    assert [len(chunk) for chunk in chunks(count, weights)] == sizes


@given(st.integers(0, 200), st.lists(st.integers(1, 50), min_size=1, max_size=9))
def test_no_chunk_is_a_whole_place_from_its_share(count: int, weights: list[int]) -> None:
    found = list(chunks(count, weights))
    assert [place for chunk in found for place in chunk] == list(range(count))
    assert all(abs(len(c) * sum(weights) - count * w) < sum(weights) for c, w in zip(found, weights, strict=True))


def test_members_of_different_weights_share_by_streamgroup_range_and_no_other_strategy() -> None:
    """18 partitions on 3 brokers: the chunks follow the brokers."""
    identities = {name: encode_identity(RunIdentity("l", name, weight=int(name[1]))) for name in ("w1", "w2", "w3")}
    rows = [
        JoinGroupResponseMember(member_id=name, metadata=metadata(JoinSubscription(("t",), data), strategy)[strategy])
        for name, data in identities.items()
        for strategy in ["cooperative-sticky" if name == "w2" else "range"]
    ]
    members = read_roster(rows).members
    layout = {"t": topic("t", [number % 3 for number in range(18)])}
    sizes = {name: [len(share) for share in assign(members, layout).values()] for name, assign in ASSIGNORS.items()}
    assert sizes.pop(WEIGHTED) == [3, 6, 9]
    assert set(map(tuple, sizes.values())) == {(6, 6, 6)}
    assert {tp.partition % 3 for tp in ASSIGNORS[WEIGHTED](members, layout)["w1"]} == {0}


def test_partitions_without_a_leader_come_last() -> None:
    two = {"A": GroupMember(("t",)), "B": GroupMember(("t",))}
    assert numbers("streamgroup-range", two, topic("t", [NO_LEADER, 5, NO_LEADER, 2])) == {
        "A": ["t-3", "t-1"],
        "B": ["t-0", "t-2"],
    }


def test_each_topic_is_divided_on_its_own_by_range() -> None:
    two = {"A": GroupMember(("t", "u")), "B": GroupMember(("u", "t"))}
    assert numbers("range", two, topic("t", [0, 0, 0]), topic("u", [0, 0, 0])) == {
        "A": ["t-0", "t-1", "u-0", "u-1"],
        "B": ["t-2", "u-2"],
    }


def test_static_members_come_first_and_by_their_instance() -> None:
    members = {
        "a": GroupMember((), None),
        "z": GroupMember((), "node-1"),
        "b": GroupMember((), "node-2"),
        "0": GroupMember((), None),
    }
    assert member_order(members) == ["z", "b", "0", "a"]


def test_a_static_members_restart_moves_no_chunk() -> None:
    before = {"m-1": GroupMember(("t",), "x"), "m-2": GroupMember(("t",), "y")}
    after = {"m-9": GroupMember(("t",), "x"), "m-2": GroupMember(("t",), "y")}
    layout = topic("t", [0, 1, 2, 0])
    for strategy in ASSIGNORS.keys() - COOPERATIVE:  # cooperative-sticky goes by what they own instead
        assert numbers(strategy, before, layout)["m-2"] == numbers(strategy, after, layout)["m-2"]


def test_cooperative_strategies_are_among_those_there_are() -> None:
    assert ASSIGNORS.keys() > COOPERATIVE == {"cooperative-sticky"}


def test_members_sort_as_java_sorts_strings() -> None:
    # U+1F600 is a surrogate pair in UTF-16 (D83D ...) and so sorts before U+FF5E, although its code point is larger.
    assert member_order({"\uff5e": GroupMember(()), "😀": GroupMember(())}) == ["😀", "\uff5e"]


NAMES = st.sampled_from(["t", "u", "v", "w"])
LAYOUTS = st.dictionaries(NAMES, st.lists(st.integers(NO_LEADER, 3), max_size=12), max_size=4)


@st.composite
def groups(draw: st.DrawFn) -> dict[str, GroupMember]:
    ids = draw(st.lists(st.text("ab01", min_size=1, max_size=4), min_size=1, max_size=6, unique=True))
    return {
        member_id: GroupMember(
            tuple(draw(st.lists(NAMES, max_size=4))),
            f"i-{draw(st.permutations(range(9)))[0]}-{member_id}" if draw(st.booleans()) else None,
        )
        for member_id in ids
    }


@given(groups(), LAYOUTS, st.sampled_from(sorted(ASSIGNORS)))
def test_every_assignor_is_total_disjoint_and_independent_of_order(
    members: dict[str, GroupMember], layout: dict[str, list[int]], strategy: str
) -> None:
    topics = {name: topic(name, leaders) for name, leaders in layout.items()}
    assigned = ASSIGNORS[strategy](members, topics)
    handed_out = [tp for partitions in assigned.values() for tp in partitions]
    subscribed = {name for member in members.values() for name in member.topics}
    assert assigned.keys() == members.keys()
    assert sorted(handed_out) == sorted(
        TopicPartition(name, p.partition) for name in subscribed & topics.keys() for p in topics[name].partitions
    )
    assert all(tp.topic in members[member].topics for member, tps in assigned.items() for tp in tps)

    reversed_members = {
        k: GroupMember(tuple(reversed(m.topics)), m.instance_id) for k, m in reversed(list(members.items()))
    }
    reversed_topics = {
        name: TopicInfo(name, tuple(reversed(info.partitions))) for name, info in reversed(list(topics.items()))
    }
    assert ASSIGNORS[strategy](reversed_members, reversed_topics) == assigned


@given(
    st.dictionaries(
        st.sampled_from("ABCDEF"), st.lists(st.sampled_from("tuvw"), max_size=5).map(tuple), min_size=1, max_size=6
    ),
    st.dictionaries(st.sampled_from("tuvw"), st.integers(0, 7), max_size=4),
)
def test_roundrobin_goes_round_the_members_and_passes_over_those_who_do_not_subscribe(
    subscriptions: dict[str, tuple[str, ...]], partitions: dict[str, int]
) -> None:
    members = {member: GroupMember(topics) for member, topics in subscriptions.items()}
    expected: dict[str, list[str]] = {member: [] for member in members}
    turn = itertools.cycle(member_order(members))
    for name, count in sorted(partitions.items()):
        if any(name in topics for topics in subscriptions.values()):
            for number in range(count):
                owner = next(member for member in turn if name in subscriptions[member])
                expected[owner].append(f"{name}-{number}")
    topics = [topic(name, [1] * count) for name, count in partitions.items()]
    assert numbers("roundrobin", members, *topics) == expected


@settings(max_examples=100)
@example("Z", "a")
@example("\U0001f600", "\uffee")  # its surrogates lie below U+FFEE, its code point above
@example("\ud83d", "\uffee")  # a lone surrogate, which Java's strings may have
@given(st.text(st.characters(exclude_categories=())), st.text(st.characters(exclude_categories=())))
def test_any_two_texts_sort_as_their_code_units_do(one: str, other: str) -> None:
    def units(text: str) -> list[int]:
        return list(array("H", text.encode("utf-16-le", "surrogatepass")))

    assert (java_order(one) < java_order(other)) == (units(one) < units(other))


def test_only_topics_that_exist_and_have_a_subscriber_are_divided_each_once_and_in_order() -> None:
    members = {"m1": GroupMember(("u", "t", "gone", "t")), "m2": GroupMember(("\uffee", "\U0001f600", "u"))}
    existing = topics({"unread": 1, "\uffee": 1, "u": 2, "t": 0, "\U0001f600": 1})
    assert subscribed(members, existing) == ["t", "u", "\U0001f600", "\uffee"]


# -- the subscription in JoinGroup, for the leader ---------------------------------------------------------------------

T1, U0 = TopicPartition("t", 1), TopicPartition("u", 0)
HELD = JoinSubscription(("t", "u"), b"lineage", (U0, T1), 7)


def metadata(subscription: JoinSubscription, *strategies: str) -> dict[str, bytes]:
    request: JoinGroupRequest = join_group(MemberConfig("g", strategies=strategies), "me", subscription, "why")(9)
    return {protocol.name: bytes(protocol.metadata) for protocol in request.protocols}


def test_a_cooperative_member_tells_what_it_holds_and_since_when() -> None:
    """KIP-429, KIP-792; in the user data once more the generation, for Java's leaders before 3.4, then who it is."""
    told = decode_subscription(metadata(HELD, "cooperative-sticky")["cooperative-sticky"])
    assert told == ConsumerSubscription(
        topics=("t", "u"), user_data=b"\0\0\0\7lineage", owned_partitions=by_topic([T1, U0]), generation_id=7
    )


def test_strategies_side_by_side_each_have_user_data_of_their_own() -> None:
    both = metadata(JoinSubscription(("t",), b"lineage"), "cooperative-sticky", "range")
    user_data = {name: bytes(decode_subscription(data).user_data or b"") for name, data in both.items()}
    assert user_data == {"cooperative-sticky": b"\xff\xff\xff\xfflineage", "range": b"lineage"}


def test_nothing_to_tell_is_no_user_data() -> None:
    assert decode_subscription(metadata(JoinSubscription(("t",)), "range")["range"]) == ConsumerSubscription(
        topics=("t",)
    )


# -- what a member says of its weight ----------------------------------------------------------------------------------


def test_a_weight_without_effect_is_logged_once_and_so_is_its_return() -> None:
    d = Driver(weight=3).found()
    said = []
    for generation, strategy in enumerate(["streamgroup-range", "range", "range", "streamgroup-range"], 1):
        d.strategy = strategy
        d.joined(generation)
        said.append(d.notes())
        d.answer(SyncGroupResponse(assignment=assignment_of(tps("t", 0))))
        d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert [bool(text) for text in said] == [False, True, False, True]
    assert "group.member.weight=3 has no effect: the group uses range, because another member does not" in said[1]
    assert "group.member.weight=3 has an effect again: the group uses streamgroup-range" in said[3]


def test_a_weight_beside_a_member_of_the_consumer_protocol_has_no_effect() -> None:
    """The broker names no leader then, and still the strategy of the classic members."""
    d = Driver(weight=3).found()
    d.joined(1, leader="")
    assert "group.member.weight=3 has no effect: another member uses the consumer protocol" in d.notes()
    d.answer(SyncGroupResponse(assignment=assignment_of(tps("t", 0))))
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    d.joined(2)
    assert "group.member.weight=3 has an effect again" in d.notes()


def test_a_member_without_a_weight_says_nothing_of_weights() -> None:
    d = Driver()
    d.strategy = "range"
    d.found().joined()
    assert d.notes() == ""

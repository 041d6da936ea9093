"""The group's leader reads the subscriptions, divides the partitions, and notices when a topic has more or fewer."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.group.assigning import GroupMember
from streamgroup.group.assignment import (
    Division,
    Leadership,
    MemberAssignment,
    Roster,
    changed_counts,
    divide,
    read_assignment,
    read_roster,
)
from streamgroup.group.assignors import ASSIGNORS
from streamgroup.group.events import MetadataRefreshed
from streamgroup.group.user_data import AssignmentBasis, decode_basis, encode_basis
from streamgroup.kafka.wire.consumer import (
    ConsumerSubscription,
    by_topic,
    decode_assignment,
    each_partition,
    encode_subscription,
)
from streamgroup.kafka.wire.messages.group import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse
from streamgroup.model import TopicPartition
from tests.live.java.cases import partitions, topics
from tests.unit.group.drivers import assignment_of, subscription_of

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


def test_each_member_gets_its_share_with_the_basis_and_an_unreadable_one_gets_none() -> None:
    roster = read_roster([row("m1", "t", "gone"), row("m2", "t"), JoinGroupResponseMember(member_id="m3")])
    division = divide("streamgroup-range", roster, topics({"t": 3, "unread": 9}), "m1")
    told = {name: decode_assignment(data) for name, data in division.assignments.items()}
    assert {name: list(each_partition(one.assigned_partitions)) for name, one in told.items()} == {
        "m1": partitions("t-0 t-1"),
        "m2": partitions("t-2"),
        "m3": [],
    }
    assert division.basis == AssignmentBasis({"gone": 0, "t": 3}, members=3)
    assert all(decode_basis(one.user_data) == division.basis for one in told.values())
    assert division.missing == ["gone"]


def test_partitions_that_a_former_owner_has_to_give_up_first_are_counted_as_withheld() -> None:
    owner = GroupMember(("t",), owned=tuple(partitions("t-0 t-1 t-2 t-3")), generation=1)
    roster = Roster({"m1": owner, "m2": GroupMember(("t",))}, {})
    division = divide("cooperative-sticky", roster, topics({"t": 4}), "m2")
    assert division.basis == AssignmentBasis({"t": 4}, members=2, withheld=2)
    assert [decode_basis(data) for data in user_data(division)] == [division.basis] * 2, "another rebalance follows"


def user_data(division: Division) -> list[Any]:
    return [decode_assignment(data).user_data for data in division.assignments.values()]


@pytest.mark.parametrize("leader", [GroupMember(("t",)), GroupMember(("t",), "one")], ids=["dynamic", "static"])
@pytest.mark.parametrize("strategy", ASSIGNORS)
def test_under_javas_strategies_only_a_static_leader_puts_user_data_into_an_assignment_that_is_complete(
    strategy: str, leader: GroupMember
) -> None:
    """A consumer of KIP-848 cannot join a group whose assignments have user data."""
    roster = Roster({"me": leader, "m2": GroupMember(("t",), "two")}, {})
    division = divide(strategy, roster, topics({"t": 4}), "me")
    assert division.basis == AssignmentBasis({"t": 4}, members=2)
    has_data = strategy == "streamgroup-range" or leader.instance_id is not None
    assert {data is not None for data in user_data(division)} == {has_data}


def test_a_leader_compares_with_its_own_division_where_the_assignment_has_no_user_data() -> None:
    leadership = leading(row("me", "t"), row("m2", "t"))
    division = leadership.assign("range", refreshed({"t": 6}))
    assert division is not None
    assert leadership.assigned(None, restarted=False) == division.basis
    assert leadership.changes(refreshed({"t": 12})) == ["t: 6 -> 12"], "also in the first metadata after it"
    leadership.joined(JoinGroupResponse(leader="m2", member_id="me"))
    assert leadership.assigned(None, restarted=False) is None, "another member leads the next generation"


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
    assert changed_counts(AssignmentBasis({"t": 6, "u": 2}, 1), topics(counts), frozenset(asked)) == changes


@pytest.mark.parametrize("basis", [None, AssignmentBasis({"t": 3}, 2)])
def test_a_member_reads_its_partitions_sorted_and_leaves_topics_out_that_it_has_not_subscribed_to(
    basis: AssignmentBasis | None,
) -> None:
    data = assignment_of(partitions("t-2 u-0 t-0 v-1"), None if basis is None else encode_basis(basis))
    read = read_assignment(SyncGroupResponse(assignment=data), {"t"})
    assert read == MemberAssignment(tuple(partitions("t-0 t-2")), ["u", "v"], basis)


def test_a_leader_of_another_make_may_leave_a_member_out() -> None:
    assert read_assignment(SyncGroupResponse(), {"t"}) == MemberAssignment((), [], None)


def test_the_leader_assigns_once_and_only_with_the_metadata_of_all_members_topics() -> None:
    leadership = leading(row("me", "t"), row("m2", "u"))
    assert (leadership.leads, leadership.is_to_assign, leadership.topics) == (True, True, frozenset({"t", "u"}))
    assert leadership.assign("range", refreshed({"t": 1})) is None
    division = leadership.assign("range", refreshed({"t": 1}, "u"))
    assert division is not None
    assert division.missing == ["u"]
    assert not leadership.is_to_assign
    assert leadership.assign("range", refreshed({"t": 1}, "u")) is None


BASIS = AssignmentBasis({"t": 6, "u": 2}, 2)


@pytest.mark.parametrize(
    ("leads", "restarted", "basis", "watches"),
    [
        (True, False, BASIS, True),
        (False, False, BASIS, False),
        (False, True, BASIS, True),  # the answer may have named its predecessor's id as the leader's
        (False, True, None, False),
    ],
)
def test_the_leader_or_a_member_that_may_be_it_follows_the_topics_of_the_whole_group(
    leads: bool, restarted: bool, basis: AssignmentBasis | None, watches: bool
) -> None:
    leadership = leading(row("me", "t"), row("m2", "v")) if leads else following()
    leadership.assigned(basis, restarted=restarted)
    followed = leadership.followed(frozenset({"own"}))
    assert followed == frozenset({"own"} | ({"t", "u"} if watches else set()) | ({"v"} if leads else set()))
    assert leadership.changes(refreshed({"t": 12, "u": 2})) == (["t: 6 -> 12"] if watches else [])


def test_under_an_assignment_of_another_make_the_leader_compares_from_the_first_whole_metadata_on() -> None:
    leadership = leading(row("me", "t", "u"), skip_assignment=True)
    leadership.assigned(None, restarted=False)
    assert leadership.changes(refreshed({"t": 6})) == [], "not yet of all topics"
    assert leadership.changes(refreshed({"t": 7, "u": 2})) == []
    assert leadership.changes(refreshed({"t": 7, "u": 3})) == ["u: 2 -> 3"]

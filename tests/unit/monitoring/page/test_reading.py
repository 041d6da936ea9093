"""One reading of a cluster: which member holds which partition, and which statuses and failures are of a group."""

from __future__ import annotations

from streamgroup.model import GroupDescription, GroupState, MemberDescription, TopicPartition
from streamgroup.monitoring.page.history.batches import GroupReading, Reading
from streamgroup.monitoring.query_totals import QueryFailure
from tests.unit.monitoring.page.readings import group, partitions, reading, snapshot, status

P = partitions(4)


def test_each_partition_has_the_member_that_holds_it() -> None:
    found = group("audit", held={"a": P[:1], "b": P[1:3], "c": []})
    assert found.name == "audit"
    assert found.owners() == {P[0]: "a", P[1]: "b", P[2]: "b"}


def test_a_member_of_a_protocol_that_is_not_one_of_consumers_holds_nothing() -> None:
    connector = MemberDescription("worker", assigned=None)
    found = GroupReading(GroupDescription("connect", GroupState.STABLE, "connect", members=(connector,)))
    assert (found.owners(), found.partitions()) == ({}, [])


def test_the_partitions_of_a_group_are_those_held_or_committed_in_order() -> None:
    other = TopicPartition("audit", 7)
    found = group(held={"a": [P[3], P[0]]}, committed={P[3]: 5, P[2]: 0, other: 1})
    assert found.partitions() == [other, P[0], P[2], P[3]]


def test_statuses_are_told_apart_by_their_group() -> None:
    found = reading(100, statuses=[status("a"), status("b", group="audit"), {"member": "c"}])
    assert [each["member"] for each in found.statuses_of("etl")] == ["a"]
    assert [each["member"] for each in found.statuses_of("audit")] == ["b"]
    assert list(found.statuses_of("etl-2")) == []


def test_a_query_of_several_groups_fails_for_each_of_them() -> None:
    both = QueryFailure(100.0, "q", ("etl", "audit"), "DataLossError", "orders-0: gone")
    none = QueryFailure(101.0, "q", (), "ConfigError", "no topic")
    found = reading(102, failures=[both, none])
    assert list(found.failures_of("etl")) == list(found.failures_of("audit")) == [both]
    assert list(found.failures_of("et")) == [], "a part of the name is another group"


def test_a_reading_of_a_cluster_without_groups_is_empty() -> None:
    found = Reading(100.0, snapshot({}))
    assert (found.groups, found.statuses, found.notes, found.unread) == ((), (), (), frozenset())
    assert (list(found.statuses_of("etl")), list(found.failures_of("etl"))) == ([], [])

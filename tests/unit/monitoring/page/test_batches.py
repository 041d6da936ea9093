"""Readings of a cluster, and the batches of the queries on this machine."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.model import GroupDescription, GroupState, MemberDescription, TopicPartition
from streamgroup.monitoring.page.history.batches import GroupBatches, GroupReading, RunBatches, SunkBatch
from streamgroup.monitoring.query_totals import QueryFailure
from tests.unit.monitoring.page.readings import group, partitions, reading, status

BEGAN = 1767225600.0
"""2026-01-01T00:00:00Z."""


def reported(number: int, **fields: Any) -> dict[str, Any]:
    """A batch as the status of a coordinator process has it."""
    began = f"2026-01-01T00:00:{number:02}.000Z"
    return {"batch": number, "began": began, "rows": 10 * number, "durations_ms": {"addBatch": number}, **fields}


def numbers(run: RunBatches) -> list[int]:
    return [batch.number for batch in run.batches]


def test_a_batch_has_its_time_its_rows_and_the_whole_milliseconds_of_its_phases() -> None:
    run = RunBatches("orders", 5)
    run.add([reported(7, durations_ms={"addBatch": 40, "walCommit": 3, "commitOffsets": "3", "getBatch": 1.5})])
    assert list(run.batches) == [SunkBatch(7, BEGAN + 7, 70, {"addBatch": 40, "walCommit": 3})]


def test_a_run_keeps_its_newest_batches_each_once() -> None:
    run = RunBatches("orders", 3)
    run.add([reported(0), reported(1)])
    run.add([reported(0), reported(1), reported(2)])
    run.add([])
    assert numbers(run) == [0, 1, 2]
    run.add([reported(3), reported(4)])
    assert numbers(run) == [2, 3, 4]


@pytest.mark.parametrize(
    "other",
    [
        7,
        "batch",
        [],
        reported(2, batch="2"),
        reported(2, batch=None),
        reported(2, began="soon"),
        reported(2, began=5),
        reported(2, rows=1.5),
        reported(2, durations_ms=None),
        {"batch": 2, "began": "2026-01-01T00:00:02Z", "rows": 1},
    ],
)
def test_a_batch_as_another_release_reports_it_is_left_out_and_those_around_it_are_kept(other: object) -> None:
    run = RunBatches("orders", 5)
    run.add([reported(1), other, reported(3)])
    assert numbers(run) == [1, 3]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"name": "east", "query": {"name": "orders", "id": "q-1"}}, "east"),
        ({"query": {"name": "orders", "id": "q-1"}}, "orders"),
        ({"query": {"name": None, "id": "q-1"}}, "q-1"),
        ({"query": None}, "r1"),
        ({"query": {}}, "r1"),
    ],
)
def test_a_run_has_the_name_of_its_source_or_of_its_query_or_else_an_id(fields: dict[str, Any], name: str) -> None:
    group = GroupBatches(runs=2, batches=2)
    group.add([status("a", batches=[reported(1)], **fields)])
    assert [run.name for run in group.runs().values()] == [name]


def test_the_run_that_was_silent_for_longest_is_forgotten_first() -> None:
    group = GroupBatches(runs=2, batches=5)
    group.add([status("a", run="r1", batches=[reported(1)]), status("b", run="r2", batches=[reported(1)])])
    group.add([status("a", run="r1", batches=[reported(2)])])
    group.add([status("c", run="r3", batches=[reported(1)])])
    assert {run: numbers(found) for run, found in group.runs().items()} == {"r1": [1, 2], "r3": [1]}


@pytest.mark.parametrize("batches", [None, [], {}, "batches"])
def test_a_status_without_batches_adds_no_run(batches: object) -> None:
    group = GroupBatches(runs=2, batches=5)
    group.add([status("a", batches=batches), status("b")])
    assert group.runs() == {}


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

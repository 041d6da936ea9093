"""Commits of members: every error code of the protocol guide of 0.8 and 0.9, and commits in several requests."""

from __future__ import annotations

import pytest

from streamgroup.errors import BrokerError, ErrorCode, error_of
from streamgroup.group import commits
from streamgroup.group import events as ev
from streamgroup.group.member import MetadataStale
from streamgroup.group.state_machine import State
from streamgroup.kafka.wire.messages.group import FindCoordinatorRequest, JoinGroupRequest
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from streamgroup.model import EARLIEST, TopicPartition
from streamgroup.options.types import GroupMode, GroupOptions
from tests.fakes.cluster import logs_of
from tests.fakes.group_coordinator import ScriptedCoordinator
from tests.unit.coordinator.runs import INITIAL, Start, start
from tests.unit.coordinator.shells import source, until
from tests.unit.group.world import COOPERATIVE, P0, P1, GroupWorld, QueryRun, founded, offsets, sends

__all__ = ["start"]


def refused(*codes: int, partitions: int = 2) -> tuple[GroupWorld, QueryRun]:
    """A member whose batch has sunk. The coordinator answers its next commits with these codes."""
    world, a = founded(partitions)
    a.batch()
    world.coordinator.refusals = list(codes)
    return world, a


def test_a_commit_refused_by_a_rebalance_is_made_again_after_it_for_what_is_kept() -> None:
    world, a = refused(ErrorCode.REBALANCE_IN_PROGRESS)
    generation = world.coordinator.generation
    assert a.poll()
    assert world.coordinator.generation == generation + 1
    assert world.coordinator.commits[-1][1:] == (generation + 1, {P0: 10, P1: 10})
    assert world.repeated() == []


def test_an_unanswered_commit_is_sent_again() -> None:
    world, a = founded()
    a.batch()
    world.silent.add(OffsetCommitRequest)
    assert not a.poll()
    world.silent.clear()
    world.run(29)
    assert not a.poll()
    world.run(5)
    assert a.poll()
    assert [commit[2] for commit in world.coordinator.commits[-2:]] == [{P0: 10, P1: 10}] * 2
    assert a.member.retries == 2, "one for the offsets, one for the coordinator, which is found again"


@pytest.mark.parametrize(
    ("code", "to_do"),
    [
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, "raise the broker's offset.metadata.max.bytes"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "--operation Read --group g"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "--operation Read --topic t`"),
    ],
)
def test_a_commit_that_can_never_be_accepted_ends_the_query_and_names_what(code: int, to_do: str) -> None:
    _, a = refused(code)
    a.poll()
    assert isinstance(a.failure, BrokerError)
    told = str(a.failure)
    assert told.startswith("group g: cannot commit t-0 at offset 10 in generation 1: ")
    assert to_do in told
    assert error_of(code).name in told


def test_a_deleted_topic_holds_up_no_commit() -> None:
    """Its loss is told where positions are judged, before the next plan; that waits for commits."""
    world, a = founded()
    a.batch()
    world.coordinator.deleted = {P1}
    assert not a.poll(), "a topic that metadata still knows may only be new to the coordinator"
    world.partitions = 1
    world.tell_topics(a)
    world.run(5)
    assert a.poll()
    assert offsets(world) == {0: 10, 1: 0}


def test_a_commit_refused_for_a_topic_that_the_metadata_still_has_asks_for_the_metadata() -> None:
    world, query = refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert not query.poll()
    assert MetadataStale() in query.log
    world.run(1)
    assert query.poll()
    assert offsets(world) == {0: 10, 1: 10}


# -- error codes of commits, and of their fetch ------------------------------------------------------------------------


COMMITTED = {0: 10, 1: 10}


@pytest.mark.parametrize(
    ("code", "asked"), [(14, None), (15, FindCoordinatorRequest), (16, FindCoordinatorRequest), (27, JoinGroupRequest)]
)
def test_a_commit_that_comes_at_a_bad_time_is_made_again(code: int, asked: type[object] | None) -> None:
    world, a = refused(code)
    before = 0 if asked is None else sends(a, asked)
    a.poll()
    world.run(5)
    assert a.poll()
    assert offsets(world) == COMMITTED
    assert asked is None or sends(a, asked) == before + 1
    assert a.failure is None
    assert world.repeated() == []


@pytest.mark.parametrize(("code", "as_whom"), [(22, "the same member"), (25, "another"), (69, "another")])
def test_a_commit_of_a_member_that_is_none_any_more_loses_everything_and_it_joins_again(
    code: int, as_whom: str
) -> None:
    world, a = refused(code)
    was = a.membership.member_id
    if as_whom == "another":
        world.coordinator.expel(was)
    a.poll()
    assert ev.Lost(error_of(code).name) in a.log
    assert sends(a, OffsetFetchRequest) == 2
    world.run(10)
    assert a.poll()
    assert (a.membership.member_id == was) is (as_whom == "the same member")
    assert a.membership.state is State.STABLE
    assert offsets(world) == COMMITTED, "nobody else had it, and the batch is proven (R5a)"
    world.produce(3)
    a.batch()
    assert (world.repeated(), world.missing()) == ([], set())
    assert a.failure is None


@pytest.mark.parametrize("code", [12, 29, 30])
def test_a_commit_that_would_never_be_accepted_ends_the_query(code: int) -> None:
    world, a = refused(code)
    a.poll()
    assert isinstance(a.failure, BrokerError)
    assert a.failure.code == code
    assert offsets(world) == {0: 0, 1: 0}


@pytest.mark.parametrize("code", [14, 16, -1, 8, 69, 140])
def test_offsets_that_cannot_be_reported_now_are_asked_for_again(code: int) -> None:
    world = GroupWorld(end=5)
    world.coordinator.fetch_refusals = [code] * 3
    query = world.query("A")
    query.poll()
    world.run(5)
    assert query.poll()
    assert query.failure is None
    assert query.positions == {0: 5, 1: 5}


@pytest.mark.parametrize(
    ("code", "after_s"), [(22, 0), (25, 0), (29, 0), (30, 0), (-1, 10), (8, 10), (69, 10), (140, 10)]
)
def test_offsets_that_nobody_will_tell_end_the_query(code: int, after_s: float) -> None:
    """22 and 25 are in the guide, but no broker can mean them: the request does not say who asks."""
    world = GroupWorld(end=5)
    world.coordinator.fetch_refusals = [code] * 1000
    query = world.query("A")
    query.poll()
    assert (query.failure is None) is (after_s > 0), "some may pass"
    world.run(after_s)
    assert isinstance(query.failure, BrokerError)
    assert error_of(code).name in str(query.failure)
    assert query.positions == {}


# -- several requests, since the broker's batches are limited: accepted only as a whole, refused in part ---------------


PARTITIONS = 120
LIMIT = 12_000
"""Bytes: half of the partitions in one batch."""


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two partitions a request."""
    monkeypatch.setattr(commits, "PART_BYTES", 500)


def committed_all(world: GroupWorld, offset: int = 10) -> bool:
    return offsets(world) == dict.fromkeys(range(world.partitions), offset)


def sizes(world: GroupWorld) -> list[int]:
    return [len(rows) for _, _, rows in world.coordinator.commits]


@pytest.mark.slow
@pytest.mark.parametrize("code", [28, -1, 10, 18])
@pytest.mark.parametrize("strategies", [{}, COOPERATIVE], ids=["eager", "cooperative"])
def test_a_commit_beyond_the_limit_of_the_brokers_batches_is_made_in_parts(
    code: int, strategies: dict[str, tuple[str, ...]]
) -> None:
    """28 is the answer of coordinators before Kafka 4, -1 of those since."""
    world, a = founded(PARTITIONS, **strategies)
    world.coordinator.batch_limit = LIMIT, code
    a.batch()
    a.poll()
    world.run(5)
    assert a.failure is None
    assert committed_all(world)
    assert a.poll()
    assert any("sending at most" in action.text for action in a.log if isinstance(action, ev.Note))
    made = len(sizes(world))
    world.produce(5)
    a.batch()
    refused = sends(a, OffsetCommitRequest)
    a.poll()
    world.run(5)
    assert committed_all(world, 15)
    assert sends(a, OffsetCommitRequest) - refused == len(sizes(world)) - made, "the size is remembered"
    assert world.repeated() == []


@pytest.mark.usefixtures("small_parts")
def test_nothing_is_planned_before_the_last_part_is_accepted() -> None:
    world, a = founded(5)
    a.batch()
    before = len(sizes(world))
    actions = a.member.batch_completed(a.start, world.now)
    for _ in range(3):
        assert not a.member.may_plan(world.now)
        (send,) = (action for action in actions if isinstance(action, ev.Send) and action.api is OffsetCommitRequest)
        answer = world.coordinator.commit(send.build(9))
        actions = a.member.step(ev.RequestAnswered(send.token, answer, 9), world.now)
    assert a.member.may_plan(world.now)
    assert sizes(world)[before:] == [2, 2, 1]


@pytest.mark.parametrize("code", [27, 22, 25, 69, 16, 14, 7, -1])
@pytest.mark.usefixtures("small_parts")
def test_a_part_that_is_refused_in_passing_repeats_the_commit_and_loses_nothing(code: int) -> None:
    world, a = refused(0, code, partitions=5)
    was = a.membership.member_id
    a.poll()
    if a.membership.member_id != was:
        world.coordinator.expel(was)  # the coordinator knows it no more
    world.run(5)
    assert a.failure is None
    assert committed_all(world)
    assert a.poll()
    world.produce(3)
    a.batch()
    a.poll()
    world.run(5)
    assert committed_all(world, 13)
    assert (world.repeated(), world.missing()) == ([], set())


@pytest.mark.usefixtures("small_parts")
def test_who_takes_over_between_two_parts_reads_only_what_was_not_committed_again() -> None:
    world, a = founded(5)
    a.batch()
    world.deaf = {OffsetCommitRequest}
    actions = a.member.batch_completed(a.start, world.now)
    (send,) = (action for action in actions if isinstance(action, ev.Send))
    world.coordinator.commit(send.build(9))  # and A dies before it hears of it
    world.die(a)
    world.deaf = set()
    b = world.query("B")
    b.poll()
    world.run(5)
    b.batch()
    b.poll()
    world.run(5)
    assert committed_all(world)
    assert world.missing() == set()
    assert {partition for partition, _ in world.repeated()} == {2, 3, 4}


@pytest.mark.usefixtures("small_parts")
def test_the_founders_are_those_whose_first_part_was_accepted() -> None:
    """R7: a later commit of the same founder must not name another generation."""
    world = GroupWorld(5, end=500)
    world.coordinator.refusals = [0, ErrorCode.REBALANCE_IN_PROGRESS]
    a = world.query("A")
    founding = world.coordinator.generation
    a.poll()
    world.run(10)
    assert a.poll()
    assert committed_all(world, 500)
    assert world.coordinator.generation > founding
    told = {world.coordinator.metadata(TopicPartition("t", n)).founding for n in range(5)}
    assert told == {founding}


@pytest.mark.usefixtures("small_parts")
def test_what_is_acknowledged_is_no_longer_owed_while_other_parts_are() -> None:
    _, a = refused(0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, partitions=5)
    a.poll()
    assert isinstance(a.failure, BrokerError)
    assert a.ledger.uncommitted == 3 * 10
    assert a.ledger.commit_pending


@pytest.mark.parametrize("code", [28, 10, 18])
def test_a_partition_that_alone_is_too_large_ends_the_query_and_names_what_to_raise(code: int) -> None:
    world, a = founded()
    a.batch()
    world.coordinator.batch_limit = 100, code
    a.poll()
    assert isinstance(a.failure, BrokerError)
    told = str(a.failure)
    assert told.startswith("group g: cannot commit t-0 at offset 10 in generation 1: ")
    assert "raise max.message.bytes of the topic __consumer_offsets" in told
    assert error_of(code).name in told


def test_a_broker_that_keeps_failing_ends_the_query_after_some_attempts() -> None:
    world, a = refused(*[-1] * 20)
    a.poll()
    assert a.failure is None
    world.run(5)
    assert isinstance(a.failure, BrokerError)
    assert "cannot commit t-0 at offset 10 in generation 1: the broker has failed 10 times in a row" in str(a.failure)


@pytest.mark.usefixtures("small_parts")
def test_a_part_that_keeps_failing_behind_one_that_goes_well_ends_the_query() -> None:
    world, a = refused(*[0, -1] * 20, partitions=5)
    a.poll()
    world.run(30)
    assert isinstance(a.failure, BrokerError)


def test_a_broker_that_fails_now_and_then_ends_no_query() -> None:
    world, a = founded()
    for n in range(1, 12):
        a.batch()
        world.coordinator.refusals = [-1]
        world.coordinator.fetch_refusals = [-1]
        a.poll()
        world.run(1)
        assert a.poll(), f"batch {n}"
        world.produce(10)
    assert a.failure is None


# -- stopping ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_parts")
def test_a_stop_commits_all_parts_and_then_leaves() -> None:
    world, a = founded(5)
    document = a.batch()
    a.ledger.complete_batch(document)
    a.act(a.member.farewell(world.now))
    assert committed_all(world)
    assert not a.ledger.commit_pending
    a.act(a.member.step(ev.Stop(), world.now))
    assert a.membership.state is State.LEFT


@pytest.mark.usefixtures("small_parts")
def test_who_leaves_between_two_parts_sends_no_more_of_them() -> None:
    world, a = founded(5)
    document = a.batch()
    a.ledger.complete_batch(document)
    before = sends(a, OffsetCommitRequest)
    world.carry_out(a, a.member.farewell(world.now))
    world.carry_out(a, a.member.step(ev.Stop(), world.now))
    world.run(1)
    assert a.membership.state is State.LEFT
    assert sends(a, OffsetCommitRequest) == before + 1
    assert a.ledger.uncommitted == 0, "nothing is held any more"
    assert a.failure is None


# -- of no member -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [28, -1])
def test_a_query_that_is_no_member_commits_in_parts_as_well(start: Start, code: int) -> None:
    group = ScriptedCoordinator(batch_limit=(LIMIT, code))
    options = source(EARLIEST, group=GroupOptions("g", GroupMode.COMMIT, join_timeout_ms=300))
    run = start(options, group=group, logs=logs_of([10] * PARTITIONS))
    first = run.batch(INITIAL)
    run.latest(first)
    until(lambda: run.committed == dict.fromkeys(range(PARTITIONS), 10), "the commit of the batch")
    assert max(len(rows) for _, _, rows in group.commits) < PARTITIONS


def test_a_group_of_another_kind_ends_a_query_that_is_no_member(start: Start) -> None:
    group = ScriptedCoordinator(refusals=[ErrorCode.GROUP_ID_NOT_FOUND])
    run = start(source(EARLIEST, group=GroupOptions("g", GroupMode.COMMIT)), group=group)
    with pytest.raises(BrokerError, match=r"group g: cannot commit: the broker has a group of another kind"):
        run.plan()

"""Scenarios of members with the real membership machine: starting, sharing, losing the membership, restarting."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.coordinator.planning.batch import empty_document
from streamgroup.errors import ConfigError, ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.consumer_membership import ConsumerMembership
from streamgroup.group.ledger import Ledger
from streamgroup.group.member import MetadataStale, Resolve
from streamgroup.group.membership import Membership
from streamgroup.group.state_machine import State
from streamgroup.group.timing import MemberConfig
from streamgroup.kafka.wire.consumer import decode_subscription
from streamgroup.kafka.wire.messages.group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
)
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from streamgroup.model import (
    INITIAL_DOCUMENT,
    CommittedOffset,
    Document,
    PartitionInfo,
    Position,
    TopicInfo,
    TopicPartition,
)
from tests.fakes.offsets import OFFSETS_VERSION, fetch_answer
from tests.unit.group.drivers import Even, coordinator_is
from tests.unit.group.world import (
    COOPERATIVE,
    P0,
    P1,
    SESSION_S,
    ConsumerWorld,
    GroupWorld,
    QueryRun,
    founded,
    member_of,
    offsets,
    sends,
)

# -- starting ---------------------------------------------------------------------------------------------------------


def test_nothing_is_fetched_before_the_checkpoint_is_known_and_nothing_planned_before_starts_are_committed() -> None:
    world = GroupWorld(end=500)
    query = world.query("A")
    world.run(10)
    assert sends(query, OffsetFetchRequest) == 0
    world.deaf.add(OffsetCommitRequest)
    assert not query.poll(), "the starts are not committed yet"
    assert query.positions == {0: 500, 1: 500}
    world.deaf.clear()
    world.run(31)
    assert query.poll()
    assert offsets(world) == {0: 500, 1: 500}


def test_two_founders_start_where_starting_offsets_say() -> None:
    world = GroupWorld(end=500)
    world.held_back = []
    both = [world.query("A"), world.query("B")]
    for query in both:
        query.poll()
    world.run(10)
    answers, world.held_back = world.held_back, None
    for answer in answers:
        answer()
        world.run(1)  # the first founder's commit is there before the second one's answer is looked at
    assert [q.poll() for q in both] == [True, True]
    assert sorted(both[0].held + both[1].held) == [0, 1]
    assert offsets(world) == {0: 500, 1: 500}
    assert {world.coordinator.metadata(tp).founding for tp in (P0, P1)} == {world.coordinator.generation}


def test_who_joins_after_the_founding_starts_new_partitions_at_earliest() -> None:
    world, first = founded(partitions=1)
    world.partitions, world.ends[P1] = 2, 70
    second = world.query("B")
    world.run(20)
    second.poll()
    assert first.held + second.held == [0, 1]
    assert second.positions == {1: 0}


def test_a_founder_that_joined_before_the_first_commit_is_accepted_founds_as_well() -> None:
    world = GroupWorld(end=500)
    world.coordinator.refusals = [ErrorCode.REBALANCE_IN_PROGRESS]
    first = world.query("A")
    first.poll()
    second = world.query("B")
    world.run(10)
    assert [first.poll(), second.poll()] == [True, True]
    assert offsets(world) == {0: 500, 1: 500}


@pytest.mark.parametrize("config", [{}, COOPERATIVE], ids=["eager", "cooperative"])
def test_a_founder_finds_its_starts_before_it_rejoins_for_a_third_member(config: dict[str, Any]) -> None:
    """Queries that are started within seconds of each other, from `latest`: none of them dies."""
    world = GroupWorld(partitions=6, end=500, **config)
    world.held_back = []
    a, b = world.query("A"), world.query("B")
    a.poll(), b.poll()
    world.run(10)
    assert (len(a.held), len(b.held)) == (3, 3)
    *_, of_a, of_b = world.held_back
    world.held_back = None
    of_a()
    world.run(1)
    assert len(offsets(world)) == 3
    c = world.query("C", join=False)
    c.poll()
    world.join(c)
    world.run(10)
    assert len(b.held) == 3, "B has been told to rejoin, and still waits for its starts"
    of_b()
    world.run(20)
    assert all(query.poll() for query in (a, b, c))
    assert offsets(world) == dict.fromkeys(range(6), 500)


def test_a_checkpoint_without_commits_is_committed_before_its_partitions_move() -> None:
    """The commits have expired, and nobody else's checkpoint knows where these partitions stand."""
    world = GroupWorld(end=500)
    position = Position(300, "id")
    a = world.query("A", Document("g", "lineage", "before", 4, positions={P0: position, P1: position}), join=False)
    a.poll()
    world.held_back = []
    world.join(a)
    b = world.query("B", join=False)
    b.poll()
    world.join(b)
    world.run(10)
    [of_a], world.held_back = world.held_back, None
    of_a()
    world.run(10)
    assert [q.poll() for q in (a, b)] == [True, True]
    assert sorted(a.held + b.held) == [0, 1]
    assert offsets(world) == {0: 300, 1: 300}


def test_a_founder_whose_commit_a_rebalance_refuses_rejoins() -> None:
    world = GroupWorld(end=500)
    a = world.query("A", join=False)
    a.poll()
    world.coordinator.refusals = [ErrorCode.REBALANCE_IN_PROGRESS]
    world.join(a)
    assert sends(a, JoinGroupRequest) >= 2
    world.run(5)
    assert a.poll()
    assert offsets(world) == {0: 500, 1: 500}


class Holds:
    """A membership that is assigned `partitions` when it starts, and whose heartbeats are accepted."""

    state, topics, can_plan, may_commit, rebalance_wanted, settling = State.STABLE, ("t",), True, True, False, False
    lease_at, revoking = 100.0, frozenset[TopicPartition]()

    def __init__(self, *partitions: TopicPartition) -> None:
        self.partitions = partitions

    def step(self, event: Any, now: float) -> list[ev.Action]:
        if not isinstance(event, ev.Start):
            return []
        return [ev.Assigned(3, "m", self.partitions, frozenset(), "range", False, members=None, total=None)]


def sent_by(actions: list[Any]) -> list[ev.Send]:
    return [action for action in actions if isinstance(action, ev.Send)]


def fetches(actions: list[Any]) -> list[ev.Send]:
    return [send for send in sent_by(actions) if send.api is OffsetFetchRequest]


def test_a_topic_that_the_metadata_lacks_does_not_hold_up_the_others() -> None:
    grown, later = TopicPartition("t", 1), TopicPartition("u", 0)
    ledger = Ledger("g", "now", "lineage")
    member = member_of(Holds(P0, grown, later), ledger)
    t = TopicInfo("t", (PartitionInfo(0, 1),), "id of t")
    u = TopicInfo("u", (PartitionInfo(0, 1),), "id of u")
    now = 100.0
    member.batch_completed(INITIAL_DOCUMENT, now)
    member.step(ev.MetadataRefreshed({"t": t}, frozenset({"t", "u"})), now)
    actions = member.step(ev.Start(("t", "u")), now)
    assert MetadataStale() in actions
    [first] = fetches(actions)
    [asked] = first.build(1).topics
    assert (asked.name, asked.partition_indexes) == ("t", (0, 1)), "before v2 nobody can ask for all"
    assert fetches(member.step(ev.MetadataRefreshed({"t": t, "u": u}, frozenset({"t", "u"})), now)) == []
    commits = {tp: CommittedOffset(9) for tp in (P0, grown, later)}
    actions = member.step(ev.RequestAnswered(first.token, fetch_answer("g", commits, 0), OFFSETS_VERSION), now)
    assert ledger.positions().keys() == {P0, grown}, "the answer counts for what was asked"
    assert member.may_plan(now)
    assert not member.complete, "AvailableNow does not end before it has read the rest (R11)"
    [second] = fetches(actions)
    member.step(ev.RequestAnswered(second.token, fetch_answer("g", commits, 0), OFFSETS_VERSION), now)
    assert ledger.positions().keys() == {P0, grown, later}
    assert member.complete


# -- sharing ----------------------------------------------------------------------------------------------------------


def test_one_of_two_leaves_with_a_batch_in_flight_and_the_other_reads_it_again() -> None:
    world, a = founded()
    b = world.query("B")
    world.run(10)
    assert (a.poll(), b.poll()) == (True, True)
    document = b.begin()
    [number] = b.held
    b.act(b.member.farewell(world.now))
    assert world.coordinator.metadata((P0, P1)[number]).asked == document.sequence
    b.act(b.member.step(ev.Stop(), world.now))
    b.sink(document)
    world.run(10)
    assert a.held == [0, 1]
    a.batch()
    a.poll()
    assert offsets(world) == {0: 10, 1: 10}
    assert world.missing() == set()
    assert world.repeated() == [(number, offset) for offset in range(10)]


def test_a_batch_in_flight_is_committed_before_its_partition_moves() -> None:
    world, a = founded()
    a.poll()
    document = a.begin()
    b = world.query("B")
    world.run(20)
    assert b.held == [], "B waits for A's batch"
    assert not a.poll()
    a.sink(document)
    a.poll()
    world.run(20)
    assert sorted(a.held + b.held) == [0, 1]
    assert b.poll()
    assert set((a.positions | b.positions).values()) == {10}
    assert world.repeated() == []


def test_a_member_asked_to_rejoin_waits_for_the_answer_to_the_commit_of_its_batch() -> None:
    """Rejoined before, it could not know whether the next owner reads the batch again (R21)."""
    world, a = founded()
    document = a.begin()
    b = world.query("B")
    world.run(20)
    joined = sends(a, JoinGroupRequest)
    world.deaf.add(OffsetCommitRequest)
    a.sink(document)
    assert not a.poll()
    world.run(20)
    assert sends(a, JoinGroupRequest) == joined, "its commit is unanswered"
    world.deaf.clear()
    world.run(40)
    assert offsets(world) == {0: 10, 1: 10}
    assert sends(a, JoinGroupRequest) > joined
    assert (len(a.held), len(b.held)) == (1, 1)
    b.poll()
    assert b.plan() is None, "nothing is repeated"


def test_a_batch_that_nobody_proves_is_given_up_and_may_be_repeated() -> None:
    """R22: the group waits no longer than max.poll.interval.ms."""
    world, a = founded()
    a.poll()
    document = a.begin()
    b = world.query("B")
    world.run(310)
    assert sorted(a.held + b.held) == [0, 1]
    assert ev.Joining("the group rebalances", abandoned=True) in a.log
    a.sink(document)
    a.poll()
    b.batch()
    b.poll()
    world.run(10)
    assert offsets(world) == {0: 10, 1: 10}
    assert set(world.repeated()) == {(b.held[0], offset) for offset in range(10)}
    assert a.plan() is None, "what A kept was proven: it is not repeated"


@pytest.mark.parametrize(("listened", "takes_s"), [(True, 250), (False, 25)])
def test_a_member_that_joins_during_a_long_batch_gets_its_share_after_it(*, listened: bool, takes_s: int) -> None:
    """Scaling out during a backlog: the batch takes longer than any before it, and is counted from the announcement."""
    world, a = founded()
    a.member.is_listened = lambda: listened
    a.poll()
    a.batch()
    world.run(1)
    a.poll()
    world.produce(10)
    document = a.begin()
    world.run(45)
    b = world.query("B")
    world.run(takes_s)
    assert b.held == []
    a.sink(document)
    a.poll()
    world.run(10)
    assert sorted(a.held + b.held) == [0, 1]
    assert (offsets(world), world.repeated()) == ({0: 20, 1: 20}, [])


# -- whole groups ------------------------------------------------------------------------------------------------------


def assigned(query: QueryRun) -> ev.Assigned:
    return [action for action in query.log if isinstance(action, ev.Assigned)][-1]


def shares(world: GroupWorld) -> dict[str, list[str]]:
    return {query.name: [str(tp) for tp in assigned(query).partitions] for query in world.queries}


@pytest.mark.parametrize("version", [None, 0, 1, 2, 3, 4, 5, 6, 9])
def test_three_members_come_to_an_even_split_whatever_the_version(version: int | None) -> None:
    world = GroupWorld(6)
    world.most = version
    queries = [world.query(name) for name in "ABC"]
    world.run(20)
    assert {query.membership.state for query in queries} == {State.STABLE}
    assert sorted(tp for share in shares(world).values() for tp in share) == [f"t-{p}" for p in range(6)]
    assert {len(share) for share in shares(world).values()} == {2}
    last = [assigned(query) for query in queries]
    assert {(one.members, one.total, one.strategy) for one in last} == {(3, 6, "streamgroup-range")}
    assert len({one.generation for one in last}) == 1
    assert [one.leader for one in last].count(True) == 1
    assert all(query.membership.lease_at is not None for query in queries)


def test_the_leader_notices_new_partitions_and_only_the_leader_rejoins_for_them() -> None:
    world = GroupWorld(2)
    queries = [world.query(name) for name in "AB"]
    world.run(20)
    (leader,), (follower,) = ([q for q in queries if assigned(q).leader is leads] for leads in (True, False))
    world.partitions = 4
    generation, joined = world.coordinator.generation, sends(follower, JoinGroupRequest)
    world.tell_topics(follower)
    world.run(10)
    assert (world.coordinator.generation, sends(follower, JoinGroupRequest)) == (generation, joined)
    world.tell_topics(leader)
    world.run(10)
    assert {name: len(share) for name, share in shares(world).items()} == {"A": 2, "B": 2}
    joining = ev.Joining("partitions have changed (t: 2 -> 4)", abandoned=False, cause=ev.JoinCause.PARTITIONS)
    assert joining in leader.log


def test_a_topic_that_appears_is_assigned() -> None:
    world = GroupWorld(0)
    query = world.query("A")
    world.run(5)
    assert shares(world) == {"A": []}
    assert any(isinstance(a, ev.Note) and "do not exist (yet): t" in a.text for a in query.log)
    world.partitions = 1
    world.tell_topics(query)
    world.run(5)
    assert shares(world) == {"A": ["t-0"]}


def test_members_with_unlike_topics_get_only_their_own() -> None:
    world = GroupWorld(2)
    world.more = {"u": 2}
    world.query("A")
    world.query("B", topics=("t", "u"))
    world.run(20)
    assert shares(world) == {"A": ["t-0"], "B": ["t-1", "u-0", "u-1"]}


def test_a_group_takes_the_strategy_that_all_know() -> None:
    world = GroupWorld(4)
    queries = [world.query("A"), world.query("B", strategies=("roundrobin",))]
    world.run(20)
    assert {assigned(query).strategy for query in queries} == {"roundrobin"}


# -- static members (KIP-345): restarts that cost the group nothing (R23, R24) -----------------------------------------


@pytest.mark.parametrize("config", [{}, COOPERATIVE])
def test_a_static_members_restart_moves_nothing_and_rebalances_nothing(config: dict[str, Any]) -> None:
    world = GroupWorld(4, **config)
    a, b = (world.query(name, instance_id=f"node-{name}") for name in "AB")
    for query in (a, b):
        query.poll()
    world.run(30)
    world.produce(10)
    for query in (a, b):
        query.batch()
        assert query.poll()
    generation, before = world.coordinator.generation, (a.held, b.held)
    world.queries.remove(b)
    again = world.query("B2", b.start, instance_id="node-B")
    world.run(20)
    assert again.poll()
    assert (world.coordinator.generation, (a.held, again.held)) == (generation, before)
    assert a.poll(), "A has noticed nothing"
    world.produce(5)
    again.batch()
    a.batch()
    assert (again.poll(), a.poll()) == (True, True)
    assert (world.repeated(), world.missing()) == ([], set())


@pytest.mark.parametrize("config", [{}, COOPERATIVE])
@pytest.mark.parametrize("version", [5, 9])
def test_a_restarted_static_leader_notices_new_partitions(version: int, config: dict[str, Any]) -> None:
    """R23: before v9 it is not even told that it leads."""
    world = GroupWorld(2, **config)
    world.join_version = version
    a, b = (world.query(name, instance_id=f"node-{name}") for name in "AB")
    for query in (a, b):
        query.poll()
    world.run(30)
    assert world.coordinator.group.leader == a.membership.member_id
    world.queries.remove(a)
    again = world.query("A2", a.start, instance_id="node-A")
    world.run(10)
    again.poll()
    generation = world.coordinator.generation
    world.partitions = 4
    for query in (b, again):
        world.tell_topics(query)
        world.run(20)
    assert world.coordinator.generation > generation
    assert sorted(again.held + b.held) == [0, 1, 2, 3]


def test_two_runs_with_one_instance_id_end_with_the_older_one_fenced() -> None:
    world, a = founded(2, **COOPERATIVE, instance_id="node-1")
    assert a.poll()
    again = world.query("A2", a.start, instance_id="node-1")
    world.run(10)
    assert "node-1" in str(a.failure)
    assert again.held == [0, 1]


# -- hiccups ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("proven", ["before it has rejoined", "after it has rejoined"])
def test_a_lone_query_that_loses_its_session_in_a_batch_repeats_nothing(proven: str) -> None:
    world, a = founded()
    document = a.begin()
    if proven == "before it has rejoined":
        world.held_back = []
    world.coordinator.expel(a.membership.member_id)
    world.run(10)
    assert ev.Lost("UNKNOWN_MEMBER_ID") in a.log
    assert not a.member.may_plan(world.now)
    a.sink(document)
    a.poll()
    for answer in world.held_back or ():
        answer()
    world.run(1)
    assert a.poll()
    assert offsets(world) == {0: 10, 1: 10}
    world.produce(3)
    a.batch()
    assert (world.repeated(), world.missing()) == ([], set())


def test_a_member_whose_heartbeats_go_unanswered_plans_nothing() -> None:
    """R9: what proves the lease is a heartbeat or a commit, by the time at which it was sent."""
    world, a = founded()
    world.deaf |= {HeartbeatRequest}
    assert a.poll()
    assert not a.member.may_plan(world.now + SESSION_S)


def test_a_new_member_plans_nothing_before_its_first_heartbeat() -> None:
    world = GroupWorld()
    world.deaf.add(HeartbeatRequest)
    world.coordinator.offsets = {P0: CommittedOffset(0), P1: CommittedOffset(0)}
    query = world.query("A")
    assert not query.poll()
    assert query.positions == {0: 0, 1: 0}


@pytest.mark.parametrize("in_flight", [False, True], ids=["idle", "in a batch"])
def test_a_member_that_left_and_came_back_gains_everything_anew(in_flight: bool) -> None:
    """R27, R5: another member may have read on meanwhile. P1 is still as this run left it (R5a)."""
    world, a = founded()
    document = a.begin()
    if not in_flight:
        a.sink(document)
        assert a.poll()
    a.act(a.member.step(ev.Stop(), world.now))
    assert a.membership.state is State.LEFT
    assert a.held == []
    world.coordinator.offsets[P0] = CommittedOffset(4)
    a.act(a.member.step(ev.Start(("t",)), world.now))
    if in_flight:
        a.sink(document)
    world.run(5)
    assert a.poll()
    assert a.positions == {0: 4, 1: 10}


# -- restarts ---------------------------------------------------------------------------------------------------------


def killed_in_a_batch() -> tuple[GroupWorld, QueryRun, Document]:
    world, a = founded()
    a.batch()
    a.poll()
    world.produce(10)
    document = a.begin()
    world.die(a)
    return world, a, document


@pytest.mark.parametrize("gained", ["before", "during", "after"])
def test_a_replay_and_the_partitions_that_are_gained_around_its_filter(gained: str) -> None:
    world, a, document = killed_in_a_batch()
    again = world.query("again", a.start, join=gained == "before")
    world.run(5)
    seen = dict(world.coordinator.offsets)
    if gained == "during":
        world.join(again)
    again.replay(document, seen)
    if gained == "after":
        world.join(again)
    assert again.handed == document.ranges
    again.sink(document)
    assert again.poll()
    assert offsets(world) == {0: 20, 1: 20}
    world.produce(1)
    again.batch()
    assert (world.repeated(), world.missing()) == ([], set())


def test_a_replay_of_what_another_member_took_over_repeats_that_batch_alone() -> None:
    world, a, document = killed_in_a_batch()
    b = world.query("B")
    b.poll()
    b.batch()
    b.poll()
    b.act(b.member.step(ev.Stop(), world.now))
    again = world.query("again", a.start)
    again.replay(document)
    assert again.handed == (), "the group has committed all of it since"
    again.sink(document)
    again.poll()
    assert again.plan() is None
    assert (world.repeated(), world.missing()) == ([], set())


def test_an_operators_reset_is_not_undone_by_a_replay() -> None:
    world, a, document = killed_in_a_batch()
    world.coordinator.offsets = {P0: CommittedOffset(3), P1: CommittedOffset(15)}
    again = world.query("again", a.start)
    again.replay(document)
    assert [(r.start, r.until) for r in again.handed] == [(10, 20), (15, 20)]
    again.sink(document)
    again.poll()
    assert again.positions == {0: 3, 1: 20}


def test_a_batch_that_spark_has_committed_is_not_repeated_after_a_stop_with_farewell() -> None:
    world, a = founded()
    document = a.batch()
    a.leave()
    assert a.membership.state is State.LEFT
    assert offsets(world) == {0: 0, 1: 0}, "nobody has told that the batch has sunk"
    again = world.query("again", document)
    assert again.poll()
    assert again.positions == {0: 10, 1: 10}
    assert again.plan() is None
    assert offsets(world) == {0: 10, 1: 10}


def test_a_batch_that_the_sink_skipped_is_not_committed_by_the_restart_either() -> None:
    world, a = founded()
    document = a.plan()
    a.start = document
    with pytest.raises(ConfigError, match="the sink skipped a batch"):
        a.poll()
    a.leave()
    again = world.query("again", document)
    assert again.poll()
    assert again.positions == {0: 0, 1: 0}


def test_a_farewell_goes_out_although_a_commit_is_unanswered() -> None:
    world, a = founded()
    a.batch()
    world.silent.add(OffsetCommitRequest)
    a.poll()
    document = a.ledger.checkpoint
    world.silent.clear()
    a.act(a.member.farewell(world.now))
    assert not a.ledger.commit_pending
    assert world.coordinator.metadata(P0).asked == document.sequence


def test_a_farewell_of_a_member_that_is_not_in_the_group_says_nothing() -> None:
    world = GroupWorld()
    query = world.query("A", join=False)
    assert query.member.farewell(world.now) == []


# -- why a member may not plan -----------------------------------------------------------------------------------------


def test_a_member_that_may_not_plan_names_the_cause() -> None:
    world = GroupWorld(end=5)
    query = world.query("A", join=False)
    assert query.member.waits_for(world.now) == "the member is unjoined"
    world.deaf.add(FindCoordinatorRequest)
    world.join(query)
    assert query.member.waits_for(world.now) == "the group coordinator was not found yet"
    world.deaf.clear()
    world.coordinator.fetch_refusals = [ErrorCode.UNSTABLE_OFFSET_COMMIT] * 100
    world.run(40)
    query.poll()
    positions = "the member waits for the positions of its partitions"
    assert query.member.waits_for(world.now) == f"{positions}: UNSTABLE_OFFSET_COMMIT"
    world.coordinator.fetch_refusals = []
    world.run(5)
    assert query.poll()
    assert query.member.waits_for(world.now) == ""
    world.deaf.add(HeartbeatRequest)
    world.run(SESSION_S - 1)
    world.now += 1.5
    assert query.member.waits_for(world.now) == "no heartbeat was accepted for 45 s (session.timeout.ms)"


def test_a_member_whose_commit_is_refused_names_the_code() -> None:
    world, a = founded()
    a.batch()
    world.coordinator.refusals = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert not a.poll()
    assert a.member.waits_for(world.now) == "the member waits for its last commit: COORDINATOR_LOAD_IN_PROGRESS"


def test_a_member_that_joins_names_slow_members_as_the_cause() -> None:
    world, _ = founded()
    world.deaf.add(JoinGroupRequest)
    b = world.query("B")
    assert b.member.waits_for(world.now) == "the member is joining; another member may be slow to rejoin"


def test_waiting_for_an_attempt_while_joining_is_no_reason_to_wake_up() -> None:
    world, a = founded()
    a.batch()
    world.coordinator.refusals = [ErrorCode.REBALANCE_IN_PROGRESS]
    world.deaf.add(JoinGroupRequest)
    a.poll()
    assert a.membership.state is State.JOINING
    world.run(5)
    assert a.member.wake_at > world.now


# -- the rest ----------------------------------------------------------------------------------------------------------


def test_an_empty_document_holds_up_no_rebalance() -> None:
    """R10: AvailableNow is given one while it waits; nothing is in flight with it."""
    world, a = founded()
    empty = empty_document(a.start, group="g", lineage="lineage", run="A", positions=a.ledger.positions())
    a.member.planned_empty(empty)
    a.ask(empty)
    assert not a.member.may_plan(world.now)
    b = world.query("B")
    world.run(10)
    assert sorted(a.held + b.held) == [0, 1]
    a.sink(empty)
    assert a.poll()


def test_a_topic_created_again_is_read_from_its_earliest_offset() -> None:
    world, a = founded()
    a.batch()
    a.poll()
    world.topic_id, world.ends = "new", {P0: 7, P1: 7}
    world.tell_topics(a)
    assert any(isinstance(action, Resolve) for action in a.log[-8:])
    assert a.poll()
    assert a.positions == {0: 0, 1: 0}
    assert world.coordinator.metadata(P1).topic_id == "new"


def test_an_idle_member_commits_hourly() -> None:
    world, a = founded()
    a.poll()
    before = len(world.coordinator.commits)
    world.run(3600 + 30)
    assert len(world.coordinator.commits) == before + 1


@pytest.mark.parametrize("code", [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION])
def test_a_member_whose_protocol_the_coordinator_refuses_joins_by_the_other_one(code: int) -> None:
    config = MemberConfig("orders-ingest")
    member = member_of(Membership(config, Even()), Ledger("orders-ingest", "run", "lineage"), None)
    member.try_protocol(ConsumerMembership(config, Even()))
    member.step(ev.UserDataChanged(b"identity"), 0.0)
    (find,) = sent_by(member.step(ev.Start(("t",)), 0.0))
    (join,) = sent_by(member.step(ev.RequestAnswered(find.token, coordinator_is(3), 4), 0.1))
    assert join.api is ConsumerGroupHeartbeatRequest
    refused = ConsumerGroupHeartbeatResponse(error_code=code, error_message="no")
    actions = member.step(ev.RequestAnswered(join.token, refused, 1), 0.2)
    assert not any(isinstance(action, ev.Fail) for action in actions)
    assert any(isinstance(action, ev.Note) and "by the classic protocol" in action.text for action in actions)
    (find,) = sent_by(actions)
    (join,) = sent_by(member.step(ev.RequestAnswered(find.token, coordinator_is(3), 4), 0.3))
    assert join.api is JoinGroupRequest
    (protocol, *_) = join.build(5).protocols
    assert decode_subscription(protocol.metadata).topics == ("t",)
    assert bytes(decode_subscription(protocol.metadata).user_data or b"").endswith(b"identity")


def test_a_member_with_one_protocol_fails_if_the_coordinator_refuses_it() -> None:
    member = member_of(ConsumerMembership(MemberConfig("orders-ingest"), Even()), Ledger("g", "run", "lineage"), None)
    (find,) = sent_by(member.step(ev.Start(("t",)), 0.0))
    (join,) = sent_by(member.step(ev.RequestAnswered(find.token, coordinator_is(3), 4), 0.1))
    refused = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    actions = member.step(ev.RequestAnswered(join.token, refused, 1), 0.2)
    assert [type(action) for action in actions if isinstance(action, ev.Fail)] == [ev.Fail]


@pytest.mark.parametrize("world", [GroupWorld, ConsumerWorld])
def test_a_topic_that_comes_while_the_member_is_out_of_the_group_is_subscribed_when_it_joins_again(
    world: type[GroupWorld],
) -> None:
    there = world(2)
    a = there.query("A")
    there.run(5)
    a.act(a.member.step(ev.Stop(), there.now))
    assert a.membership.state is State.LEFT
    a.act(a.member.step(ev.Subscribed(("t", "u")), there.now))
    assert a.membership.topics == ("t", "u")

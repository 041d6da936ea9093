"""The member under the consumer protocol (R39): against a group in memory, and against answers written by hand."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from streamgroup.errors import BrokerError, ErrorCode, FencedError, UnsupportedVersionError
from streamgroup.group import events as ev
from streamgroup.group.commits import FIRST_EPOCH, CommitMetadata
from streamgroup.group.consumer_membership import ConsumerMembership
from streamgroup.group.events import JoinCause
from streamgroup.group.reactions import UNEXPECTED_ATTEMPTS
from streamgroup.group.state_machine import State
from streamgroup.group.timing import MemberConfig
from streamgroup.group.user_data import RunIdentity, encode_identity
from streamgroup.kafka.wire.messages.admin import (
    ConsumerGroupDescribeRequest,
)
from streamgroup.kafka.wire.messages.group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from streamgroup.model import CommittedOffset, PartitionInfo, TopicInfo, TopicPartition
from tests.fakes.consumer_group import Release
from tests.unit.group.drivers import Driver, Even, coordinator_is, described, tps
from tests.unit.group.world import P0, P1, ConsumerWorld, GroupWorld, QueryRun, offsets, sends

T = "11111111-1111-1111-1111-111111111111"
U = "22222222-2222-2222-2222-222222222222"
NAMES = {T: "t", U: "u"}
HEARTBEAT = "ConsumerGroupHeartbeat"
OLDEST = Release(window=False, rejoins=False)
"""Kafka 4.0 and 4.1."""


def held(*queries: QueryRun) -> list[list[int]]:
    return [query.held for query in queries]


def founded(records: int = 10, partitions: int = 2, **config: Any) -> tuple[ConsumerWorld, QueryRun]:
    """A query that has started at the logs' ends, 0, and has `records` new ones in each partition."""
    world = ConsumerWorld(partitions, **config)
    query = world.query("A")
    assert query.poll()
    world.produce(records)
    return world, query


# -- in a group -------------------------------------------------------------------------------------------------------


def test_a_member_alone_owns_all_partitions_and_commits_in_its_epoch() -> None:
    world, a = founded()
    assert (held(a), world.epochs()) == ([[0, 1]], {"A": 1})
    a.batch()
    assert a.poll()
    assert offsets(world) == {0: 10, 1: 10}
    assert world.coordinator.commits[-1][:2] == (a.membership.member_id, 1)


def test_a_second_member_gets_its_share_when_the_batch_with_it_is_committed_and_nobody_else_waits() -> None:
    world, a = founded()
    batch = a.begin()
    b = world.query("B")
    world.run(30)  # the batch takes this long
    assert held(a, b) == [[0, 1], []]
    assert world.epochs() == {"A": 1, "B": 2}
    a.sink(batch)
    assert a.poll()
    world.run(6)
    assert held(a, b) == [[0], [1]]
    assert (a.positions, b.positions) == ({0: 10}, {1: 10})
    assert world.epochs() == {"A": 2, "B": 2}


def test_what_is_revoked_is_not_planned_and_what_is_kept_is() -> None:
    world, a = founded(partitions=4)
    batch = a.begin()
    world.query("B")
    world.run(6)
    assert a.member.membership.revoking == {TopicPartition("t", 2), TopicPartition("t", 3)}
    assert sorted(a.positions) == [0, 1]
    a.sink(batch)
    assert a.poll()
    world.produce(5)
    document = a.plan()
    assert document is not None
    assert {r.partition.partition for r in document.ranges} == {0, 1}


@pytest.mark.parametrize("release", [Release(), Release(interval_s=1.0), OLDEST], ids=["4.3", "at intervals", "4.0"])
def test_members_come_and_go_and_every_record_is_read_once(release: Release) -> None:
    world = ConsumerWorld(4, release=release)
    names = iter("BCDEFG")
    queries = [world.query("A")]
    for turn in range(12):
        world.produce(3)
        world.run(2)
        for query in list(queries):
            if query.poll():
                document = query.plan()
                if document is not None:
                    query.ask(document)
                    world.run(3)
                    query.sink(document)
        if turn in {2, 4, 9}:
            queries.append(world.query(next(names)))
        if turn in {6, 8}:
            query = queries.pop(0)
            assert query.poll() is not None
            query.leave()
            world.queries.remove(query)
    for _ in range(4):
        world.run(10)
        for query in queries:
            if query.poll() and query.plan() is not None:
                document = query.ledger.in_flight.document  # type: ignore[union-attr]
                query.ask(document)
                query.sink(document)
                query.poll()
    assert not world.repeated()
    assert not world.missing()
    assert sorted(partition for query in queries for partition in query.held) == [0, 1, 2, 3]


def test_a_member_that_leaves_gives_its_share_to_the_others_at_once() -> None:
    world, a = founded()
    b = world.query("B")
    world.run(12)
    assert held(a, b) == [[0], [1]]
    b.leave()
    world.run(6)
    assert held(a) == [[0, 1]]


def test_the_share_of_a_member_that_died_moves_when_its_session_is_over() -> None:
    world, a = founded()
    b = world.query("B")
    world.run(12)
    world.queries.remove(b)
    world.run(40)
    assert held(a) == [[0]]
    world.run(12)
    assert held(a) == [[0, 1]]


def test_a_start_is_committed_before_it_is_given_up() -> None:
    """B joins before A knows where its partitions start: only the founder can determine it (R6, R7)."""
    world = ConsumerWorld(2, end=50)
    world.held_back = []
    a = world.query("A")
    world.run(1)
    b = world.query("B")
    world.run(20)
    assert held(a, b) == [[0, 1], []]
    answers, world.held_back = world.held_back, None
    for answer in answers:
        answer()
    world.run(1)
    assert a.poll()
    world.run(6)
    assert held(a, b) == [[0], [1]]
    assert b.positions == {1: 50}
    assert offsets(world) == {0: 50, 1: 50}


def test_a_start_that_is_not_found_in_time_is_given_up_all_the_same() -> None:
    world = ConsumerWorld(2, max_poll_interval_ms=60_000)
    world.held_back = []
    a = world.query("A")
    world.run(1)
    b = world.query("B")
    world.run(70)
    assert held(a, b) == [[0], [1]]
    assert any("cannot commit the start offsets" in note.text for note in a.log if isinstance(note, ev.Note))


def test_starting_offsets_apply_in_the_founding_epoch_though_the_epoch_has_moved_since() -> None:
    """A does not know yet where it starts. B commits for another topic and C comes: only the epoch of A moves."""
    world = ConsumerWorld(2, end=50)
    for topic in "uv":
        world.more[topic], world.ends[TopicPartition(topic, 0)] = 1, 50
    world.held_back = []
    a = world.query("A")
    world.held_back = None
    world.query("B", topics=("u",))
    world.query("C", topics=("v",))
    world.run(6)
    assert world.epochs() == {"A": 3, "B": 3, "C": 3}
    assert a.positions == {0: 50, 1: 50}
    assert {world.coordinator.metadata(tp).founding for tp in world.coordinator.offsets} == {FIRST_EPOCH + 2}


def test_a_group_that_was_founded_under_the_classic_protocol_is_not_founded_again() -> None:
    """An empty classic group keeps its commits when it changes the protocol, and epochs begin at 1."""
    world = ConsumerWorld(2, end=50)
    metadata = CommitMetadata("other", "run", 3, 3, founding=1).text()
    world.coordinator.offsets[P0] = CommittedOffset(10, metadata)
    a = world.query("A")
    assert (world.epochs(), a.positions) == ({"A": 1}, {0: 10, 1: 0})


def test_a_group_that_was_founded_under_the_consumer_protocol_is_not_founded_again() -> None:
    world = GroupWorld(2, end=50)
    metadata = CommitMetadata("other", "run", 3, 3, founding=FIRST_EPOCH + 1).text()
    world.coordinator.offsets[P0] = CommittedOffset(10, metadata)
    a = world.query("A")
    assert a.poll()
    assert (a.ledger.generation, a.positions) == (1, {0: 10, 1: 0})


def recreate(world: ConsumerWorld, partitions: int) -> None:
    world.topic_id, world.partitions = str(uuid.uuid5(uuid.NAMESPACE_URL, "t again")), partitions
    world.ends = {TopicPartition("t", n): 0 for n in range(partitions)}


def test_a_topic_that_is_created_again_is_read_by_its_new_owner_alone() -> None:
    """A hears of the new topic before the group coordinator has assigned it, to B."""
    world, a = founded(records=0)
    b = world.query("B")
    world.run(12)
    assert held(a, b) == [[0], [1]]
    recreate(world, 2)
    world.produce(7)
    world.tell_topics(a)
    world.tell_topics(b)
    world.run(12)
    for query in (a, b):
        assert query.poll()
        query.batch()
    assert not world.repeated()
    assert not world.missing()


def test_of_a_topic_that_is_created_again_nothing_is_kept_and_nothing_planned_before_it_is_assigned() -> None:
    again = "33333333-3333-3333-3333-333333333333"
    d = ConsumerDriver().in_epoch(3, 0, 1)
    infos = {"t": TopicInfo("t", tuple(PartitionInfo(n, 1) for n in range(2)), again)}
    d.step(ev.MetadataRefreshed(infos, frozenset("t")))
    assigned = d.only(ev.Assigned)
    assert (assigned.partitions, assigned.revoked) == ((), set(tps("t", 0, 1)))
    rows = (HeartbeatTopicPartitions(topic_id=again, partitions=(0, 1)),)
    d.answer(accepted(4, HeartbeatAssignment(topic_partitions=rows)))
    assigned = d.only(ev.Assigned)
    assert (assigned.partitions, assigned.kept) == (tuple(tps("t", 0, 1)), frozenset())


@pytest.mark.parametrize("refused", [False, True])
def test_a_topic_that_is_created_again_with_fewer_partitions_ends_no_query(refused: bool) -> None:
    world, a = founded(partitions=4)
    a.batch()
    assert a.poll()
    before = world.topics()
    recreate(world, 2)
    world.tell_topics(a)
    world.group._topics = lambda: before  # the group coordinator does not know it yet
    if refused:
        stale = ev.CommitRefused(ErrorCode.STALE_MEMBER_EPOCH, a.membership.member_id, 1, world.now)
        a.act(a.member.step(stale, world.now))
    else:
        world.query("B", topics=("u",))
    world.run(12)
    assert not a.failure
    world.group._topics = world.topics
    world.run(12)
    assert held(a) == [[0, 1]]


@pytest.mark.parametrize("session_ms", [3_000, 5_000])
def test_heartbeats_are_sent_within_the_session_that_the_options_set(session_ms: int) -> None:
    world = ConsumerWorld(2, session_timeout_ms=session_ms)
    a = world.query("A")
    world.run(60)
    assert not any(isinstance(action, ev.Lost) for action in a.log)


def test_a_member_whose_leave_was_lost_comes_back() -> None:
    world, a = founded(release=OLDEST)
    world.deaf = {ConsumerGroupHeartbeatRequest}
    a.leave()
    world.run(3)
    assert a.membership.state is State.LEFT
    world.deaf = set()
    world.query("B", topics=("u",))  # moves the epoch, so that a join counts as one of a fenced member
    world.run(6)
    world.join(a)
    world.run(10)
    assert held(a) == [[0, 1]]


def test_a_revocation_whose_announcement_was_lost_ends_in_time() -> None:
    """The coordinator counts from when it asked, not from when the member heard of it."""
    world, a = founded(max_poll_interval_ms=60_000)
    a.begin()
    world.query("B")
    world.silent = {ConsumerGroupHeartbeatRequest}
    world.run(20)
    world.silent = set()
    world.run(60)
    assert not any(isinstance(action, ev.Lost) for action in a.log)


def test_a_start_whose_commit_was_refused_is_not_given_up() -> None:
    world = ConsumerWorld(2, end=50)
    world.held_back = []
    a = world.query("A")
    stale = ev.CommitRefused(ErrorCode.STALE_MEMBER_EPOCH, a.membership.member_id, 1, world.now)
    a.act(a.member.step(stale, world.now))
    a.act(a.member.step(ev.Settled(), world.now))
    assert a.membership.settling


def test_a_commit_that_crosses_a_new_epoch_is_repeated_in_it() -> None:
    world, a = founded(release=OLDEST)
    a.batch()
    member = world.group.members[a.membership.member_id]
    member.previous_epoch, member.epoch, world.group.epoch = 1, 2, 2  # the answer that says so has been lost
    a.poll()
    world.run(12)
    assert (offsets(world), world.epochs()) == ({0: 10, 1: 10}, {"A": 2})
    assert not any(isinstance(action, ev.Lost) for action in a.log)


@pytest.mark.parametrize("release", [Release(), Release(interval_s=1.0), OLDEST], ids=["4.3", "at intervals", "4.0"])
def test_a_fenced_member_joins_again_and_repeats_what_it_had_not_committed(release: Release) -> None:
    world, a = founded(release=release)
    a.begin()
    world.group.members[a.membership.member_id].epoch = 9
    world.group.epoch = 9
    world.run(12)
    assert any(isinstance(action, ev.Lost) for action in a.log)
    assert held(a) == [[0, 1]]
    assert not a.failure


def test_a_member_that_the_group_does_not_know_joins_again() -> None:
    world, a = founded()
    world.coordinator.expel(a.membership.member_id)
    world.run(6)
    assert held(a) == [[0, 1]]
    (lost,) = (action for action in a.log if isinstance(action, ev.Lost))
    assert lost.reason == "UNKNOWN_MEMBER_ID"


def test_revoked_partitions_are_given_up_before_the_group_removes_the_member_for_them() -> None:
    world, a = founded(max_poll_interval_ms=60_000)
    a.begin()
    b = world.query("B")
    world.run(65)
    assert held(a, b) == [[0], [1]]
    assert not any(isinstance(action, ev.Lost) for action in a.log)
    (gave_up,) = (action for action in a.log if isinstance(action, ev.GaveUp))
    assert "max.poll.interval.ms=60000" in gave_up.text


def test_a_partition_that_comes_back_before_it_was_given_up_is_kept() -> None:
    world, a = founded()
    batch = a.begin()
    b = world.query("B")
    world.run(6)
    assert a.member.membership.revoking == {P1}
    b.leave()
    world.run(12)
    a.sink(batch)
    assert a.poll()
    world.run(12)
    assert (held(a), a.positions) == ([[0, 1]], {0: 10, 1: 10})


@pytest.mark.parametrize("release", [Release(), Release(interval_s=8.0)], ids=["at once", "at intervals"])
def test_available_now_waits_for_partitions_that_another_member_has_yet_to_give_up(release: Release) -> None:
    """It waits, too, while the coordinator has not computed an assignment with the member."""
    world, a = founded(release=release)
    batch = a.begin()
    b = world.query("B")
    world.run(12)
    assert (b.held, b.member.complete) == ([], False)
    a.sink(batch)
    a.poll()
    world.run(12)
    assert (b.held, b.member.complete) == ([1], True)
    assert a.member.complete


def test_new_partitions_and_topics_arrive_without_a_rejoin() -> None:
    world, a = founded()
    world.partitions = 3
    world.ends[TopicPartition("t", 2)] = 0
    world.run(12)
    assert held(a) == [[0, 1, 2]]
    world.more["u"] = 2
    a.act(a.member.step(ev.Subscribed(("t", "u")), world.now))
    world.run(1)
    assert len(a.ledger.held) == 5
    assert sum(isinstance(action, ev.Joining) for action in a.log) == 1


def test_a_stop_gives_the_partitions_back_at_once_and_a_static_member_keeps_them() -> None:
    world, a = founded()
    a.leave()
    assert (a.membership.state, world.group.members) == (State.LEFT, {})
    world = ConsumerWorld(2)
    a, b = world.query("A", instance_id="s"), world.query("B")
    world.run(12)
    assert held(a, b) == [[0], [1]]
    a.leave()
    world.queries.remove(a)
    epoch = world.group.epoch
    again = world.query("A2", instance_id="s")
    assert (held(again, b), world.group.epoch) == ([[0], [1]], epoch)


def test_a_static_member_waits_for_the_session_of_its_killed_predecessor() -> None:
    world = ConsumerWorld(2)
    a = world.query("A", instance_id="s")
    world.queries.remove(a)
    again = world.query("A2", instance_id="s")
    world.run(30)
    assert (held(again), again.failure) == ([[]], None)
    assert any("Waiting for that" in note.text for note in again.log if isinstance(note, ev.Note))
    assert "UNRELEASED_INSTANCE_ID" in again.member.waits_for(world.now)
    world.run(20)
    assert held(again) == [[0, 1]]


def test_a_static_member_whose_place_is_not_freed_fails() -> None:
    world = ConsumerWorld(2, dead_member_s=70)
    world.query("A", instance_id="s")
    again = world.query("A2", instance_id="s")
    world.run(65)
    assert again.failure is None, "a broker may have a longer session timeout than the query"
    world.run(10)
    assert isinstance(again.failure, BrokerError)
    assert "another running member has group.instance.id 's'" in str(again.failure)


def test_a_static_member_whose_place_was_freed_leaves_it_if_the_answer_to_its_join_is_lost() -> None:
    world = ConsumerWorld(2, dead_member_s=50)
    a = world.query("A", instance_id="s")
    world.queries.remove(a)
    again = world.query("A2", instance_id="s")
    while world.group.members:
        world.run(0.05)
    world.silent = {ConsumerGroupHeartbeatRequest}
    world.run(5)
    assert again.membership.member_id in world.group.members
    world.silent = set()
    world.run(40)
    assert (held(again), again.failure) == ([[0, 1]], None)


def test_a_join_whose_answer_is_lost_succeeds_again() -> None:
    world = ConsumerWorld(2, release=OLDEST)
    world.silent = {ConsumerGroupHeartbeatRequest}
    a = world.query("A")
    world.run(20)
    world.silent = set()
    world.run(20)
    assert held(a) == [[0, 1]]


def test_one_description_follows_each_assignment_and_none_an_unchanged_one() -> None:
    world, a = founded()
    world.run(60)
    assert sends(a, ConsumerGroupDescribeRequest) == 1


# -- answers written by hand ------------------------------------------------------------------------------------------


def assignment(**partitions: list[int]) -> HeartbeatAssignment:
    ids = {name: topic_id for topic_id, name in NAMES.items()}
    return HeartbeatAssignment(
        topic_partitions=tuple(
            HeartbeatTopicPartitions(topic_id=ids[name], partitions=tuple(numbers))
            for name, numbers in partitions.items()
        )
    )


def accepted(epoch: int, given: HeartbeatAssignment | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(member_epoch=epoch, heartbeat_interval_ms=5000, assignment=given)


class ConsumerDriver(Driver):
    """One machine of the consumer protocol."""

    def __init__(self, subscribed: tuple[str, ...] = ("t",), **config: Any) -> None:
        super().__init__(subscribed)
        self.machine = ConsumerMembership(MemberConfig("orders-ingest", **config), Even())  # type: ignore[assignment]

    def sees(self, *topic_ids: str) -> None:
        infos = {NAMES[i]: TopicInfo(NAMES[i], tuple(PartitionInfo(n, 1) for n in range(4)), i) for i in topic_ids}
        self.step(ev.MetadataRefreshed(infos, frozenset(NAMES.values())))

    def joining(self) -> ConsumerDriver:
        self.step(ev.UserDataChanged(encode_identity(RunIdentity("abc", "def"))))
        self.found()
        self.sees(T)
        return self

    def in_epoch(self, epoch: int = 3, *numbers: int) -> ConsumerDriver:
        self.joining()
        self.answer(accepted(epoch, assignment(t=list(numbers or (0, 1)))))
        self.answer(described())
        self.answer(accepted(epoch, assignment(t=list(numbers or (0, 1)))))
        return self

    def refused(self, code: int, message: str | None = None) -> None:
        self.answer(ConsumerGroupHeartbeatResponse(error_code=code, error_message=message))


def test_a_join_has_all_fields_and_a_heartbeat_only_what_has_changed() -> None:
    d = ConsumerDriver(instance_id="s", remote_assignor="range", max_poll_interval_ms=60_000).joining()
    join = d.request(HEARTBEAT)
    assert (join.member_id, join.member_epoch, join.instance_id) == ("streamgroup:abc:def", 0, "s")
    assert (join.rebalance_timeout_ms, join.server_assignor) == (60_000, "range")
    assert (join.subscribed_topic_names, join.topic_partitions) == (("t",), ())
    d.answer(accepted(3, assignment(t=[0, 1])))
    owns = d.request(HEARTBEAT)
    assert (owns.member_epoch, owns.topic_partitions) == (3, assignment(t=[0, 1]).topic_partitions)
    assert (owns.rebalance_timeout_ms, owns.server_assignor, owns.subscribed_topic_names) == (-1, None, None)
    d.answer(accepted(3))
    d.tick(5)
    beat = d.request(HEARTBEAT)
    assert (beat.subscribed_topic_names, beat.topic_partitions) == (None, None)
    d.fail(HEARTBEAT)
    d.tick(1)
    d.answer(coordinator_is(3))
    assert d.request(HEARTBEAT).topic_partitions == assignment(t=[0, 1]).topic_partitions
    assert d.request(HEARTBEAT).rebalance_timeout_ms == 60_000


def test_a_member_without_a_topic_joins_and_subscribes_later() -> None:
    """A pattern may match no topic yet. The coordinator lets no member join without a subscription."""
    d = ConsumerDriver(())
    d.found()
    join = d.request(HEARTBEAT)
    assert (join.subscribed_topic_names, join.subscribed_topic_regex) == ((), "a^")
    d.answer(accepted(1, assignment()))
    d.step(ev.Subscribed(("t",)))
    subscribes = d.request(HEARTBEAT)
    assert (subscribes.subscribed_topic_names, subscribes.subscribed_topic_regex) == (("t",), "")
    d.answer(accepted(1))
    d.tick(5)
    assert d.request(HEARTBEAT).subscribed_topic_regex is None


def test_a_weight_that_auto_has_accepted_is_reported_as_without_effect() -> None:
    d = ConsumerDriver(weight=3).started()
    assert "group.member.weight=3 has no effect" in d.notes()


def test_before_kafka_4_0_there_is_no_such_group() -> None:
    d = ConsumerDriver().joining()
    with pytest.raises(UnsupportedVersionError, match=r"kafka\.group\.protocol=consumer needs Kafka 4\.0"):
        d.request(HEARTBEAT, version=0)


def test_a_new_epoch_without_another_assignment_keeps_all() -> None:
    d = ConsumerDriver().in_epoch(3, 0, 1)
    d.tick(5)
    d.answer(accepted(5))
    assigned = d.only(ev.Assigned)
    assert (assigned.generation, assigned.kept, assigned.revoked) == (5, set(tps("t", 0, 1)), frozenset())
    assert assigned.line("g") == "joined g, epoch 5, 2 partitions: keeps 2, gains 0"


def test_a_topic_that_the_metadata_lacks_is_owned_when_its_name_is_known() -> None:
    d = ConsumerDriver(("t", "u")).joining()
    d.answer(accepted(3, assignment(t=[0], u=[1])))
    assert d.only(ev.Assigned).partitions == tuple(tps("t", 0))
    assert d.only(ev.NeedTopics).urgent
    d.answer(accepted(3, assignment(t=[0], u=[1])))
    d.tick(1)
    assert d.has(ev.NeedTopics)
    d.sees(T, U)
    assert d.only(ev.Assigned).partitions == (*tps("t", 0), *tps("u", 1))
    assert d.request(HEARTBEAT).topic_partitions == assignment(t=[0], u=[1]).topic_partitions


def test_the_number_of_partitions_to_come_is_the_target_without_those_owned() -> None:
    d = ConsumerDriver().joining()
    d.answer(accepted(3, assignment(t=[0])))
    assert d.only(ev.Assigned).withheld == 1  # not known yet
    d.answer(described(epoch=3, assigned_in=2, t=[0, 1]))
    assert not d.has(ev.Withheld)
    d.answer(accepted(3))
    d.answer(described(t=[0, 1, 2]))
    assert d.only(ev.Withheld).count == 2
    d.tick(5)
    d.answer(accepted(3, assignment(t=[0, 1, 2])))
    d.answer(described(t=[0, 1, 2]))
    assert d.only(ev.Withheld).count == 0


def test_in_a_group_that_changes_all_the_time_a_target_made_with_the_member_counts_in_the_end() -> None:
    """Otherwise Once and AvailableNow fail while short queries come and go."""
    d = ConsumerDriver().joining()
    d.answer(accepted(3, assignment(t=[0])))
    for attempt in range(UNEXPECTED_ATTEMPTS):  # the group is at epoch 8 when the member first sees it
        d.answer(described(epoch=3, group_epoch=8 + attempt, assigned_in=7 + attempt, t=[0, 1]))
        assert not d.has(ev.Withheld)
        d.tick(5)
        d.answer(accepted(3))
    d.answer(described(epoch=3, group_epoch=30, assigned_in=7, t=[0, 1]))
    assert not d.has(ev.Withheld), "the target is from before the member has joined"
    d.tick(5)
    d.answer(accepted(3))
    d.answer(described(epoch=3, group_epoch=30, assigned_in=8, t=[0, 1]))
    assert d.only(ev.Withheld).count == 1


def test_an_assignment_whose_answer_was_lost_is_asked_for_again() -> None:
    """The coordinator reads a heartbeat of a broken connection after those of the next one, and nobody its answer."""
    world, a = founded()
    batch = a.begin()
    b = world.query("B")
    world.run(12)
    a.sink(batch)
    a.poll()
    world.run(1)
    assert (b.held, b.member.awaited) == ([], 1)
    member = world.group.members[b.ledger.member_id]
    late = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member.member_id, member_epoch=member.epoch)
    assert world.group.heartbeat(late).assignment is not None
    world.run(12)
    assert (b.held, b.member.complete) == ([1], True)


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_a_member_that_may_not_describe_its_group_waits_for_nothing(code: int) -> None:
    d = ConsumerDriver().joining()
    d.answer(accepted(3, assignment(t=[0])))
    d.answer(described(code))
    assert d.only(ev.Withheld).count == 0
    assert "the query needs DESCRIBE for the group and for its topics. AvailableNow and Once end without" in d.notes()


def test_a_group_that_is_never_described_is_not_waited_for_for_ever() -> None:
    d = ConsumerDriver().joining()
    d.answer(accepted(3, assignment(t=[0])))
    d.answer(accepted(3))
    for attempt in range(UNEXPECTED_ATTEMPTS):
        assert not d.has(ev.Withheld)
        d.answer(described(ErrorCode.UNKNOWN_SERVER_ERROR))
        if attempt + 1 < UNEXPECTED_ATTEMPTS:
            d.tick(5)
            d.answer(accepted(3))
    assert d.only(ev.Withheld).count == 0
    assert "cannot describe the group: UNKNOWN_SERVER_ERROR" in d.notes()


def test_a_join_that_the_broker_fails_is_sent_again_for_as_long_as_the_query_waits() -> None:
    """Kafka 4.0 fails it while a classic group gathers, which may take minutes."""
    d = ConsumerDriver().joining()
    for _ in range(30):
        d.refused(ErrorCode.UNKNOWN_SERVER_ERROR)
        d.tick(1.1)
    d.answer(accepted(3, assignment(t=[0])))
    assert d.machine.state is State.STABLE


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (ErrorCode.GROUP_ID_NOT_FOUND, "group.consumer.migration.policy"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, "does not have the assignor 'best'"),
        (ErrorCode.UNSUPPORTED_VERSION, "group.version"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "DESCRIBE for all subscribed topics"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "group.consumer.max.size"),
        (ErrorCode.INVALID_REQUEST, "(the broker's words)"),
    ],
)
def test_a_join_that_can_never_succeed_fails_with_advice(code: int, text: str) -> None:
    d = ConsumerDriver(remote_assignor="best").joining()
    d.refused(code, "the broker's words.")
    failed = d.only(ev.Fail)
    assert text in str(failed.error)
    assert "(the broker's words)" in str(failed.error)
    assert d.machine.state is State.FATAL


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_a_heartbeat_that_may_succeed_later_is_repeated_with_all_fields(code: int) -> None:
    d = ConsumerDriver().in_epoch()
    d.tick(5)
    d.refused(code)
    assert d.machine.state is State.STABLE
    d.tick(5)
    assert d.request(HEARTBEAT).subscribed_topic_names == ("t",)


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_a_refused_member_owns_nothing_and_joins_with_the_same_id(code: int) -> None:
    d = ConsumerDriver().in_epoch()
    d.step(ev.Planned())
    d.tick(5)
    d.refused(code)
    assert d.only(ev.Lost).reason == ErrorCode(code).name
    assert d.only(ev.Joining) == ev.Joining(ErrorCode(code).name, abandoned=True, cause=JoinCause.LOST)
    assert (d.machine.lease_at, d.machine.may_commit) == (None, False)
    join = d.request(HEARTBEAT)
    assert (join.member_id, join.member_epoch, join.topic_partitions) == ("streamgroup:abc:def", 0, ())


def test_a_fenced_member_that_is_still_known_leaves_before_it_joins() -> None:
    """Kafka 4.0 and 4.1 refuse its join for as long as its session lasts (KAFKA-19233)."""
    d = ConsumerDriver().in_epoch()
    d.tick(5)
    d.refused(ErrorCode.FENCED_MEMBER_EPOCH)
    d.refused(ErrorCode.FENCED_MEMBER_EPOCH)
    assert d.request(HEARTBEAT).member_epoch == -1
    d.answer(ConsumerGroupHeartbeatResponse(member_epoch=-1))
    d.tick(1)
    assert d.request(HEARTBEAT).member_epoch == 0
    d.answer(accepted(9, assignment(t=[0])))
    assert d.machine.state is State.STABLE


def test_without_an_accepted_heartbeat_for_a_session_nothing_is_owned() -> None:
    d = ConsumerDriver(session_timeout_ms=10_000).in_epoch()
    sent_at = d.now
    assert d.machine.lease_at == sent_at
    d.tick(5)
    d.fail(HEARTBEAT)
    d.tick(4)
    assert d.machine.can_plan
    d.tick(1.5)
    assert d.only(ev.Lost).reason == "no heartbeat accepted for the session timeout of 10000 ms"


def test_an_accepted_commit_does_not_extend_the_lease() -> None:
    d = ConsumerDriver().in_epoch()
    before = d.machine.lease_at
    d.step(ev.CommitAccepted("streamgroup:abc:def", 3, d.now + 20), after=20)
    assert d.machine.lease_at == before


def test_a_refused_commit_is_repeated_after_a_heartbeat_even_in_the_same_epoch() -> None:
    d = ConsumerDriver().in_epoch()
    d.step(ev.CommitRefused(ErrorCode.STALE_MEMBER_EPOCH, "streamgroup:abc:def", 3, d.now))
    d.tick(1)
    d.answer(accepted(3))
    assert d.only(ev.Assigned).kept == set(tps("t", 0, 1))
    d.step(ev.CommitRefused(ErrorCode.STALE_MEMBER_EPOCH, "streamgroup:abc:def", 2, d.now))
    assert not d.actions or not d.has(ev.Send)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_commit_that_only_a_former_member_sends_ends_the_membership(code: int) -> None:
    d = ConsumerDriver().in_epoch()
    d.step(ev.CommitRefused(code, "streamgroup:abc:def", 3, d.now))
    assert d.has(ev.Lost)


def test_another_member_with_its_instance_id_ends_the_query_and_is_left_alone() -> None:
    d = ConsumerDriver(instance_id="s").in_epoch()
    d.tick(5)
    d.refused(ErrorCode.FENCED_INSTANCE_ID)
    assert isinstance(d.only(ev.Fail).error, FencedError)
    d.step(ev.Stop())
    assert not d.has(ev.Send)
    assert d.machine.state is State.LEFT


def test_a_stop_with_a_heartbeat_under_way_leaves_all_the_same() -> None:
    d = ConsumerDriver().in_epoch()
    d.tick(5)
    heartbeat = d.out[HEARTBEAT]
    d.step(ev.Stop())
    assert d.request(HEARTBEAT).member_epoch == -1
    d.step(ev.RequestAnswered(heartbeat.token, accepted(4), 1))
    assert d.machine.state is State.LEAVING
    d.answer(ConsumerGroupHeartbeatResponse(member_epoch=-1))
    assert d.has(ev.Left)


def test_after_it_has_left_it_joins_again_under_the_same_id() -> None:
    d = ConsumerDriver().in_epoch()
    d.step(ev.Stop())
    d.answer(ConsumerGroupHeartbeatResponse(member_epoch=-1))
    d.step(ev.Start(("t",)))
    d.answer(coordinator_is(3))
    assert (d.request(HEARTBEAT).member_id, d.request(HEARTBEAT).member_epoch) == ("streamgroup:abc:def", 0)

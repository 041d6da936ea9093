"""The brokers of a producer: one gets no request while it throttles, or in the backoff after a lost connection."""

from __future__ import annotations

import pytest

from streamgroup.kafka.producer.batch import NO_IDENTITY, ProducerIdentity
from streamgroup.kafka.producer.bookkeeping import TABLE, IdentitySource, Node, ProducerCue, ProducerState, Topics
from streamgroup.kafka.producer.config import ProducerConfig
from streamgroup.model import PartitionInfo, TopicInfo
from tests.unit.group.drivers import Even


def test_a_new_broker_is_available_at_any_time() -> None:
    assert Node().available_at() == float("-inf")


@pytest.mark.parametrize(
    ("muted_until", "retry_at", "available_at"), [(5.0, 3.0, 5.0), (3.0, 5.0, 5.0), (0.0, -1.0, 0.0)]
)
def test_a_broker_is_available_when_both_the_throttle_time_and_the_backoff_have_passed(
    muted_until: float, retry_at: float, available_at: float
) -> None:
    assert Node(muted_until=muted_until, retry_at=retry_at).available_at() == available_at


def test_every_state_is_reached_and_only_a_failure_is_the_end() -> None:
    assert {row.to for row in TABLE.rows} | {ProducerState.NO_ID} == set(ProducerState)
    assert set(ProducerState) - {row.state for row in TABLE.rows} == {ProducerState.FAILED}
    assert {row.cue for row in TABLE.rows} == set(ProducerCue)


@pytest.mark.parametrize(
    ("state", "cue"),
    [
        (ProducerState.NO_ID, ProducerCue.ID_GIVEN),
        (ProducerState.READY, ProducerCue.ID_SPENT),
        (ProducerState.WITHOUT_ID, ProducerCue.BROKEN),
        (ProducerState.FAILED, ProducerCue.FATAL),
    ],
)
def test_an_illegal_transition_raises(state: ProducerState, cue: ProducerCue) -> None:
    with pytest.raises(ValueError, match=f"a producer that is {state.value} cannot take"):
        TABLE.next_state(state, cue)


NEVER = float("inf")
CONFIG = ProducerConfig(
    max_block_ms=10_000, metadata_max_age_ms=300_000, metadata_max_idle_ms=300_000, retry_backoff_ms=100
)
IDLE: frozenset[str] = frozenset()
WRITTEN = frozenset({"t"})
"""The topics that have records waiting."""


def info(name: str, *leaders: int, topic_id: str = "") -> TopicInfo:
    return TopicInfo(name, tuple(PartitionInfo(number, leader) for number, leader in enumerate(leaders)), topic_id)


T, U = info("t", 0, 1), info("u", 0)


@pytest.fixture
def topics() -> Topics:
    return Topics(CONFIG, Even())


def read(topics: Topics, now: float, *found: TopicInfo, waiting: frozenset[str] = WRITTEN) -> list[TopicInfo]:
    """A request for metadata that is due now, and its answer with the topics `found`."""
    asked = topics.take_due(waiting, False, now)
    assert asked
    return topics.read({topic.name: topic for topic in found}, asked, now)


def test_nothing_is_read_before_a_topic_is_written(topics: Topics) -> None:
    assert topics.get("t") is None
    assert topics.take_due(IDLE, False, 1e9) == frozenset()
    assert topics.wake_at(IDLE, False) == NEVER


def test_a_topic_that_is_looked_for_is_asked_for_at_once_and_found_once(topics: Topics) -> None:
    assert topics.look_for("t", 0.0) is None
    assert topics.take_due(WRITTEN, False, 0.0) == {"t"}
    assert topics.read({"t": T}, frozenset({"t"}), 0.2) == [T]
    assert topics.get("t") == T
    assert topics.look_for("t", 0.3) == T
    topics.refresh()
    assert read(topics, 1.0, T) == []


def test_one_request_is_pending_at_a_time(topics: Topics) -> None:
    topics.look_for("t", 0.0)
    assert topics.take_due(WRITTEN, False, 0.0)
    topics.look_for("u", 0.0)
    assert topics.take_due(WRITTEN, False, 5.0) == frozenset()
    topics.read({"t": T}, frozenset({"t"}), 5.0)
    assert topics.take_due(WRITTEN, False, 5.1) == {"t", "u"}


def test_a_topic_that_is_not_there_is_asked_for_again_after_longer_and_longer_backoffs(topics: Topics) -> None:
    topics.look_for("t", 0.0)
    now = 0.0
    for backoff in (0.1, 0.2, 0.4):
        assert read(topics, now) == []
        assert topics.wake_at(WRITTEN, False) == pytest.approx(now + backoff)
        assert topics.take_due(WRITTEN, False, now + 0.9 * backoff) == frozenset()
        now += 1.001 * backoff
    assert read(topics, now, T) == [T]


def test_a_topic_that_does_not_appear_within_max_block_ms_is_missing_once(topics: Topics) -> None:
    topics.look_for("t", 1.0)
    topics.look_for("t", 9.0)  # a later record does not prolong the wait
    assert topics.take_due(WRITTEN, False, 1.0)
    assert topics.wake_at(WRITTEN, False) == 4.0  # it is late
    assert list(topics.late(4.0)) == [("t", 7.0)]
    assert topics.wake_at(WRITTEN, False) == 11.0
    assert list(topics.missing(10.999)) == []
    assert list(topics.missing(11.0)) == ["t"]
    assert list(topics.missing(12.0)) == []


def test_a_topic_that_is_looked_for_in_vain_is_late_once(topics: Topics) -> None:
    topics.look_for("t", 1.0)
    assert list(topics.late(3.9)) == []
    assert list(topics.late(4.5)) == [("t", 6.5)]
    assert list(topics.late(5.0)) == []
    list(topics.missing(11.0))
    topics.look_for("t", 20.0)  # the next task
    assert list(topics.late(23.0)) == [("t", 7.0)]


def test_a_known_topic_is_looked_for_again_where_it_lacks_a_partition(topics: Topics) -> None:
    topics.look_for("t", 0.0)
    read(topics, 0.0, T)
    grown = info("t", 0, 1, 2)
    assert topics.look_for("t", 1.0, again=True) is None
    assert read(topics, 1.0, grown) == [grown]
    assert topics.get("t") == grown


def test_a_topic_that_has_gone_stays_known(topics: Topics) -> None:
    topics.look_for("t", 0.0)
    read(topics, 0.0, T)
    topics.refresh()
    assert read(topics, 1.0) == []
    assert topics.get("t") == T


def test_metadata_are_read_again_at_their_greatest_age(topics: Topics) -> None:
    topics.look_for("t", 0.0)
    read(topics, 0.0, T)
    assert topics.wake_at(WRITTEN, False) == 300.0
    assert topics.take_due(WRITTEN, False, 299.9) == frozenset()
    assert topics.take_due(WRITTEN, False, 300.0) == {"t"}
    assert topics.wake_at(WRITTEN, False) == NEVER  # the answer is to come


@pytest.mark.parametrize("unsettled", [False, True])
def test_an_unknown_leader_or_a_wish_for_fresh_metadata_waits_for_the_backoff_only(
    topics: Topics, unsettled: bool
) -> None:
    topics.look_for("t", 0.0)
    read(topics, 0.0, T)
    if not unsettled:
        topics.refresh()
    assert topics.wake_at(WRITTEN, unsettled) == pytest.approx(0.1)
    assert topics.take_due(WRITTEN, unsettled, 0.05) == frozenset()
    assert topics.take_due(WRITTEN, unsettled, 0.101) == {"t"}


def test_the_backoff_starts_again_when_nothing_is_left_to_find(topics: Topics) -> None:
    topics.look_for("t", 0.0)
    for now in (0.0, 10.0, 20.0):
        read(topics, now)
    read(topics, 30.0, T)
    topics.take_due(WRITTEN, False, 31.0)
    topics.refresh()
    read(topics, 40.0, T)
    assert topics.wake_at(WRITTEN, True) == pytest.approx(40.1)


def test_a_request_that_no_broker_answers_is_repeated_after_a_backoff(topics: Topics) -> None:
    topics.look_for("t", 0.0)
    read(topics, 0.0, T)
    assert topics.take_due(WRITTEN, False, 300.0)
    topics.failed("b1:9092: connection refused", 302.0)
    assert topics.wake_at(WRITTEN, False) == pytest.approx(302.1)
    assert topics.take_due(WRITTEN, False, 302.05) == frozenset()
    assert topics.take_due(WRITTEN, False, 302.11) == {"t"}


def test_the_reason_of_a_failed_request_stays_until_an_answer(topics: Topics) -> None:
    assert topics.reason == "no answer so far"
    topics.look_for("t", 0.0)
    topics.take_due(WRITTEN, False, 0.0)
    topics.failed("b1:9092: connection refused", 2.0)
    assert topics.reason == "b1:9092: connection refused"
    assert read(topics, 2.2, T) == [T]
    assert topics.reason == ""


def test_a_topic_that_is_dropped_is_no_longer_looked_for(topics: Topics) -> None:
    topics.look_for("t", 0.0)
    assert topics.drop("t")
    assert not topics.drop("t")
    assert list(topics.missing(1e9)) == []
    assert topics.take_due(IDLE, False, 0.0) == frozenset()


def test_only_topics_with_waiting_records_are_asked_for_since_a_broker_creates_missing_ones(topics: Topics) -> None:
    for name in ("t", "u", "v"):
        topics.look_for(name, 0.0)
    read(topics, 0.0, T, U, info("v", 0))
    assert topics.take_due(IDLE, False, 1e9) == frozenset()
    assert topics.wake_at(IDLE, False) == NEVER
    topics.refresh()  # a connection was lost
    assert topics.take_due(IDLE, False, 1e9) == frozenset()
    assert topics.take_due(frozenset({"u"}), False, 1e9) == {"u"}


def test_metadata_of_a_topic_that_got_old_while_it_was_idle_are_read_when_it_is_written(topics: Topics) -> None:
    topics.look_for("t", 0.0)
    topics.look_for("u", 0.0)
    read(topics, 0.0, T, U)
    read(topics, 300.0, T)
    assert topics.wake_at(WRITTEN, False) == 600.0
    assert topics.wake_at(frozenset({"t", "u"}), False) == 300.0
    assert topics.take_due(frozenset({"t", "u"}), False, 301.0) == {"t", "u"}


def test_a_topic_is_forgotten_after_metadata_max_idle_ms_without_records(topics: Topics) -> None:
    for name in ("t", "u"):
        topics.look_for(name, 0.0)
    read(topics, 0.0, T, U)
    topics.use("t", 1.0)
    assert topics.forget_idle(IDLE, 299.9) == []
    assert topics.forget_idle(WRITTEN, 302.0) == ["u"]
    assert topics.get("u") is None
    assert topics.get("t") == T  # its records wait
    assert topics.forget_idle(IDLE, 302.0) == ["t"]
    topics.look_for("t", 302.0)
    assert topics.forget_idle(IDLE, 1e9) == []  # it is looked for


def test_only_the_topics_with_an_id_have_one(topics: Topics) -> None:
    topics.look_for("t", 0.0)
    topics.look_for("u", 0.0)
    with_id = info("t", 0, topic_id="0b7a")
    read(topics, 0.0, with_id, U)
    assert topics.ids(["t", "u", "absent"]) == {"t": "0b7a"}
    assert topics.ids([]) == {}


FIRST = ProducerIdentity(7, 0)
LAST_EPOCH = ProducerIdentity(7, 2**15 - 1)


def given(identity: ProducerIdentity = FIRST) -> IdentitySource:
    source = IdentitySource()
    assert source.take_due(0.0)
    source.given(identity)
    return source


def test_the_first_request_is_due_at_once_and_no_second_one_while_it_is_pending() -> None:
    source = IdentitySource()
    assert source.current == NO_IDENTITY
    assert source.take_due(0.0)
    assert source.pending
    assert not source.take_due(1e9)


def test_a_request_after_a_refused_one_waits_for_its_backoff() -> None:
    source = IdentitySource()
    source.take_due(0.0)
    source.refused("COORDINATOR_LOAD_IN_PROGRESS (14)")
    source.retry_at = 5.0
    assert not source.take_due(4.999)
    assert source.take_due(5.0)


def test_refused_requests_are_counted_until_one_succeeds() -> None:
    source = IdentitySource()
    for attempt in (1, 2):
        source.take_due(0.0)
        source.refused("COORDINATOR_LOAD_IN_PROGRESS (14)")
        assert (source.attempts, source.pending) == (attempt, False)
    assert source.reason == "no producer id: COORDINATOR_LOAD_IN_PROGRESS (14)"
    source.take_due(0.0)
    source.given(FIRST)
    assert (source.current, source.attempts, source.reason, source.pending) == (FIRST, 0, "", False)


def test_a_broken_sequence_raises_the_epoch_without_a_request() -> None:
    source = given()
    assert source.renew(FIRST)
    assert source.current == ProducerIdentity(7, 1)
    assert not source.pending


def test_a_second_partition_of_an_old_epoch_takes_the_epoch_that_is_raised_already() -> None:
    source = given()
    source.renew(FIRST)
    assert source.renew(FIRST)
    assert source.current == ProducerIdentity(7, 1)


def test_the_epoch_before_the_last_can_be_raised_once_more() -> None:
    used = ProducerIdentity(7, 2**15 - 2)
    source = given(used)
    assert source.renew(used)
    assert source.current == LAST_EPOCH


def test_behind_the_last_epoch_a_new_id_is_asked_for_at_once() -> None:
    source = given(LAST_EPOCH)
    source.retry_at = 100.0  # the backoff of an earlier failure
    assert not source.renew(LAST_EPOCH)
    assert source.current == NO_IDENTITY
    assert source.take_due(0.0)


def test_an_id_that_another_producer_uses_is_given_up_and_the_next_one_is_not() -> None:
    source = given()
    source.fenced(FIRST)
    assert not source.renew(FIRST)
    assert source.current == NO_IDENTITY
    source.take_due(0.0)
    source.given(ProducerIdentity(8, 0))
    assert source.renew(ProducerIdentity(8, 0))
    assert source.current == ProducerIdentity(8, 1)


def test_a_late_answer_about_an_id_that_was_given_up_leaves_the_current_one() -> None:
    source = given(ProducerIdentity(8, 0))
    source.fenced(FIRST)
    assert source.renew(ProducerIdentity(8, 0))
    assert source.current == ProducerIdentity(8, 1)


def test_a_partition_under_a_given_up_id_takes_the_new_one_as_it_is() -> None:
    source = given(ProducerIdentity(8, 0))
    assert source.renew(LAST_EPOCH)
    assert source.current == ProducerIdentity(8, 0)

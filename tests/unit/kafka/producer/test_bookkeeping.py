"""The configuration of a producer, its states, topics and producer ids."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamgroup.errors import ConfigError
from streamgroup.kafka.producer.batch import NO_IDENTITY, BatchState, ProducerBatch, ProducerIdentity
from streamgroup.kafka.producer.bookkeeping import TABLE, IdentitySource, ProducerCue, ProducerState, Topics
from streamgroup.kafka.producer.config import MOST_IN_FLIGHT, Idempotence, ProducerConfig
from streamgroup.kafka.producer.partition_queue import PartitionQueue
from streamgroup.model import PartitionInfo, TopicInfo
from tests.unit.group.drivers import Even
from tests.unit.kafka.producer.drivers import P0
from tests.unit.kafka.producer.world import Records

# -- the configuration ------------------------------------------------------------------------------------------------


NEEDS = (
    "enable.idempotence=true needs acks=all, max.in.flight.requests.per.connection of at most 5 and retries of at "
    "least 1"
)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"acks": 2}, "invalid acks 2: expected 0, 1 or all (-1)"),
        ({"acks": -2}, "invalid acks -2: expected 0, 1 or all (-1)"),
        (
            {"linger_ms": 5, "request_timeout_ms": 100, "delivery_timeout_ms": 104},
            "delivery.timeout.ms=104 is below linger.ms=5 plus request.timeout.ms=100: increase it, or decrease one of",
        ),
        ({"acks": 1}, f"{NEEDS}; here they are 1, 5 and 2147483647. Change them, or leave"),
        ({"max_in_flight": MOST_IN_FLIGHT + 1}, f"{NEEDS}; here they are -1, 6 and 2147483647"),
        ({"max_in_flight": 0}, f"{NEEDS}; here they are -1, 0 and 2147483647"),
        ({"retries": 0}, f"{NEEDS}; here they are -1, 5 and 0"),
    ],
)
def test_a_combination_that_java_rejects_is_an_error_and_turns_only_the_default_of_idempotence_off(
    config: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        ProducerConfig(**config, idempotence=Idempotence.REQUIRED)
    assert str(raised.value).startswith(says)
    if says.startswith(NEEDS):
        assert not ProducerConfig(**config).wants_idempotence


def test_options_at_their_limits_are_accepted() -> None:
    assert ProducerConfig(linger_ms=5, request_timeout_ms=100, delivery_timeout_ms=105).wants_idempotence
    for in_flight in (1, MOST_IN_FLIGHT):
        assert ProducerConfig(max_in_flight=in_flight, idempotence=Idempotence.REQUIRED).wants_idempotence
    assert not ProducerConfig(acks=0).wants_idempotence


# -- states -----------------------------------------------------------------------------------------------------------


def test_every_state_is_reached_and_only_a_failure_is_the_end() -> None:
    assert {row.to for row in TABLE.rows} | {ProducerState.NO_ID} == set(ProducerState)
    assert set(ProducerState) - {row.state for row in TABLE.rows} == {ProducerState.FAILED}
    assert {row.cue for row in TABLE.rows} == set(ProducerCue)


# -- topics -----------------------------------------------------------------------------------------------------------

CONFIG = ProducerConfig(max_block_ms=10_000, metadata_max_age_ms=300_000, metadata_max_idle_ms=300_000)
IDLE: frozenset[str] = frozenset()
WRITTEN = frozenset({"t"})
"""The topics that have records waiting."""


T, U = (TopicInfo(name, (PartitionInfo(0, 0), PartitionInfo(1, 1))) for name in ("t", "u"))


@pytest.fixture
def topics() -> Topics:
    return Topics(CONFIG, Even())


def read(topics: Topics, now: float, *found: TopicInfo) -> list[TopicInfo]:
    """A request for metadata that is due now, and its answer with the topics `found`."""
    asked = topics.take_due(WRITTEN, False, now)
    assert asked
    return topics.read({topic.name: topic for topic in found}, asked, now)


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


def test_a_request_that_no_broker_answers_is_repeated_after_a_backoff(topics: Topics) -> None:
    topics.look_for("t", 0.0)
    read(topics, 0.0, T)
    assert topics.take_due(WRITTEN, False, 300.0)
    topics.failed("b1:9092: connection refused", 302.0)
    assert topics.wake_at(WRITTEN, False) == pytest.approx(302.1)
    assert topics.take_due(WRITTEN, False, 302.05) == frozenset()
    assert topics.take_due(WRITTEN, False, 302.11) == {"t"}


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
    for name in ("t", "u"):
        topics.look_for(name, 0.0)
    read(topics, 0.0, replace(T, topic_id="0b7a"), U)
    assert topics.ids(["t", "u", "absent"]) == {"t": "0b7a"}


# -- producer ids -----------------------------------------------------------------------------------------------------


def test_refused_requests_are_counted_until_one_succeeds() -> None:
    source, given = IdentitySource(), ProducerIdentity(7, 0)
    for attempt in (1, 2):
        source.take_due(0.0)
        source.refused("COORDINATOR_LOAD_IN_PROGRESS (14)")
        assert (source.attempts, source.pending) == (attempt, False)
    assert source.reason == "no producer id: COORDINATOR_LOAD_IN_PROGRESS (14)"
    source.take_due(0.0)
    source.given(given)
    assert (source.current, source.attempts, source.reason, source.pending) == (given, 0, "", False)


def test_behind_the_last_epoch_a_new_id_is_asked_for_at_once() -> None:
    source, last_epoch = IdentitySource(), ProducerIdentity(7, 2**15 - 1)
    source.given(last_epoch)
    source.retry_at = 100.0  # the backoff of an earlier failure
    assert not source.renew(last_epoch)
    assert source.current == NO_IDENTITY
    assert source.take_due(0.0)


# -- partitions and batches -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leader", "leader_epoch", "follows"), [(2, 5, True), (2, 4, False), (2, 3, False), (-1, 9, False), (0, 5, True)]
)
def test_an_answer_moves_the_leader_if_its_epoch_is_newer(leader: int, leader_epoch: int, follows: bool) -> None:
    queue = PartitionQueue(P0)
    queue.follow(PartitionInfo(0, 1, 4), "")
    queue.stale = True
    assert queue.moved_to(leader, leader_epoch) is follows
    assert (queue.leader, queue.stale) == ((leader, False) if follows else (1, True))


def test_a_part_is_a_full_queued_batch_without_a_number_that_is_as_old_and_doubtful_as_the_whole() -> None:
    whole = ProducerBatch(P0, Records((0, 1, 2, 3)), 3.0)
    whole.number(ProducerIdentity(7, 0), 40)
    whole.state, whole.attempts, whole.node = BatchState.SPLITTING, 4, 1
    whole.doubtful, whole.followed, whole.code, whole.cause = True, True, 10, "MESSAGE_TOO_LARGE (10)"
    part = whole.part(Records((0, 1)))
    assert (part.partition, part.count, part.size, part.created_at) == (P0, 2, 20, 3.0)
    assert (part.full, part.state, part.identity, part.base_sequence) == (True, BatchState.QUEUED, NO_IDENTITY, -1)
    assert (part.attempts, part.node, part.code, part.cause) == (4, 1, 10, "MESSAGE_TOO_LARGE (10)")
    assert (part.doubtful, part.followed) == (True, True)

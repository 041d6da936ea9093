"""A loss is believed only when the brokers' answers have shown it for a while."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamgroup.model import LogRange, PartitionInfo, Position, TopicInfo, TopicPartition
from streamgroup.planning import loss
from streamgroup.planning.suspicions import BELIEVED_AFTER_S, LOOK_EVERY_S, Suspicions

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPICS = {"t": TopicInfo("t", (PartitionInfo(0, 1), PartitionInfo(1, 1)), "id")}
SOUND, CUT = LogRange(0, 20), LogRange(0, 8)
POSITIONS = {P0: Position(10, "id")}
KEEP, RECHECK = loss.Keep(), loss.Recheck(loss.Cause.TRUNCATED)


def judged(
    suspicions: Suspicions,
    log: LogRange | None,
    now: float,
    *,
    topics: dict[str, TopicInfo] = TOPICS,
    metadata_at: float | None = None,
) -> loss.Verdict:
    """The verdict on P0 at `now`, with metadata of that moment unless `metadata_at` says otherwise."""
    logs = {} if log is None else {P0: log}
    read = now if metadata_at is None else metadata_at
    return suspicions.judge(POSITIONS, logs, topics, now=now, metadata_at=read, epoch_ends={})[P0]


def test_a_log_that_ends_below_the_position_is_believed_after_the_time() -> None:
    suspicions = Suspicions()
    assert judged(suspicions, CUT, 100.0) == RECHECK
    assert judged(suspicions, CUT, 100.0 + BELIEVED_AFTER_S - 0.01) == RECHECK
    assert isinstance(judged(suspicions, CUT, 100.0 + BELIEVED_AFTER_S), loss.Moved)


def test_a_new_leader_that_lags_for_a_moment_loses_nothing_and_the_time_begins_anew() -> None:
    suspicions = Suspicions()
    assert judged(suspicions, CUT, 100.0) == RECHECK
    assert judged(suspicions, SOUND, 100.5) == KEEP
    assert judged(suspicions, CUT, 100.0 + BELIEVED_AFTER_S) == RECHECK


def test_metadata_of_before_is_no_proof_however_long_ago_the_suspicion_arose() -> None:
    suspicions = Suspicions()
    judged(suspicions, CUT, 100.0)
    late = 100.0 + 10 * BELIEVED_AFTER_S
    assert judged(suspicions, CUT, late, metadata_at=100.0 + BELIEVED_AFTER_S - 0.01) == RECHECK
    assert isinstance(judged(suspicions, CUT, late, metadata_at=100.0 + BELIEVED_AFTER_S), loss.Moved)


def test_a_log_that_does_not_answer_leaves_the_suspicion_as_it_is() -> None:
    suspicions = Suspicions()
    judged(suspicions, CUT, 100.0)
    assert judged(suspicions, None, 101.0) == KEEP, "no answer proves nothing"
    assert isinstance(judged(suspicions, CUT, 100.0 + BELIEVED_AFTER_S), loss.Moved)


def test_a_topic_that_the_metadata_lacks_is_deleted_after_the_time() -> None:
    suspicions = Suspicions()
    assert judged(suspicions, SOUND, 100.0, topics={}) == loss.Recheck(loss.Cause.DELETED)
    assert judged(suspicions, SOUND, 100.3) == KEEP
    assert judged(suspicions, SOUND, 101.0, topics={}) == loss.Recheck(loss.Cause.DELETED)
    assert isinstance(judged(suspicions, SOUND, 101.0 + BELIEVED_AFTER_S, topics={}), loss.Deleted)


def test_retention_is_believed_at_once_since_log_starts_only_grow() -> None:
    assert isinstance(judged(Suspicions(), LogRange(15, 20), 100.0), loss.Moved)


def test_suspected_partitions_are_looked_at_at_once_and_then_at_intervals() -> None:
    suspicions = Suspicions()
    assert suspicions.due(100.0, 0.0) == set()
    judged(suspicions, CUT, 100.0)
    assert suspicions.due(100.0, 0.0) == {P0}
    assert suspicions.due(100.0 + LOOK_EVERY_S / 2, 100.1) == set()
    assert suspicions.due(100.0 + LOOK_EVERY_S, 100.1) == {P0}
    two = POSITIONS | {P1: Position(10, "id")}
    later = 100.1 + LOOK_EVERY_S
    suspicions.judge(two, {P0: CUT, P1: CUT}, TOPICS, now=later, metadata_at=later, epoch_ends={})
    assert suspicions.due(later, later) == {P0, P1}, "a new suspicion does not wait for its turn"
    judged(suspicions, SOUND, 102.0)
    assert suspicions.due(110.0, 110.0) == set()


def test_while_the_metadata_of_one_look_is_on_its_way_there_is_no_other_look() -> None:
    """A slow broker takes longer than the time between two looks, and each look voids what is on its way."""
    suspicions = Suspicions()
    judged(suspicions, CUT, 100.0, metadata_at=90.0)
    assert suspicions.due(100.0, 90.0) == {P0}
    assert suspicions.due(110.0, 90.0) == set()
    assert suspicions.due(110.0, 109.0) == {P0}


@given(st.lists(st.tuples(st.floats(0.01, 2.0), st.sampled_from([SOUND, CUT, None])), max_size=30))
def test_nothing_is_lost_unless_every_answer_of_the_time_before_shows_it(answers: list[tuple[float, LogRange]]) -> None:
    suspicions, now, since = Suspicions(), 0.0, None
    for wait, log in answers:
        now += wait
        verdict = judged(suspicions, log, now)
        if log is SOUND:
            since = None
        elif log is CUT and since is None:
            since = now
        believed = log is CUT and since is not None and now >= since + BELIEVED_AFTER_S
        assert isinstance(verdict, loss.Moved) is believed

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.advice import NO_LOCATION, OffsetLocation, StoredIn
from streamgroup.coordinator.planning import loss
from streamgroup.coordinator.planning.loss import (
    BELIEVED_AFTER_S,
    LOOK_EVERY_S,
    Away,
    Cause,
    Deleted,
    Keep,
    Moved,
    Recheck,
    Suspicions,
    Verdict,
    describe,
    judge,
    settle,
)
from streamgroup.errors import DataLossError
from streamgroup.logformat import KAFKA07_LOG
from streamgroup.model import LogRange, PartitionInfo, Position, TopicInfo, TopicPartition

TP = TopicPartition("orders", 0)
AT_100 = Position(100, "id-1", 4)
NO_ID = Position(100)


def cluster(topic_id: str = "id-1", partitions: int = 1) -> dict[str, TopicInfo]:
    return {"orders": TopicInfo("orders", tuple(PartitionInfo(n, 1) for n in range(partitions)), topic_id)}


def verdict(
    position: Position,
    log: LogRange | None,
    topics: dict[str, TopicInfo] | None = None,
    *,
    refreshed: bool = True,
    epoch_end: int | None = None,
) -> Verdict:
    return judge(
        {TP: position},
        {} if log is None else {TP: log},
        cluster() if topics is None else topics,
        refreshed=refreshed,
        epoch_ends=None if epoch_end is None else {TP: epoch_end},
    )[TP]


@pytest.mark.parametrize("refreshed", [False, True])
@pytest.mark.parametrize("log", [LogRange(0, 500), LogRange(100, 100), LogRange(0, 100), LogRange(100, 900), None])
def test_a_position_within_its_log_is_kept_and_no_answer_proves_nothing(log: LogRange | None, refreshed: bool) -> None:
    assert verdict(AT_100, log, refreshed=refreshed) == Keep()
    assert verdict(NO_ID, log, refreshed=refreshed) == Keep()


@pytest.mark.parametrize("refreshed", [False, True])
def test_retention_that_overtook_the_position_is_counted(refreshed: bool) -> None:
    moved = Moved(Cause.RETENTION, AT_100, Position(130, "id-1", 4), 30)
    assert verdict(AT_100, LogRange(130, 500), refreshed=refreshed) == moved


@pytest.mark.parametrize(
    ("log", "topics", "epoch_end", "cause"),
    [
        (LogRange(0, 80), cluster(), None, Cause.TRUNCATED),
        (LogRange(0, 500), cluster(), 80, Cause.TRUNCATED),
        (LogRange(0, 500), cluster("id-2"), None, Cause.RECREATED),
        (None, cluster("id-2"), None, Cause.RECREATED),
        (LogRange(0, 500), {}, None, Cause.DELETED),
        (None, cluster(partitions=0), None, Cause.DELETED),
    ],
)
def test_what_stale_metadata_could_explain_is_looked_at_again(
    log: LogRange | None, topics: dict[str, TopicInfo], epoch_end: int | None, cause: Cause
) -> None:
    assert verdict(AT_100, log, topics, refreshed=False, epoch_end=epoch_end) == Recheck(cause)


def cut_to(offset: int, topic_id: str = "id-1", position: Position = AT_100) -> Moved:
    return Moved(Cause.TRUNCATED, position, Position(offset, topic_id), None)


def test_a_cut_log_of_a_known_topic_goes_on_at_its_end() -> None:
    assert verdict(AT_100, LogRange(0, 80)) == cut_to(80)


@pytest.mark.parametrize(
    ("log", "epoch_end", "expected"),
    [
        (LogRange(0, 80), 60, cut_to(60)),
        (LogRange(0, 900), 60, cut_to(60)),
        (LogRange(70, 900), 60, cut_to(70)),
        (LogRange(0, 900), 100, Keep()),
    ],
)
def test_a_log_cut_below_the_position_goes_on_where_its_epoch_ended(
    log: LogRange, epoch_end: int, expected: Verdict
) -> None:
    assert verdict(AT_100, log, epoch_end=epoch_end) == expected


CREATED_AGAIN = Moved(Cause.RECREATED, AT_100, Position(0, "id-2"), None)


@pytest.mark.parametrize(
    ("position", "log", "topics", "expected"),
    [
        pytest.param(NO_ID, LogRange(3, 80), cluster(""), cut_to(3, "", NO_ID), id="cut, or created again: no id"),
        pytest.param(AT_100, LogRange(0, 1_000), cluster("id-2"), CREATED_AGAIN, id="created again"),
        pytest.param(AT_100, LogRange(0, 50), cluster("id-2"), CREATED_AGAIN, id="created again, and shorter"),
        pytest.param(AT_100, None, cluster("id-2"), Recheck(Cause.RECREATED), id="created again waits for its log"),
        pytest.param(NO_ID, LogRange(0, 500), cluster("id-2"), Keep(), id="the position has no id"),
        pytest.param(AT_100, LogRange(0, 500), cluster(""), Keep(), id="the topic has no id"),
        pytest.param(AT_100, LogRange(0, 500), {}, Deleted(AT_100), id="no topic"),
        pytest.param(AT_100, LogRange(0, 500), cluster(partitions=0), Deleted(AT_100), id="no partition"),
    ],
)
def test_a_topic_after_a_refresh_of_the_metadata(
    position: Position, log: LogRange | None, topics: dict[str, TopicInfo], expected: Verdict
) -> None:
    assert verdict(position, log, topics) == expected


OFFSETS = st.integers(0, 50)


@given(OFFSETS, st.tuples(OFFSETS, OFFSETS).map(sorted), st.none() | OFFSETS, st.sampled_from(["", "id-1", "id-2"]))
def test_after_the_verdict_the_position_lies_within_the_log(
    offset: int, bounds: list[int], epoch_end: int | None, topic_id: str
) -> None:
    log = LogRange(*bounds)
    if epoch_end is not None:
        epoch_end = min(epoch_end, log.latest)
    found = verdict(Position(offset, "id-1"), log, cluster(topic_id), epoch_end=epoch_end)
    assert isinstance(found, Keep | Moved)
    assert log.earliest <= (found.to.offset if isinstance(found, Moved) else offset) <= log.latest


P = [TopicPartition("t", n) for n in range(4)]
ETL = OffsetLocation("etl", StoredIn.KAFKA)
POSITIONS = {tp: Position(10) for tp in P}
VERDICTS: dict[TopicPartition, Verdict] = {
    P[3]: Deleted(Position(10)),
    P[2]: Recheck(Cause.DELETED),
    P[1]: Moved(Cause.RETENTION, Position(10), Position(17), 7),
    P[0]: Keep(),
}


def test_without_fail_on_data_loss_reading_goes_on_and_the_log_tells_of_each_loss() -> None:
    settled = settle(POSITIONS, VERDICTS, location=ETL, fail_on_data_loss=False)
    assert settled.positions == {P[0]: Position(10), P[1]: Position(17)}
    assert settled.deleted == (P[3],)
    assert len(settled.messages) == 2
    assert all(part in settled.messages[0] for part in ("'etl'", "t-1", "up to 7", "position 10", "offset 17"))
    assert all(part in settled.messages[1] for part in ("'etl'", "t-3", "offset 10", "deleted"))


def test_with_fail_on_data_loss_the_error_tells_of_all_losses_and_the_ways_out() -> None:
    with pytest.raises(DataLossError) as caught:
        settle(POSITIONS, VERDICTS, location=ETL, fail_on_data_loss=True)
    for part in ("t-1", "up to 7", "t-3", "failOnDataLoss=false", "--reset-offsets --group etl"):
        assert part in str(caught.value)
    assert "t-2" not in str(caught.value)


def test_a_batch_read_has_no_group_to_reset() -> None:
    with pytest.raises(DataLossError) as caught:
        settle(POSITIONS, VERDICTS, location=NO_LOCATION, fail_on_data_loss=True)
    assert "group" not in str(caught.value)


@pytest.mark.parametrize("cause", Cause)
def test_a_loss_of_unknown_size_says_so(cause: Cause) -> None:
    text = describe(TP, Moved(cause, AT_100, Position(3), None), group="g")
    assert "unknown number" in text
    assert cause.value in text


# -- Kafka 0.7: partitions are there while their broker is -------------------------------------------------------------


@pytest.mark.parametrize("refreshed", [False, True])
@pytest.mark.parametrize("topics", [{}, cluster("", partitions=0)])
def test_a_partition_whose_broker_is_away_is_neither_lost_nor_planned(
    topics: dict[str, TopicInfo], refreshed: bool
) -> None:
    found = judge({TP: NO_ID}, {TP: LogRange(0, 500)}, topics, refreshed=refreshed, log_format=KAFKA07_LOG)
    assert found == {TP: Away()}
    settlement = settle({TP: NO_ID}, found, location=ETL, fail_on_data_loss=True)
    assert (settlement.positions, settlement.deleted, settlement.messages) == ({}, (), ())


def test_a_broker_that_is_there_and_has_lost_its_log_is_reported_like_any_other() -> None:
    there = {"orders": TopicInfo("orders", (PartitionInfo(0, 1),))}
    found = judge({TP: NO_ID}, {TP: LogRange(0, 7)}, there, refreshed=True, log_format=KAFKA07_LOG)
    assert found == {TP: Moved(Cause.TRUNCATED, NO_ID, Position(0), None)}


P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPICS = {"t": TopicInfo("t", (PartitionInfo(0, 1), PartitionInfo(1, 1)), "id")}
SOUND, CUT = LogRange(0, 20), LogRange(0, 8)
SUSPECTED = {P0: Position(10, "id")}
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
    return suspicions.judge(SUSPECTED, logs, topics, now=now, metadata_at=read, epoch_ends={})[P0]


def test_metadata_of_before_is_no_proof_however_long_ago_the_suspicion_arose() -> None:
    suspicions = Suspicions()
    assert judged(suspicions, CUT, 100.0) == RECHECK
    late = 100.0 + 10 * BELIEVED_AFTER_S
    assert judged(suspicions, CUT, late, metadata_at=100.0 + BELIEVED_AFTER_S - 0.01) == RECHECK
    assert isinstance(judged(suspicions, CUT, late, metadata_at=100.0 + BELIEVED_AFTER_S), loss.Moved)


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
    two = SUSPECTED | {P1: Position(10, "id")}
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

"""Which of the brokers' answers about logs count: topics that are deleted, recreated or truncated meanwhile (R8)."""

from __future__ import annotations

from collections.abc import Mapping

from streamgroup.coordinator.planning.known_logs import ABSENT_S, SETTLING_S, KnownLogs
from streamgroup.kafka.cluster.requests import ListedOffset
from streamgroup.model import ClusterSnapshot, LogRange, PartitionInfo, TopicInfo, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
T0 = 1000.0
BEGIN = {P0: ListedOffset(0), P1: ListedOffset(0)}


def cluster(*topics: TopicInfo) -> ClusterSnapshot:
    return ClusterSnapshot({}, {topic.name: topic for topic in topics})


def topic(topic_id: str = "id", *, epochs: tuple[int, ...] = (1, 1), name: str = "t") -> TopicInfo:
    return TopicInfo(name, tuple(PartitionInfo(n, 0, epoch) for n, epoch in enumerate(epochs)), topic_id)


def ends(at: Mapping[TopicPartition, int], epoch: int = -1) -> dict[TopicPartition, ListedOffset]:
    return {tp: ListedOffset(offset, leader_epoch=epoch) for tp, offset in at.items()}


def known(epoch: int = 1) -> KnownLogs:
    """Both logs, listed at T0."""
    logs = KnownLogs(300.0)
    logs.take_snapshot(cluster(topic(epochs=(epoch, epoch))), {P0, P1}, T0)
    logs.take_listing(ends({P0: 10, P1: 20}, epoch), {}, BEGIN, sent_at=T0)
    return logs


def test_an_end_keeps_the_start_that_was_listed_before() -> None:
    logs = KnownLogs(300.0)
    assert logs.take_listing(ends({P0: 10}), {}, {P0: ListedOffset(4, segments=(4, 8))}, sent_at=T0) == set()
    logs.take_listing(ends({P0: 12}), {}, {}, sent_at=T0 + 1)
    assert logs.ranges([P0, P1]) == {P0: LogRange(4, 12, (4, 8))}


def test_an_end_without_a_known_start_is_no_range() -> None:
    logs = KnownLogs(300.0)
    logs.take_listing(ends({P0: 10}), {}, {}, sent_at=T0)
    assert logs.ranges([P0]) == {}
    assert not logs.has_ranges({P0})


def test_a_start_beyond_the_end_is_the_end() -> None:
    logs = KnownLogs(300.0)
    logs.take_listing(ends({P0: 10}), {}, {P0: ListedOffset(11)}, sent_at=T0)
    assert logs.ranges([P0]) == {P0: LogRange(10, 10)}


def test_changes_is_another_object_only_after_an_answer_that_differs() -> None:
    logs = known()
    changes = logs.changes
    logs.take_listing(ends({P0: 10, P1: 20}, 1), {}, BEGIN, sent_at=T0 + 1)
    assert logs.changes is changes
    logs.take_listing(ends({P0: 10, P1: 21}, 1), {}, {}, sent_at=T0 + 2)
    assert logs.changes is not changes


def test_answers_to_requests_sent_before_a_doubt_do_not_count() -> None:
    logs = known()
    epoch = logs.epoch
    logs.void([P0], T0 + 2)
    assert logs.ranges([P0, P1]) == {P1: LogRange(0, 20)}
    assert logs.epoch == epoch + 1, "late answers must not be taken"
    watermarks = ends({P0: 9, P1: 25})
    void = logs.take_listing(ends({P0: 9, P1: 21}), watermarks, BEGIN, sent_at=T0 + 1)
    assert void == {P0}
    assert logs.any_valid(void, T0 + 2), "the next listing counts"
    assert logs.epoch == epoch + 2
    assert logs.ranges([P0, P1]) == {P1: LogRange(0, 21)}
    assert logs.take_listing(ends({P0: 9}), {}, BEGIN, sent_at=T0 + 2) == set()
    assert logs.ranges([P0]) == {P0: LogRange(0, 9)}
    assert logs.watermarks({P0: LogRange(0, 9)}) == {P0: LogRange(0, 9)}, "its watermark did not count either"


def test_a_recreated_topic_has_no_known_range_until_its_leaders_must_have_heard_of_it() -> None:
    logs = known()
    logs.take_snapshot(cluster(topic("another")), {P0, P1}, T0 + 1)
    assert logs.ranges([P0, P1]) == {}
    void = logs.take_listing(ends({P0: 10}), {}, BEGIN, sent_at=T0 + 1 + SETTLING_S / 2)
    assert void == {P0}
    assert not logs.any_valid(void, T0 + 1 + SETTLING_S / 2), "nor would the answer to another request"
    assert logs.take_listing(ends({P0: 3}), {}, BEGIN, sent_at=T0 + 1 + SETTLING_S) == set()
    assert logs.ranges([P0]) == {P0: LogRange(0, 3)}


def test_a_topic_that_was_gone_for_a_moment_is_known_to_be_another() -> None:
    logs = known()
    logs.take_snapshot(cluster(), {P0, P1}, T0 + 1)
    assert logs.ranges([P0]) == {P0: LogRange(0, 10)}, "a lagging broker may have left it out"
    logs.take_snapshot(cluster(topic("another")), {P0, P1}, T0 + 2)
    assert logs.ranges([P0]) == {}


def test_the_id_of_a_deleted_topic_is_forgotten_after_an_hour() -> None:
    for gone_s, is_forgotten in ((ABSENT_S - 1, False), (ABSENT_S, True)):
        logs = known()
        logs.take_snapshot(cluster(), {P0}, T0 + gone_s)
        logs.take_snapshot(cluster(topic("another")), {P0}, T0 + gone_s)
        assert (P0 in logs.ranges([P0])) is is_forgotten


def test_an_end_listed_under_another_leader_epoch_is_known_no_more() -> None:
    logs = known()
    logs.take_snapshot(cluster(topic(epochs=(2, -1))), {P0, P1}, T0 + 1)
    assert logs.ranges([P0, P1]) == {P1: LogRange(0, 20)}
    assert logs.leader_epochs([P0, P1]) == {P0: 2, P1: 1}


def test_the_high_watermark_replaces_a_lower_end() -> None:
    logs = KnownLogs(300.0)
    logs.take_listing(ends({P0: 7, P1: 20}), ends({P0: 10, P1: 20}), BEGIN, sent_at=T0)
    ranges = logs.ranges([P0, P1])
    assert ranges == {P0: LogRange(0, 7), P1: LogRange(0, 20)}
    assert logs.watermarks(ranges) == {P0: LogRange(0, 10), P1: LogRange(0, 20)}


def test_topics_that_come_and_go_for_a_month_leave_nothing_behind() -> None:
    logs, now = KnownLogs(300.0), T0
    for day in range(30):
        name = f"day-{day}"
        tp = TopicPartition(name, 0)
        logs.take_snapshot(cluster(topic(), topic(f"id-{day}", name=name)), {P0, tp}, now)
        logs.take_listing(ends({P0: 10, tp: 5}), {}, {P0: ListedOffset(0), tp: ListedOffset(0)}, sent_at=now)
        logs.take_snapshot(cluster(topic(), topic(f"again-{day}", name=name)), {P0, tp}, now)
        assert tp in logs._valid_from, "an answer about the old topic must not count"
        now += 86_400.0
    kept = ("_ranges", "_watermarks", "_epochs", "_valid_from", "_topic_ids")
    sizes = {name: len(getattr(logs, name)) for name in kept}
    assert max(sizes.values()) <= 3, sizes


def test_metadata_that_has_not_changed_stays_the_same_object() -> None:
    logs = known()
    first = logs.snapshot
    logs.take_snapshot(cluster(topic()), {P0, P1}, T0 + 5)
    assert logs.snapshot is first
    moved = cluster(topic(epochs=(1, 2)))
    logs.take_snapshot(moved, {P0, P1}, T0 + 10)
    assert logs.snapshot is moved

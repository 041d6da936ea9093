"""When a run asks about its logs, and which answers count if topics are deleted or recreated meanwhile (R8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from streamgroup.coordinator.planning.known_logs import ABSENT_S, SETTLING_S, KnownLogs
from streamgroup.coordinator.planning.log_read_schedule import (
    EARLIEST_EVERY_S,
    LEADERLESS_EVERY_S,
    LISTING_EVERY_S,
    METADATA_EVERY_S,
    METADATA_REST,
    REST,
    REST_MOST_S,
    RETRY_AFTER_S,
    UNFOLLOWED_S,
    Answer,
    EndReading,
    FailQuery,
    FetchMetadata,
    Listing,
    ListLogs,
    LogReadSchedule,
    PublishMetadata,
    Wait,
)
from streamgroup.coordinator.planning.memo import Memo
from streamgroup.errors import BrokerError, ErrorCode, TransportError
from streamgroup.kafka.cluster.requests import ListedOffset
from streamgroup.model import Broker, ClusterSnapshot, LogRange, PartitionInfo, TopicInfo, TopicPartition

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


def test_an_end_keeps_the_start_that_was_listed_before_and_is_no_range_without_one() -> None:
    logs = KnownLogs(300.0)
    logs.take_listing(ends({P1: 10}), {}, {}, sent_at=T0)
    assert not logs.has_ranges({P1})
    assert logs.take_listing(ends({P0: 10}), {}, {P0: ListedOffset(4, segments=(4, 8))}, sent_at=T0) == set()
    logs.take_listing(ends({P0: 12}), {}, {}, sent_at=T0 + 1)
    assert logs.ranges([P0, P1]) == {P0: LogRange(4, 12, (4, 8))}


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


BOTH = (P0, P1)
MAX_AGE_S = 300.0
DOWN = TransportError("down")


def snapshot(leaders: tuple[int, ...] = (0, 0), topic: str = "t") -> ClusterSnapshot:
    infos = tuple(PartitionInfo(n, leader, 1) for n, leader in enumerate(leaders))
    return ClusterSnapshot({0: Broker(0, "b0", 9092)}, {topic: TopicInfo(topic, infos, "id")})


class Time:
    """A schedule, and the time at which it is asked."""

    def __init__(self, *, has_pattern: bool = False, max_age_s: float = MAX_AGE_S, ttl_s: float = 0.0) -> None:
        self.now = T0
        self.schedule: LogReadSchedule[str] = LogReadSchedule(
            max_age_s, partitions_ttl_s=ttl_s, has_pattern=has_pattern
        )

    def step(self, after: float = 0.0) -> object:
        self.now += after
        return self.schedule.next_step(self.now)

    def waits(self) -> float:
        step = self.step()
        assert isinstance(step, Wait)
        return step.seconds

    def fetches(self, after: float = 0.0) -> FetchMetadata:
        step = self.step(after)
        assert isinstance(step, FetchMetadata)
        return step

    def lists(self, after: float = 0.0) -> ListLogs:
        step = self.step(after)
        assert isinstance(step, ListLogs)
        return step

    def wants(self, after: float = 0.0, partitions: Iterable[TopicPartition] = BOTH) -> ListLogs:
        """A call asks for the ends of logs, `after` seconds from now, and they are listed at once."""
        self.schedule.want_ends(tuple(partitions), self.now + after)
        return self.lists(after)

    def reads(self, found: ClusterSnapshot) -> None:
        self.schedule.metadata_read(self.fetches(), found, self.now)
        assert isinstance(self.step(), PublishMetadata)

    def follow(self, found: ClusterSnapshot | None = None) -> None:
        self.schedule.follow(["t"])
        self.reads(found or snapshot())

    def takes(
        self, step: ListLogs, *, late: Iterable[TopicPartition] = (), end: int = 10, with_starts: bool = True
    ) -> str | None:
        """Every leader answers but those of `late`."""
        ends = {tp: ListedOffset(end) for tp in step.asked if tp not in set(late)}
        starts = dict.fromkeys(ends, ListedOffset(0)) if with_starts else None
        causes = [f"{tp}: late" for tp in sorted(late)]
        return self.schedule.listed(Listing(step, ends, {}, starts, causes), self.now)


# -- metadata ---------------------------------------------------------------------------------------------------------


def test_metadata_is_read_when_followed_and_when_it_is_old() -> None:
    time = Time()
    assert time.step() == Wait(UNFOLLOWED_S), "there is nothing to watch"
    time.schedule.follow(["t"])
    step = time.fetches()
    assert step == FetchMetadata(frozenset({"t"}), reads_all=False, elsewhere=False, doubts=0)
    time.now += 2.0
    time.schedule.metadata_read(step, snapshot(), time.now)
    assert time.schedule.metadata_at == time.now, "its age counts from the answer"
    assert time.step() == PublishMetadata(snapshot(), frozenset({"t"}))
    assert time.waits() == METADATA_EVERY_S
    time.fetches(after=METADATA_EVERY_S)
    time.schedule.follow([])
    assert time.waits() == UNFOLLOWED_S


@pytest.mark.parametrize("change", ["refresh", "follow"])
def test_metadata_that_was_asked_for_before_a_change_does_not_satisfy_it(change: str) -> None:
    time = Time()
    time.schedule.follow(["t"])
    step = time.fetches()
    if change == "refresh":
        time.schedule.refresh_metadata()
    else:
        time.schedule.follow(["t", "u"])
    time.schedule.metadata_read(step, snapshot(), time.now)
    assert time.schedule.metadata_at == 0.0
    assert time.step() == PublishMetadata(snapshot(), frozenset({"t"})), "it is announced all the same"
    time.fetches()


def test_a_pattern_reads_all_topics_even_while_none_matches() -> None:
    time = Time(has_pattern=True)
    time.schedule.follow(["needed"])
    step = time.fetches()
    assert step.reads_all
    time.schedule.metadata_read(step, snapshot(), time.now)
    assert time.step() == PublishMetadata(snapshot(), frozenset({"t", "needed"}))
    time.schedule.follow([])
    assert time.fetches() == FetchMetadata(frozenset(), reads_all=True, elsewhere=False, doubts=0)


# -- listings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpu_s", "max_age_s", "every_s"),
    [
        (0.0, 300.0, METADATA_EVERY_S),
        (0.0, 5.0, 5.0),
        (0.0, 0.5, 0.5),
        (0.01, 300.0, METADATA_EVERY_S),
        (0.2, 300.0, METADATA_REST * 0.2),
        (0.2, 2.0, 2.0),
        (9.0, 300.0, 300.0),
    ],
)
def test_metadata_is_refreshed_every_five_seconds_or_as_often_as_the_option_says_and_less_if_it_takes_long(
    cpu_s: float, max_age_s: float, every_s: float
) -> None:
    time = Time(max_age_s=max_age_s)
    time.follow()
    time.schedule.metadata_took(cpu_s)
    assert time.waits() == pytest.approx(every_s)
    time.schedule.refresh_metadata()
    time.reads(snapshot())
    time.fetches(after=every_s + 0.001)


@pytest.mark.parametrize(("ttl_s", "every_s"), [(60.0, 60.0), (0.5, 0.5), (600.0, 300.0)])
def test_a_ttl_of_the_partitions_is_the_time_between_two_refreshes(ttl_s: float, every_s: float) -> None:
    time = Time(max_age_s=300.0, ttl_s=ttl_s)
    time.follow()
    time.schedule.metadata_took(0.2)
    assert time.waits() == pytest.approx(every_s)
    time.schedule.refresh_metadata()
    time.fetches()


def test_ends_are_listed_once_for_all_calls_before_the_listing() -> None:
    time = Time()
    time.follow()
    assert time.waits() == METADATA_EVERY_S, "nobody asks"
    time.schedule.want_ends(BOTH, time.now)
    time.now += 0.001
    time.schedule.want_ends(BOTH, time.now)
    step = time.lists(after=0.001)
    assert (step.wanted, list(step.asked), step.started_at) == (frozenset(BOTH), [P0, P1], time.now)
    time.now += 0.2
    assert time.takes(step) is None
    assert time.schedule.listed_at == step.started_at, "a call during the listing is not answered by it"
    assert time.schedule.logs.ranges(BOTH) == {P0: LogRange(0, 10), P1: LogRange(0, 10)}
    assert time.waits() == pytest.approx(METADATA_EVERY_S - 0.202), "until the metadata is refreshed"


@pytest.mark.parametrize(
    ("cpu_s", "pause_s"), [(0.0, LISTING_EVERY_S), (0.025, REST * 0.025), (1.0, REST_MOST_S)], ids=["", "rest", "most"]
)
def test_listings_are_paced_from_begin_to_begin_and_by_their_cpu_time(cpu_s: float, pause_s: float) -> None:
    time = Time()
    time.follow()
    step = time.wants()
    time.now += 0.01
    time.takes(step)
    time.schedule.listing_took(cpu_s)
    time.schedule.want_ends(BOTH, time.now)
    assert time.waits() == pytest.approx(pause_s - 0.01)
    time.lists(after=pause_s - 0.01)


def test_a_partition_more_is_listed_at_once_and_a_partition_less_is_not() -> None:
    time = Time()
    time.follow()
    time.takes(time.wants())
    time.schedule.want_ends((P0,), time.now + 0.001)
    assert time.waits() == pytest.approx(LISTING_EVERY_S), "it is known already"
    time.schedule.want_ends(BOTH, time.now + 0.001)
    assert time.lists().wanted == {P0, P1}


def test_starts_are_listed_with_unknown_logs_and_every_two_seconds() -> None:
    time = Time()
    time.follow()
    step = time.wants(partitions=(P0,))
    assert time.schedule.lists_starts(step, {P0: ListedOffset(10)})
    time.takes(step)
    step = time.wants(after=LISTING_EVERY_S)
    assert not time.schedule.lists_starts(step, {P0: ListedOffset(10)})
    assert time.schedule.lists_starts(step, {P0: ListedOffset(10), P1: ListedOffset(10)})
    time.takes(step, with_starts=False)
    assert time.schedule.lists_starts(time.wants(after=EARLIEST_EVERY_S), {P0: ListedOffset(10)})


def test_a_doubted_log_is_listed_at_once_with_its_start_after_the_metadata_of_another_broker() -> None:
    time = Time()
    time.follow()
    step = time.wants()
    time.now += 0.01
    time.schedule.doubt([P0], time.now)
    time.takes(step)
    assert time.schedule.listed_at == 0.0, "an answer to a request before the doubt does not count"
    assert time.schedule.logs.ranges(BOTH) == {P1: LogRange(0, 10)}
    assert time.fetches().elsewhere
    time.schedule.metadata_read(FetchMetadata(frozenset({"t"}), False, True, 1), snapshot(), time.now)
    assert isinstance(time.step(), PublishMetadata)
    step = time.lists()
    assert time.schedule.lists_starts(step, {P1: ListedOffset(10)})
    time.schedule.refresh_metadata()
    assert not time.fetches().elsewhere, "another broker is asked once for each doubt"


def test_a_recreated_topic_is_listed_at_the_usual_pace_until_its_leaders_are_believed() -> None:
    time = Time()
    time.follow()
    time.takes(time.wants())
    other = ClusterSnapshot(snapshot().brokers, {"t": TopicInfo("t", snapshot().topics["t"].partitions, "another")})
    time.schedule.refresh_metadata()
    time.reads(other)
    step = time.wants(after=LISTING_EVERY_S)
    time.takes(step)
    assert time.schedule.listed_at == step.started_at, "the call goes on without them"
    assert time.schedule.logs.ranges(BOTH) == {}


# -- leaders that do not answer ---------------------------------------------------------------------------------------


def test_a_late_leader_is_warned_of_once_and_asked_again_after_a_pause() -> None:
    time = Time()
    time.follow()
    warning = time.takes(time.wants(), late=[P1])
    assert warning == "cannot list the offsets of t-1: t-1: late. Other partitions are not affected"
    step = time.wants(after=LISTING_EVERY_S)
    assert list(step.asked) == [P0], "the others do not wait for it again"
    assert time.takes(step) is None
    step = time.wants(after=RETRY_AFTER_S)
    assert list(step.asked) == [P0, P1]
    assert time.takes(step, late=[P1]) is None, "it is known"
    time.takes(time.wants(after=RETRY_AFTER_S))
    assert time.takes(time.wants(after=LISTING_EVERY_S), late=[P1]) is not None, "it answered meanwhile"


@pytest.mark.slow
def test_the_warning_of_a_late_leader_does_not_name_thousands_of_partitions() -> None:
    time = Time()
    time.follow(snapshot((0,) * 5_000))
    partitions = [TopicPartition("t", n) for n in range(5_000)]
    assert time.takes(time.wants(partitions=partitions), late=partitions) == (
        "cannot list the offsets of t-0, t-1, t-2 and 4997 more partitions: t-0: late; t-1: late; t-2: late; and 4997 "
        "more. Other partitions are not affected"
    )


def test_the_metadata_is_refreshed_every_second_while_a_partition_has_no_leader() -> None:
    time = Time()
    time.follow(snapshot((0, -1)))
    step = time.wants()
    assert list(step.asked) == [P0]
    time.takes(step)
    time.takes(time.wants(after=LEADERLESS_EVERY_S))
    assert time.schedule.metadata_at == T0, "not yet"
    time.takes(time.wants(after=0.1))
    time.fetches()


# -- questions, failures, the end -------------------------------------------------------------------------------------


def test_questions_go_first_in_their_order_then_metadata_then_ends() -> None:
    time = Time()
    time.schedule.want_ends(BOTH, time.now)
    time.schedule.follow(["t"])
    time.schedule.ask("a")
    time.schedule.ask("b")
    assert [time.step(), time.step()] == [Answer("a"), Answer("b")]
    time.reads(snapshot())
    time.lists()


def test_a_failed_step_is_followed_by_a_pause_that_a_question_ends() -> None:
    time = Time()
    time.follow()
    assert time.schedule.failed(DOWN, time.now) == "down; trying again"
    assert time.waits() == RETRY_AFTER_S
    time.schedule.refresh_metadata()
    assert time.waits() == RETRY_AFTER_S, "new wishes do not end it"
    assert time.schedule.error is DOWN
    time.schedule.ask("a")
    assert time.step() == Answer("a")
    time.schedule.answered(time.now)
    assert time.schedule.error is None
    time.fetches()


def test_an_error_is_warned_of_again_only_after_another_one_or_a_success() -> None:
    time = Time()
    assert time.schedule.failed(DOWN, time.now) is not None
    assert time.schedule.failed(TransportError("down"), time.now) is None
    assert time.schedule.failed(TransportError("slow"), time.now) == "slow; trying again"
    time.schedule.follow(["t"])
    time.now += RETRY_AFTER_S
    time.reads(snapshot())
    assert time.schedule.failed(TransportError("slow"), time.now) is not None
    assert time.schedule.retries == 4


def test_an_error_that_no_retry_resolves_fails_the_query_after_the_pause_and_the_steps_go_on() -> None:
    time = Time()
    time.follow()
    refused = BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t")
    assert time.schedule.failed(refused, time.now) is not None
    assert time.waits() == RETRY_AFTER_S
    assert time.step(after=RETRY_AFTER_S) == FailQuery(refused)
    time.fetches()
    time.schedule.failed(BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "t"), time.now)
    time.fetches(after=RETRY_AFTER_S)


def test_no_step_is_taken_after_the_stop_but_new_metadata_is_announced() -> None:
    time = Time()
    time.schedule.follow(["t"])
    step = time.fetches()
    time.schedule.ask("a")
    time.schedule.ask("b")
    time.schedule.is_stopping = True
    time.schedule.metadata_read(step, snapshot(), time.now)
    assert isinstance(time.step(), PublishMetadata)
    assert time.step() == EndReading()
    assert time.schedule.stop() == ["a", "b"]
    assert time.schedule.stop() == []


def test_what_was_computed_is_kept_until_an_input_is_another_object() -> None:
    memo: Memo[list[int]] = Memo()
    one, other = [1, 2], [1, 2]
    first = memo.get(lambda: [1], one, "x")
    assert memo.get(lambda: [2], one, "x") is first
    assert memo.get(lambda: [3], other, "x") == [3], "equal, and another object"
    assert memo.get(lambda: [4], one, "x") == [4], "only the newest is kept"
    assert memo.get(lambda: [5], one) == [5], "and only for as many inputs"


def test_a_result_that_is_false_is_kept_too() -> None:
    memo: Memo[bool] = Memo()
    key = object()
    assert memo.find(key) is None
    assert memo.keep(False, key) is False
    assert memo.get(lambda: True, key) is False

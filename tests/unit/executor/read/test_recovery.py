"""A task whose leader does not answer finds the new one, waits, or reports lost records: a range is whole or fails."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.errors import BrokerError, DataLossError, ErrorCode, TransportError, error_of
from streamgroup.executor.read.cursor import Cursor
from streamgroup.executor.read.read_format import Loss
from streamgroup.executor.read.recovery import ENOUGH_EMPTY_ANSWERS, Recovery
from streamgroup.logformat import KAFKA07_LOG
from streamgroup.logline import parse
from streamgroup.model import FetchRange, OffsetRange, TopicPartition
from streamgroup.options.types import ClientOptions, FetchOptions
from tests.clock import Clock
from tests.unit.executor.lookups import FOLLOWER, LEADER, OTHER, ScriptedLookup, cursor

TIMEOUT_S = 3.0
NO_CONNECTION: Any = None
"""The scripted cluster needs no connection."""


def recovery(lookup: ScriptedLookup, clock: Clock, *, strict: bool = True) -> Recovery:
    client = ClientOptions(bootstrap_servers=(), retry_backoff_ms=0, retry_backoff_max_ms=0)
    fetch = FetchOptions(poll_timeout_ms=int(TIMEOUT_S * 1000))
    return Recovery(lookup, client, fetch, fail_on_data_loss=strict, clock=clock, group="g")


def waiting(since: float, partition: int = 0, **others: Any) -> Cursor:
    each = cursor(partition, **others)
    each.mark_waiting(since)
    return each


def test_a_range_waits_from_the_first_empty_answer_or_from_the_last_progress_of_any_range() -> None:
    clock = Clock(100.0)
    tested = recovery(ScriptedLookup(), clock)
    fresh, early, late = cursor(0), waiting(90.0, 1), waiting(98.0, 2)
    assert [tested.waited_s(each) for each in (fresh, early, late)] == [0.0, 10.0, 2.0]
    clock.now = 95.0
    tested.note_progress()
    clock.now = 100.0
    assert [tested.waited_s(each) for each in (fresh, early, late)] == [0.0, 5.0, 2.0]


def test_throttle_times_are_left_out_of_all_waits() -> None:
    clock = Clock(100.0)
    tested = recovery(ScriptedLookup(), clock)
    fresh, empty, elsewhere = cursor(0), waiting(100.0, 1), waiting(99.0, 2)
    each = (fresh, empty, elsewhere)
    tested.note_throttled(each, 50.0)
    clock.now = 150.0 + TIMEOUT_S - 1.1
    tested.check_timeouts(each)
    assert [tested.waited_s(one) for one in each] == pytest.approx([0.0, TIMEOUT_S - 1.1, TIMEOUT_S - 0.1])
    tested.note_progress()
    tested.note_throttled(each, 50.0)
    clock.now += 51.0
    assert [tested.waited_s(one) for one in each] == pytest.approx([0.0, 1.0, 1.0])


@pytest.mark.parametrize(("waited", "fails"), [(TIMEOUT_S - 0.1, False), (TIMEOUT_S, True)])
def test_a_range_fails_exactly_when_the_poll_timeout_has_passed(waited: float, fails: bool) -> None:
    tested = recovery(ScriptedLookup(), Clock(100.0))
    each = waiting(100.0 - waited, start=5, until=10)
    if not fails:
        tested.check_timeouts([each])
        return
    with pytest.raises(TransportError) as raised:
        tested.check_timeouts([each])
    assert str(raised.value) == (
        "orders-0 at offset 5 of [5, 10): no records for 3 s (kafkaConsumer.pollTimeoutMs); no answer; "
        "last: an empty answer; leader: kafka-1:9092 (id 1). Look at the leader"
    )


def test_the_error_of_a_timeout_tells_what_is_known_of_the_log() -> None:
    lookup = ScriptedLookup()
    tested = recovery(lookup, Clock(100.0))
    each = waiting(90.0, leader=None)
    each.high_watermark = 42
    with pytest.raises(TransportError, match=r"the leader's high watermark is 42; last: the partition has no leader"):
        tested.check_timeouts([each])
    lookup.last = "the log ends at 7"
    with pytest.raises(TransportError, match=r"the log ends at 7; last: .*; leader: none\. Look at the leader"):
        tested.check_timeouts([each])


def test_ranges_that_are_delivered_or_at_a_follower_or_on_the_way_to_one_do_not_time_out() -> None:
    lookup = ScriptedLookup()
    delivered, following, moving = (waiting(0.0, partition) for partition in range(3))
    delivered.mark_delivered(delivered.until)
    following.replica = FOLLOWER
    moving.is_moving = True
    recovery(lookup, Clock(100.0)).check_timeouts([delivered, following, moving])
    assert lookup.asked == []


def test_a_loss_that_the_last_look_shows_fails_the_task_with_the_way_out() -> None:
    lookup = ScriptedLookup()
    each = waiting(0.0, start=5)
    lookup.last = Loss(each, 20, "the log begins at offset 20", ". Raise the retention")
    with pytest.raises(DataLossError) as raised:
        recovery(lookup, Clock(100.0)).check_timeouts([each])
    assert str(raised.value) == (
        "orders-0: the offsets [5, 20) were planned and cannot be read any more: the log begins at offset 20. "
        "To continue without these records, set failOnDataLoss=false. Raise the retention"
    )
    assert each.position == 5


@pytest.mark.parametrize(("begins", "to"), [(20, 20), (1_000, 100)])
def test_without_fail_on_data_loss_the_task_logs_the_loss_and_goes_on_behind_it(
    begins: int, to: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A log may begin behind the range: only what was planned is reported as lost."""
    lookup = ScriptedLookup()
    each = waiting(0.0, start=5, until=100)
    lookup.last = Loss(each, begins, "it is gone")
    recovery(lookup, Clock(100.0), strict=False).check_timeouts([each])
    assert (each.position, each.ahead, each.done) == (to, to, to == 100)
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"continuing at offset {to}, because failOnDataLoss=false" in line
    assert parse(line) == {
        "event": "data_loss",
        "group": "g",
        "count": str(to - 5),
        "partition": "orders-0",
        "from": "5",
        "to": str(to),
        "reason": "it is gone",
    }


def test_a_last_look_that_fails_proves_no_loss() -> None:
    lookup = ScriptedLookup()
    lookup.last = TransportError("kafka-1:9092 refuses connections")
    each = waiting(0.0)
    each.mark_failed(TransportError("connection reset"), 0.0)
    with pytest.raises(TransportError, match=r"last: connection reset; kafka-1:9092 refuses connections;"):
        recovery(lookup, Clock(100.0), strict=False).check_timeouts([each])
    assert each.position == 0
    each.failure = TransportError("kafka-1:9092 refuses connections")
    with pytest.raises(TransportError, match=r"last: kafka-1:9092 refuses connections; leader:"):
        recovery(lookup, Clock(100.0), strict=False).check_timeouts([each])


def test_only_a_leader_that_has_sent_nothing_several_times_is_asked_for_gaps() -> None:
    lookup = ScriptedLookup()
    once, often, failed, delivered = (cursor(partition) for partition in range(4))
    once.empty_answers = ENOUGH_EMPTY_ANSWERS - 1
    for each in (often, failed, delivered):
        each.empty_answers = ENOUGH_EMPTY_ANSWERS
    failed.failure = error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    delivered.ahead = delivered.until
    tested = recovery(lookup, Clock(100.0))
    tested.pass_gaps([once, failed, delivered], NO_CONNECTION)
    assert lookup.asked == []
    tested.pass_gaps([once, often], NO_CONNECTION)
    assert lookup.asked == [("pass_gaps", [1], 100.0 + TIMEOUT_S)]
    assert (once.empty_answers, often.empty_answers) == (ENOUGH_EMPTY_ANSWERS - 1, 0)


def test_a_failed_range_goes_on_at_its_new_leader() -> None:
    lookup = ScriptedLookup()
    lookup.leader = OTHER
    early, late, delivered = waiting(98.0, 0), waiting(99.0, 1), waiting(0.0, 2)
    delivered.mark_delivered(delivered.until)
    early.mark_failed(error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER), 98.0)
    recovery(lookup, Clock(100.0)).mend([early, late, delivered])
    assert lookup.asked == [("look_up", [0, 1], 98.0 + TIMEOUT_S)], "until the first of them times out"
    assert [each.leader for each in (early, late, delivered)] == [OTHER, OTHER, LEADER]
    assert early.failure is None


@pytest.mark.parametrize(("epoch", "follows"), [(8, True), (7, False), (6, False)])
def test_a_range_goes_at_once_to_a_newer_leader_that_its_broker_has_named(epoch: int, follows: bool) -> None:
    lookup = ScriptedLookup()
    lookup.leader = LEADER
    moved, other = waiting(98.0, 0), waiting(98.0, 1)
    for each in (moved, other):
        each.mark_failed(error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER), 98.0)
        each.leader_epoch = 7
    moved.named_leader = OTHER, epoch
    tested = recovery(lookup, Clock(100.0))
    tested.mend([moved])
    assert (moved.leader, moved.failure) == (OTHER if follows else LEADER, None)
    assert bool(lookup.asked) is not follows
    tested.mend([moved, other])
    assert lookup.asked[-1][0] == "look_up", "a name counts once"


def test_a_failure_that_no_waiting_mends_ends_the_task_at_once() -> None:
    lookup = ScriptedLookup()
    lookup.mendable = BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "orders-0")
    delivered = waiting(0.0)
    delivered.mark_delivered(delivered.until)
    recovery(lookup, Clock(100.0)).mend([delivered])
    with pytest.raises(BrokerError, match="orders-0: TOPIC_AUTHORIZATION_FAILED"):
        recovery(lookup, Clock(100.0)).mend([waiting(100.0)])
    assert lookup.asked == []


def test_a_look_up_that_fails_until_the_deadline_names_both_failures() -> None:
    lookup = ScriptedLookup()
    lookup.leader = TransportError("no broker answers")
    each = cursor()
    each.mark_failed(TransportError("connection reset"), 99.0)
    with pytest.raises(TransportError, match=r"orders-0 .*no records for 3 s.*last: connection reset; no broker"):
        recovery(lookup, Clock(100.0)).mend([each])


def test_each_loss_is_skipped_before_the_lookup_goes_on() -> None:
    lookup = ScriptedLookup()
    first, second = waiting(100.0, 0), waiting(100.0, 1)
    seen: list[int] = []

    def second_loss() -> Loss:
        seen.append(first.position)
        return Loss(second, 9, "gone")

    lookup.losses = {0: lambda: Loss(first, 7, "gone"), 1: second_loss}
    recovery(lookup, Clock(100.0), strict=False).mend([first, second])
    assert (seen, second.position) == ([7], 9)


def test_the_end_of_a_task_closes_the_connections_of_the_lookup() -> None:
    lookup = ScriptedLookup()
    recovery(lookup, Clock()).close()
    assert lookup.is_closed


# -- what a task knows of each planned range ---------------------------------------------------------------------------

FAILURE = error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER)
KIB = 1024


def test_the_time_without_records_runs_from_the_first_empty_answer_until_records_come() -> None:
    made = cursor(start=10)
    made.mark_waiting(5.0)
    made.mark_waiting(6.0)
    assert made.waiting_since == 5.0
    made.empty_answers = 2
    made.mark_fetched(20, 100)
    assert (made.waiting_since, made.empty_answers) == (None, 0)


def test_a_failure_stops_fetching_until_the_leader_is_known_again_and_what_was_not_delivered_is_fetched_anew() -> None:
    made = cursor(start=10)
    made.mark_fetched(50, 1_000)
    made.mark_delivered(30)
    made.mark_failed(FAILURE, 5.0)
    assert (made.wants_more, made.waiting_since) == (False, 5.0)
    made.move_to(OTHER, 8)
    assert (made.wants_more, made.failure) == (True, None)
    assert (made.source, made.leader_epoch) == (OTHER, 8)
    assert (made.ahead, made.position) == (30, 30)
    assert made.waiting_since == 5.0, "a new leader that sends nothing does not extend the timeout"


@pytest.mark.parametrize(("offset", "position", "done"), [(40, 40, False), (100, 100, True), (140, 100, True)])
def test_a_skip_goes_on_behind_the_loss_and_never_beyond_the_range(offset: int, position: int, done: bool) -> None:
    made = cursor(start=10)
    made.mark_failed(FAILURE, 5.0)
    made.empty_answers = 3
    made.skip_to(offset)
    assert (made.position, made.ahead, made.done) == (position, position, done)
    assert (made.failure, made.waiting_since, made.empty_answers) == (None, None, 0)


# -- how much is asked for ---------------------------------------------------------------------------------------------


def test_a_first_request_takes_records_of_256_bytes_and_a_quarter_more() -> None:
    assert cursor(start=0, until=1_000).bytes_wanted(1024 * KIB) == 320_000


@pytest.mark.parametrize(
    ("until", "most", "wanted"), [(1, 1024 * KIB, 64 * KIB), (1_000_000, 1024 * KIB, 1024 * KIB), (1, 1_000, 1_000)]
)
def test_a_request_asks_for_64_kib_at_least_and_for_its_limit_at_most(until: int, most: int, wanted: int) -> None:
    assert cursor(start=0, until=until).bytes_wanted(most) == wanted


def test_the_size_of_the_last_answer_sizes_the_next_requests_of_its_topic_and_of_no_other() -> None:
    made = cursor(start=0, until=1_000)
    made.mark_fetched(100, 200_000)
    assert made.bytes_wanted(10_000 * KIB) == 900 * 2_000 * 5 // 4
    assert cursor(start=0, until=100).bytes_wanted(10_000 * KIB) == 100 * 2_000 * 5 // 4, "the next task of the process"
    other = Cursor.of(FetchRange(OffsetRange(TopicPartition("returns", 0), 0, 1_000), LEADER))
    assert other.bytes_wanted(10_000 * KIB) == 320_000


def test_a_message_known_to_be_larger_is_asked_for_whole_once() -> None:
    made = cursor(start=0, until=10)
    made.min_bytes = 5_000 * KIB
    assert made.bytes_wanted(1024 * KIB) == 5_000 * KIB
    made.mark_fetched(1, 100)
    assert made.bytes_wanted(1024 * KIB) == 64 * KIB


@pytest.mark.parametrize(
    ("planned", "text"),
    [
        (
            Cursor.of(FetchRange(OffsetRange(TopicPartition("orders", 0), 10, 100), None)),
            "orders-0 at offset 10 of [10, 100)",
        ),
        (
            Cursor.of(FetchRange(OffsetRange(TopicPartition("events", 10_002), 30, 90), None), KAFKA07_LOG),
            "events 1-2 at position 30 of [30, 90)",
        ),
    ],
)
def test_messages_name_the_partition_and_the_place_as_its_kafka_does(planned: Cursor, text: str) -> None:
    assert str(planned) == text

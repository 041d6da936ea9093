"""The thread that watches the logs, over a cluster in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamgroup.coordinator.planning import known_logs, log_read_schedule
from streamgroup.coordinator.threads import log_watcher as module
from streamgroup.coordinator.threads.log_watcher import LogWatcher
from streamgroup.errors import BrokerError, DecodeError, ErrorCode, StreamGroupError, TransportError
from streamgroup.model import EARLIEST, LATEST, ClusterSnapshot, LogRange, TopicPartition
from streamgroup.options.types import FetchOptions, Isolation, SourceOptions, Subscription
from tests.fakes.cluster import Logs, logs_of
from tests.unit.coordinator.shells import SOON, client, running, source, until

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))
Start = Callable[..., "Watch"]


class Watch:
    """A watcher that runs, and what it told."""

    def __init__(self, options: SourceOptions) -> None:
        self.snapshots: list[tuple[ClusterSnapshot, frozenset[str]]] = []
        self.failures: list[StreamGroupError] = []
        self.on_metadata: Callable[[], None] = lambda: None
        self.watcher = LogWatcher(options, self._metadata, self.failures.append)

    def _metadata(self, snapshot: ClusterSnapshot, asked: frozenset[str]) -> None:
        self.snapshots.append((snapshot, asked))
        self.on_metadata()

    def follow(self, *topics: str) -> LogWatcher:
        self.watcher.start()
        self.watcher.follow(topics)
        until(lambda: bool(self.snapshots), "metadata")
        return self.watcher


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    made = logs_of([10, 20, 30])
    monkeypatch.setattr(module, "open_cluster", made.of)
    monkeypatch.setattr(log_read_schedule, "RETRY_AFTER_S", 0.01)
    monkeypatch.setattr(log_read_schedule, "EARLIEST_EVERY_S", SOON)
    return made


@pytest.fixture
def watch() -> Iterator[Start]:
    made: list[Watch] = []

    def make(options: SourceOptions | None = None) -> Watch:
        made.append(Watch(options or source()))
        return made[-1]

    yield make
    for each in made:
        each.watcher.stop(SOON)


@pytest.mark.parametrize("often", [{"client": client(metadata_max_age_ms=20)}, {"partition_metadata_cache_ttl_ms": 20}])
def test_under_a_pattern_all_topics_are_looked_at_and_those_of_interest_kept(
    logs: Logs, watch: Start, often: Any
) -> None:
    others = {TopicPartition(name, 0): 1 for name in ("t1", "other", "needed")}
    logs.ends |= others
    watching = watch(source(subscription=Subscription(pattern="^t.*"), **often))
    watcher = watching.follow("needed", "missing")
    snapshot, asked = watching.snapshots[0]
    assert snapshot.topics.keys() == {"t", "t1", "needed"}
    assert asked == {"t", "t1", "needed", "missing"}, "what does not exist was asked for too"
    logs.ends[TopicPartition("t2", 0)] = 1
    until(lambda: "t2" in watcher.snapshot.topics, "a topic that comes to match")


# -- ends -------------------------------------------------------------------------------------------------------------


def test_the_ends_are_those_of_now_and_the_starts_those_of_a_while_ago(logs: Logs, watch: Start) -> None:
    watcher = watch().follow("t")
    logs.starts = {P0: 4}
    assert watcher.ends([P0, P1], SOON) == {P0: LogRange(4, 10), P1: LogRange(0, 20)}
    logs.starts, logs.ends[P0] = {P0: 5}, 11
    assert watcher.ends([P0, P1], SOON) == {P0: LogRange(4, 11), P1: LogRange(0, 20)}
    assert [at for at, _ in logs.listings] == [LATEST, EARLIEST, LATEST]


@pytest.mark.slow
def test_what_was_written_before_a_call_is_in_its_answer_however_short_ago_the_ends_were_listed(
    logs: Logs, watch: Start
) -> None:
    watcher = watch().follow("t")
    for end in range(11, 21):
        logs.ends[P0] = end
        assert watcher.ends([P0], SOON)[P0].latest == end


def test_ends_that_do_not_come_in_time_are_the_last_known_ones(logs: Logs, watch: Start) -> None:
    watcher = watch().follow("t")
    watcher.ends([P0], SOON)
    answering = threading.Event()
    logs.hook = lambda: (answering.wait(SOON), None)[1]
    logs.ends[P0] = 99
    assert watcher.ends([P0, P1], 0.01) == {P0: LogRange(0, 10)}
    answering.set()
    until(lambda: watcher.known([P0, P1]) == {P0: LogRange(0, 99), P1: LogRange(0, 20)}, "both ends")


def test_a_partition_without_a_leader_does_not_hold_up_the_others(
    logs: Logs, watch: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_read_schedule, "LEADERLESS_EVERY_S", 0.01)
    logs.leaderless = {P1}
    watcher = watch().follow("t")
    began = time.monotonic()
    assert watcher.ends([P0, P1, P2], SOON) == {P0: LogRange(0, 10), P2: LogRange(0, 30)}
    assert time.monotonic() - began < SOON / 2
    time.sleep(0.02)
    logs.leaderless = set()
    until(lambda: P1 in watcher.ends([P0, P1, P2], SOON), "the end of the partition that has a leader again")


@pytest.mark.parametrize("isolation", Isolation)
def test_a_slow_leader_does_not_hold_up_the_others_and_what_it_reported_before_stays_known(
    logs: Logs, watch: Start, monkeypatch: pytest.MonkeyPatch, isolation: Isolation, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_read_schedule, "LEADERLESS_EVERY_S", 0.01)
    run = watch(source(fetch=FetchOptions(isolation=isolation)))
    watcher = run.follow("t")
    watcher.ends([P0, P1], SOON)
    logs.slow, logs.ends[P0], logs.ends[P1] = {P1, P2}, 11, 21
    for _ in range(3):
        assert watcher.ends([P0, P1, P2], SOON) == {P0: LogRange(0, 11), P1: LogRange(0, 20)}
    assert [r.message for r in caplog.records if "cannot list" in r.message] == [
        "cannot list the offsets of t-1, t-2: t-1: its leader is late; t-2: its leader is late. "
        "Other partitions are not affected"
    ]
    seen = len(run.snapshots)
    until(lambda: len(run.snapshots) > seen or not watcher.ends([P0, P1], SOON), "a look at who leads them now")
    logs.slow = set()
    until(lambda: watcher.ends([P0, P1, P2], SOON)[P1] == LogRange(0, 21), "it answers again")
    assert watcher.ends([P2], SOON) == {P2: LogRange(0, 30)}


def test_under_read_committed_the_watermark_is_known_beside_the_end(logs: Logs, watch: Start) -> None:
    logs.stable = {P0: 7}
    watcher = watch(source(fetch=FetchOptions(isolation=Isolation.READ_COMMITTED))).follow("t")
    ends = watcher.ends([P0, P1], SOON)
    assert ends == {P0: LogRange(0, 7), P1: LogRange(0, 20)}
    assert watcher.watermarks(ends) == {P0: LogRange(0, 10), P1: LogRange(0, 20)}


def test_the_log_of_a_topic_made_anew_is_another_and_its_leader_believed_when_it_must_have_heard_of_it(
    logs: Logs, watch: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_logs, "SETTLING_S", SOON)
    logs.epochs_listed = {P0: 1, P1: 1, P2: 1}  # the same epoch as before
    run = watch()
    watcher = run.follow("t")
    assert watcher.ends([P0, P1], SOON) == {P0: LogRange(0, 10), P1: LogRange(0, 20)}
    seen, logs.topic_ids = len(run.snapshots), {"t": "another"}
    watcher.refresh_metadata()
    until(lambda: len(run.snapshots) > seen, "the metadata refreshed")
    assert watcher.known([P0, P1]) == {}
    for _ in range(3):
        assert watcher.ends([P0, P1], SOON) == {}  # a leader that is late still tells of the old log
    logs.ends |= {P0: 3, P1: 4}
    watcher._clock = lambda: time.monotonic() + SOON
    until(lambda: watcher.ends([P0, P1], SOON), "it is believed")
    assert watcher.ends([P0, P1], SOON) == {P0: LogRange(0, 3), P1: LogRange(0, 4)}


def test_what_a_question_raises_belongs_to_who_asked(logs: Logs, watch: Start) -> None:
    run = watch()
    watcher = run.follow("t")

    def refuse(cluster: object, deadline: float) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        watcher.ask(refuse, SOON)
    assert watcher.ask(lambda cluster, deadline: 42, SOON) == 42
    assert run.failures == []


def test_a_question_without_an_answer_in_time_is_a_transport_error(logs: Logs, watch: Start) -> None:
    watcher = watch().watcher  # it never starts: nobody answers
    with pytest.raises(TransportError, match=r"did not answer within .* s; they are connected but slow"):
        watcher.ask(lambda cluster, deadline: 42, -0.95)  # of the second more that an answer may take


# -- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [TransportError("down"), BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved")], ids=type
)
def test_what_may_pass_is_tried_again_and_said_once(
    logs: Logs, watch: Start, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    logs.failures = [error] * 3
    run = watch()
    watcher = run.follow("t")
    assert set(watcher.ends([P0], SOON)) == {P0}
    assert run.failures == []
    assert len([r for r in caplog.records if "trying again" in r.message]) == 1


def test_a_broker_error_that_no_retry_mends_fails_the_query(logs: Logs, watch: Start) -> None:
    run = watch()
    watcher = run.follow("t")
    logs.failures = [BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t: its offsets")]
    watcher.ends([P0], SOON)
    until(lambda: bool(run.failures), "told")
    assert "its offsets" in str(run.failures[0])


@pytest.mark.parametrize("error", [ZeroDivisionError("a defect"), DecodeError("not a response")], ids=type)
def test_whatever_else_is_raised_fails_the_query_and_nobody_waits_any_more(
    logs: Logs, watch: Start, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    run = watch()
    watcher = run.follow("t")
    left = []

    def fail() -> None:
        left.append(watcher.post(lambda cluster, deadline: 42, SOON))
        raise error

    logs.hook = fail
    began = time.monotonic()
    assert watcher.ends([P0], SOON) == {}
    until(lambda: bool(run.failures), "told")
    told = run.failures[0]
    assert told is error if isinstance(error, StreamGroupError) else "a defect" in str(told)
    with pytest.raises(TransportError, match="stopping"):
        left[0].result(SOON)
    with pytest.raises(TransportError, match="stopping"):
        watcher.ask(lambda cluster, deadline: 42, SOON)
    assert time.monotonic() - began < SOON / 2
    assert logs.closed == 1


def test_stop_fails_the_questions_that_are_left_and_wakes_who_waits(logs: Logs, watch: Start) -> None:
    watcher = watch().follow("t")
    asked, go = threading.Event(), threading.Event()

    def slow(cluster: object, deadline: float) -> int:
        asked.set()
        assert go.wait(SOON)
        return 1

    answer = watcher.post(slow, SOON)
    left = watcher.post(slow, SOON)
    assert asked.wait(SOON)
    with running(lambda: watcher.ends([P0], SOON)):
        with running(lambda: watcher.stop(SOON)):
            until(lambda: watcher.post(slow, SOON).done(), "stopping")
            go.set()
        assert answer.result(SOON) == 1
        with pytest.raises(TransportError, match="stopping"):
            left.result(SOON)
    assert logs.closed == 1


def test_a_change_in_zookeeper_refreshes_the_metadata(
    monkeypatch: pytest.MonkeyPatch, logs: Logs, watch: Start
) -> None:
    told: list[Callable[[], None]] = []

    def opened(options: object, on_change: Callable[[], None]) -> object:
        told.append(on_change)
        return logs.of(options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "open_cluster", opened)
    watching = watch()
    watching.follow("t")
    before = len(watching.snapshots)
    told[0]()
    until(lambda: len(watching.snapshots) > before, "a new snapshot")


def test_the_time_to_read_the_metadata_paces_its_refreshes(
    logs: Logs, watch: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_read_schedule, "METADATA_EVERY_S", 0.01)
    monkeypatch.setattr(log_read_schedule, "METADATA_REST", 1e9)
    watch().follow("t")
    time.sleep(0.2)
    assert logs.snapshots <= 2, "the first, and that of the first listing"
    monkeypatch.setattr(log_read_schedule, "METADATA_REST", 0)
    watch().follow("t")
    until(lambda: logs.snapshots > 5, "refreshes every 10 ms")


def test_ends_are_the_same_object_until_a_broker_tells_something_else(
    logs: Logs, watch: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_read_schedule, "LISTING_EVERY_S", 0.0)
    monkeypatch.setattr(log_read_schedule, "REST", 0)
    watcher = watch().follow("t")
    held = (P0, P1)
    first, since = watcher.ends(held, SOON), watcher.known_since
    listed = len(logs.listings)
    assert watcher.ends(held, SOON) is first
    assert len(logs.listings) > listed, "the brokers were asked again"
    assert watcher.known_since == since
    logs.ends[P1] = 21
    assert watcher.ends(held, SOON) == {P0: LogRange(0, 10), P1: LogRange(0, 21)}
    assert watcher.known_since[0] is not since[0]
    assert watcher.ends((P1,), SOON) == {P1: LogRange(0, 21)}
    since = watcher.known_since
    watcher.doubt([P0], time.monotonic())
    assert watcher.known_since[0] is not since[0], "what is known is less now"

"""The coordinator as Spark calls it: its real threads, a group and logs in memory."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest

from streamgroup.coordinator.control import claims
from streamgroup.coordinator.coordinator import QuestionAnswerer
from streamgroup.coordinator.log_output import NOTES
from streamgroup.coordinator.planning import loss
from streamgroup.coordinator.planning.document import from_value, to_value
from streamgroup.coordinator.run import interface, lifecycle, spark_calls
from streamgroup.coordinator.threads import assemble
from streamgroup.coordinator.threads import log_watcher as watching
from streamgroup.coordinator.threads.log_watcher import LogWatcher
from streamgroup.errors import BrokerError, ConfigError, DataLossError, ErrorCode, StreamGroupError, TransportError
from streamgroup.group.commits import CommitMetadata
from streamgroup.group.user_data import RunIdentity, decode_identity, encode_identity
from streamgroup.kafka.cluster.requests import ListedOffset
from streamgroup.kafka.net import resolve
from streamgroup.kafka.net.connection_totals import TOTALS
from streamgroup.kafka.wire.consumer import decode_subscription
from streamgroup.kafka.wire.messages.group import FindCoordinatorRequest, JoinGroupRequest
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest
from streamgroup.model import (
    EARLIEST,
    LATEST,
    CommittedOffset,
    Document,
    GroupDescription,
    GroupState,
    LogRange,
    MemberDescription,
    OffsetRange,
    Position,
    TopicPartition,
)
from streamgroup.options.types import FetchOptions, GroupMode, GroupOptions, LimitOptions, SourceOptions
from tests.fakes.cluster import Logs, logs_of
from tests.unit.coordinator.runs import INITIAL, P0, P1, Run, Start, document, ranges, start
from tests.unit.coordinator.shells import SOON, client, running, source, until
from tests.waiting import TIMEOUT_S

__all__ = ["start"]


# -- batches ----------------------------------------------------------------------------------------------------------


def test_a_batch_from_planning_to_its_commit(start: Start) -> None:
    run = start()
    first = run.plan()
    tasks = run.coordinator.partitions(INITIAL, first)
    assert ranges(tasks) == [(0, 0, 10), (1, 0, 10)]
    assert {r.leader.host for task in tasks for r in task.ranges if r.leader} == {"b0", "b1"}
    assert run.committed == {0: 0, 1: 0}, "it has not sunk"
    assert run.latest(first) == first, "nothing is new"
    assert run.committed == {0: 10, 1: 10}
    run.logs.ends[P0] = 12
    second = run.plan(first)
    assert ranges(run.coordinator.partitions(first, second)) == [(0, 10, 12)]
    assert from_value(second).sequence == from_value(first).sequence + 1


def test_partitions_asked_twice_are_answered_the_same_and_those_of_the_constant_are_none(start: Start) -> None:
    run = start()
    assert run.coordinator.partitions(INITIAL, INITIAL) == []
    assert run.logs.closed == run.logs.snapshots == 0, "not even a connection"
    first = run.plan()
    tasks = run.coordinator.partitions(INITIAL, first)
    run.logs.leaderless, run.group.offsets = {P0, P1}, {P0: CommittedOffset(5)}
    assert run.coordinator.partitions(INITIAL, first) == tasks
    assert run.coordinator.partitions(first, first) == []


def test_start_comes_back_byte_for_byte_while_the_group_forms(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_calls, "ASSIGNMENT_TIMEOUT_S", 0.2)
    run = start(hold=JoinGroupRequest)
    foreign = {"t": {"1": 3, "0": 4}}  # a checkpoint of Spark's own connector
    began = time.monotonic()
    answer = run.latest(foreign)
    assert time.monotonic() - began >= 0.2, "the first call waits for the first assignment"
    assert answer == foreign
    assert str(answer) == str(foreign)
    monkeypatch.setattr(spark_calls, "ASSIGNMENT_TIMEOUT_S", SOON)
    monkeypatch.setattr(spark_calls, "COMMIT_TIMEOUT_S", 0.05)
    began = time.monotonic()
    assert run.latest(foreign) == foreign
    assert 0.05 <= time.monotonic() - began < SOON, "the next ones wait for a commit's answer"
    monkeypatch.setattr(spark_calls, "COMMIT_TIMEOUT_S", SOON)
    run.poller.release()
    assert ranges(run.coordinator.partitions(foreign, run.plan(foreign))) == [(0, 4, 10), (1, 3, 10)]


def test_start_comes_back_byte_for_byte_where_nothing_is_new(start: Start) -> None:
    """A checkpoint of Spark's own connector says the same in other words, and Spark would take other words for a
    batch."""
    run = start()
    foreign = {"t": {"1": 10, "0": 10}}
    answers = []

    def has_looked() -> bool:
        answers.append(run.latest(foreign))
        return run.coordinator.report_latest() == {"t": {"0": 10, "1": 10}}

    until(has_looked, "the ends of the logs")
    assert {str(answer) for answer in answers} == {str(foreign)}


def test_nothing_is_planned_where_the_group_rebalances_while_the_ends_are_asked_for(start: Start) -> None:
    """R9: the assignment that stood when the brokers were asked may be called in question when they answer."""
    run = start(source(group=GroupOptions("g", heartbeat_interval_ms=20)))
    first = run.proven()
    run.logs.ends[P0] = 20

    def rebalance() -> None:
        run.logs.hook = None
        run.held.add(JoinGroupRequest)
        with run.poller.changed:
            run.group.gather()
        until(lambda: run.coordinator.status()["state"] == "joining", "rejoining")

    run.logs.hook = rebalance
    assert run.latest(first) == first
    assert run.coordinator.status()["idle"]
    until(lambda: run.coordinator.status()["state"] == "joining", "rejoining")
    run.poller.release()
    assert ranges(run.coordinator.partitions(first, run.plan(first))) == [(0, 10, 20)]


# -- triggers ---------------------------------------------------------------------------------------------------------


def test_once_waits_for_the_group_and_then_says_that_it_did_not_join(start: Start) -> None:
    run = start(source(group=GroupOptions("g", join_timeout_ms=50)), hold=JoinGroupRequest)
    with pytest.raises(TransportError, match=r"no batch could be planned within group\.joinTimeout .* Trigger\.Once"):
        run.latest(once=True)


def test_once_waits_for_the_partitions_that_another_member_has_yet_to_give_up(start: Start) -> None:
    """A cooperative member gives a partition up when its batch has sunk; until then the newcomer holds nothing."""
    options = source(group=GroupOptions("g", heartbeat_interval_ms=20, strategies=("cooperative-sticky",)))
    run = start(options)
    first = run.batch()
    run.logs.ends |= {P0: 20, P1: 20}
    other = start(options, group=run.group, logs=run.logs)
    answers: list[Document] = []
    with running(lambda: answers.append(from_value(other.latest(once=True)))) as once:
        until(lambda: other.coordinator._backend.member.may_plan(time.monotonic()), "the first assignment")
        once.join(0.1)
        assert not answers, "what falls to it is still another's"
        run.latest(first)
    assert [(r.start, r.until) for r in answers[0].ranges] == [(10, 20)]


@pytest.mark.slow
def test_once_waits_for_the_leader_that_is_late(start: Start) -> None:
    """Once is called once: what it does not plan would be left to another run, without a word."""
    logs = logs_of((10, 10))
    logs.slow = {P1}

    def heard() -> None:
        if sum(at == LATEST for at, _ in logs.listings) > 2:
            logs.slow = set()

    logs.hook = heard
    assert len(from_value(start(logs=logs).latest(once=True)).ranges) == 2


def test_a_rebalance_does_not_wait_for_an_empty_document(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark may ask again only at its next trigger, and nothing is in flight."""
    monkeypatch.setattr(spark_calls, "ASSIGNMENT_TIMEOUT_S", 0.05)
    options = source(group=GroupOptions("g", heartbeat_interval_ms=20))
    run = start(options, hold=JoinGroupRequest)
    run.coordinator.prepare_available_now()
    empty = run.latest()
    assert from_value(empty).ranges == ()
    run.poller.release()
    until(lambda: run.coordinator.status()["state"] == "stable", "the first assignment")
    other = start(options, group=run.group, logs=run.logs)
    other.latest()
    until(lambda: [len(r.coordinator.status()["positions"]) for r in (run, other)] == [1, 1], "they share")
    assert not run.coordinator.status()["idle"], "nobody has proven it meanwhile"


@pytest.mark.slow
def test_once_tells_what_no_broker_has_reported(start: Start) -> None:
    logs = logs_of((10, 10))
    logs.slow = {P1}
    short = source(client=client(default_api_timeout_ms=500))
    with pytest.raises(TransportError, match=r"group g: cannot plan t-1 under Trigger\.Once: .* again"):
        start(short, logs=logs).latest(once=True)


# -- what goes wrong --------------------------------------------------------------------------------------------------


def test_servers_whose_names_nobody_knows_end_the_start_and_only_that(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = True

    def look_up(host: str, *_: Any, **__: Any) -> Any:
        if host == "kafka-1" and known:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9092))]
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(resolve, "RESOLVE_TIMEOUT_S", 0.0)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    named = source(client=client(("kafka-1", 9092), ("kafka-2", 9092)))
    run = start(named)
    first = run.batch()
    known = False
    run.logs.ends[P0] = 12
    assert run.plan(first) != first
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers: kafka-\d:9092: .*not known; kafka-\d:9092"):
        start(named).latest()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ZeroDivisionError("a defect"), StreamGroupError),
        (BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t"), BrokerError),
    ],
    ids=["a defect", "a refusal"],
)
def test_what_ends_the_log_watcher_ends_the_query(start: Start, error: Exception, told: type[StreamGroupError]) -> None:
    run = start()
    first = run.proven()
    run.logs.failures = [error]
    with pytest.raises(told):
        run.plan(first)


def test_options_that_do_not_fit_the_brokers_end_the_start_before_the_group_is_joined(start: Start) -> None:
    run = start(source(fetch=FetchOptions(include_inner_index=True)))
    with pytest.raises(ConfigError, match=r"cannot use includeInnerIndex: it is for Kafka 0\.7"):
        run.latest()
    assert run.poller.handles == []


# -- what is told -----------------------------------------------------------------------------------------------------


def test_the_latest_ends_are_reported_in_sparks_own_shape(start: Start) -> None:
    run = start()
    assert run.coordinator.report_latest() is None
    run.plan()
    assert run.coordinator.report_latest() == {"t": {"0": 10, "1": 10}}


@pytest.mark.slow
def test_the_status_counts_retries_at_the_logs_and_at_the_group(start: Start) -> None:
    run = start()
    first = run.batch()
    run.logs.slow = {P0}

    def retries() -> dict[str, int]:
        run.latest(first)
        counts: dict[str, int] = run.coordinator.status()["retries"]
        return counts

    until(lambda: retries()["logs"] > 0, "a listing without the partition")
    assert retries()["group"] == 0
    run.group.refusals.append(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    run.logs.slow = set()
    run.logs.ends[P0] = 12
    second = run.plan(first)
    run.coordinator.partitions(first, second)
    run.latest(second)
    until(lambda: run.coordinator.status()["retries"]["group"] > 0, "a commit that is made again")


def test_notes_about_the_options_are_logged_with_the_group(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "streamgroup")
    NOTES.forget()
    start(source(notes=("maxOffsetsPerTrigger is 5",))).plan()
    assert "g: maxOffsetsPerTrigger is 5" in [record.getMessage() for record in caplog.records]


def test_the_ends_of_logs_are_listed_on_request_while_a_batch_runs(start: Start) -> None:
    run = start()
    run.batch()
    run.logs.ends[P0] = 30
    assert run.coordinator.status()["ends"] == {"t-0": 10, "t-1": 10}, "as of the plan"
    assert run.coordinator.log_ends() == {"ends": {"t": {"0": 30, "1": 10}}}


def test_the_status_names_group_run_lineage_and_positions(start: Start) -> None:
    run = start()
    first = run.batch()
    status = run.coordinator.status()
    trouble = status.pop("trouble")
    assert {kind: counter["count"] for kind, counter in trouble.items() if counter["count"]} == {"rebalance": 1}
    assert trouble["rebalance"]["reason"] == "the query starts"
    assert trouble["fence"]["last"] is None
    assert abs((datetime.now(UTC) - datetime.fromisoformat(trouble["rebalance"]["last"])).total_seconds()) < 60
    rebalances = status.pop("rebalances")
    assert {cause: count for cause, count in rebalances.items() if count} == {"start": 1}
    assert status.pop("without_assignment_s") >= 0
    assert status.pop("in_flight_s") >= 0
    assert status.pop("connections") == TOTALS.status()
    assert status.pop("client") == {"id": "streamgroup", "host": TOTALS.local_host}
    commits = status.pop("commits")
    assert (commits["count"], commits["seconds"] >= 0) == (1, True), "its starting positions"
    assert status == {
        "group": "g",
        "mode": "member",
        "source": "streamgroup[Subscribe[t], group=g, mode=member]",
        "name": "",
        "run": run.coordinator.run,
        "offsets_store": None,
        "lineage": from_value(first).lineage,
        "member": next(iter(run.group.members)),
        "generation": 1,
        "state": "stable",
        "query": {},
        "batches": [],
        "draining": False,
        "stopped": False,
        "idle": False,
        "revoked": 0,
        "awaited": 0,
        "paused": [],
        "paused_whole": False,
        "positions": {"t-0": 0, "t-1": 0},
        "starts": {"t-0": 0, "t-1": 0},
        "ends": {"t-0": 10, "t-1": 10},
        "retries": {"group": 0, "logs": 0},
    }
    assert run.poller.asked(FindCoordinatorRequest) == 1


@pytest.fixture
def logs() -> Logs:
    made = logs_of([10, 20])
    made.starts[P1] = 5
    made.ends[TopicPartition("another", 0)] = 30
    return made


@pytest.fixture
def watcher(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogWatcher]:
    monkeypatch.setattr(watching, "open_cluster", logs.of)
    made = LogWatcher(source(), lambda *_: None, lambda _: None)
    yield made
    made.stop(SOON)


@pytest.fixture
def peers() -> Mock:
    """The group's store, the log checks and the planner."""
    return Mock(targets={P0: 9})


@pytest.fixture
def answerer(watcher: LogWatcher, peers: Mock) -> QuestionAnswerer:
    return QuestionAnswerer(
        source(), watcher=watcher, backend=peers, checks=peers, planner=peers, claim=None, is_stopped=lambda: False
    )


# -- questions of a call ----------------------------------------------------------------------------------------------


def test_of_all_metadata_the_subscribed_topics_are_kept(answerer: QuestionAnswerer, watcher: LogWatcher) -> None:
    watcher.start()
    snapshot: Any = answerer.answer(interface.ReadTopics(None))
    assert snapshot.topics.keys() == {"another", "t"}
    assert watcher.snapshot.topics.keys() == {"t"}


def test_the_store_and_the_log_checks_are_asked_within_the_timeouts_of_the_questions(
    answerer: QuestionAnswerer, peers: Mock
) -> None:
    """Positions are checked up to the targets of AvailableNow."""
    positions, known, limits = ({P0: Position(3)}, {P0: LogRange(0, 10)}, LimitOptions(max_offsets_per_trigger=5))
    wanted = {P1}.__contains__
    assert answerer.answer(interface.FetchCommitted(3.0, wanted)) is peers.committed.return_value
    assert answerer.answer(interface.CheckPositions(positions, known, limits, 2.0)) is None
    assert answerer.post(interface.DescribeGroup(4.0)) is peers.described.return_value
    asked = [call.committed(3.0, wanted), call.ask(positions, known, limits, peers.targets, 2.0), call.described(4.0)]
    assert peers.mock_calls == asked


def test_tasks_read_the_planned_ranges_at_the_leaders_of_now_under_the_planned_topic_id(
    answerer: QuestionAnswerer, watcher: LogWatcher, logs: Logs
) -> None:
    """R8: a replay must not read a topic that was created again under its name."""
    watcher.start()
    logs.topic_ids["t"] = "recreated"
    logs.epochs[P1] = 4
    answerer.answer(interface.ReadTopics(None))
    ranges = (OffsetRange(P0, 2, 6), OffsetRange(P1, 5, 9))
    document = Document("g", "l", "r", 1, ranges, {P0: Position(6, "id"), P1: Position(9, "id")})
    tasks: Any = answerer.answer(interface.MakeFetchTasks(document, ranges))
    located = sorted((r.range, r.topic_id, r.leader.node_id, r.leader_epoch) for task in tasks for r in task.ranges)
    assert located == [(ranges[0], "id", 0, 1), (ranges[1], "id", 1, 4)]
    packed: Any = answerer.answer(interface.MakeFetchTasks(document, ranges, packed_offsets=100))
    assert (len(tasks), len(packed)) == (2, 1)


# -- questions of a background task -----------------------------------------------------------------------------------


def test_offsets_are_listed_without_waiting_for_the_brokers(answerer: QuestionAnswerer, watcher: LogWatcher) -> None:
    future = answerer.post(interface.ListOffsets({P0: LATEST, P1: EARLIEST}, SOON))
    assert not future.done()
    watcher.start()
    assert future.result(SOON) == {P0: ListedOffset(10), P1: ListedOffset(5)}


def test_a_question_of_the_other_kind_is_a_defect_that_is_named(answerer: QuestionAnswerer) -> None:
    with pytest.raises(AssertionError, match="unexpected request of a Spark call: DescribeGroup"):
        answerer.answer(interface.DescribeGroup(1.0))
    with pytest.raises(AssertionError, match="unexpected request of a background task: SnapshotEnds"):
        answerer.post(interface.SnapshotEnds())


# -- brokers whose answers are stale for a moment (R8) ----------------------------------------------------------------


ALONE = pytest.mark.parametrize("mode", [GroupMode.COMMIT, GroupMode.OFF], ids=lambda mode: mode.value)


@pytest.fixture
def believe_after(start: Start, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set after how many seconds a loss is believed. At first that is longer than any stale answer of these tests."""

    def after(seconds: float) -> None:
        monkeypatch.setattr(loss, "BELIEVED_AFTER_S", seconds)

    after(TIMEOUT_S)
    return after


def alone(mode: GroupMode) -> SourceOptions:
    return source(group=GroupOptions("g" if mode is GroupMode.COMMIT else "", mode=mode))


def polled(run: Run, last: dict[str, object], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert run.latest(last) == last


@pytest.mark.slow
@pytest.mark.usefixtures("believe_after")
def test_a_new_leader_whose_high_watermark_lags_behind(start: Start) -> None:
    """Before Kafka 2.2, for up to 500 ms after a clean election (KIP-207). No leader epochs are known there."""
    logs = logs_of([10, 10])
    logs.epochs = dict.fromkeys(logs.ends, -1)
    run = start(logs=logs)
    first = run.proven()
    run.logs.ends[P0] = 8
    threading.Timer(0.1, run.logs.ends.__setitem__, [P0, 10]).start()
    polled(run, first, 0.5)
    run.logs.ends[P0] = 12
    assert run.plan(first) != first


@pytest.mark.slow
@pytest.mark.usefixtures("believe_after")
@ALONE
def test_a_broker_that_does_not_know_the_topic_yet(start: Start, mode: GroupMode) -> None:
    run = start(alone(mode))
    first = run.proven()
    ends = dict(run.logs.ends)
    run.logs.ends.clear()
    threading.Timer(0.1, run.logs.ends.update, [ends]).start()
    run.coordinator._watcher.refresh_metadata()
    polled(run, first, 0.5)


@ALONE
def test_a_topic_that_stays_away_is_lost(start: Start, mode: GroupMode, believe_after: Callable[[float], None]) -> None:
    believe_after(0.1)
    run = start(alone(mode))
    first = run.proven()
    run.logs.ends.clear()
    run.coordinator._watcher.refresh_metadata()
    with pytest.raises(DataLossError, match="t-0: the records from offset 10 on are lost"):
        polled(run, first, TIMEOUT_S)


@ALONE
@pytest.mark.parametrize("back", [True, False], ids=["comes back", "stays away"])
def test_a_partition_of_the_checkpoint_that_the_first_metadata_lacks(
    start: Start, mode: GroupMode, back: bool, believe_after: Callable[[float], None]
) -> None:
    """The first broker asked has just started, and lags behind the controller."""
    logs = logs_of([10, 10])
    run = start(alone(mode), logs=logs)
    gone = {tp: logs.ends.pop(tp) for tp in list(logs.ends) if tp != P0}
    if back:
        threading.Timer(0.1, logs.ends.update, [gone]).start()
        assert run.plan({"t": {"0": 5, "1": 5}})
    else:
        believe_after(0.1)
        with pytest.raises(DataLossError, match="t-1: the records from offset 5 on are lost"):
            run.plan({"t": {"0": 5, "1": 5}})


# -- the control channel: a listener reports sunk batches -------------------------------------------------------------

QUERY = {"id": "q-1", "name": "orders"}
ALL = {0: 10, 1: 10}


def sunk(run: Run, value: dict[str, Any], batch: int | None = 0) -> dict[str, Any]:
    return run.coordinator.sunk(value, batch, QUERY)


def test_a_batch_reported_as_sunk_is_committed_without_another_call_of_spark(start: Start) -> None:
    run = start()
    first = run.batch()
    assert run.committed == {0: 0, 1: 0}
    assert sunk(run, first, 7) == {"proven": True, "why": ""}
    until(lambda: run.committed == ALL, "committed in the background")
    metadata = CommitMetadata.parse(run.group.offsets[P0].metadata)
    assert (metadata.sequence, metadata.batch) == (first["sequence"], 7)
    status = run.coordinator.status()
    assert (status["idle"], status["query"]) == (True, QUERY)


def test_a_skipped_batch_found_out_by_the_listener_fails_the_query_at_its_next_call(start: Start) -> None:
    run = start()
    planned = run.plan()  # its partitions are never asked
    answer = sunk(run, planned)
    assert not answer["proven"]
    assert "the sink skipped a batch" in answer["why"]
    with pytest.raises(ConfigError, match="the sink skipped a batch"):
        run.latest(planned)
    assert run.committed == {0: 0, 1: 0}
    run.coordinator.stop()
    counts = {kind: counter["count"] for kind, counter in run.coordinator.status()["trouble"].items()}
    assert (counts["skip"], counts["repeat"]) == (1, 0), "it was never read: there is nothing to repeat"


def test_a_replay_reported_as_sunk_is_committed(start: Start) -> None:
    run = start()
    logged = to_value(document("other", "id", OffsetRange(P0, 0, 4), OffsetRange(P1, 0, 5)))
    run.coordinator.partitions(INITIAL, logged)
    assert sunk(run, logged)["proven"]
    until(lambda: run.committed == {0: 4, 1: 5}, "committed once its partitions are held")


def test_a_rebalance_that_waits_for_the_batch_goes_on_when_it_is_reported_as_sunk(start: Start) -> None:
    """R21, R22: with a trigger of minutes nobody else would tell."""
    run = start(source(group=GroupOptions("g", heartbeat_interval_ms=20)))
    first = run.batch()
    before = run.poller.asked(JoinGroupRequest)
    with run.poller.changed:
        run.group.gather()  # as if another member had come
    until(lambda: run.coordinator._backend.member.membership.rebalance_wanted, "told by a heartbeat")
    assert run.poller.asked(JoinGroupRequest) == before
    sunk(run, first)
    until(lambda: run.poller.asked(JoinGroupRequest) > before, "rejoined at the boundary")
    assert run.committed == ALL, "and committed first, under the old generation"


@pytest.mark.slow
@pytest.mark.parametrize("announced", [True, False])
def test_the_member_learns_with_each_batch_whether_a_listener_tells_of_it(start: Start, *, announced: bool) -> None:
    run = start()
    run.coordinator.listen(lambda: announced)
    first = run.batch()
    batch = run.coordinator._backend.member.membership._wait.batch  # type: ignore[attr-defined]
    assert batch.listened is announced
    sunk(run, first)
    run.logs.ends[P0] = 12
    run.coordinator.partitions(first, run.plan(first))
    assert batch.listened, "it has told of one"


# -- queries that a coordinator refuses (R28) -------------------------------------------------------------------------


@pytest.mark.slow
def test_a_commit_that_is_not_acknowledged_at_the_end_leaves_a_repeat(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spark_calls, "COMMIT_TIMEOUT_S", 0.05)
    monkeypatch.setattr(lifecycle, "LEAVE_TIMEOUT_S", 0.2)
    run = start()
    first = run.batch()
    run.held.add(OffsetCommitRequest)
    run.latest(first)
    for _ in range(2):
        run.coordinator.stop()
    assert run.coordinator.status()["trouble"]["repeat"]["count"] == 1
    assert "the commit of the last batch was acknowledged: up to 20 offsets may be repeated" in caplog.text


def test_the_claim_is_made_when_the_run_begins_and_given_up_when_it_ends(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "TAKE_TIMEOUT_S", 0.1)
    tmp_path.chmod(0o700)
    home, logs = tmp_path / "1", logs_of((10, 10))
    groups = (GroupOptions("g"), GroupOptions("g"), GroupOptions("g", member="x"), GroupOptions("g", GroupMode.COMMIT))
    one, two, named, no_member = (start(source(group=group), home=home, logs=logs) for group in groups)
    one.plan()
    looked = logs.snapshots
    with pytest.raises(ConfigError, match=f"already a member of this group .run {one.coordinator.run} "):
        two.latest()
    assert (two.poller.handles, logs.snapshots) == ([], looked), "it claims before it connects"
    named.plan()
    no_member.plan()
    two.coordinator.stop()
    one.coordinator.stop()
    start(home=home).plan()


def test_every_strategy_offered_tells_whose_checkpoint_it_is(start: Start) -> None:
    run = start()
    saved = to_value(document("before", "id", OffsetRange(P0, 0, 5), OffsetRange(P1, 0, 5)))
    run.plan(saved)
    (mine,) = run.group.members.values()
    told = {decode_identity(decode_subscription(p.metadata).user_data) for p in mine.protocols}
    assert told == {RunIdentity("lineage", run.coordinator.run)}


def described(*others: RunIdentity) -> GroupDescription:
    members = tuple(
        MemberDescription(f"other-{n}", "copy", "/h", topics=("t",), user_data=encode_identity(other))
        for n, other in enumerate(others)
    )
    return GroupDescription("g", GroupState.STABLE, members=members)


@pytest.mark.slow
def test_beside_a_live_copy_it_plans_nothing_and_fails(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start(source(group=GroupOptions("g", session_timeout_ms=1_000, heartbeat_interval_ms=100)))
    found = described(RunIdentity("lineage", "r", admitted=True))
    monkeypatch.setattr(assemble, "describe_any_group", lambda cluster, name, deadline: found)
    saved = to_value(document("before", "id", OffsetRange(P0, 0, 5), OffsetRange(P1, 0, 5)))
    began = time.monotonic()
    with pytest.raises(ConfigError, match=r"'g'.*client id 'copy' at /h"):
        until(lambda: run.latest(saved) != saved, "planned beside a copy")
    assert time.monotonic() - began >= 1.0

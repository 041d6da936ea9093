"""Modes and triggers, as Spark calls a query: `commit`, `off` and `member`; patterns; how much is worth a batch.

AvailableNow and Once judge every position before they end, and neither end early nor run for ever.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from streamgroup.coordinator.planning import loss
from streamgroup.coordinator.planning.document import from_value, to_value
from streamgroup.coordinator.run import spark_calls
from streamgroup.errors import ConfigError, DataLossError, DecodeError, TransportError
from streamgroup.group.commits import CommitMetadata
from streamgroup.kafka.wire.messages.cluster import MetadataRequest
from streamgroup.kafka.wire.messages.group import FindCoordinatorRequest, JoinGroupRequest
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from streamgroup.model import (
    EARLIEST,
    INITIAL_DOCUMENT,
    LATEST,
    CommittedOffset,
    ConfiguredOffsets,
    Dialect,
    Document,
    FetchTask,
    OffsetRange,
    Position,
    TopicPartition,
)
from streamgroup.options.types import (
    FetchOptions,
    GroupMode,
    GroupOptions,
    Isolation,
    LimitOptions,
    OffsetsStorage,
    SourceOptions,
    Subscription,
)
from tests.fakes.broker07 import tp
from tests.fakes.cluster import NODES, Logs, logs_of
from tests.fakes.group_coordinator import ScriptedCoordinator
from tests.unit.coordinator.runs import INITIAL, P0, P1, Run, Start, document, ranges, start
from tests.unit.coordinator.shells import client, running, source, until

__all__ = ["start"]

OFF = GroupOptions("", GroupMode.OFF)
COMMIT = GroupOptions("g", GroupMode.COMMIT, join_timeout_ms=300)
EMPTY = Document("", "lineage", "before", 1)
"""The first log line of AvailableNow where the starting offsets take longer than a second (R10)."""


def off(starting: int = EARLIEST, **others: Any) -> SourceOptions:
    return source(starting, **{"group": OFF, **others})


def commit(starting: int = EARLIEST, **others: Any) -> SourceOptions:
    return source(starting, **{"group": COMMIT, **others})


def checkpoint(**positions: int) -> dict[str, Any]:
    """`checkpoint(p0=5)`: a document of an earlier run without a batch in flight."""
    held = {TopicPartition("t", int(name[1:])): Position(offset, "id", 1) for name, offset in positions.items()}
    return to_value(Document("", "lineage", "before", 3, positions=held))


def positions(value: dict[str, Any]) -> dict[int, int]:
    return {tp.partition: p.offset for tp, p in from_value(value).positions.items()}


def lines(caplog: pytest.LogCaptureFixture, what: str) -> list[str]:
    return [r.getMessage() for r in caplog.records if what in r.getMessage()]


# -- off --------------------------------------------------------------------------------------------------------------


def test_off_reads_everything_and_asks_no_group_for_anything(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    run = start(off())
    first = run.plan()
    assert ranges(run.coordinator.partitions(INITIAL, first)) == [(0, 0, 10), (1, 0, 10)]
    assert run.latest(first) == first
    run.logs.ends[P1] = 12
    second = run.plan(first)
    assert ranges(run.coordinator.partitions(first, second)) == [(1, 10, 12)]
    run.coordinator.stop()
    assert run.poller.sent == run.poller.handles == []
    assert run.committed == {}
    assert lines(caplog, "reads") == ["reads 2 partitions of t, commits nothing"]
    assert from_value(second).group == ""


def test_off_documents_where_latest_was_before_anything_has_come(start: Start) -> None:
    """R6: the next start would find another latest."""
    run = start(off(LATEST))
    first = run.plan()
    assert (from_value(first).ranges, positions(first)) == ((), {0: 10, 1: 10})
    assert run.coordinator.partitions(INITIAL, first) == []
    assert run.latest(first) == first, "once"
    run.coordinator.stop()
    again = start(off(LATEST), logs=logs_of([15, 10]))
    assert ranges(again.coordinator.partitions(first, again.plan(first))) == [(0, 10, 15)]


def test_off_replays_batch_0_and_goes_on_behind_it(start: Start) -> None:
    """Spark asks with the constant as start, and `latest` is elsewhere by now."""
    first = start(off(LATEST), logs=logs_of([10, 10]))
    placed = first.plan()
    first.logs.ends[P0] = 14
    batch = Document(
        "", from_value(placed).lineage, "before", 1, (OffsetRange(P0, 10, 14),), {P0: Position(14), P1: Position(10)}
    )
    again = start(off(LATEST), logs=logs_of([20, 20]))
    assert ranges(again.coordinator.partitions(INITIAL, to_value(batch))) == [(0, 10, 14)]
    following = again.plan(to_value(batch))
    assert ranges(again.coordinator.partitions(to_value(batch), following)) == [(0, 14, 20), (1, 10, 20)]


@pytest.mark.parametrize("strict", [True, False])
def test_off_tells_of_what_the_checkpoint_knows_and_the_cluster_does_not(
    start: Start, strict: bool, caplog: pytest.LogCaptureFixture
) -> None:
    run = start(off(fail_on_data_loss=strict))
    saved = checkpoint(p0=5, p1=5, p7=3)
    if strict:
        with pytest.raises(DataLossError, match=r"t-7.*deleted"):
            run.latest(saved)
    else:
        planned = run.plan(saved)
        assert positions(planned) == {0: 10, 1: 10}
        assert "t-7" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("strict", [True, False])
def test_off_tells_of_a_topic_that_is_deleted_while_it_reads(
    start: Start, strict: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = logs_of([10])
    logs.ends[TopicPartition("u", 0)] = 4
    options = off(
        subscription=Subscription(pattern="^(t|u)$"), fail_on_data_loss=strict, client=client(metadata_max_age_ms=50)
    )
    run = start(options, logs=logs)
    first = run.batch()
    run.latest(first)
    there = logs.topics
    monkeypatch.setattr(logs, "topics", lambda wanted: {n: t for n, t in there(wanted).items() if n != "u"})
    logs.ends[P0] = 20
    if strict:
        with pytest.raises(DataLossError, match=r"u-0.*deleted"):  # noqa: PT012
            planned = run.batch(first)
            until(lambda: run.latest(planned) is None, "the loss is told")
        return
    planned = run.batch(first)
    until(lambda: run.latest(planned) == planned and len(run.coordinator.status()["positions"]) == 1, "it is let go")
    assert "u-0" in caplog.text


# -- commit -----------------------------------------------------------------------------------------------------------


def test_commit_commits_what_has_sunk_without_joining(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    run = start(commit(LATEST))
    until(lambda: run.latest() == INITIAL and bool(run.committed), "R6")
    assert run.committed == {0: 10, 1: 10}
    run.logs.ends[P0] = 14
    first = run.batch()
    assert run.committed == {0: 10, 1: 10}
    run.latest(first)
    assert run.committed == {0: 14, 1: 10}
    assert run.poller.asked(JoinGroupRequest) == 0
    assert {(member, generation) for member, generation, _ in run.group.commits} == {("", -1)}
    assert lines(caplog, "reads") == ["reads 2 partitions of t, commits to group g without joining"]
    assert run.coordinator.status()["mode"] == "commit"


def test_commit_goes_on_at_its_checkpoint_where_a_crash_has_prevented_the_commit(start: Start) -> None:
    own = CommitMetadata("lineage", "before", 2, 2, -1, "id").text()
    group = ScriptedCoordinator(offsets={P0: CommittedOffset(2, own), P1: CommittedOffset(5, own)})
    run = start(commit(), group=group)
    saved = checkpoint(p0=5, p1=5)
    assert ranges(run.coordinator.partitions(saved, run.plan(saved))) == [(0, 5, 10), (1, 5, 10)]


def test_commit_follows_an_operators_reset(start: Start) -> None:
    group = ScriptedCoordinator(offsets={P0: CommittedOffset(2), P1: CommittedOffset(8)})
    run = start(commit(), group=group)
    saved = checkpoint(p0=5, p1=5)
    assert ranges(run.coordinator.partitions(saved, run.plan(saved))) == [(0, 2, 10), (1, 8, 10)]


def test_commit_replays_a_batch_whole_whatever_a_copy_of_it_has_committed(start: Start) -> None:
    own = CommitMetadata("lineage", "copy", 9, 9, -1, "id").text()
    group = ScriptedCoordinator(offsets={P0: CommittedOffset(9, own), P1: CommittedOffset(4)})
    run = start(commit(), group=group)
    held = {P0: Position(8, "id", 1), P1: Position(8, "id", 1)}
    batch = Document("g", "lineage", "before", 4, (OffsetRange(P0, 5, 8), OffsetRange(P1, 2, 8)), held)
    tasks = run.coordinator.partitions(checkpoint(p0=5, p1=2), to_value(batch))
    assert ranges(tasks) == [(0, 5, 8), (1, 4, 8)], "what others have committed is an operator's reset"


# -- commit, where brokers keep the commits in ZooKeeper --------------------------------------------------------------


def test_commits_in_zookeeper_go_through_any_broker_and_need_no_coordinator(start: Start) -> None:
    run = start(commit_in_zookeeper(LATEST))
    until(lambda: run.latest() == INITIAL and bool(run.committed), "R6")
    assert run.committed == {0: 10, 1: 10}
    run.logs.ends[P0] = 14
    run.latest(run.batch())
    assert run.committed == {0: 14, 1: 10}
    assert run.poller.asked(FindCoordinatorRequest) == 0
    sent = [s for s in run.poller.sent if isinstance(s.request, OffsetCommitRequest | OffsetFetchRequest)]
    assert {s.version for s in sent} == {0}


def test_commits_in_zookeeper_do_not_tell_a_reset_from_a_commit_of_its_own(start: Start) -> None:
    """There is no place for metadata: the checkpoint goes first, a reset counts for a query without one."""
    reset = {P0: CommittedOffset(2), P1: CommittedOffset(8)}
    run = start(commit_in_zookeeper(), group=ScriptedCoordinator(offsets=dict(reset)))
    saved = checkpoint(p0=5, p1=5)
    assert ranges(run.coordinator.partitions(saved, run.plan(saved))) == [(0, 5, 10), (1, 5, 10)]
    anew = start(commit_in_zookeeper(), group=ScriptedCoordinator(offsets=dict(reset)))
    assert ranges(anew.coordinator.partitions(INITIAL, anew.plan())) == [(0, 2, 10), (1, 8, 10)]


def test_a_broker_that_has_just_started_is_not_believed_that_nothing_is_committed(start: Start) -> None:
    """Else the query would begin at its end, and miss what the group has not read."""
    group = ScriptedCoordinator(
        offsets={P0: CommittedOffset(2), P1: CommittedOffset(8)}, knows_topics=False, starting=2
    )
    run = start(commit_in_zookeeper(LATEST), group=group)
    assert ranges(run.coordinator.partitions(INITIAL, run.plan())) == [(0, 2, 10), (1, 8, 10)]
    assert run.poller.asked(MetadataRequest) >= 1


def test_what_is_gone_is_reported_with_where_the_group_is_set(start: Start) -> None:
    run = start(commit_in_zookeeper())
    run.logs.starts = {P0: 7}
    with pytest.raises(DataLossError, match=r"t-0: up to 2 records[\s\S]*ZooKeeper's nodes /consumers/g/offsets"):
        run.plan(checkpoint(p0=5, p1=5))


def commit_in_zookeeper(starting: int = EARLIEST) -> SourceOptions:
    return commit(starting, group=replace(COMMIT, offsets_storage=OffsetsStorage.ZOOKEEPER))


def members(run: Run, *names: str) -> None:
    with run.poller.changed:
        run.group.group.members = dict.fromkeys(names)  # type: ignore[arg-type]


@pytest.mark.slow
def test_commit_reads_nothing_while_the_group_has_members_and_goes_on_when_they_have_left(
    start: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_calls, "COMMIT_TIMEOUT_S", 0.05)
    patient = GroupOptions("g", GroupMode.COMMIT, join_timeout_ms=60_000)
    run = start(source(EARLIEST, group=patient))
    first = run.batch()
    members(run, "m")
    run.logs.ends[P0] = 20
    assert run.latest(first) == first
    until(lambda: bool(lines(caplog, "group g: the group coordinator rejected a commit")), "it is told")
    members(run)
    assert ranges(run.coordinator.partitions(first, run.plan(first))) == [(0, 10, 20)]
    assert run.committed == {0: 10, 1: 10}
    assert len(lines(caplog, "the group has members and this query is not a member")) == 1


@pytest.mark.slow
def test_commit_fails_where_the_members_stay(start: Start) -> None:
    run = start(commit())
    members(run, "m")
    with pytest.raises(
        ConfigError,
        match=r"commit to group g: the group has members.*group\.mode=member.*group\.mode=off.*--bootstrap-server, or",
    ):
        until(lambda: run.latest() is None, "it fails")
    assert run.committed == {}


# -- from one mode to another -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("before", [OFF, COMMIT, GroupOptions("g")], ids=["off", "commit", "member"])
@pytest.mark.parametrize("after", [OFF, COMMIT, GroupOptions("g")], ids=["off", "commit", "member"])
def test_a_checkpoint_may_be_taken_from_one_mode_to_another(
    start: Start, before: GroupOptions, after: GroupOptions
) -> None:
    group, logs = ScriptedCoordinator(), logs_of([10, 10])
    first = start(source(EARLIEST, group=before), group=group, logs=logs)
    batch = first.batch()
    first.latest(batch)
    first.coordinator.stop()
    logs.ends |= {P0: 15, P1: 11}
    second = start(source(LATEST, group=after), group=group, logs=logs)
    assert ranges(second.coordinator.partitions(batch, second.plan(batch))) == [(0, 10, 15), (1, 10, 11)]


@pytest.mark.parametrize("mode", [OFF, COMMIT, GroupOptions("g")], ids=["off", "commit", "member"])
def test_a_restart_from_a_document_that_tells_nothing_begins_at_starting_offsets(
    start: Start, mode: GroupOptions
) -> None:
    options = replace(source(group=mode), starting=ConfiguredOffsets(LATEST, offsets={P0: 7, P1: LATEST}))
    run = start(options)
    first = to_value(EMPTY)
    planned = run.plan(first)
    assert ranges(run.coordinator.partitions(first, planned)) == [(0, 7, 10)]
    assert (planned["lineage"], planned["sequence"]) == ("lineage", 2)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [OFF, COMMIT, GroupOptions("g")], ids=["off", "commit", "member"])
@pytest.mark.parametrize("by", ["Spark's next call", "the listener"])
def test_a_batch_that_sparks_own_connector_planned_is_delivered_once(start: Start, mode: GroupOptions, by: str) -> None:
    """Spark's offset log has positions only: it hands the batch's end back without the ranges that were replayed."""
    run = start(source(LATEST, group=mode), logs=logs_of([4, 10]))
    before, end = {"t": {"0": 2, "1": 9}}, {"t": {"0": 4, "1": 10}}
    assert ranges(run.coordinator.partitions(before, end)) == [(0, 2, 4), (1, 9, 10)]
    if by == "the listener":
        assert run.coordinator.sunk(end, 1, {})["proven"]
    assert run.latest(end) == end, "nothing is new, and nothing is read again"
    run.logs.ends |= {P0: 6}
    planned = run.plan(end)
    assert ranges(run.coordinator.partitions(end, planned)) == [(0, 4, 6)]
    run.latest(planned)
    if mode is not OFF:
        until(lambda: run.committed == {0: 6, 1: 10}, "committed")


# -- assign and patterns ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [OFF, COMMIT], ids=["off", "commit"])
def test_an_assigned_partition_that_does_not_exist_is_read_from_its_beginning_once_it_does(
    start: Start, mode: GroupOptions, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loss, "BELIEVED_AFTER_S", 0.0)
    logs, late = logs_of([3, 10]), TopicPartition("t", 5)
    options = source(
        LATEST, group=mode, subscription=Subscription(assign=(P1, late)), client=client(metadata_max_age_ms=50)
    )
    run = start(options, logs=logs)
    document = run.latest()
    until(lambda: any("do not exist: t-5." in r.message for r in caplog.records), "a warning")
    logs.ends[late] = 4
    while not from_value(document).ranges:
        document = run.plan(document)
    (only,) = from_value(document).ranges
    assert (only.partition, only.start, only.until) == (late, 0, 4)


@pytest.mark.parametrize("mode", [OFF, COMMIT, GroupOptions("g")], ids=["off", "commit", "member"])
def test_a_topic_that_comes_to_match_is_read_from_its_beginning(start: Start, mode: GroupOptions) -> None:
    logs = logs_of([3], "other")
    options = source(
        LATEST, group=mode, subscription=Subscription(pattern="^t.*"), client=client(metadata_max_age_ms=50)
    )
    run = start(options, logs=logs)
    first = run.plan()
    assert from_value(first).is_founded, "there is none so far"
    assert run.coordinator.partitions(INITIAL, first) == []
    assert run.latest(first) == first, "the next run knows"
    logs.ends[TopicPartition("t1", 0)] = 5
    planned = run.plan(first)
    while not from_value(planned).ranges:
        planned = run.plan(planned)
    (only,) = from_value(planned).ranges
    assert (str(only.partition), only.start, only.until) == ("t1-0", 0, 5)


@pytest.mark.parametrize(
    ("mode", "by"),
    [(OFF, "pattern"), (COMMIT, "pattern"), (GroupOptions("g"), "pattern"), (OFF, "assign"), (COMMIT, "assign")],
    ids=["off", "commit", "member", "off, assign", "commit, assign"],
)
@pytest.mark.parametrize("is_logged", [True, False], ids=["after batch 0", "batch 0 is replayed"])
def test_partitions_that_appear_after_a_run_that_found_none_are_read_from_their_beginning(
    start: Start, mode: GroupOptions, by: str, is_logged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPARK-41375: the first run has fixed its initial offsets as those of no partition, whatever startingOffsets."""
    monkeypatch.setattr(loss, "BELIEVED_AFTER_S", 0.0)
    late = TopicPartition("t", 5)
    subscription = Subscription(pattern="^t.*") if by == "pattern" else Subscription(assign=(late,))
    options = source(LATEST, group=mode, subscription=subscription)
    others = {"pattern": logs_of([3], "other"), "assign": logs_of([3], "t")}
    first = start(options, logs=others[by])
    first.coordinator.prepare_available_now()
    document = first.plan()
    assert first.latest(document) == document, "AvailableNow ends after one batch without records"
    first.coordinator.stop()
    others[by].ends[late] = 4
    again = start(options, logs=others[by])
    if not is_logged:
        assert again.coordinator.partitions(INITIAL, document) == []
    planned = again.plan(document)
    assert ranges(again.coordinator.partitions(document, planned)) == [(5, 0, 4)]


# -- limits and triggers ----------------------------------------------------------------------------------------------


def test_a_batch_waits_until_it_is_worth_it_or_the_delay_is_over(start: Start) -> None:
    run = start(off(limits=LimitOptions(min_offsets_per_trigger=5, max_trigger_delay_ms=3_600_000)))
    first = run.batch()
    run.logs.ends[P0] = 14
    assert run.latest(first) == first, "four are too few"
    run.logs.ends[P1] = 11
    second = run.plan(first)
    run.coordinator.partitions(first, second)
    run.logs.ends[P0] = 15
    assert run.latest(second) == second, "one is too few"
    run.coordinator._inbox._clock = lambda: time.monotonic() + 3_600.0
    third = run.plan(second)
    assert ranges(run.coordinator.partitions(second, third)) == [(0, 14, 15)]


def test_a_trigger_that_ends_takes_what_there_is(start: Start) -> None:
    run = start(off(limits=LimitOptions(min_offsets_per_trigger=500)))
    run.coordinator.prepare_available_now()
    first = run.batch()
    assert ranges(run.coordinator.partitions(INITIAL, first)) == [(0, 0, 10), (1, 0, 10)]
    run.logs.ends[P0] = 11
    assert run.latest(first) == first, "the ends of the start count"


def test_available_now_waits_for_a_group_that_never_forms_as_long_as_said(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_calls, "ASSIGNMENT_TIMEOUT_S", 0.01)
    run = start(source(group=GroupOptions("g", join_timeout_ms=3_600_000)), hold=JoinGroupRequest)
    run.coordinator.prepare_available_now()
    first = run.latest()
    second = run.latest(first)
    assert [from_value(document).sequence for document in (first, second)] == [1, 2], "it goes on with empty documents"
    run.coordinator._inbox._clock = lambda: time.monotonic() + 3_600.0
    with pytest.raises(TransportError, match=r"planned within group\.joinTimeout .* Trigger\.AvailableNow"):
        run.latest(second)


@pytest.mark.parametrize("mode", [OFF, COMMIT], ids=["off", "commit"])
def test_once_reads_everything_alone_too(start: Start, mode: GroupOptions) -> None:
    run = start(source(EARLIEST, group=mode))
    assert ranges(run.coordinator.partitions(INITIAL, run.latest(once=True))) == [(0, 0, 10), (1, 0, 10)]
    assert run.coordinator.report_latest() == {"t": {"0": 10, "1": 10}}


# -- AvailableNow judges every position before it ends ----------------------------------------------------------------

MODES = pytest.mark.parametrize("mode", list(GroupMode), ids=lambda mode: mode.value)


def options(mode: GroupMode, **others: Any) -> Any:
    return source(group=GroupOptions("" if mode is GroupMode.OFF else "g", mode=mode), **others)


def committed(*offsets: int) -> ScriptedCoordinator:
    return ScriptedCoordinator(offsets={tp: CommittedOffset(n) for tp, n in zip((P0, P1), offsets, strict=True)})


def batches(run: Run, last: dict[str, Any], most: int = 20) -> list[list[tuple[int, int, int]]]:
    """Run AvailableNow as Spark does, from `last` to its end: what each batch read."""
    run.coordinator.prepare_available_now()
    done = []
    for _ in range(most):
        document = run.latest(last)
        if document == last:
            return done
        done.append(ranges(run.coordinator.partitions(last, document)))
        last = document
    raise AssertionError(f"AvailableNow has not ended after {most} batches: {done}")


def test_it_reads_to_the_ends_that_may_be_read_when_it_begins(start: Start) -> None:
    logs = logs_of([10, 20])
    logs.stable = {P1: 15}
    committed = FetchOptions(isolation=Isolation.READ_COMMITTED)
    assert batches(start(source(fetch=committed), logs=logs), INITIAL) == [[(0, 0, 10), (1, 0, 15)]]


@pytest.mark.slow
@MODES
def test_a_log_that_ends_below_the_position_is_a_loss(start: Start, mode: GroupMode) -> None:
    """The log was emptied and written anew while the query was down: its target is below the position."""
    logs = logs_of([10, 100])
    logs.topic_ids = {}  # as brokers before 2.8, where a topic made anew looks the same
    run = start(options(mode), logs=logs, group=committed(100, 100))
    with pytest.raises(DataLossError, match=r"t-0.*lost from position 100 on"):
        batches(run, {"t": {"0": 100, "1": 100}})


@pytest.mark.slow
@MODES
def test_a_log_that_ends_below_the_position_is_read_without_fail_on_data_loss(start: Start, mode: GroupMode) -> None:
    logs = logs_of([10, 100])
    logs.topic_ids = {}
    run = start(options(mode, fail_on_data_loss=False), logs=logs, group=committed(100, 100))
    assert [batch for batch in batches(run, {"t": {"0": 100, "1": 100}}) if batch] == [[(0, 0, 10)]]


@pytest.mark.slow
def test_a_leader_lost_after_the_snapshot_ends_the_query_by_name(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_calls, "ASSIGNMENT_TIMEOUT_S", 0.2)
    run = start(source(client=client(default_api_timeout_ms=500)), group=committed(0, 0))
    run.coordinator.prepare_available_now()
    run.logs.leaderless = {P1}
    run.coordinator._watcher.refresh_metadata()
    documents = [INITIAL]

    def poll() -> None:
        until = time.monotonic() + 5
        while time.monotonic() < until:
            documents.append(run.latest(documents[-1]))
            assert documents[-1] != documents[-2], "it must not end as if all were read"
            run.coordinator.partitions(*documents[-2:])

    with pytest.raises(
        TransportError, match=r"cannot plan t-1 under Trigger\.AvailableNow: for .* s no broker has returned"
    ):
        poll()
    batches_read = [from_value(document) for document in documents]
    assert sum(not document.ranges for document in batches_read) <= 6, "each empty batch takes its time"
    assert batches_read[-1].positions[P0].offset == 10, "what has a leader is read"


U0 = TopicPartition("u", 0)


def lagging(start: Start, mode: GroupMode, **others: Any) -> Run:
    """Two topics, of which the first metadata after the run's beginning lacks one. AvailableNow is prepared."""
    logs = logs_of([10])
    logs.ends[U0] = 10
    group = ScriptedCoordinator(offsets={P0: CommittedOffset(0), U0: CommittedOffset(7)})
    run = start(options(mode, topics=("t", "u"), **others), logs=logs, group=group)
    run.coordinator.prepare_available_now()
    del logs.ends[U0]
    run.coordinator._watcher.refresh_metadata()
    until(lambda: "u" not in run.coordinator._watcher.snapshot.topics, "metadata without the topic")
    return run


def read_all(run: Run, last: dict[str, Any]) -> list[tuple[str, int, int]]:
    read: list[tuple[str, int, int]] = []
    while (document := run.latest(last)) != last:
        tasks = run.coordinator.partitions(last, document)
        read += [(str(r.range.partition), r.range.start, r.range.until) for task in tasks for r in task.ranges]
        last = document
    return sorted(read)


CHECKPOINT = {"t": {"0": 0}, "u": {"0": 7}}


@pytest.mark.slow
@MODES
def test_a_topic_that_a_lagging_broker_leaves_out_for_a_moment_is_read(
    start: Start, mode: GroupMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss, "BELIEVED_AFTER_S", 5.0)
    run = lagging(start, mode)
    threading.Timer(0.3, run.logs.ends.__setitem__, [U0, 10]).start()
    assert read_all(run, CHECKPOINT) == [("t-0", 0, 10), ("u-0", 7, 10)]


@pytest.mark.slow
@MODES
def test_a_topic_that_stays_away_is_deleted(start: Start, mode: GroupMode, caplog: pytest.LogCaptureFixture) -> None:
    run = lagging(start, mode, fail_on_data_loss=False)
    assert read_all(run, CHECKPOINT) == [("t-0", 0, 10)]
    assert "u-0 existed when the query began and were deleted" in caplog.text


def test_the_position_of_a_topic_that_a_lagging_broker_leaves_out_is_carried_if_no_group_keeps_it(start: Start) -> None:
    run = lagging(start, GroupMode.OFF)
    first = run.latest(CHECKPOINT)
    assert from_value(first).positions[U0].offset == 7


# -- a broker of Kafka 0.7 that is away: no run ends with success without its partitions ------------------------------

HERE, AWAY = tp(0, 0), tp(1, 2)
SAVED = to_value(replace(INITIAL_DOCUMENT, positions={HERE: Position(4), AWAY: Position(5)}))


@pytest.mark.parametrize("trigger", ["available", "once"])
def test_a_query_ends_with_an_error_rather_than_without_a_broker(start: Start, trigger: str) -> None:
    off = source(topics=("events",), group=GroupOptions("", mode=GroupMode.OFF))
    query = start(off, logs=Logs(ends={HERE: 10}, segments={HERE: (0, 4)}, dialect=Dialect.KAFKA07))
    told = r"no group: this query has not read events 1-2"
    if trigger == "once":
        with pytest.raises(DataLossError, match=told):
            query.latest(SAVED, once=True)
        return
    query.coordinator.prepare_available_now()
    first = query.batch(SAVED)
    with pytest.raises(DataLossError, match=told):
        query.latest(first)


@pytest.mark.slow
@pytest.mark.parametrize("strict", [True, False])
def test_once_does_not_pass_over_a_broker_that_goes_while_it_is_waited_for(
    strict: bool, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """It was registered when the run began, and hangs; then its session is over."""
    logs = Logs(ends={HERE: 10, AWAY: 10}, segments={HERE: (0, 4), AWAY: (0, 5)}, dialect=Dialect.KAFKA07)
    logs.slow = {AWAY}

    def goes() -> None:
        if len(logs.listings) > 6:
            logs.ends.pop(AWAY, None)

    logs.hook = goes
    options = source(
        client=client(metadata_max_age_ms=50),
        topics=("events",),
        group=GroupOptions("", mode=GroupMode.OFF),
        fail_on_data_loss=strict,
    )
    query = start(options, logs=logs)
    if strict:
        with pytest.raises(DataLossError, match=r"no group: this query has not read events 1-2"):
            query.latest(SAVED, once=True)
        return
    planned = from_value(query.latest(SAVED, once=True))
    assert [range_.partition for range_ in planned.ranges] == [HERE]
    assert caplog.text.count("this query has not read events 1-2") == 1


# -- a batch whose broker is away when its tasks are planned -----------------------------------------------------------

BATCH = document("other", "", OffsetRange(HERE, 0, 4), OffsetRange(AWAY, 0, 5))


def replaying(start: Start, mode: GroupMode = GroupMode.OFF, wait_ms: int = 120_000) -> Run:
    """A run that replays `BATCH`, most of which broker 1 has, which is not registered."""
    options = source(
        client=client(metadata_max_age_ms=20),
        topics=("events",),
        group=GroupOptions("" if mode is GroupMode.OFF else "g", mode=mode),
        fetch=FetchOptions(poll_timeout_ms=wait_ms),
    )
    return start(options, logs=Logs(ends={HERE: 10}, dialect=Dialect.KAFKA07, unregistered={1}))


@pytest.mark.parametrize("log_is_there", [True, False])
@pytest.mark.parametrize("mode", [GroupMode.OFF, GroupMode.MEMBER])
def test_a_replay_waits_until_the_broker_of_its_ranges_is_registered(
    mode: GroupMode, log_is_there: bool, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the broker comes back without the log, its tasks find that out: nobody registers the topic there."""
    query = replaying(start, mode)
    tasks: list[FetchTask] = []
    with running(lambda: tasks.extend(query.coordinator.partitions(INITIAL, to_value(BATCH)))):
        until(lambda: "waiting for broker 1" in caplog.text, "it waits")
        looked = query.logs.snapshots
        until(lambda: query.logs.snapshots > looked + 1, "it has looked again")
        assert not tasks
        if log_is_there:
            query.logs.ends[AWAY] = 10
        query.logs.unregistered.clear()
    planned = {range_.range: range_.leader for task in tasks for range_ in task.ranges}
    assert planned == {OffsetRange(HERE, 0, 4): NODES[0], OffsetRange(AWAY, 0, 5): NODES[1]}
    assert caplog.text.count("waiting for broker 1") == 1


def test_a_replay_whose_broker_stays_away_is_an_error_that_names_it(start: Start) -> None:
    query = replaying(start, wait_ms=50)
    told = r"no group: .*events 1-2 at position 0.*broker 1 did not register .*pollTimeoutMs.*Start the broker"
    with pytest.raises(TransportError, match=told):
        query.coordinator.partitions(INITIAL, to_value(BATCH))


def test_a_replay_waits_for_no_broker_once_the_run_has_failed(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    query = replaying(start)
    raised: list[Exception] = []

    def replay() -> None:
        try:
            query.coordinator.partitions(INITIAL, to_value(BATCH))
        except DecodeError as error:
            raised.append(error)

    with running(replay):
        until(lambda: "waiting for broker 1" in caplog.text, "it waits")
        query.coordinator._fail(DecodeError("fenced"))
    assert raised

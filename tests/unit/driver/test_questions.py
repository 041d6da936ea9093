"""A run's questions are answered by the brokers, by the group's store, or from what the driver knows already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import pytest

from streamgroup.cluster.requests import ListedOffset
from streamgroup.driver.log_output import NOTES
from streamgroup.driver.logs import watcher as watching
from streamgroup.driver.logs.watcher import LogWatcher
from streamgroup.driver.questions import QuestionAnswerer
from streamgroup.errors import ConfigError, TransportError
from streamgroup.model import (
    EARLIEST,
    LATEST,
    CommittedOffset,
    Dialect,
    Document,
    GroupDescription,
    GroupState,
    LogRange,
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
    SourceOptions,
)
from streamgroup.run import interface as ask
from tests.fakes.cluster import Logs, logs_of
from tests.unit.driver.shells import SOON, source

P0, P1, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("another", 0)
TARGETS = {P0: 9}


class Peers:
    """The group's store, the log checks, the planner and the claim: they note the calls, in order."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.targets = TARGETS
        self.thread = self
        self.description: Future[GroupDescription] = Future()

    def take(self, is_over: Callable[[], bool]) -> None:
        self.calls.append(("claim", is_over()))

    def opened(self, dialect: Dialect) -> None:
        self.calls.append(("opened", dialect))

    def start(self) -> None:
        self.calls.append("group's thread started")

    def committed(
        self, timeout: float, wanted: Callable[[TopicPartition], bool]
    ) -> Mapping[TopicPartition, CommittedOffset]:
        self.calls.append(("committed", timeout))
        return {tp: CommittedOffset(7) for tp in (P0, P1) if wanted(tp)}

    def described(self, timeout: float) -> Future[GroupDescription]:
        self.calls.append(("described", timeout))
        return self.description

    def ask(self, *asked: Any) -> None:
        self.calls.append(asked)


class Answerer(QuestionAnswerer):
    """With the watcher that it asks."""

    watcher: LogWatcher


Make = Callable[..., Answerer]


@pytest.fixture
def logs() -> Logs:
    made = logs_of([10, 20])
    made.starts[P1] = 5
    made.ends[OTHER] = 30
    return made


@pytest.fixture
def peers() -> Peers:
    return Peers()


@pytest.fixture
def make(logs: Logs, peers: Peers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setattr(watching, "open_cluster", logs.of)
    NOTES.forget()
    watchers: list[LogWatcher] = []

    def new(options: SourceOptions | None = None, *, is_started: bool = True) -> Answerer:
        options = options or source()
        watcher = LogWatcher(options, lambda *_: None, lambda _: None)
        watchers.append(watcher)
        if is_started:
            watcher.start()
        given: Any = peers
        made = Answerer(
            options,
            watcher=watcher,
            backend=given,
            checks=given,
            planner=given,
            claim=given,
            is_stopped=lambda: False,
        )
        made.watcher = watcher
        return made

    yield new
    for each in watchers:
        each.stop(SOON)


# -- the start of a run ------------------------------------------------------------------------------------------------


def test_a_member_claims_its_name_before_it_connects_and_joins_after_the_brokers_are_known(
    make: Make, peers: Peers
) -> None:
    answerer = make(is_started=False)
    snapshot: Any = answerer.answer(ask.Connect(frozenset({"t"})))
    assert snapshot.topics.keys() == {"t"}
    assert peers.calls == [("claim", False), ("opened", Dialect.KAFKA), "group's thread started"]
    assert answerer.watcher.snapshot == snapshot


@pytest.mark.parametrize("mode", [GroupMode.COMMIT, GroupMode.OFF])
def test_a_query_that_is_not_a_member_claims_no_name(mode: GroupMode, make: Make, peers: Peers) -> None:
    make(source(group=GroupOptions("g", mode=mode)), is_started=False).answer(ask.Connect(None))
    assert peers.calls == [("opened", Dialect.KAFKA), "group's thread started"]


def test_notes_about_the_options_are_logged_with_the_group(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "streamgroup")
    make(source(notes=("maxOffsetsPerTrigger is 5",)), is_started=False).answer(ask.Connect(None))
    assert [record.getMessage() for record in caplog.records] == ["g: maxOffsetsPerTrigger is 5"]


def test_options_that_do_not_fit_the_brokers_end_the_start_before_the_group_is_joined(make: Make, peers: Peers) -> None:
    with pytest.raises(ConfigError, match=r"includeInnerIndex is for Kafka 0\.7"):
        make(source(fetch=FetchOptions(include_inner_index=True)), is_started=False).answer(ask.Connect(None))
    assert peers.calls == [("claim", False)]


def test_brokers_that_do_not_answer_end_the_start_before_the_group_is_joined(
    make: Make, peers: Peers, logs: Logs
) -> None:
    logs.failures += [TransportError("127.0.0.1:9092: Connection refused")]
    with pytest.raises(TransportError, match="Connection refused"):
        make(is_started=False).answer(ask.Connect(None))
    assert peers.calls == [("claim", False)]


# -- questions of a call -----------------------------------------------------------------------------------------------


def test_metadata_of_all_topics_are_kept_for_the_subscribed_ones_only(make: Make) -> None:
    answerer = make()
    snapshot: Any = answerer.answer(ask.ReadMetadata(None))
    assert snapshot.topics.keys() == {"another", "t"}
    assert answerer.watcher.snapshot.topics.keys() == {"t"}


def test_the_ends_of_all_subscribed_partitions_are_those_that_may_be_read(make: Make, logs: Logs) -> None:
    logs.stable[P1] = 15
    assert make().answer(ask.SnapshotEnds()) == {P0: 10, P1: 20}
    committed = source(fetch=FetchOptions(isolation=Isolation.READ_COMMITTED))
    assert make(committed).answer(ask.SnapshotEnds()) == {P0: 10, P1: 15}


def test_the_ends_of_held_partitions_are_listed_anew(make: Make, logs: Logs) -> None:
    answerer = make()
    answerer.answer(ask.ReadMetadata(None))
    assert answerer.answer(ask.ListEnds({P1: Position(7)}, SOON)) == {P1: LogRange(5, 20)}
    logs.ends[P1] = 25
    assert answerer.answer(ask.ListEnds({P1: Position(7)}, SOON)) == {P1: LogRange(5, 25)}


def test_commits_are_fetched_for_the_wanted_partitions_within_the_timeout_of_the_question(
    make: Make, peers: Peers
) -> None:
    answer = make().answer(ask.FetchCommitted(3.0, lambda tp: tp == P1))
    assert (answer, peers.calls) == ({P1: CommittedOffset(7)}, [("committed", 3.0)])


def test_positions_are_checked_up_to_the_targets_of_available_now(make: Make, peers: Peers) -> None:
    positions, known, limits = {P0: Position(3)}, {P0: LogRange(0, 10)}, LimitOptions(max_offsets_per_trigger=5)
    assert make().answer(ask.CheckPositions(positions, known, limits, 2.0)) is None
    assert peers.calls == [(positions, known, limits, TARGETS, 2.0)]


def test_tasks_read_the_planned_ranges_at_the_leaders_of_now_under_the_planned_topic_id(make: Make, logs: Logs) -> None:
    """R8: a replay must not read a topic that was created again under its name."""
    answerer = make()
    logs.topic_ids["t"] = "recreated"
    logs.epochs[P1] = 4
    answerer.answer(ask.ReadMetadata(None))
    ranges = (OffsetRange(P0, 2, 6), OffsetRange(P1, 5, 9))
    document = Document("g", "l", "r", 1, ranges, {P0: Position(6, "id"), P1: Position(9, "id")})
    tasks: Any = answerer.answer(ask.MakeFetchTasks(document, ranges))
    located = sorted((r.range, r.topic_id, r.leader.node_id, r.leader_epoch) for task in tasks for r in task.ranges)
    assert located == [(ranges[0], "id", 0, 1), (ranges[1], "id", 1, 4)]
    packed: Any = answerer.answer(ask.MakeFetchTasks(document, ranges, packed_offsets=100))
    assert (len(tasks), len(packed)) == (2, 1)


# -- questions of a background task ------------------------------------------------------------------------------------


def test_offsets_are_listed_without_waiting_for_the_brokers(make: Make, logs: Logs) -> None:
    answerer = make(is_started=False)
    future = answerer.post(ask.ListOffsets({P0: LATEST, P1: EARLIEST}, SOON))
    assert not future.done()
    answerer.watcher.start()
    assert future.result(SOON) == {P0: ListedOffset(10), P1: ListedOffset(5)}


def test_the_group_is_described_by_its_store(make: Make, peers: Peers) -> None:
    future = make().post(ask.DescribeGroup(4.0))
    assert not future.done()
    peers.description.set_result(GroupDescription("g", GroupState.STABLE))
    assert future.result(0).state == GroupState.STABLE
    assert peers.calls == [("described", 4.0)]


def test_a_question_of_the_other_kind_is_a_defect_that_is_named(make: Make) -> None:
    answerer = make()
    with pytest.raises(AssertionError, match="no call asks DescribeGroup"):
        answerer.answer(ask.DescribeGroup(1.0))
    with pytest.raises(AssertionError, match="no background task asks SnapshotEnds"):
        answerer.post(ask.SnapshotEnds())

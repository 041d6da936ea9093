"""Runs that end while a broker of Kafka 0.7 is away: never with success without its partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from streamgroup.coordinator.run.interface import FetchCommitted, Question, ReadTopics
from streamgroup.coordinator.run.offline_brokers import STREAM_TIMEOUT_S, OfflineBrokers
from streamgroup.errors import DataLossError, DecodeError, TransportError
from streamgroup.model import (
    EARLIEST,
    INITIAL_DOCUMENT,
    ClusterSnapshot,
    CommittedOffset,
    ConfiguredOffsets,
    Dialect,
    Document,
    OffsetRange,
    Position,
    TopicPartition,
)
from streamgroup.options.types import FetchOptions, GroupMode, GroupOptions
from tests.fakes.broker07 import tp
from tests.fakes.cluster import NODES
from tests.unit.coordinator.run.run_shell import Call, config, registered

HERE, AWAY = tp(0, 0), tp(1, 2)
OTHERS = TopicPartition("not subscribed", 10_002)


class Commits:
    """Offset nodes; `error` is raised instead where there is one."""

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets = dict(offsets)
        self.error: Exception | None = None
        self.asked: list[float] = []

    def answer(self, question: Question) -> dict[TopicPartition, CommittedOffset]:
        assert isinstance(question, FetchCommitted)
        self.asked.append(question.timeout)
        if self.error is not None:
            raise self.error
        return {tp: CommittedOffset(offset) for tp, offset in self.offsets.items() if question.wanted(tp)}


class Offline:
    """The offline brokers of one run, whose questions `commits` answer."""

    def __init__(
        self,
        commits: Commits,
        snapshot: Callable[[], ClusterSnapshot] = lambda: registered(HERE),
        *,
        spec: ConfiguredOffsets | None = None,
        **options: Any,
    ) -> None:
        given = config(topics=("events",), **options)
        self.warnings: list[str] = []
        self.commits = commits
        self.snapshot = snapshot
        self.on_read: Callable[[], None] = lambda: None
        """The metadata from the next reading on."""
        self.offline = OfflineBrokers(
            given if spec is None else replace(given, starting=spec), snapshot, self.warnings.append
        )

    def answer(self, question: Question) -> object:
        if isinstance(question, ReadTopics):
            self.on_read()
            return self.snapshot()
        return self.commits.answer(question)

    def prepare(self) -> Offline:
        """AvailableNow, before its targets are taken."""
        assert Call(self.offline.prepare(), answer=self.answer).is_over
        return self

    def begin(self) -> Offline:
        """AvailableNow, up to its first plan: its targets are those of the broker that is there."""
        self.prepare().find(INITIAL_DOCUMENT, {HERE: 9}, once=False)
        return self

    def find(self, checkpoint: Document, targets: Mapping[TopicPartition, int] | None, *, once: bool) -> None:
        if targets is not None:
            self.offline.compare(checkpoint, targets)
        else:
            assert Call(self.offline.find(checkpoint, once=once), answer=self.answer).is_over

    def check_end(self, checkpoint: Document, targets: Mapping[TopicPartition, int] | None) -> None:
        assert Call(self.offline.check_end(checkpoint, targets), answer=self.answer).is_over


def checkpoint(positions: Mapping[TopicPartition, int]) -> Document:
    return replace(INITIAL_DOCUMENT, positions={tp: Position(offset) for tp, offset in positions.items()})


KNOWN = [
    ({HERE: 5, AWAY: 5, OTHERS: 5}, {}, {}),
    ({}, {HERE: 5, AWAY: 5, OTHERS: 5}, {}),
    ({}, {}, {"spec": ConfiguredOffsets(EARLIEST, offsets={HERE: 0, AWAY: 5, OTHERS: 0})}),
    ({}, {}, {"spec": ConfiguredOffsets(EARLIEST, timestamps={HERE: 0, AWAY: 5, OTHERS: 0})}),
]
TOLD = (
    r"group 'g': this query has not read events 1-2: .*Start the broker and run the query again.*"
    r"failOnDataLoss=false"
)


@pytest.mark.parametrize(("offsets", "positions", "others"), KNOWN)
def test_what_is_known_is_not_left_out_by_a_run_that_ends_without_an_error_or_a_warning(
    offsets: dict[TopicPartition, int], positions: dict[TopicPartition, int], others: dict[str, Any]
) -> None:
    once = Offline(Commits(offsets), **others)
    with pytest.raises(DataLossError, match=TOLD):
        once.find(checkpoint(positions), None, once=True)
    available = Offline(Commits(offsets), **others)
    available.prepare()
    available.find(checkpoint(positions), {HERE: 9}, once=False)
    with pytest.raises(DataLossError, match=TOLD):
        available.check_end(checkpoint({HERE: 9}), {HERE: 9})
    lenient = Offline(Commits(offsets), fail_on_data_loss=False, **others)
    lenient.prepare()
    lenient.find(checkpoint(positions), {HERE: 9}, once=False)
    lenient.check_end(checkpoint({HERE: 9}), {HERE: 9})
    (said,) = lenient.warnings
    assert "has not read events 1-2" in said
    assert "skips the records, since failOnDataLoss=false" in said


def test_once_reads_the_metadata_again_before_it_takes_a_broker_for_offline() -> None:
    """The topic grew after the metadata was read, and the member has committed its start there already."""
    there = [HERE]
    once = Offline(Commits({HERE: 5, AWAY: 0}), lambda: registered(*there))
    once.on_read = lambda: there.append(AWAY)
    once.find(INITIAL_DOCUMENT, None, once=True)
    assert once.offline.left_out() == frozenset()
    assert once.warnings == []


def test_a_stream_says_once_what_it_waits_for() -> None:
    commits = Commits({HERE: 5, AWAY: 5})
    stream = Offline(commits)
    for error in (TransportError("slow"), None, None):
        commits.error = error
        stream.find(INITIAL_DOCUMENT, None, once=False)
        stream.check_end(INITIAL_DOCUMENT, None)
    assert stream.warnings == [
        "group 'g': cannot read events 1-2 yet: no broker has registered them in ZooKeeper. The query reads the other "
        "partitions meanwhile, and these once their brokers have started. Start those brokers"
    ]
    assert commits.asked == [STREAM_TIMEOUT_S] * 2


def test_garbage_in_an_offset_node_stops_no_stream_but_a_run_that_would_end() -> None:
    commits = Commits({})
    commits.error = DecodeError("/consumers/g/offsets/other/1-2 should hold a number")
    stream, once = Offline(commits), Offline(commits)
    for _ in range(3):
        stream.find(INITIAL_DOCUMENT, None, once=False)
    assert len(commits.asked) == 1
    with pytest.raises(DecodeError):
        once.find(INITIAL_DOCUMENT, None, once=True)


@pytest.mark.parametrize(("read", "whole"), [(None, False), (299, False), (300, True)])
def test_a_broker_that_goes_while_the_run_reads_it(read: int | None, whole: bool) -> None:
    """The run itself has read it, or another member, whose commit shows it."""
    for commits, positions in (
        (Commits({AWAY: read} if read else {}), {}),
        (Commits({}), {AWAY: read} if read else {}),
    ):
        there = [HERE, AWAY]
        available = Offline(commits, lambda there=there: registered(*there))  # type: ignore[misc]
        targets = {HERE: 9, AWAY: 300}
        available.prepare()
        available.find(INITIAL_DOCUMENT, targets, once=False)
        available.check_end(checkpoint({HERE: 9}), targets)
        there.remove(AWAY)
        if whole:
            available.check_end(checkpoint(positions), targets)
        else:
            with pytest.raises(DataLossError, match=TOLD):
                available.check_end(checkpoint(positions), targets)


def test_what_comes_back_while_the_run_reads_has_no_target_and_is_not_read() -> None:
    there = [HERE]
    available = Offline(Commits({AWAY: 5}), lambda: registered(*there)).begin()
    there.append(AWAY)
    with pytest.raises(DataLossError, match=TOLD):
        available.check_end(INITIAL_DOCUMENT, {HERE: 9})


def test_what_others_commit_in_a_topic_that_grows_is_no_reason() -> None:
    commits = Commits({HERE: 5})
    available = Offline(commits, lambda: registered(HERE, AWAY)).begin()
    commits.offsets[AWAY] = 5
    available.check_end(INITIAL_DOCUMENT, {HERE: 9})


def test_what_the_run_itself_commits_of_a_topic_that_grows_is_no_reason() -> None:
    """The first assignment brings a partition whose broker registered after the targets were taken."""
    commits = Commits({HERE: 5})
    available = Offline(commits, lambda: registered(HERE, AWAY)).prepare()
    commits.offsets[AWAY] = 0
    available.find(INITIAL_DOCUMENT, {HERE: 9}, once=False)
    assert len(commits.asked) == 1
    available.check_end(INITIAL_DOCUMENT, {HERE: 9})


def test_the_runs_own_documents_do_not_say_what_was_known_when_it_began() -> None:
    """An empty document has the position of a partition whose broker registered after the targets were taken."""
    available = Offline(Commits({HERE: 5}), lambda: registered(HERE, AWAY)).begin()
    available.find(checkpoint({HERE: 5, AWAY: 0}), {HERE: 9}, once=False)
    available.check_end(checkpoint({HERE: 9, AWAY: 0}), {HERE: 9})


def test_partitions_of_later_brokers_do_not_come_and_go() -> None:
    commits = Commits({HERE: 5, AWAY: 5})
    for once in (True, False):
        later = Offline(commits, lambda: registered(HERE, dialect=Dialect.KAFKA))
        later.prepare()
        later.find(INITIAL_DOCUMENT, None if once else {HERE: 9}, once=once)
        later.check_end(INITIAL_DOCUMENT, {HERE: 9})
    assert commits.asked == []


@pytest.mark.parametrize("strict", [True, False])
def test_once_does_not_pass_over_a_broker_that_goes_after_it_was_found(strict: bool) -> None:
    there = [HERE, AWAY]
    once = Offline(Commits({AWAY: 5}), lambda: registered(*there), fail_on_data_loss=strict)
    once.find(checkpoint({HERE: 4}), None, once=True)
    assert once.offline.left_out({HERE}) == frozenset()
    there.remove(AWAY)
    if strict:
        with pytest.raises(DataLossError, match=TOLD):
            once.offline.left_out()
        return
    assert [once.offline.left_out() for _ in range(2)] == [{AWAY}, {AWAY}]
    assert len(once.warnings) == 1


def test_available_now_waits_for_no_answer_about_a_broker_that_is_away() -> None:
    """`check_end` decides about its partitions."""
    available = Offline(Commits({AWAY: 5})).begin()
    assert available.offline.left_out({HERE, AWAY}) == {AWAY}
    assert available.warnings == []


# -- a batch whose broker is away when its tasks are planned ----------------------------------------------------------

BATCH = (OffsetRange(HERE, 0, 4), OffsetRange(AWAY, 0, 5))
WAIT_S = 120.0


class Brokers:
    """The brokers that are registered, and the wait of a batch for those that it needs."""

    def __init__(self, group: GroupOptions | None = None) -> None:
        self.away = {1}
        self.is_over = False
        options = {"group": group, "fetch": FetchOptions(poll_timeout_ms=int(WAIT_S * 1000))}
        self.offline = Offline(Commits({}), self.snapshot, **options)

    def snapshot(self) -> ClusterSnapshot:
        there = {node: broker for node, broker in NODES.items() if node not in self.away}
        return replace(registered(HERE), brokers=there)

    def wait(self) -> Call:
        return Call(self.offline.offline.wait_for_brokers(BATCH, lambda: self.is_over))


def test_a_batch_waits_until_the_brokers_of_its_ranges_are_registered() -> None:
    brokers = Brokers()
    wait = brokers.wait()
    assert not wait.is_over
    assert wait.wake_at == WAIT_S
    assert brokers.offline.warnings == [
        "group 'g': waiting for broker 1 to register in ZooKeeper, to read events 1-2 at position 0, 120 s "
        "(kafkaConsumer.pollTimeoutMs) at most"
    ]
    brokers.away.clear()
    assert wait.at(1.0).is_over


def test_a_batch_waits_for_no_broker_that_is_registered_and_for_none_once_the_run_has_failed() -> None:
    brokers = Brokers()
    wait = brokers.wait()
    brokers.is_over = True
    assert wait.at(1.0).is_over
    brokers = Brokers()
    brokers.away.clear()
    assert brokers.wait().is_over
    assert brokers.offline.warnings == []


def test_a_batch_whose_broker_stays_away_is_an_error_that_names_it() -> None:
    wait = Brokers(GroupOptions("", mode=GroupMode.OFF)).wait()
    told = r"no group: .*events 1-2 at position 0.*broker 1 did not register .*pollTimeoutMs.*Start the broker"
    with pytest.raises(TransportError, match=told):
        wait.at(WAIT_S)

"""Runs that end while a broker of Kafka 0.7 is away: never with success without its partitions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from streamgroup.driver.offline_brokers import OfflineBrokers

from streamgroup.errors import DataLossError, DecodeError, TransportError
from streamgroup.model import (
    EARLIEST,
    INITIAL_DOCUMENT,
    ClusterSnapshot,
    CommittedOffset,
    Dialect,
    Document,
    FetchTask,
    OffsetRange,
    OffsetSpec,
    PartitionInfo,
    Position,
    TopicInfo,
    TopicPartition,
)
from streamgroup.options.types import FetchOptions, GroupOptions, Mode
from streamgroup.planning.document import from_value, to_value
from tests.unit.broker07 import tp
from tests.unit.driver.runs import INITIAL, Run, Start, document, start
from tests.unit.driver.shells import NODES, Logs, client, running, source, until

__all__ = ["start"]

HERE, AWAY = tp(0, 0), tp(1, 2)
OTHERS = TopicPartition("not subscribed", 10_002)


class FakeBackend:
    """Offset nodes; `error` is raised instead where there is one."""

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets = dict(offsets)
        self.error: Exception | None = None
        self.asked = 0

    def committed(
        self, timeout: float, wanted: Callable[[TopicPartition], bool]
    ) -> dict[TopicPartition, CommittedOffset]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return {tp: CommittedOffset(offset) for tp, offset in self.offsets.items() if wanted(tp)}


def registered(*partitions: TopicPartition, dialect: Dialect = Dialect.KAFKA07) -> ClusterSnapshot:
    infos = tuple(PartitionInfo(each.partition, 0) for each in partitions)
    return ClusterSnapshot(NODES, {"events": TopicInfo("events", infos)}, dialect=dialect)


def checkpoint(positions: Mapping[TopicPartition, int]) -> Document:
    return replace(INITIAL_DOCUMENT, positions={tp: Position(offset) for tp, offset in positions.items()})


def run(
    backend: FakeBackend, snapshot: Callable[[], ClusterSnapshot] = lambda: registered(HERE), **others: Any
) -> OfflineBrokers:
    options = replace(source(topics=("events",)), **others)
    return OfflineBrokers(options, backend, snapshot, 1.0)  # type: ignore[arg-type]


KNOWN = [
    ({HERE: 5, AWAY: 5, OTHERS: 5}, {}, {}),
    ({}, {HERE: 5, AWAY: 5, OTHERS: 5}, {}),
    ({}, {}, {"starting": OffsetSpec(EARLIEST, offsets={HERE: 0, AWAY: 5, OTHERS: 0})}),
    ({}, {}, {"starting": OffsetSpec(EARLIEST, timestamps={HERE: 0, AWAY: 5, OTHERS: 0})}),
]
TOLD = r"group 'g': this run has not read events 1-2: .*Start the broker and run again.*failOnDataLoss=false"


@pytest.mark.parametrize(("offsets", "positions", "others"), KNOWN)
def test_what_is_known_is_not_left_out_by_a_run_that_ends(
    offsets: dict[TopicPartition, int], positions: dict[TopicPartition, int], others: dict[str, Any]
) -> None:
    once = run(FakeBackend(offsets), **others)
    with pytest.raises(DataLossError, match=TOLD):
        once.begin(checkpoint(positions), None, once=True)
    available = run(FakeBackend(offsets), **others)
    available.begin(checkpoint(positions), {HERE: 9}, once=False)
    with pytest.raises(DataLossError, match=TOLD):
        available.end(checkpoint({HERE: 9}), {HERE: 9})


@pytest.mark.parametrize(("offsets", "positions", "others"), KNOWN)
def test_without_fail_on_data_loss_it_is_left_out_with_a_warning(
    offsets: dict[TopicPartition, int],
    positions: dict[TopicPartition, int],
    others: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    lenient = run(FakeBackend(offsets), fail_on_data_loss=False, **others)
    lenient.begin(checkpoint(positions), {HERE: 9}, once=False)
    lenient.end(checkpoint({HERE: 9}), {HERE: 9})
    (said,) = caplog.messages
    assert "has not read events 1-2" in said
    assert "left out, since failOnDataLoss=false" in said


def test_a_stream_says_once_what_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    backend = FakeBackend({HERE: 5, AWAY: 5})
    stream = run(backend)
    for error in (TransportError("slow"), None, None):
        backend.error = error
        stream.begin(INITIAL_DOCUMENT, None, once=False)
        stream.end(INITIAL_DOCUMENT, None)
    assert [r.message for r in caplog.records if r.levelno == logging.WARNING] == [
        "group 'g': not registered are the brokers of events 1-2: the others are read, and these once their brokers "
        "are back"
    ]
    assert backend.asked == 2


def test_garbage_in_an_offset_node_stops_no_stream_but_a_run_that_would_end() -> None:
    backend = FakeBackend({})
    backend.error = DecodeError("/consumers/g/offsets/other/1-2 should hold a number")
    stream, once = run(backend), run(backend)
    for _ in range(3):
        stream.begin(INITIAL_DOCUMENT, None, once=False)
    assert backend.asked == 1
    with pytest.raises(DecodeError):
        once.begin(INITIAL_DOCUMENT, None, once=True)


@pytest.mark.parametrize(("read", "whole"), [(None, False), (299, False), (300, True)])
def test_a_broker_that_goes_while_the_run_reads_it(read: int | None, whole: bool) -> None:
    """Whoever has read it: the run itself, or another member, whose commit tells."""
    for backend, positions in (
        (FakeBackend({AWAY: read} if read else {}), {}),
        (FakeBackend({}), {AWAY: read} if read else {}),
    ):
        there = [HERE, AWAY]
        available = run(backend, lambda there=there: registered(*there))  # type: ignore[misc]
        targets = {HERE: 9, AWAY: 300}
        available.begin(INITIAL_DOCUMENT, targets, once=False)
        available.end(checkpoint({HERE: 9}), targets)
        there.remove(AWAY)
        if whole:
            available.end(checkpoint(positions), targets)
        else:
            with pytest.raises(DataLossError, match=TOLD):
                available.end(checkpoint(positions), targets)


def test_what_comes_back_while_the_run_reads_has_no_target_and_is_not_read() -> None:
    there = [HERE]
    available = run(FakeBackend({AWAY: 5}), lambda: registered(*there))
    available.begin(INITIAL_DOCUMENT, {HERE: 9}, once=False)
    there.append(AWAY)
    with pytest.raises(DataLossError, match=TOLD):
        available.end(INITIAL_DOCUMENT, {HERE: 9})


def test_what_others_commit_in_a_topic_that_grows_is_no_reason() -> None:
    backend = FakeBackend({HERE: 5})
    available = run(backend, lambda: registered(HERE, AWAY))
    available.begin(INITIAL_DOCUMENT, {HERE: 9}, once=False)
    backend.offsets[AWAY] = 5
    available.end(INITIAL_DOCUMENT, {HERE: 9})


def test_partitions_of_later_brokers_do_not_come_and_go() -> None:
    backend = FakeBackend({HERE: 5, AWAY: 5})
    for once in (True, False):
        later = run(backend, lambda: registered(HERE, dialect=Dialect.KAFKA))
        later.begin(INITIAL_DOCUMENT, {HERE: 9}, once=once)
        later.end(INITIAL_DOCUMENT, {HERE: 9})
    assert backend.asked == 0


@pytest.mark.parametrize("trigger", ["available", "once"])
def test_a_query_ends_with_an_error_rather_than_without_a_broker(start: Start, trigger: str) -> None:
    off = source(topics=("events",), group=GroupOptions("", mode=Mode.OFF))
    query = start(off, logs=Logs(ends={HERE: 10}, segments={HERE: (0, 4)}, dialect=Dialect.KAFKA07))
    document = to_value(checkpoint({HERE: 4, AWAY: 5}))
    told = r"no group: this run has not read events 1-2"
    if trigger == "once":
        with pytest.raises(DataLossError, match=told):
            query.latest(document, once=True)
        return
    query.coordinator.prepare_available_now()
    first = query.batch(document)
    with pytest.raises(DataLossError, match=told):
        query.latest(first)


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
        group=GroupOptions("", mode=Mode.OFF),
        fail_on_data_loss=strict,
    )
    query = start(options, logs=logs)
    document = to_value(checkpoint({HERE: 4, AWAY: 5}))
    if strict:
        with pytest.raises(DataLossError, match=r"no group: this run has not read events 1-2"):
            query.latest(document, once=True)
        return
    planned = from_value(query.latest(document, once=True))
    assert [range_.partition for range_ in planned.ranges] == [HERE]
    assert caplog.text.count("this run has not read events 1-2") == 1


# -- a batch whose broker is away when its tasks are planned -----------------------------------------------------------

BATCH = document("other", "", OffsetRange(HERE, 0, 4), OffsetRange(AWAY, 0, 5))


def replaying(start: Start, mode: Mode = Mode.OFF, wait_ms: int = 120_000) -> Run:
    """A run that replays `BATCH`, most of which broker 1 has, which is not registered."""
    options = source(
        client=client(metadata_max_age_ms=20),
        topics=("events",),
        group=GroupOptions("" if mode is Mode.OFF else "g", mode=mode),
        fetch=FetchOptions(poll_timeout_ms=wait_ms),
    )
    return start(options, logs=Logs(ends={HERE: 10}, dialect=Dialect.KAFKA07, unregistered={1}))


@pytest.mark.parametrize("log_is_there", [True, False])
@pytest.mark.parametrize("mode", [Mode.OFF, Mode.MEMBER])
def test_a_replay_waits_until_the_broker_of_its_ranges_is_registered(
    mode: Mode, log_is_there: bool, start: Start, caplog: pytest.LogCaptureFixture
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

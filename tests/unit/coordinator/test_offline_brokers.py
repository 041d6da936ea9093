"""Coordinators whose broker of Kafka 0.7 is away: they never end with success without its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from streamgroup.coordinator.planning.document import from_value, to_value
from streamgroup.errors import DataLossError, DecodeError, TransportError
from streamgroup.model import INITIAL_DOCUMENT, Dialect, Document, FetchTask, OffsetRange, Position, TopicPartition
from streamgroup.options.types import FetchOptions, GroupMode, GroupOptions
from tests.fakes.broker07 import tp
from tests.fakes.cluster import NODES, Logs
from tests.unit.coordinator.runs import INITIAL, Run, Start, document, start
from tests.unit.coordinator.shells import client, running, source, until

__all__ = ["start"]

HERE, AWAY = tp(0, 0), tp(1, 2)


def checkpoint(positions: Mapping[TopicPartition, int]) -> Document:
    return replace(INITIAL_DOCUMENT, positions={tp: Position(offset) for tp, offset in positions.items()})


# -- triggers that end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trigger", ["available", "once"])
def test_a_query_ends_with_an_error_rather_than_without_a_broker(start: Start, trigger: str) -> None:
    off = source(topics=("events",), group=GroupOptions("", mode=GroupMode.OFF))
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

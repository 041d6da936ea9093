"""How many ranges one request is for, whichever protocol it is of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from streamgroup.executor.cursor import Cursor
from streamgroup.executor.fetcher import read
from streamgroup.executor.pipeline import MOST_PARTITIONS, Pipeline
from streamgroup.executor.read_format import Fetched, FetchProtocol, PreparedFetch
from streamgroup.model import NO_TOPIC_ID, UNKNOWN_EPOCH, Dialect, FetchRange, FetchTask, OffsetRange
from streamgroup.net.connection import Connection
from streamgroup.net.protocol import CorrelatedResponse
from streamgroup.options.types import ClientOptions, FetchOptions
from streamgroup.wire.kafka07 import MultiFetchRequest07
from streamgroup.wire.messages.cluster import MetadataRequest
from tests.clock import Clock
from tests.fakes.broker import FakeBroker
from tests.fakes.broker07 import OldBroker, values
from tests.unit.executor.leader import Leader, Log, batch
from tests.unit.executor.lookups import cursor
from tests.unit.executor.test_fetcher import PATIENT, Reading, planned

Start = Callable[..., FakeBroker]
Options = Callable[..., ClientOptions]

COUNT = MOST_PARTITIONS + 30


@pytest.mark.parametrize("release", ["", "0.9", "0.8.0"])
def test_more_ranges_than_a_request_is_for_are_asked_for_in_several(
    release: str, broker: Start, options: Options
) -> None:
    leader = Leader(broker, *(Log([batch(0, 2)]) for _ in range(COUNT)), release=release)
    known = {"topic_id": NO_TOPIC_ID, "leader_epoch": UNKNOWN_EPOCH} if release else {}
    # Before 0.10.1 what is asked for of all of them has to fit into an answer.
    reading = Reading(options, leader, FetchOptions(max_partition_bytes=32 << 20))
    found = reading.batches(*(planned(leader, 0, 2, partition, **known) for partition in range(COUNT)))
    assert [(each["partition"][0].as_py(), each["offset"].to_pylist()) for each in found] == [
        (partition, [0, 1]) for partition in range(COUNT)
    ]
    assert leader.fetches() == [
        [(partition, 0) for partition in range(MOST_PARTITIONS)],
        [(partition, 0) for partition in range(MOST_PARTITIONS, COUNT)],
    ]


def test_those_that_were_left_out_of_a_request_come_first_in_the_next(broker: Start, options: Options) -> None:
    leader = Leader(broker, *(Log([batch(0, 1), batch(1, 1)]) for _ in range(COUNT)))
    one_batch = FetchOptions(max_partition_bytes=1, prefetch=0)
    offsets = Reading(options, leader, one_batch).offsets(*(planned(leader, 0, 2, p) for p in range(COUNT)))
    assert sorted(offsets) == [0] * COUNT + [1] * COUNT
    rest = range(MOST_PARTITIONS, COUNT)
    room = MOST_PARTITIONS - len(rest)
    assert leader.fetches() == [
        [(partition, 0) for partition in range(MOST_PARTITIONS)],
        [*((partition, 0) for partition in rest), *((partition, 1) for partition in range(room))],
        [(partition, 1) for partition in range(room, COUNT)],
    ]


def test_a_multifetch_of_0_7_is_for_no_more_either(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    send = Connection.send

    def counted(self: Connection, request: object, *others: object) -> object:
        if isinstance(request, MultiFetchRequest07):
            asked.append(len(request.fetches))
        return send(self, request, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(Connection, "send", counted)
    leader = OldBroker(tmp_path, partitions=COUNT)
    try:
        places = [leader.produce(partition, *values(1, first=partition)) for partition in range(COUNT)]
        ranges = tuple(FetchRange(OffsetRange(each, 0, leader.end(each)), leader.broker) for each in places)
        found = [
            value
            for each in read(FetchTask(ranges, Dialect.KAFKA07), options(), PATIENT)
            for value in each["value"].to_pylist()
        ]
    finally:
        leader.stop()
    assert found == values(COUNT)
    assert asked == [MOST_PARTITIONS, COUNT - MOST_PARTITIONS]


class Throttled:
    """A connection whose broker throttles the client; it answers at once."""

    throttled_s = 7.0

    def __init__(self) -> None:
        self.deadlines: list[float] = []

    def send(self, *_: object) -> None:
        """Take the request."""

    def receive(self, deadline: float) -> CorrelatedResponse:
        self.deadlines.append(deadline)
        return CorrelatedResponse(0, None, 12, 2.5)

    def arrived(self) -> bool:
        return True


class NothingCame(FetchProtocol):
    timeout_s = 3.0

    def ask(self, wanted: Sequence[Cursor]) -> PreparedFetch:
        return PreparedFetch(list(wanted), MetadataRequest(topics=None))

    def read(self, response: object, asked: Sequence[Cursor]) -> list[Fetched]:
        return []

    def note_no_progress(self, fetched: Fetched, now: float) -> None:
        raise AssertionError


def test_a_request_that_waits_for_its_throttle_time_may_take_that_much_longer() -> None:
    connection = Throttled()
    pipeline = Pipeline(cast("Connection", connection), NothingCame(), [cursor(0)], 1, Clock(100.0))
    assert pipeline.next() == []
    assert connection.deadlines == [110.0]
    assert (pipeline.take_throttled_s(), pipeline.take_throttled_s()) == (2.5, 0.0)

"""Members with `cooperative-sticky` (R25): batches go on while members come and go, and what moves sinks first."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from streamgroup.coordinator.coordinator import Coordinator
from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.fault.harness import Stream, Streams, Writer, check_everything, goes_on
from tests.waiting import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

PARTITIONS = 6
BATCH = 200
COOPERATIVE = {"kafka__partition__assignment__strategy": "cooperative-sticky"}


class Holding(Stream):
    """A query whose batches can be held: read, and not finished."""

    free: threading.Event

    def _execute(self, coordinator: Coordinator) -> None:
        assert self.free.wait(120)
        super()._execute(coordinator)


@pytest.fixture
def streams(kafka4: KafkaServer, make_topic: MakeTopic) -> Streams:
    topic = make_topic(kafka4, PARTITIONS, config={"retention.ms": "-1"})
    return Streams(kafka4, topic, f"group-{topic}")


@pytest.fixture
def writer(streams: Streams) -> Writer:
    return Writer(streams.server, streams.topic, PARTITIONS)


@pytest.fixture
def held(streams: Streams) -> Iterator[Holding]:
    """A member that the test holds in a batch."""
    query = streams.query("held", kind=Holding, **COOPERATIVE)
    assert isinstance(query, Holding)
    query.free = threading.Event()
    query.free.set()
    yield query
    query.free.set()
    query.stop()


def shares(*queries: Stream) -> list[int]:
    """How many partitions each holds, sorted; none where somebody holds another's."""
    held = [query.held for query in queries]
    return sorted(map(len, held)) if len(set().union(*held)) == sum(map(len, held)) else []


def test_nobody_waits_for_the_batch_of_another(streams: Streams, writer: Writer, held: Holding) -> None:
    with writer.writing(), streams.running("other", **COOPERATIVE) as (other,):
        held.start()
        wait_until(lambda: shares(held, other) == [3, 3], "the two share")
        goes_on([held, other], 20)
        batches = len(held.offsets)
        held.free.clear()
        wait_until(lambda: len(held.offsets) > batches, "a batch of it is planned, and held")
        with streams.query("newcomer", **COOPERATIVE) as newcomer:
            # What the other gives up comes at once; what is held in a batch comes when that batch has sunk.
            wait_until(lambda: newcomer.held and other.held, "the newcomer has its part of the other's share")
            goes_on([newcomer, other], 100)
            in_batch = {str(planned.partition) for planned in held.ranges[-1]}
            assert in_batch, "something is held"
            assert in_batch.isdisjoint(newcomer.held | other.held), "no other member owns a partition of the batch"
            held.free.set()
            wait_until(lambda: shares(held, other, newcomer) == [2, 2, 2], "the three share")
            goes_on([held, other, newcomer], 20)
            check_everything(streams, writer, [held, other, newcomer], repeats=0)


def test_members_come_and_go_and_what_they_keep_goes_on(streams: Streams, writer: Writer, repeats: int) -> None:
    with writer.writing(), streams.running("a", "b", "c", "d", "e", **COOPERATIVE) as queries:
        for number in range(repeats):
            query = queries[number % len(queries)]
            goes_on(queries, 20)
            query.stop()  # in the middle of a batch, as it comes
            goes_on([other for other in queries if other is not query], 20)
            query.start()
        wait_until(lambda: shares(*queries) == [1, 1, 1, 1, 2], "all share")
        check_everything(streams, writer, queries, repeats=2 * BATCH * repeats)

"""Members of a group and their fetches over a network that fails: nothing lost, nothing mixed up, nothing piling up."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgroup.executor.pools import POOL
from streamgroup.testing import Direction, End, Fault, KafkaServer, Proxy, Which
from tests.conftest import MakeTopic
from tests.fault.harness import Streams, Writer, check_everything, goes_on
from tests.waiting import wait_until

pytestmark = [pytest.mark.live]

PARTITIONS = 4
BATCH = 200
REQUEST_TIMEOUT_S = 1.5
SESSION_S = 6.0
CONNECTIONS = 5
"""Of one member at rest: three lanes, the watcher's and the fetcher's."""
MIB = 1024 * 1024
SLOW = {"kafka__request__timeout__ms": 5000, "maxOffsetsPerTrigger": 10_000}
"""Where bytes take their time a request must have it too."""
LARGE = 1000
"""Frames of that many bytes are answers to Fetch; smaller ones anything."""


@pytest.fixture
def kafka(one_broker: KafkaServer) -> KafkaServer:
    return one_broker


@pytest.fixture
def proxy(kafka: KafkaServer) -> Iterator[Proxy]:
    """Of the one broker, without faults at the beginning and at the end."""
    yield kafka.proxies[0]
    kafka.proxies[0].heal()
    POOL.clear()


@pytest.fixture
def streams(kafka: KafkaServer, make_topic: MakeTopic) -> Streams:
    topic = make_topic(kafka, PARTITIONS)
    return Streams(kafka, topic, f"group-{topic}")


@pytest.fixture
def writer(streams: Streams) -> Writer:
    return Writer(streams.server, streams.topic, PARTITIONS)


CUTS = [
    (Fault(end=End.RESET), Direction.BOTH),
    (Fault(end=End.FIN), Direction.BOTH),
    (Fault(end=End.RESET, mid_frame=True, min_frame=LARGE), Direction.TO_CLIENT),
    (Fault(end=End.RESET, mid_frame=True), Direction.TO_CLIENT),
    (Fault(end=End.FIN, mid_frame=True), Direction.TO_SERVER),
]
"""Between answers, and in the middle of one, large or small, or of a request."""


@pytest.mark.parametrize("times", [1, pytest.param(8, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_connections_are_cut_again_and_again_under_members_and_fetches(
    *, times: int, repeats: int, proxy: Proxy, streams: Streams, writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    before, cuts = _resident(), CUTS * repeats * times
    with streams.running("a", "b") as queries:
        ended = proxy.ended
        with writer.writing(size=300):
            for fault, direction in cuts:
                reached = proxy.ended
                proxy.set(fault, direction, Which.OPEN)
                wait_until(lambda reached=reached: proxy.ended > reached, "a connection is cut")
                goes_on(queries)
            assert proxy.ended - ended >= len(cuts)
        proxy.heal()
        check_everything(streams, writer, queries)
        wait_until(
            lambda: proxy.open <= CONNECTIONS * len(queries) + 1, f"no more connections than needed: {proxy.open}"
        )
    wait_until(lambda: not _threads(), "no thread of a query is left")
    assert not [record for record in caplog.records if "correlation id" in record.getMessage() and record.exc_info]
    assert "unexpected response from broker" not in caplog.text
    assert _resident() - before < 200 * MIB


@pytest.mark.parametrize("size", [1, *(pytest.param(size, marks=pytest.mark.long) for size in (3, 7))])
def test_every_answer_and_request_comes_in_pieces(size: int, proxy: Proxy, streams: Streams, writer: Writer) -> None:
    proxy.set(Fault(split=size))
    with streams.running("a", **SLOW) as queries:
        writer.send(60 * size, size=100)
        check_everything(streams, writer, queries, repeats=0)


@pytest.mark.parametrize(
    ("direction", "smallest"),
    [(Direction.TO_CLIENT, LARGE), (Direction.TO_CLIENT, 0), (Direction.TO_SERVER, 0)],
    ids=["answer to Fetch", "any answer", "any request"],
)
def test_frames_stall_halfway_for_longer_than_a_request_may_take(
    direction: Direction, smallest: int, proxy: Proxy, streams: Streams, writer: Writer
) -> None:
    with streams.running("a") as queries:
        with writer.writing(size=100):
            goes_on(queries, 20)
            reached = proxy.ended
            proxy.set(Fault(end=End.STALL, mid_frame=True, min_frame=smallest), direction, Which.OPEN)
            wait_until(lambda: proxy.ended > reached, "a frame has stalled")
            # It is never healed: what stalled is given up, and what is asked anew arrives on connections made since.
            goes_on(queries, BATCH * 2)
        check_everything(streams, writer, queries, repeats=BATCH)


def test_an_answer_that_comes_after_its_time_is_not_taken_for_another(
    proxy: Proxy, streams: Streams, writer: Writer
) -> None:
    with streams.running("a") as queries, writer.writing(size=100):
        for _ in range(2):
            goes_on(queries, 20)
            proxy.set(Fault(end=End.STALL), Direction.TO_CLIENT, Which.OPEN)
            time.sleep(REQUEST_TIMEOUT_S * 0.9)  # some requests are given up in that time, some are not
            proxy.heal()
    with streams.running("b") as queries_of_b:
        check_everything(streams, writer, [*queries, *queries_of_b], repeats=BATCH)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(bytes_per_s=125_000),
        Fault(delay_s=0.05),
        pytest.param(Fault(bytes_per_s=125_000, delay_s=0.05, split=500), marks=pytest.mark.long),
    ],
    ids=["1 Mbit/s", "50 ms", "all of it"],
)
def test_a_slow_network_is_a_slow_stream_and_nothing_else(
    fault: Fault, proxy: Proxy, streams: Streams, writer: Writer
) -> None:
    with streams.running("a", **SLOW) as queries:
        generation = streams.generation(queries)
        proxy.set(fault)
        writer.send(1500, size=100)
        check_everything(streams, writer, queries, repeats=0)
        assert streams.generation(queries) == generation, "a heartbeat came too late"


def test_half_open_connections_are_given_up_and_replaced(proxy: Proxy, streams: Streams, writer: Writer) -> None:
    with streams.running("a", "b") as queries:
        generation = streams.generation(queries)
        with writer.writing(size=100):
            goes_on(queries, 20)
            proxy.set(Fault(end=End.HALF_OPEN), which=Which.OPEN)
            goes_on(queries, BATCH)
        check_everything(streams, writer, queries, repeats=2 * BATCH)
        assert streams.generation(queries) == generation, "the sessions outlive a few lost requests"


@pytest.mark.long
@pytest.mark.parametrize("end", [End.HALF_OPEN, End.STALL, End.RESET], ids=["half-open", "stalled", "reset"])
def test_a_network_that_is_gone_for_longer_than_the_session(
    end: End, proxy: Proxy, streams: Streams, writer: Writer
) -> None:
    with streams.running("a", "b") as queries:
        with writer.writing(size=100):
            goes_on(queries, 20)
            proxy.set(Fault(end=end))
            time.sleep(SESSION_S * 1.5)
            assert all(query.slowest_s < 5 for query in queries), "Spark's thread waits for nobody"
            proxy.heal()
            goes_on(queries, BATCH)
        check_everything(streams, writer, queries, repeats=4 * BATCH)


def _resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _threads() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith(("streamgroup-", "query-", "writer"))]

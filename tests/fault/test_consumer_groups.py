"""Groups of the consumer protocol (KIP-848): the faults of a seed, and beside Java's and librdkafka's consumers."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamgroup.testing import KafkaServer
from streamgroup.testing.releases import NEWEST
from tests.conftest import MakeTopic
from tests.fault.applications import SESSION_S, Application, Job, Struck
from tests.fault.conftest import PARTITIONS
from tests.fault.harness import QUICK_GROUPS, Peer, Streams
from tests.fault.jobs_arena import Arena
from tests.fault.jobs_checker import InFlight, in_flight
from tests.fault.pool import Pool
from tests.hooks.named_points import READ
from tests.spark.console_consumer import java_consumer
from tests.spark.support import Load
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.live]

CONSUMER = {"kafka__group__protocol": "consumer"}
FAULTS = 8
"""How many faults befall the members in the run of one seed."""
BROKER = QUICK_GROUPS | {
    "group.consumer.min.session.timeout.ms": int(SESSION_S * 1000),
    "group.consumer.session.timeout.ms": int(SESSION_S * 1000),
}


@pytest.fixture(scope="module", params=[NEWEST, *(pytest.param(v, marks=pytest.mark.long) for v in ("4.0.1", "4.2.1"))])
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
    with KafkaServer(request.param, config=BROKER) as server:
        yield server


@pytest.fixture
def consumers(
    *,
    pool: Pool,
    kafka: KafkaServer,
    make_topic: MakeTopic,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    report: Callable[[str], None],
    send_every_s: float,
) -> Iterator[Arena]:
    """A topic of six partitions of such a broker, and a group that is the test's own."""
    load = Load(kafka, make_topic(kafka, PARTITIONS), PARTITIONS)
    made = Arena(pool, load, request.node.name, tmp_path, report, send_every_s=send_every_s)
    yield made
    made.close()
    pool.reclaim()


class Members:
    """Three queries, each in its own application, and the faults that they run with."""

    def __init__(self, arena: Arena, seed: int) -> None:
        self.struck: list[InFlight] = []
        self.told: list[str] = []
        self._arena = arena
        self._chance = random.Random(seed)
        self._jobs = [arena.job(name, **CONSUMER) for name in ("a", "b", "c")]
        self._in: dict[str, Application] = {}

    def begin(self) -> None:
        for job in self._jobs[:2]:
            self._start(job)
        self.settle()

    def _start(self, job: Job) -> None:
        application = self._arena.take()
        application.start(job)
        self._in[job.name] = application

    def settle(self) -> None:
        """Wait until exactly those that run share the partitions, and each has sunk a batch."""
        self._arena.group.await_shared_by(*self._in)
        for job in self._jobs:
            if job.name in self._in:
                self._in[job.name].await_batches(job, 1)

    def befall(self) -> None:
        """Kill, stop or pause one that runs, or let another one join."""
        running = [job for job in self._jobs if job.name in self._in]
        others = [job for job in self._jobs if job.name not in self._in]
        faults = ["kill", "stop", "pause", "join"] if len(running) > 1 else ["pause", "join"]
        fault = self._chance.choice([fault for fault in faults if others or fault != "join"])
        job = self._chance.choice(others if fault == "join" else running)
        self.told.append(f"{fault} {job.name}")
        time.sleep(self._chance.random())
        if fault == "join":
            self._start(job)
            return
        application = self._in[job.name]
        blow = Struck(READ, fault, time.monotonic())
        if fault == "pause":
            application.signal(signal.SIGSTOP)
            self.struck.append(in_flight(job, blow))
            self._arena.pause_until(blow.at + (0.5 + 2 * self._chance.random()) * SESSION_S)
            application.signal(signal.SIGCONT)
            return
        if fault == "stop":
            application.stop(job)
        else:
            application.kill()
        self.struck.append(in_flight(job, blow))
        del self._in[job.name]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_faults_of_a_seed_lose_nothing(consumers: Arena, seed: int) -> None:
    members = Members(consumers, seed)
    with consumers.under_load():
        members.begin()
        for _ in range(FAULTS):
            members.befall()
            members.settle()
    outcome = consumers.outcome(members.struck)
    consumers.report(f"{', '.join(members.told)}: {outcome}")


@pytest.mark.timeout(300)
def test_two_queries_a_java_and_a_librdkafka_consumer_share_a_group(consumers: Arena, tmp_path: Path) -> None:
    load, group = consumers.load, consumers.group.name
    one, two = (consumers.job(name, group__member=name, **CONSUMER) for name in ("one", "two"))
    application = consumers.take()
    application.start(one)
    application.start(two)
    consumers.group.await_shared_by("one", "two")
    streams = Streams(load.server, load.topic, group)
    with java_consumer(tmp_path, load, group, None) as java, Peer(streams, "consumer") as peer:

        def counts() -> list[int]:
            return sorted(len(holds) for _, holds in consumers.group.holders())

        wait_until(lambda: counts() == [1, 1, 2, 2], "the four share the partitions", 60)
        load.send(300)
        read = lambda: {*consumers.delivered(), *java.values(), *peer.values}  # noqa: E731
        wait_until(lambda: read() == set(load.sent), "together they have read every record", 60)
        assert java.values(), "the Java consumer has read some"
        assert peer.values, "the librdkafka consumer has read some"
        assert peer.error == ""
    consumers.group.await_shared_by("one", "two")
    load.send(60)
    wait_until(lambda: read() == set(load.sent), "the queries have taken over", 60)
    consumers.await_all_committed()

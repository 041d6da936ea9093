"""The producer under cut connections, restarts of brokers and moves of leaders: what is in the logs afterwards."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from streamgroup.errors import StreamGroupError
from streamgroup.executor.write.producer import PRODUCERS
from streamgroup.executor.write.sink_writer import SinkWriter, write
from streamgroup.options.parse import parse_sink
from streamgroup.testing import Direction, End, Fault, KafkaServer
from streamgroup.testing.releases import NEWEST
from tests.conftest import MakeTopic
from tests.fault.conftest import START_S
from tests.fault.cutter import Cut, CutPlan, Cutter, plan_of
from tests.fault.harness import Streams
from tests.fault.operators import elect_preferred, leaders, look, moved, reassign
from tests.read_back import read_back
from tests.waiting import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

PARTITIONS = 6
ROUND = 40
"""Records that the task hands over at once."""
CUTS = 50
CONFIG = {"min.insync.replicas": "2"}
"""Of a topic on three brokers."""
SEED = 12
OPERATION_S = 150.0
SMALL = {
    "kafka.batch.size": "500",
    "kafka.linger.ms": "0",
    "kafka.buffer.memory": "8000",
    "kafka.max.block.ms": "120000",
    "kafka.request.timeout.ms": "10000",
    "kafka.retry.backoff.ms": "20",
    "kafka.retry.backoff.max.ms": "200",
}
"""Batches of a few records, many requests, and at most some 80 records that are not acknowledged: so the faults fall
into the middle of the write."""
IDEMPOTENT = {"kafka.enable.idempotence": "true"}
WITHOUT = {
    "kafka.enable.idempotence": "false",
    "kafka.acks": "all",
    "kafka.max.in.flight.requests.per.connection": "1",
}

Report = Callable[[str], None]
Operation = Callable[[], object]


@pytest.fixture
def kafka(three_brokers: KafkaServer) -> KafkaServer:
    return three_brokers


@pytest.fixture(scope="module")
def old_kafka() -> Iterator[KafkaServer]:
    """One broker of an old version with producer ids."""
    with KafkaServer("1.1.1", proxied=True, start_timeout_s=START_S) as server:
        yield server


@pytest.fixture(autouse=True)
def _fresh_process() -> Iterator[None]:
    yield
    PRODUCERS.clear()


@contextlib.contextmanager
def cutting(server: KafkaServer, plan: CutPlan) -> Iterator[None]:
    """Put a cutter between each proxy and its broker."""
    direct = [proxy.upstream for proxy in server.proxies]
    with contextlib.ExitStack() as stack:
        for proxy, upstream in zip(server.proxies, direct, strict=True):
            assert upstream is not None
            proxy.upstream = stack.enter_context(Cutter(upstream, plan)).address
        try:
            yield
        finally:
            for proxy, upstream in zip(server.proxies, direct, strict=True):
                proxy.upstream = upstream


class Rounds:
    """The rows of the task, in rounds, while the operations are carried out one after the other in another thread.

    Values are `partition/number`, numbered in each partition. The rounds are divided among the operations, and each
    operation begins with its first round. The next one begins when it has ended and its rounds are handed over.
    """

    def __init__(self, records: int, operations: list[Operation], cuts: int) -> None:
        self.records = records
        self.cuts = cuts
        """Connections that are cut meanwhile."""
        self._operations = operations

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        rounds = [range(first, min(first + ROUND, self.records)) for first in range(0, self.records, ROUND)]
        stages = len(self._operations) + 1
        ends = [len(rounds) * (stage + 1) // stages for stage in range(stages)]
        start = ends.pop(0)
        yield from map(self._batch, rounds[:start])
        for operation, end in zip(self._operations, ends, strict=True):
            with _beside(operation):
                yield from map(self._batch, rounds[start:end])
            start = end

    def _batch(self, numbers: range) -> pa.RecordBatch:
        return pa.record_batch(
            {
                "value": pa.array([_value(n) for n in numbers]),
                "partition": pa.array([n % PARTITIONS for n in numbers], pa.int32()),
            }
        )

    def expected(self) -> list[list[bytes]]:
        """The values of each partition, in their order."""
        return [[_value(n) for n in range(p, self.records, PARTITIONS)] for p in range(PARTITIONS)]


def _value(number: int) -> bytes:
    return b"%d/%d" % (number % PARTITIONS, number // PARTITIONS) + b"." * 80


@contextlib.contextmanager
def _beside(operation: Operation) -> Iterator[None]:
    """Carry `operation` out in another thread, and wait for its end at the end of the block."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            operation()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name=f"operation-{operation!r}"[:60])
    thread.start()
    yield
    thread.join(OPERATION_S)
    assert not thread.is_alive(), f"not within {OPERATION_S:.0f} s: {operation}"
    assert not failed, failed


def values_of(server: KafkaServer, topic: str, isolation: str) -> list[list[bytes]]:
    """The values of each partition, in their order."""
    settings = {"bootstrap.servers": server.direct_servers, "isolation.level": isolation, "log_level": 0}
    return [[message.value() for message in messages] for messages in read_back(server, topic, settings=settings)]


def repeated(found: list[list[bytes]]) -> int:
    return sum(count - 1 for values in found for count in Counter(values).values())


def first_ones(values: list[bytes]) -> list[bytes]:
    """The values without their repetitions."""
    return list(dict.fromkeys(values))


def operations_on(kafka: KafkaServer, topic: str, home: Path) -> list[Operation]:
    """Restarts of brokers, clean and by kill -9, and moves of leaders, as long as records are written."""
    streams = Streams(kafka, topic, "unused")
    first, second = kafka.brokers[0], kafka.brokers[1]

    def move() -> None:
        before = look(streams)
        reassign(streams, home, {tp: [(leader + n) % 3 for n in (1, 2, 3)] for tp, leader in leaders(before)})
        elect_preferred(streams)
        wait_until(lambda: moved(streams, before), "every partition has another leader")

    def elect() -> None:
        elect_preferred(streams)

    return [first.stop, first.restart, elect, second.kill, second.restart, elect, move]


@pytest.mark.parametrize("idempotence", ["on", pytest.param("off", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("records", "cuts", "times"),
    [(2_000, CUTS, 1), pytest.param(20_000, 10 * CUTS, 3, marks=[pytest.mark.long, pytest.mark.timeout(1200)])],
)
def test_cuts_restarts_and_moves_of_leaders(
    *,
    records: int,
    cuts: int,
    times: int,
    idempotence: str,
    kafka: KafkaServer,
    make_topic: MakeTopic,
    tmp_path: Path,
    report: Report,
) -> None:
    topic = make_topic(kafka, PARTITIONS, replication=3, config=CONFIG)
    rounds = Rounds(records, operations_on(kafka, topic, tmp_path) * times, cuts)
    check(written_under(kafka, topic, rounds, idempotence, report), rounds, idempotence)


@pytest.mark.long
@pytest.mark.parametrize("idempotence", ["on", "off"])
def test_cuts_and_a_crash_of_the_only_broker_which_is_an_old_one(
    *, idempotence: str, old_kafka: KafkaServer, make_topic: MakeTopic, report: Report
) -> None:
    topic, broker = make_topic(old_kafka, PARTITIONS), old_kafka.brokers[0]

    def crash() -> None:
        broker.kill()
        broker.restart()

    rounds = Rounds(2_000, [crash, broker.restart], CUTS)
    check(written_under(old_kafka, topic, rounds, idempotence, report), rounds, idempotence)


@pytest.fixture
def only_broker(request: pytest.FixtureRequest) -> KafkaServer:
    """The server that the test's parameter names."""
    found: KafkaServer = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize(
    "only_broker",
    [pytest.param("old_kafka", marks=pytest.mark.long, id="1.1.1"), pytest.param("one_broker", id=NEWEST)],
    indirect=True,
)
def test_batches_that_the_only_broker_appends_before_a_crash_and_then_forgets_are_written_once(
    only_broker: KafkaServer, make_topic: MakeTopic
) -> None:
    """The broker appends four batches of each partition, and no answer arrives. It remembers the last one only."""
    rounds = Rounds(3 * ROUND, [], 0)
    topic, broker, proxy = make_topic(only_broker, PARTITIONS), only_broker.brokers[0], only_broker.proxies[0]
    settings = {"topic": topic, **SMALL, **IDEMPOTENT}
    options = parse_sink({"kafka.bootstrap.servers": only_broker.bootstrap_servers, **settings})
    logged = len(broker.log.read_text())

    def logs() -> list[list[bytes]]:
        return values_of(only_broker, topic, "read_uncommitted")

    def crash() -> None:
        wait_until(lambda: logs() == rounds.expected(), "the broker appends all records")
        broker.kill()
        proxy.cut()  # the answers that it holds back are lost
        proxy.heal()
        broker.restart()

    with PRODUCERS.lend((options.client, options.producer)) as producer:
        writer, first, *others = SinkWriter(producer, options), *rounds
        writer.write(first)
        producer.flush()
        proxy.set(Fault(end=End.STALL), Direction.TO_CLIENT)
        with _beside(crash):
            for each in others:
                writer.write(each)
            producer.flush()
    assert logs() == rounds.expected()
    assert "OutOfOrderSequenceException" in broker.log.read_text()[logged:]


def written_under(
    kafka: KafkaServer, topic: str, rounds: Rounds, idempotence: str, report: Report
) -> list[list[bytes]]:
    """Write the rounds while connections are cut as planned, and return what is in the logs."""
    plan = CutPlan(plan_of(SEED, rounds.cuts))
    mode = IDEMPOTENT if idempotence == "on" else WITHOUT
    options = parse_sink({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic, **SMALL, **mode})
    began = time.monotonic()
    with cutting(kafka, plan):
        try:
            written = write(iter(rounds), options)
        except StreamGroupError as error:
            raise AssertionError(f"after {plan.requests} requests and {plan.made} cuts: {error}") from error
    took = time.monotonic() - began
    assert written.records == rounds.records
    assert not plan.left, f"only {plan.made.total()} connections were cut in {plan.requests} requests"
    found = values_of(kafka, topic, "read_uncommitted")
    report(
        f"Kafka {kafka.version}, idempotence {idempotence}: {rounds.records} records in {plan.requests} requests, "
        f"{took:.1f} s; cuts {', '.join(f'{cut.name.lower()} {plan.made[cut]}' for cut in Cut)}; "
        f"repeated {repeated(found)}"
    )
    assert values_of(kafka, topic, "read_committed") == found
    return found


def check(found: list[list[bytes]], rounds: Rounds, idempotence: str) -> None:
    """With idempotence nothing is missing, repeated or out of order. Without it records are repeated, which shows that
    the cuts fall where they hurt; with one request in flight a repetition never comes before its predecessors."""
    if idempotence == "on":
        assert found == rounds.expected()
    else:
        assert repeated(found) > 0
        assert list(map(first_ones, found)) == rounds.expected()

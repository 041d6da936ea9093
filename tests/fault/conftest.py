"""Fixtures of the fault runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.fault.jobs_arena import Arena
from tests.fault.pool import Pool
from tests.spark.support import Load

PARTITIONS = 6
START_S = 120.0
"""How long servers may take to start on a machine that starts others at the same time."""
SHARING = {"test_brokers.py", "test_network.py", "test_producer.py"}
"""The files of a unit of `tests/scheduling.py` that share servers."""
BROKERS = {"min.insync.replicas": 1, "log.retention.check.interval.ms": 500, "auto.leader.rebalance.enable": False}


@pytest.fixture(scope="session")
def repeats() -> int:
    """How often each fault is tried: STREAMGROUP_REPEATS, once in the test command and 20 times in the long run."""
    return int(os.environ.get("STREAMGROUP_REPEATS", "1"))


@pytest.fixture
def send_every_s(repeats: int) -> float:
    """How often records are sent to the jobs of an arena: half as often in the test command."""
    return 1.2 if repeats == 1 else 0.6


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print what was measured, whether or not the test passes."""

    def tell(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {text}", end="", flush=True)

    return tell


class SharedBrokers:
    """Servers behind proxies by the number of their brokers, each started when a test asks for it."""

    def __init__(self) -> None:
        self._servers: dict[int, KafkaServer] = {}
        self._running = ExitStack()

    def of(self, brokers: int) -> KafkaServer:
        if brokers not in self._servers:
            server = KafkaServer(brokers=brokers, config=BROKERS, proxied=True, start_timeout_s=START_S)
            self._servers[brokers] = self._running.enter_context(server)
        return self._servers[brokers]

    def stop(self) -> None:
        self._servers.clear()
        self._running.close()


@pytest.fixture(scope="package")
def _shared_brokers() -> Iterator[SharedBrokers]:
    made = SharedBrokers()
    yield made
    made.stop()


@pytest.fixture(scope="module", autouse=True)
def _stop_shared_brokers(request: pytest.FixtureRequest, _shared_brokers: SharedBrokers) -> None:
    """Stop them before a file that does not use them: brokers without clients take CPU time too."""
    if request.path.name not in SHARING:
        _shared_brokers.stop()


@pytest.fixture
def three_brokers(_shared_brokers: SharedBrokers) -> KafkaServer:
    """Three brokers, which the files in SHARING share."""
    return _shared_brokers.of(3)


@pytest.fixture
def one_broker(_shared_brokers: SharedBrokers) -> KafkaServer:
    """One broker, which the files in SHARING share."""
    return _shared_brokers.of(1)


@pytest.fixture(scope="package")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Applications for all tests of processes."""
    made = Pool(tmp_path_factory.mktemp("applications"))
    yield made
    made.kill()


@pytest.fixture
def arena(
    *,
    pool: Pool,
    kafka4: KafkaServer,
    make_topic: MakeTopic,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    report: Callable[[str], None],
    send_every_s: float,
) -> Iterator[Arena]:
    """A topic of six partitions and a group that is the test's own."""
    load = Load(kafka4, make_topic(kafka4, PARTITIONS), PARTITIONS)
    made = Arena(pool, load, request.node.name, tmp_path, report, send_every_s=send_every_s)
    yield made
    made.close()
    pool.reclaim()

"""Fixtures of the fault runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamgroup.testing import KafkaServer
from tests.conftest import MakeTopic
from tests.fault.jobs_arena import Arena
from tests.fault.pool import Pool
from tests.spark.support import Load

PARTITIONS = 6


@pytest.fixture(scope="session")
def repeats() -> int:
    """How often each fault is tried: STREAMGROUP_REPEATS, once in the test command and 20 times in the long run."""
    return int(os.environ.get("STREAMGROUP_REPEATS", "1"))


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print what was measured, whether or not the test passes."""

    def tell(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {text}", end="", flush=True)

    return tell


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
) -> Iterator[Arena]:
    """A topic of six partitions and a group that is the test's own."""
    load = Load(kafka4, make_topic(kafka4, PARTITIONS), PARTITIONS)
    made = Arena(pool, load, request.node.name, tmp_path, report)
    yield made
    made.close()
    pool.reclaim()

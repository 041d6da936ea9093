"""The server that the live tests share, topics on any server, and the order of the tests."""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import pytest
from hypothesis import settings

from streamgroup.testing import KafkaServer, create_topic
from streamgroup.testing.releases import NEWEST
from tests.scheduling import SharedServersScheduling, alternate
from tests.servers import serves
from tests.waiting import wait_until

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

# Each process that loads numpy starts threads of OpenBLAS, which takes some 90 ms of CPU time: a third of the start of
# one of Spark's Python processes. Nothing here multiplies matrices. Processes of xdist and of Spark inherit it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

LONGEST = {"fault", "sim"}
"""The directories whose tests are started first, since one of them would run alone at the end."""
_ADMIN_TIMEOUT_S = 20

# Every run tries the same cases, so that a failure comes from the change. STREAMGROUP_RANDOM=1 tries others. A case has
# no deadline: a busy machine is slow.
settings.register_profile("repeatable", derandomize=True, deadline=None)
if not os.environ.get("STREAMGROUP_RANDOM"):
    settings.load_profile("repeatable")


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> SharedServersScheduling | None:
    """Have files that share their servers run in one process."""
    return SharedServersScheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let files that start Spark alternate with others. Faults and simulation, which take longest, come first."""
    with_spark = {item.path: item.get_closest_marker("spark") is not None for item in reversed(items)}
    first = [path for path in with_spark if path.parent.name in LONGEST]
    rest = [path for path in with_spark if path.parent.name not in LONGEST]
    computing = sorted(str(path) for path in rest if with_spark[path])
    waiting = sorted(str(path) for path in rest if not with_spark[path])
    order = {path: number for number, path in enumerate([*sorted(map(str, first)), *alternate(computing, waiting)])}
    items.sort(key=lambda item: order[str(item.path)])


def pytest_collection() -> None:
    """Collect no garbage while tests are collected, which takes a sixth of that time and finds next to nothing."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exempt modules and collected tests from later garbage collections, which take a tenth of the unit tests' time."""
    gc.collect()
    gc.freeze()
    gc.enable()


kafka4 = serves(NEWEST, "session")


class MakeTopic(Protocol):
    def __call__(
        self,
        server: KafkaServer,
        partitions: int = 1,
        *,
        replication: int = 1,
        config: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> str: ...


@pytest.fixture(scope="session")
def _topic_numbers() -> Callable[[], int]:
    return itertools.count(1).__next__


@pytest.fixture
def make_topic(request: pytest.FixtureRequest, _topic_numbers: Callable[[], int]) -> MakeTopic:
    """Make a topic of a name that no other test has, wait until every partition has a leader; returns the name."""
    # Only the live tests need it, and the unit tests must start without it.
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415
    from confluent_kafka.cimpl import NewTopic  # noqa: PLC0415

    def make(
        server: KafkaServer,
        partitions: int = 1,
        *,
        replication: int = 1,
        config: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> str:
        topic = name or f"{request.node.originalname.removeprefix('test_')[:60]}-{_topic_numbers()}"
        if server.zookeeper_connect:
            create_topic(server, topic, partitions, replication=replication, config=config)
            return topic
        admin = AdminClient({"bootstrap.servers": server.direct_servers, "log_level": 3})
        new = NewTopic(topic, partitions, replication, config=dict(config or {}))
        admin.create_topics([new], operation_timeout=_ADMIN_TIMEOUT_S)[topic].result(_ADMIN_TIMEOUT_S)
        wait_for_leaders(admin, topic, partitions)
        return topic

    return make


def wait_for_leaders(admin: AdminClient, topic: str, partitions: int) -> None:
    """Creation is answered before the brokers have heard of it."""

    def are_there() -> bool:
        found = admin.list_topics(topic, timeout=_ADMIN_TIMEOUT_S).topics[topic].partitions
        return len(found) == partitions and all(p.leader >= 0 for p in found.values())

    wait_until(are_there, f"leaders of the {partitions} partitions of {topic}", _ADMIN_TIMEOUT_S)

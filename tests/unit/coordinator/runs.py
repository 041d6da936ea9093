"""A coordinator with its real threads, over a group and logs in memory."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamgroup.coordinator.coordinator import Coordinator
from streamgroup.coordinator.planning import loss
from streamgroup.coordinator.planning.document import to_value
from streamgroup.coordinator.run import lifecycle, spark_calls
from streamgroup.coordinator.threads import assemble, group_thread, log_watcher
from streamgroup.group import membership
from streamgroup.model import (
    INITIAL_DOCUMENT,
    Document,
    FetchTask,
    GroupDescription,
    GroupState,
    OffsetRange,
    Position,
    TopicPartition,
)
from streamgroup.options.types import SourceOptions
from tests.fakes.cluster import Logs, logs_of
from tests.fakes.group_coordinator import ScriptedCoordinator
from tests.unit.coordinator.shells import SOON, GroupPoller, source

PATIENCE = {
    spark_calls: ("ASSIGNMENT_TIMEOUT_S", "COMMIT_TIMEOUT_S", "LISTING_TIMEOUT_S"),
    lifecycle: ("LEAVE_TIMEOUT_S", "STOP_TIMEOUT_S"),
}
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
INITIAL = to_value(INITIAL_DOCUMENT)


class Run:
    """A coordinator and the world that it lives in."""

    def __init__(
        self,
        options: SourceOptions,
        group: ScriptedCoordinator,
        logs: Logs,
        held: set[type[Any]],
        home: Path | None = None,
    ) -> None:
        self.group = group
        self.logs = logs
        self.held = held
        self.pollers: list[GroupPoller] = []
        self.limits = options.limits
        self.coordinator = Coordinator(options, random.Random(1), home)

    @property
    def poller(self) -> GroupPoller:
        return self.pollers[-1]

    def latest(self, start: dict[str, Any] = INITIAL, **others: Any) -> dict[str, Any]:
        return self.coordinator.latest_offset(start, **{"limits": self.limits, **others})

    def plan(self, start: dict[str, Any] = INITIAL) -> dict[str, Any]:
        """As Spark does: asks until something is new."""
        deadline = time.monotonic() + SOON
        while (planned := self.latest(start)) == start:
            assert time.monotonic() < deadline, "nothing is new"
        return planned

    def batch(self, start: dict[str, Any] = INITIAL) -> dict[str, Any]:
        planned = self.plan(start)
        self.coordinator.partitions(start, planned)
        return planned

    def proven(self, start: dict[str, Any] = INITIAL) -> dict[str, Any]:
        """Plan and read a batch, which has sunk; nothing is new after it."""
        planned = self.batch(start)
        assert self.latest(planned) == planned
        return planned

    @property
    def committed(self) -> dict[int, int]:
        return {tp.partition: committed.offset for tp, committed in self.group.offsets.items()}


Start = Callable[..., Run]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Make coordinators; a loss that these logs show is believed soon.

    A call waits for its answers however busy the machine is. Where none comes, the test sets how long it waits.
    """
    for module, names in PATIENCE.items():
        for name in names:
            monkeypatch.setattr(module, name, SOON)
    monkeypatch.setattr(membership, "LEAVE_TIMEOUT_MS", int(1000 * SOON))
    monkeypatch.setattr(loss, "BELIEVED_AFTER_S", 0.2)
    monkeypatch.setattr(loss, "LOOK_EVERY_S", 0.05)
    runs: list[Run] = []

    def make(
        options: SourceOptions | None = None,
        *,
        logs: Logs | None = None,
        group: ScriptedCoordinator | None = None,
        hold: type[Any] | None = None,
        home: Path | None = None,
    ) -> Run:
        group, logs, held = group or ScriptedCoordinator(), logs or logs_of([10, 10]), {hold} if hold else set()
        pollers: list[GroupPoller] = []

        def poller(_options: object) -> GroupPoller:
            pollers.append(GroupPoller(group, held))
            return pollers[-1]

        monkeypatch.setattr(group_thread, "Poller", poller)
        monkeypatch.setattr(log_watcher, "open_cluster", logs.of)
        monkeypatch.setattr(assemble, "committed", lambda cluster, name, deadline, in_zookeeper: dict(group.offsets))
        alone = GroupDescription("g", GroupState.STABLE)
        monkeypatch.setattr(assemble, "describe_any_group", lambda cluster, name, deadline: alone)
        run = Run(options or source(), group, logs, held, home)
        run.pollers = pollers
        runs.append(run)
        return run

    yield make
    monkeypatch.setattr(lifecycle, "LEAVE_TIMEOUT_S", 0.2)  # a test may have left it without answers
    for run in runs:
        run.poller.release()
        run.coordinator.stop()


def ranges(tasks: list[FetchTask]) -> list[tuple[int, int, int]]:
    return sorted((r.range.partition.partition, r.range.start, r.range.until) for task in tasks for r in task.ranges)


def document(run: str = "other", topic_id: str = "id", *ranges: OffsetRange) -> Document:
    positions = {r.partition: Position(r.until, topic_id, 1) for r in ranges}
    return Document("g", "lineage", run, 7, ranges, positions)

"""Starting offsets that only the log can tell, asked for until they come or the query ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from streamgroup.driver.logs import watcher as watching
from streamgroup.driver.logs.watcher import LogWatcher
from streamgroup.driver.resolver import Resolver
from streamgroup.errors import DataLossError, StreamGroupError, TransportError
from streamgroup.group.member import Resolve
from streamgroup.group.positions import Origin
from streamgroup.model import EARLIEST, LATEST, TopicPartition
from streamgroup.remediation import OffsetLocation, StoredIn
from streamgroup.run.run_events import Loss
from tests.fakes.cluster import Logs, logs_of
from tests.unit.driver.shells import SOON, source, until

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
FOUNDED = Resolve(4, {P0: Origin.STARTING, P1: Origin.STARTING})


class Asked:
    """A resolver over a watcher that runs, and what it told."""

    def __init__(self, is_new: Callable[[TopicPartition], bool] = lambda tp: False, **options: Any) -> None:
        self.found: list[tuple[int, dict[TopicPartition, int]]] = []
        self.failed: list[tuple[int, StreamGroupError]] = []
        self.on_found: Callable[[], None] = lambda: None
        given = source(LATEST, **options)
        self.watcher = LogWatcher(given, lambda snapshot, asked: None, lambda error: None)
        self.losses: list[tuple[Loss, bool]] = []
        self.resolver = Resolver(
            given,
            OffsetLocation("g", StoredIn.ZOOKEEPER),
            self.watcher,
            lambda losses, failed: self.losses.extend((loss, failed) for loss in losses),
            on_found=self._found,
            on_failed=lambda *told: self.failed.append(told),
            is_new=is_new,
        )
        self.watcher.start()

    def _found(self, generation: int, offsets: dict[TopicPartition, int]) -> None:
        self.found.append((generation, offsets))
        self.on_found()


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    made = logs_of([10, 20])
    monkeypatch.setattr(watching, "open_cluster", made.of)
    return made


@pytest.fixture
def ask(logs: Logs) -> Iterator[Callable[..., Asked]]:
    made: list[Asked] = []

    def make(**options: Any) -> Asked:
        made.append(Asked(**options))
        return made[-1]

    yield make
    for each in made:
        each.watcher.stop(SOON)


def test_what_the_log_tells_is_told_with_the_generation_that_asked(ask: Callable[..., Asked]) -> None:
    asked = ask()
    asked.resolver.resolve(FOUNDED)
    until(lambda: bool(asked.found), "found")
    assert asked.found == [(4, {P0: 10, P1: 20})]


def test_what_came_to_be_after_the_run_began_starts_at_earliest(ask: Callable[..., Asked]) -> None:
    asked = ask(is_new=lambda tp: tp == P1)
    asked.resolver.resolve(FOUNDED)
    until(lambda: bool(asked.found), "found")
    assert asked.found == [(4, {P0: 10, P1: 0})]


def test_losses_that_are_allowed_are_said(ask: Callable[..., Asked], logs: Logs) -> None:
    logs.starts = {P0: 5}
    asked = ask(fail_on_data_loss=False)
    asked.resolver.resolve(Resolve(1, {P0: Origin.EARLIEST}))
    until(lambda: bool(asked.found), "found")
    assert asked.found == [(1, {P0: 5})]
    ((loss, failed),) = asked.losses
    assert "its log starts at 5" in loss.text
    assert (loss.to, loss.count, failed) == (5, 5, False)


def test_losses_that_are_not_allowed_fail_at_once(ask: Callable[..., Asked], logs: Logs) -> None:
    logs.starts = {P0: 5}
    asked = ask()
    asked.resolver.resolve(Resolve(1, {P0: Origin.EARLIEST}))
    until(lambda: bool(asked.failed), "failed")
    assert [(generation, type(error)) for generation, error in asked.failed] == [(1, DataLossError)]
    assert "ZooKeeper's nodes /consumers/g/offsets" in str(asked.failed[0][1])
    assert [failed for _, failed in asked.losses] == [True]
    assert asked.found == []
    assert logs.listings == [(EARLIEST, (P0,))]


@pytest.mark.parametrize(("failures", "retries", "found"), [(2, 2, True), (3, 2, False), (1, 0, False)])
def test_brokers_that_do_not_answer_are_asked_again_as_often_as_said(
    ask: Callable[..., Asked], logs: Logs, failures: int, retries: int, found: bool
) -> None:
    logs.failures = [TransportError("down")] * failures
    asked = ask(fetch_offset_retries=retries)
    asked.resolver.resolve(FOUNDED)
    until(lambda: bool(asked.found or asked.failed), "an answer")
    assert bool(asked.found) is found
    assert logs.failures == []
    assert len(logs.listings) == retries + 1


@pytest.mark.parametrize("where", ["the question", "who hears the answer"])
def test_whatever_else_is_raised_fails_the_query(ask: Callable[..., Asked], logs: Logs, where: str) -> None:
    asked = ask()

    def fail() -> None:
        raise ZeroDivisionError("a defect")

    if where == "the question":
        logs.hook = fail
    else:
        asked.on_found = fail
    asked.resolver.resolve(FOUNDED)
    until(lambda: bool(asked.failed), "failed")
    ((generation, error),) = asked.failed
    assert generation == 4
    assert isinstance(error, StreamGroupError)
    assert "a defect" in str(error)


def test_resolve_returns_at_once(logs: Logs) -> None:
    class Deaf:
        def post(self, question: object, timeout: float) -> Future[Any]:
            return Future()

    told = threading.Event()
    resolver = Resolver(
        source(),
        OffsetLocation("g"),
        Deaf(),  # type: ignore[arg-type]
        lambda losses, failed: told.set(),
        on_found=lambda *a: told.set(),
        on_failed=lambda *a: told.set(),
    )
    resolver.resolve(FOUNDED)
    assert not told.is_set()

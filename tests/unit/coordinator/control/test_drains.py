"""A query with several sources is drained as one: all of its coordinators finish together, and each tells why not."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streamgroup.coordinator.control import channel, drains
from streamgroup.coordinator.control.drains import MOST, drain_together, record_failure, recorded_failures
from streamgroup.errors import TransportError
from streamgroup.monitoring.query_totals import QueryFailure
from tests.unit.coordinator.channels import JVM, FakeCoordinator, home, serve
from tests.unit.coordinator.shells import SOON

__all__ = ["home", "serve"]

pytestmark = pytest.mark.usefixtures("home")
Serve = Callable[..., FakeCoordinator]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drains, "POLL_S", 0.005)


def test_without_coordinators_there_is_nothing_to_wait_for() -> None:
    assert drain_together(JVM, [], 5.0, ends=True) == []


def test_all_coordinators_drain_at_once_and_answer_in_the_order_asked_for(serve: Serve) -> None:
    """One that planned while another waits for its last batch would be drained without that batch."""
    one, two = serve("r1", "l1"), serve("r2", "l2")
    together = threading.Barrier(2)
    for each in (one, two):
        each.while_draining = lambda: together.wait(SOON)
    answers = drain_together(JVM, ["r2", "r1"], 7.0)
    assert [(answer["run"], answer["drained"]) for answer in answers] == [("r2", True), ("r1", True)]
    assert (one.drains, two.drains) == ([7.0], [7.0])
    assert (one.ended, two.ended) == (0, 0)


def test_a_coordinator_that_refuses_or_has_ended_counts_as_not_drained_with_the_reason(serve: Serve) -> None:
    refusing, well = serve("r1", "l1"), serve("r2", "l2")
    refusing.refusal = TransportError("the group moves just now")
    first, gone, last = drain_together(JVM, ["r1", "gone", "r2"], 5.0)
    assert first == {"drained": False, "why": "the group moves just now"}
    assert gone["drained"] is False
    assert f"the coordinator of run gone (driver pid {JVM}) cannot be reached" in gone["why"]
    assert (last["drained"], well.drains) == (True, [5.0])


def test_a_batch_that_has_not_sunk_in_time_is_told_and_the_query_ends_all_the_same(serve: Serve) -> None:
    late, well = serve("r1", "l1"), serve("r2", "l2")
    late.drained, late.why = False, "the time was over"
    answers = drain_together(JVM, ["r1", "r2", "gone"], 5.0, ends=True)
    assert [answer["drained"] for answer in answers] == [False, True, False]
    assert answers[0]["why"] == "the time was over"
    assert (late.ended, well.ended) == (1, 1)
    assert (late.ends, well.ends) == (True, True), "the coordinator knows that no batch follows"


def test_the_caller_is_called_all_the_while(serve: Serve) -> None:
    """`streamgroup drain` and `drain(query)` look then whether the query has failed."""
    is_called = threading.Event()
    serve().while_draining = lambda: is_called.wait(SOON)
    (answer,) = drain_together(JVM, ["r1"], SOON, meanwhile=is_called.set)
    assert answer["drained"]
    assert is_called.is_set()


def test_an_error_of_the_caller_ends_the_wait(serve: Serve) -> None:
    is_over = threading.Event()
    serve().while_draining = lambda: is_over.wait(SOON)

    def fails() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drain_together(JVM, ["r1"], SOON, meanwhile=fails)
    is_over.set()


def test_a_coordinator_that_hangs_is_left_after_the_timeout(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drains, "ANSWER_GRACE_S", 0.05)
    is_over = threading.Event()
    serve().while_draining = lambda: is_over.wait(SOON)
    try:
        (answer,) = drain_together(JVM, ["r1"], 0.05)
    finally:
        is_over.set()
    assert answer["drained"] is False
    assert "has not answered" in answer["why"]


NO_PROCESS = 2**22 + 1
"""Beyond the largest pid of Linux."""


def failure(at: float = 7.5, text: str = "orders-0: gone") -> QueryFailure:
    return QueryFailure(at, "orders", ("etl", "audit"), "DataLossError", text)


def test_failures_of_all_drivers_are_read_in_the_order_of_their_times() -> None:
    assert recorded_failures() == []
    record_failure(JVM, failure(9))
    record_failure(NO_PROCESS, failure(8, "two\nlines, ä"))
    record_failure(JVM, failure(10))
    assert recorded_failures() == [failure(8, "two\nlines, ä"), failure(9), failure(10)]


def test_a_driver_keeps_its_newest_failures_alone() -> None:
    for at in range(MOST + 5):
        record_failure(JVM, failure(at))
    assert [one.at for one in recorded_failures()] == list(range(5, MOST + 5))


def test_threads_that_record_at_the_same_time_lose_nothing(home: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda at: record_failure(JVM, failure(at)), range(MOST)))
    assert [one.at for one in recorded_failures()] == list(range(MOST))
    assert len(list(home.iterdir())) == 1


def test_only_this_user_can_read_the_file_and_another_ones_directory_is_not_read(home: Path) -> None:
    record_failure(JVM, failure())
    path = home / f"{JVM}{channel.FAILURES}"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in home.iterdir()] == [path.name]
    home.chmod(0o755)
    assert recorded_failures() == []
    with pytest.raises(PermissionError):
        record_failure(JVM, failure())


@pytest.mark.parametrize("line", ["", "{", "[]", "null", "{}", '{"at": "x"}', "[" * 100_000, "\xff"])
def test_a_line_that_is_no_failure_is_left_out(home: Path, line: str) -> None:
    record_failure(JVM, failure())
    path = home / f"{JVM}{channel.FAILURES}"
    path.write_text(f"{line}\n{path.read_text()}")
    assert recorded_failures() == [failure()]


def test_bytes_that_are_no_text_leave_the_file_out(home: Path) -> None:
    record_failure(JVM, failure())
    (home / f"{JVM}{channel.FAILURES}").write_bytes(b"\xff\xfe")
    assert recorded_failures() == []


def test_the_failures_of_an_ended_driver_stay_for_an_hour(home: Path, serve: Serve) -> None:
    record_failure(NO_PROCESS, failure())
    serve("r1")  # sweeps
    assert recorded_failures() == [failure()]
    (home / f"{NO_PROCESS}.x1y2.new").touch()  # of a driver that was killed as it wrote
    path = home / f"{NO_PROCESS}{channel.FAILURES}"
    old = path.stat().st_mtime - channel.FAILURES_KEPT_S - 1
    os.utime(path, (old, old))
    assert recorded_failures() == []
    serve("r2")
    assert list(home.glob(f"{NO_PROCESS}*")) == []


def test_a_file_that_another_sweep_has_removed_meanwhile_opens_the_channel_all_the_same(
    home: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_failure(NO_PROCESS, failure())
    gone = home / f"{NO_PROCESS}{channel.FAILURES}"
    listed = type(home).iterdir

    def removed_when_listed(path: Path) -> Iterator[Path]:
        for found in list(listed(path)):
            if found == gone:
                found.unlink()
            yield found

    monkeypatch.setattr(type(home), "iterdir", removed_when_listed)
    serve("r1")
    assert channel.runs(JVM) == ["r1"]


def test_the_failures_of_a_driver_that_lives_are_not_swept(home: Path, serve: Serve) -> None:
    record_failure(os.getpid(), failure())
    path = home / f"{os.getpid()}{channel.FAILURES}"
    os.utime(path, (0, 0))
    serve("r1")
    assert recorded_failures() == [failure()]

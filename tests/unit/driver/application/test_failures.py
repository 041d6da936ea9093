"""The files with the errors that have ended queries: who reads them, and how long they stay."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streamgroup.driver.application import control
from streamgroup.driver.application.failures import MOST, record_failure, recorded_failures
from streamgroup.monitoring.query_failures import QueryFailure
from tests.unit.driver.channels import JVM, FakeCoordinator, home, serve

__all__ = ["home", "serve"]

pytestmark = pytest.mark.usefixtures("home")
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
    path = home / f"{JVM}{control.FAILURES}"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in home.iterdir()] == [path.name]
    home.chmod(0o755)
    assert recorded_failures() == []
    with pytest.raises(PermissionError):
        record_failure(JVM, failure())


@pytest.mark.parametrize("line", ["", "{", "[]", "null", "{}", '{"at": "x"}', "[" * 100_000, "\xff"])
def test_a_line_that_is_no_failure_is_left_out(home: Path, line: str) -> None:
    record_failure(JVM, failure())
    path = home / f"{JVM}{control.FAILURES}"
    path.write_text(f"{line}\n{path.read_text()}")
    assert recorded_failures() == [failure()]


def test_bytes_that_are_no_text_leave_the_file_out(home: Path) -> None:
    record_failure(JVM, failure())
    (home / f"{JVM}{control.FAILURES}").write_bytes(b"\xff\xfe")
    assert recorded_failures() == []


def test_the_failures_of_an_ended_driver_stay_for_an_hour(home: Path, serve: Callable[..., FakeCoordinator]) -> None:
    record_failure(NO_PROCESS, failure())
    serve("r1")  # sweeps
    assert recorded_failures() == [failure()]
    (home / f"{NO_PROCESS}.x1y2.new").touch()  # of a driver that was killed as it wrote
    path = home / f"{NO_PROCESS}{control.FAILURES}"
    old = path.stat().st_mtime - control.FAILURES_KEPT_S - 1
    os.utime(path, (old, old))
    assert recorded_failures() == []
    serve("r2")
    assert list(home.glob(f"{NO_PROCESS}*")) == []


def test_a_file_that_another_sweep_has_removed_meanwhile_opens_the_channel_all_the_same(
    home: Path, serve: Callable[..., FakeCoordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    record_failure(NO_PROCESS, failure())
    gone = home / f"{NO_PROCESS}{control.FAILURES}"
    listed = type(home).iterdir

    def removed_when_listed(path: Path) -> Iterator[Path]:
        for found in list(listed(path)):
            if found == gone:
                found.unlink()
            yield found

    monkeypatch.setattr(type(home), "iterdir", removed_when_listed)
    serve("r1")
    assert control.runs(JVM) == ["r1"]


def test_the_failures_of_a_driver_that_lives_are_not_swept(home: Path, serve: Callable[..., FakeCoordinator]) -> None:
    record_failure(os.getpid(), failure())
    path = home / f"{os.getpid()}{control.FAILURES}"
    os.utime(path, (0, 0))
    serve("r1")
    assert recorded_failures() == [failure()]

"""The program of `streamgroup doctor --master`, with a driver that knows more and more executors."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from streamgroup.errors import ConfigError, TransportError
from streamgroup.jobs import executors as module
from streamgroup.jobs import probe
from streamgroup.jobs.executors import look_at_executors

HEALTHY = probe.look(0)


class Driver:
    """`known[n]` executors have registered at the n-th question, the last number from then on."""

    def __init__(self, known: list[int], rounds: list[list[str] | Exception]) -> None:
        self._known, self._rounds = known, rounds
        self.ran = 0
        tracker = SimpleNamespace(getExecutorInfos=self._infos)
        context = SimpleNamespace(sc=lambda: SimpleNamespace(statusTracker=lambda: tracker))
        self.session = cast("SparkSession", SimpleNamespace(sparkContext=SimpleNamespace(_jsc=context), stop=str))

    def _infos(self) -> list[object]:
        count = self._known.pop(0) if len(self._known) > 1 else self._known[0]
        return [object()] * (count + 1)  # the driver is one of them

    def run(self, _: SparkSession, look: Callable[[int], dict[str, str]], timeout_s: float) -> list[dict[str, str]]:
        assert look is probe.look_and_hold
        assert timeout_s >= 1
        self.ran += 1
        parents = self._rounds.pop(0) if len(self._rounds) > 1 else self._rounds[0]
        if isinstance(parents, Exception):
            raise parents
        return [HEALTHY | {"parent": parent} for parent in parents]


def report(monkeypatch: pytest.MonkeyPatch, driver: Driver, seconds: float = 60) -> dict[str, Any]:
    monkeypatch.setattr(module, "run_probe", driver.run)
    return look_at_executors(driver.session, time.monotonic() + seconds)


def test_tasks_of_one_executor_are_one_result(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver([2], [["17", "18", "17", "18"]])
    found = report(monkeypatch, driver)
    assert (found["known"], len(found["found"]), found["problem"], driver.ran) == (2, 2, None, 1)


def test_tasks_run_again_until_an_executor_that_registers_late_has_run_one(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver([1, 2], [["17"], ["17", "18"]])
    found = report(monkeypatch, driver)
    assert (found["known"], len(found["found"]), driver.ran) == (2, 2, 2)


def test_an_executor_that_runs_no_task_is_waited_for_until_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    found = report(monkeypatch, Driver([2], [["17"]]), seconds=probe.HOLD_S + 0.2)
    assert (found["known"], len(found["found"])) == (2, 1)


def test_a_later_round_that_fails_for_lack_of_time_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = report(monkeypatch, Driver([2], [["17"], TransportError("late")]))
    assert (found["known"], len(found["found"])) == (2, 1)


def test_no_executor_in_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TransportError, match="late"):
        report(monkeypatch, Driver([0], [TransportError("late")]))


def test_what_an_executor_lacks_is_the_problem_of_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver([1], [["17"]])
    monkeypatch.setitem(HEALTHY, "streamgroup", "0.0.1")
    assert "has streamgroup 0.0.1" in report(monkeypatch, driver)["problem"]


def test_the_program_writes_an_error_into_its_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(_: object) -> SparkSession:
        raise ConfigError("cannot use spark.kafka.clusters.a: leave it out")

    monkeypatch.setattr(module, "build_session", refuse)
    monkeypatch.setattr(sys, "argv", ["program.py", str(tmp_path / "report"), "60"])
    module.main()
    assert json.loads((tmp_path / "report").read_text()) == {
        "problem": "cannot use spark.kafka.clusters.a: leave it out"
    }

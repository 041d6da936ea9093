"""Whether the driver's JVM is stopped, with processes of the test's own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgroup.driver.application import parent
from streamgroup.driver.application.parent import StoppedWatch, state_by_ps, state_of
from tests.unit.driver.shells import SOON, until


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait(SOON)


def test_a_process_is_stopped_from_sigstop_to_sigcont(child: subprocess.Popen[bytes]) -> None:
    is_stopped = StoppedWatch(child.pid)
    assert not is_stopped()
    child.send_signal(signal.SIGSTOP)
    until(is_stopped, "stopped")
    child.send_signal(signal.SIGCONT)
    until(lambda: not is_stopped(), "going on")


@pytest.mark.skipif(shutil.which("ps") is None, reason="there is no ps")
def test_ps_tells_the_same_where_there_is_no_proc(
    child: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parent, "PS_EVERY_S", 0.0)
    is_stopped = StoppedWatch(child.pid, proc=tmp_path)
    assert not is_stopped()
    child.send_signal(signal.SIGSTOP)
    until(is_stopped, "stopped")


def test_ps_is_asked_now_and_then_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(parent, "state_by_ps", lambda pid: asked.append(pid) or "T")  # type: ignore[func-returns-value]
    is_stopped = StoppedWatch(7, proc=tmp_path)
    assert [is_stopped() for _ in range(3)] == [True, True, True]
    assert asked == [7]


def test_without_ps_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert state_by_ps(os.getpid()) == ""


@pytest.mark.parametrize(
    ("stat", "state"),
    [
        ("42 (java) S 1 42", "S"),
        ("42 (a name) T (b)) T 1 42", "T"),
        ("42 (traced) t 1", "t"),
        ("42 (cut off)", ""),
        ("", ""),
    ],
)
def test_the_state_follows_the_name_whatever_that_is(tmp_path: Path, stat: str, state: str) -> None:
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "stat").write_text(stat)
    assert state_of(42, tmp_path) == state


def test_of_a_process_that_is_gone_nothing_is_known(tmp_path: Path) -> None:
    assert state_of(42, tmp_path) == ""

"""The driver's JVM and its SparkContext: which process it is, whether it has ended or is stopped."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgroup.coordinator.control import parent
from streamgroup.coordinator.control.parent import (
    TOUCH_EVERY_S,
    ContextWatch,
    EndedWatch,
    StoppedWatch,
    find_jvm,
    state_by_ps,
)
from tests.unit.coordinator.shells import SOON, until

NOW = 100.0


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait(SOON)


def test_a_process_is_stopped_from_sigstop_to_sigcont(child: subprocess.Popen[bytes]) -> None:
    is_stopped = StoppedWatch(child.pid)
    assert not is_stopped(NOW)
    child.send_signal(signal.SIGSTOP)
    until(lambda: is_stopped(NOW), "stopped")
    child.send_signal(signal.SIGCONT)
    until(lambda: not is_stopped(NOW), "going on")


@pytest.mark.skipif(shutil.which("ps") is None, reason="ps is not installed; .ci/run installs it (procps)")
def test_ps_tells_the_same_where_there_is_no_proc(
    child: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parent, "PS_EVERY_S", 0.0)
    is_stopped = StoppedWatch(child.pid, proc=tmp_path)
    assert not is_stopped(NOW)
    child.send_signal(signal.SIGSTOP)
    until(lambda: is_stopped(NOW), "stopped")


def test_ps_is_asked_now_and_then_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(parent, "state_by_ps", lambda pid: asked.append(pid) or "T")  # type: ignore[func-returns-value]
    is_stopped = StoppedWatch(7, proc=tmp_path)
    assert [is_stopped(NOW + seconds) for seconds in (0.0, 0.2, parent.PS_EVERY_S - 0.1)] == [True, True, True]
    assert asked == [7]
    is_stopped(NOW + parent.PS_EVERY_S)
    assert asked == [7, 7]


def test_without_ps_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert state_by_ps(os.getpid()) == ""


@pytest.mark.parametrize(
    ("stat", "stopped"),
    [
        ("42 (java) S 1 42", False),
        ("42 (java) T 1 42", True),
        ("42 (a name) T (b)) T 1 42", True),
        ("42 (a name) T (b)) S 1 42", False),
        ("42 (traced) t 1", False),
        ("42 (cut off)", False),
        ("42 (cut off in \xe9", False),
        ("", False),
        (None, False),
    ],
)
def test_the_state_follows_the_name_whatever_that_is(tmp_path: Path, stat: str | None, stopped: bool) -> None:
    (tmp_path / "self").mkdir()
    if stat is not None:
        (tmp_path / "42").mkdir()
        (tmp_path / "42" / "stat").write_text(stat, "latin-1")  # names need not be UTF-8
    assert StoppedWatch(42, tmp_path)(NOW) is stopped


def test_a_look_interns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    is_stopped = StoppedWatch(os.getpid())
    interned: list[str] = []
    monkeypatch.setattr(sys, "intern", lambda text: interned.append(text) or text)  # type: ignore[func-returns-value]
    assert not is_stopped(NOW)
    assert interned == []


def ancestors(proc: Path, *names: str, maps: str = "") -> None:
    """Write processes as /proc has them: this process's parent and its ancestors, by their names."""
    (proc / "self").mkdir()
    pids = [os.getppid(), *range(900_001, 900_001 + len(names)), 0]
    for pid, parent_pid, name in zip(pids, pids[1:], names, strict=False):
        (proc / str(pid)).mkdir()
        (proc / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent_pid} 1")
        (proc / str(pid) / "comm").write_text(f"{name}\n")
        (proc / str(pid) / "maps").write_text(maps if name == "launcher" else "")


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("java", "bash"), os.getppid()),
        (("sh", "java", "bash", "java"), 900_001),
        (("sh", "env", "java"), 900_002),
        (("sh", "launcher"), 900_001),
        (("sh", "bash"), None),
        ((), None),
    ],
)
def test_the_jvm_is_the_nearest_ancestor_that_is_one(tmp_path: Path, names: tuple[str, ...], found: int | None) -> None:
    ancestors(tmp_path, *names, maps="7f0 r-xp 0 fd:00 1 /usr/lib/jvm/lib/server/libjvm.so\n")
    assert find_jvm(tmp_path) == found


@pytest.mark.skipif(shutil.which("ps") is None, reason="ps is not installed; .ci/run installs it (procps)")
def test_ps_knows_the_ancestors_where_there_is_no_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = subprocess.run(["ps", "-o", "comm=", "-p", str(os.getppid())], capture_output=True, text=True, check=True)
    monkeypatch.setattr(parent, "_JAVA", os.path.basename(told.stdout.strip()))
    assert find_jvm(tmp_path) == os.getppid()
    monkeypatch.setattr(parent, "_JAVA", "a name that no process has")
    assert find_jvm(tmp_path) is None


def test_a_parent_has_not_ended_while_it_is_the_parent() -> None:
    assert not EndedWatch(os.getppid())()


@pytest.mark.parametrize("has_pidfds", [True, False])
def test_a_process_that_is_not_the_parent_is_seen_to_end(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, has_pidfds: bool
) -> None:
    if not has_pidfds:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    has_ended = EndedWatch(child.pid)
    assert not has_ended()
    child.kill()
    child.wait(SOON)
    until(has_ended, "ended")
    assert has_ended()
    assert EndedWatch(child.pid)(), "it had ended before it was watched"


# -- the SparkContext -------------------------------------------------------------------------------------------------


def made(home: Path, *names: str) -> tuple[list[Path], dict[str, str]]:
    """Make directories of this context; return them, and the environment of the source's process."""
    directories = [home / name for name in names]
    for directory in directories:
        directory.mkdir()
    return directories, {"SPARK_LOCAL_DIRS": ",".join(map(str, directories))}


def test_a_context_has_stopped_when_all_directories_of_its_block_manager_are_gone(tmp_path: Path) -> None:
    directories, environment = made(tmp_path, "blockmgr-1", "blockmgr-2")
    has_stopped = ContextWatch(environment)
    assert not has_stopped(NOW)
    directories[0].rmdir()
    assert not has_stopped(NOW)
    directories[1].rmdir()
    assert has_stopped(NOW)


@pytest.mark.parametrize(
    "environment", [{}, {"SPARK_LOCAL_DIRS": ""}, {"SPARK_LOCAL_DIRS": "/no/blockmgr-1,/no/blockmgr-2"}]
)
def test_without_directories_of_a_block_manager_nothing_is_known_of_the_context(environment: dict[str, str]) -> None:
    assert not ContextWatch(environment)(NOW)


def test_directories_that_the_user_has_set_say_nothing_of_the_context(tmp_path: Path) -> None:
    (directory,), environment = made(tmp_path, "scratch")
    has_stopped = ContextWatch(environment)
    directory.rmdir()
    assert not has_stopped(NOW)


def test_a_file_system_that_fails_is_not_the_end_of_a_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, environment = made(tmp_path, "blockmgr-1")
    has_stopped = ContextWatch(environment)

    def fails(path: str, **_: object) -> os.stat_result:
        raise OSError(errno.EIO, "input/output error", path)

    with monkeypatch.context() as broken:
        broken.setattr(os, "stat", fails)
        has_it = has_stopped(NOW)
    assert not has_it


def test_the_directories_are_touched_so_that_cleaners_leave_those_of_an_idle_context(tmp_path: Path) -> None:
    (directory,), environment = made(tmp_path, "blockmgr-1")
    has_stopped = ContextWatch(environment)
    touched = []
    for now in (NOW, NOW + TOUCH_EVERY_S - 0.1, NOW + TOUCH_EVERY_S):
        os.utime(directory, (1, 1))
        assert not has_stopped(now)
        touched.append(directory.stat().st_mtime > 1)
    assert touched == [True, False, True]

"""Watches the driver's JVM from a coordinator process: whether the JVM has ended or is stopped (SIGSTOP), and whether
the query's SparkContext has stopped.

The JVM is the parent of the coordinator process, or an ancestor: if PYSPARK_PYTHON is a script that starts Python
without `exec`, the shell is between them. Rules R27 and R29 say what a coordinator does in these cases.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
STOPPED = "T"
_JAVA = "java"
_LIBJVM = b"libjvm."
_MOST_ANCESTORS = 64
PS_EVERY_S = 5.0
"""How often `ps` runs on systems without /proc: each check starts a process."""
PS_TIMEOUT_S = 2.0
TOUCH_EVERY_S = 60.0
"""How often the directories of the block manager are touched: systemd-tmpfiles deletes those untouched for 10 days."""
_LOCAL_DIRS = "SPARK_LOCAL_DIRS"
_OF_BLOCK_MANAGER = "blockmgr-"


def find_jvm(proc: Path = PROC) -> int | None:
    """Return the pid of the nearest ancestor of this process that is a JVM; None if there is none."""
    pid = os.getppid()
    for _ in range(_MOST_ANCESTORS):
        if pid <= 0:
            break
        parent, is_jvm = _looked_up(pid, proc) if (proc / "self").exists() else _looked_up_by_ps(pid)
        if is_jvm:
            return pid
        pid = parent
    return None


def _looked_up(pid: int, proc: Path) -> tuple[int, bool]:
    """Return the parent's pid of process `pid` (0 if unknown), and whether `pid` is a JVM."""
    fields = _stat_fields(_stat_path(pid, proc))
    parent = int(fields[1]) if len(fields) > 1 else 0
    try:
        is_jvm = (proc / str(pid) / "comm").read_text(errors="replace").strip() == _JAVA
        # A launcher of another name (jsvc, an IDE) has Java's library in its memory.
        return parent, is_jvm or _LIBJVM in (proc / str(pid) / "maps").read_bytes()
    except OSError:
        return parent, False


def _looked_up_by_ps(pid: int) -> tuple[int, bool]:
    parent, _, name = _ps_output(pid, "ppid=,comm=").partition(" ")
    return int(parent) if parent.isdigit() else 0, os.path.basename(name.strip()) == _JAVA


def _stat_path(pid: int, proc: Path) -> str:
    return str(proc / str(pid) / "stat")


def _stat_fields(path: str) -> list[str]:
    """Return the fields of the `stat` at `path` from the state on; none if it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            stat = file.read()
    except OSError:
        return []
    # 42 (a name) with (parentheses)) T 1 ...: the state follows the last parenthesis.
    return stat.rpartition(b")")[2].decode(errors="replace").split()


def state_by_ps(pid: int) -> str:
    """Return the state of a process from `ps`, for systems without /proc."""
    return _ps_output(pid, "state=")[:1]


def _ps_output(pid: int, columns: str) -> str:
    ps = shutil.which("ps")
    if ps is None:
        return ""
    try:
        listed = subprocess.run(
            [ps, "-o", columns, "-p", str(pid)], capture_output=True, text=True, timeout=PS_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return listed.stdout.strip()


class EndedWatch:
    """Checks whether the driver's JVM has ended. The caller checks several times a second.

    If the JVM is the parent, it has ended when this process has another parent. Any other ancestor is watched by its
    pidfd, which stays valid when the kernel reuses the pid; without pidfds (macOS, Linux before 5.3) by its pid.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._is_parent = os.getppid() == pid
        self._ended = False
        self._pidfd: select.poll | None = None
        if not self._is_parent and hasattr(os, "pidfd_open"):
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                self._ended = True
            except OSError:  # the kernel has no pidfds, or a container's profile forbids them
                pass
            else:
                self._pidfd = select.poll()  # select.select takes only descriptors below 1024
                self._pidfd.register(descriptor, select.POLLIN)

    def __call__(self) -> bool:
        if self._is_parent:
            return os.getppid() != self._pid
        if not self._ended:
            self._ended = not _exists(self._pid) if self._pidfd is None else bool(self._pidfd.poll(0))
        return self._ended


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class StoppedWatch:
    """Checks whether one process is stopped, for example by SIGSTOP. The caller checks several times a second."""

    def __init__(self, pid: int, proc: Path = PROC) -> None:
        self._pid = pid
        # Made once: Python interns the parts of each Path, and a table of interned strings that is filled and emptied
        # several times a second grows to megabytes.
        self._stat = _stat_path(pid, proc) if (proc / "self").exists() else None
        self._by_ps: tuple[float | None, str] = (None, "")
        """When `ps` ran last, and the state that it printed."""

    def __call__(self, now: float) -> bool:
        """Return whether the process is stopped; `now` is from `time.monotonic()`.

        A process that a debugger traces (state `t`) does not count as stopped.
        """
        return self._state(now) == STOPPED

    def _state(self, now: float) -> str:
        if self._stat is not None:
            return next(iter(_stat_fields(self._stat)), "")
        looked_at, state = self._by_ps
        if looked_at is None or now - looked_at >= PS_EVERY_S:
            state = state_by_ps(self._pid)
            self._by_ps = (now, state)
        return state


class ContextWatch:
    """Checks whether the SparkContext of this query has stopped. The caller checks several times a second.

    In a notebook the JVM continues after `spark.stop()`. A query without records to read continues, too: Spark calls
    its source until the next job fails. This class detects the stopped context by the block manager's directories,
    which a stopping context removes (DiskBlockManager.stop). Spark passes their paths to the source's process
    (PythonStreamingSourceRunner). If Spark passes no paths, the context never counts as stopped.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        paths = environment.get(_LOCAL_DIRS, "").split(",")
        named = [path for path in paths if os.path.basename(path).startswith(_OF_BLOCK_MANAGER)]
        # A path that does not exist now is no evidence: this process may see other directories than the JVM.
        self._directories = [path for path in named if os.path.isdir(path)]
        self._touched_at: float | None = None

    def __call__(self, now: float) -> bool:
        if self._touched_at is None or now - self._touched_at >= TOUCH_EVERY_S:
            self._touched_at = now
            for path in self._directories:
                with suppress(OSError):
                    os.utime(path)
        return bool(self._directories) and not any(map(_may_exist, self._directories))


def _may_exist(path: str) -> bool:
    """Return whether a path exists. Returns True if the file system does not respond."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True

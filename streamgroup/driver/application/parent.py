"""The driver's JVM as its child sees it: whether it is there, and whether it is stopped (R27)."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

STOPPED = "T"
PS_EVERY_S = 5.0
"""Where there is no /proc, a process of its own has to look: less often."""
PS_TIMEOUT_S = 2.0


def state_of(pid: int, proc: Path = Path("/proc")) -> str:
    """The state of a process as the kernel tells it (`R`, `S`, `T`, ...); `""` where it cannot be told."""
    try:
        # 42 (a name) with (parentheses)) T 1 ...: the state follows the last parenthesis.
        return (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def state_by_ps(pid: int) -> str:
    """The same by `ps`, for systems without /proc."""
    ps = shutil.which("ps")
    if ps is None:
        return ""
    try:
        told = subprocess.run(
            [ps, "-o", "state=", "-p", str(pid)], capture_output=True, text=True, timeout=PS_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stdout.strip()[:1]


class StoppedWatch:
    """Whether one process is stopped, as by SIGSTOP; asked several times a second."""

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self._pid = pid
        self._proc = proc if (proc / "self").exists() else None
        self._by_ps = (0.0, "")

    def __call__(self) -> bool:
        """Whether it is stopped now. One that is traced by a debugger (`t`) is not: its stops are somebody's wish."""
        return self._state() == STOPPED

    def _state(self) -> str:
        if self._proc is not None:
            return state_of(self._pid, self._proc)
        looked_at, state = self._by_ps
        if time.monotonic() - looked_at >= PS_EVERY_S:
            state = state_by_ps(self._pid)
            self._by_ps = (time.monotonic(), state)
        return state

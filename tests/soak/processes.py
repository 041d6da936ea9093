"""The processes of an application, from /proc: their roles, memory, file handles and threads."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.soak.judgement import COORDINATOR, DRIVER, JVM, WORKER

_PROC = Path("/proc")
_DAEMON = "pyspark.daemon"
_KIB_PER_MIB = 1024.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """One process. `started` tells lives of one pid apart (clock ticks since the boot)."""

    pid: int
    role: str
    started: int
    cpu_s: float
    rss_mib: float
    handles: int
    threads: int

    @property
    def name(self) -> str:
        """Return a name that no other life of a process has."""
        return f"{self.role}-{self.pid}-{self.started}"


def processes_of(session: int, coordinator: int | None) -> Iterator[Process]:
    """Yield the processes of a session that have a role: driver, JVM, coordinator process and Spark's workers."""
    for stat in _PROC.glob("[0-9]*/stat"):
        try:
            process = _read(stat, session, coordinator)
        except (FileNotFoundError, ProcessLookupError, PermissionError):  # it has just ended
            continue
        if process is not None:
            yield process


def _read(stat: Path, session: int, coordinator: int | None) -> Process | None:
    pid = int(stat.parent.name)
    fields = stat.read_text(errors="replace").rpartition(")")[2].split()
    if int(fields[3]) != session or fields[0] == "Z":
        return None
    role = _role(pid, int(fields[1]), session, coordinator)
    if role is None:
        return None
    status = (stat.parent / "status").read_text()
    handles = len(os.listdir(stat.parent / "fd"))
    rss = int(_number(status, "VmRSS")) / _KIB_PER_MIB
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return Process(pid, role, int(fields[19]), cpu_s, rss, handles, int(_number(status, "Threads")))


def _number(status: str, name: str) -> str:
    found = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
    if found is None:
        raise ProcessLookupError(name)  # it is ending, and has no memory left
    return found[1]


def _role(pid: int, parent: int, session: int, coordinator: int | None) -> str | None:
    if pid == session:
        return DRIVER
    if pid == coordinator:
        return COORDINATOR
    command = _command(pid)
    if _DAEMON in command:
        return WORKER if _DAEMON in _command(parent) else None  # the daemon only forks
    return JVM if "java" in command.partition("\0")[0] else None


def _command(pid: int) -> str:
    return (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace")

"""A server process, and the ways in which a server can stop.

A server leads a session of its own, so that a Ctrl-C meant for the tests does not reach it. A watchdog kills it when
this process is gone, however that died: a shell that waits for the end of a pipe that only this process holds.
PR_SET_PDEATHSIG of Linux is not used, since it fires when the *thread* that started the child ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.testing.ports import free_ports

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
PAUSE_TIMEOUT_S = 10.0

_POLL_S = 0.05
_PAUSE_POLL_S = 0.001
_PORT_ATTEMPTS = 3
_LOG_LINES = 40
_LOG_BYTES = 64 * 1024
_WATCHDOG = 'read -r _; kill -s KILL -- "-$1" 2>/dev/null'
_ADDRESS_IN_USE = ("Address already in use", "java.net.BindException")


class ServerStartError(StreamGroupError):
    """A server failed to start in time. The message ends with the end of its log."""


class PortTakenError(ServerStartError):
    """A server failed to start because another process holds its port."""


def on_free_ports(start: Callable[[], None], *, fixed: bool) -> None:
    """Call `start`, which binds servers to free ports, and retry if another process takes a port in between.

    There is no retry if the caller has `fixed` the ports. Raises the PortTakenError of the last attempt.
    """
    for left in reversed(range(1 if fixed else _PORT_ATTEMPTS)):
        try:
            start()
            return
        except PortTakenError:
            if not left:
                raise


class ServerProcess:
    """A local server: its process, its log, and the probe that tells when it serves.

    `ready` is called until it returns True or the deadline passes; it must not block for long. If another server might
    answer on the same port, `announces` is the text that this one logs once it has started. The log has the standard
    output and error of every start. `stops_by` is the signal that asks it to stop. A `detached` server outlives this
    process. Not thread-safe.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path,
        ready: Callable[[], bool],
        *,
        announces: str = "",
        environment: Mapping[str, str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        stops_by: signal.Signals = signal.SIGTERM,
        detached: bool = False,
    ) -> None:
        self.name = name
        self.log = log
        self._argv = list(argv)
        self._ready = ready
        self._announces = announces
        self._environment = dict(environment or {})
        self._start_timeout_s = start_timeout_s
        self._stops_by = stops_by
        self._detached = detached
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._deadline = 0.0

    @property
    def pid(self) -> int | None:
        """The process id of the latest start; None before it."""
        return None if self._process is None else self._process.pid

    @property
    def alive(self) -> bool:
        """True if the process exists (it may be paused)."""
        if self._process is None or self._process.poll() is None:
            return self._process is not None
        self._dismiss_watchdog()  # its pid may be reused from now on
        return False

    def launch(self) -> None:
        """Start the process and its deadline without waiting for it. Call `await_ready` next."""
        if self.alive:
            raise StreamGroupError(f"cannot start {self.name}: it runs already (pid {self.pid})")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.log.parent,
                env={**os.environ, **self._environment},
                start_new_session=True,
            )
        if not self._detached:
            self._watch(self._process.pid)
        self._deadline = time.monotonic() + self._start_timeout_s

    def await_ready(self) -> None:
        """Wait until the launched process serves.

        Raises ServerStartError or PortTakenError if it ends or its deadline passes; the process is then killed.
        """
        while not (self._ready() and self._announces in self._log_of_this_start()):
            if not self.alive:
                raise self._failed(f"ended with exit code {self._exit_code()} before it served")
            if time.monotonic() >= self._deadline:
                raise self._failed(f"did not serve within {self._start_timeout_s:.0f} s")
            time.sleep(_POLL_S)

    def start(self) -> None:
        """Start the process and wait until it serves."""
        self.launch()
        self.await_ready()

    def kill(self) -> None:
        """Kill the process (SIGKILL), as a crash does. Data and port stay."""
        self._signal(signal.SIGKILL)
        self._reap()

    def pause(self) -> None:
        """Pause the process (SIGSTOP), and wait until all of its threads have stopped.

        Its connections stay open and nothing answers. A paused process stays paused. Raises StreamGroupError if the
        process ends or runs on for PAUSE_TIMEOUT_S.
        """
        # A thread that has called vfork stops only after its child has called exec. So the server stops before its
        # children do.
        self._signal(signal.SIGSTOP, must_run=True, send=os.kill)
        deadline = time.monotonic() + PAUSE_TIMEOUT_S
        while not self._is_stopped():
            if not self.alive:
                raise StreamGroupError(f"cannot pause {self.name}: it ended with exit code {self._exit_code()}")
            if time.monotonic() >= deadline:
                raise StreamGroupError(
                    f"cannot pause {self.name} (pid {self.pid}): it did not stop within {PAUSE_TIMEOUT_S:g} s of "
                    "SIGSTOP. A thread of it may wait for a disk"
                )
            time.sleep(_PAUSE_POLL_S)
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a paused process (SIGCONT)."""
        self._signal(signal.SIGCONT, must_run=True)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ask the process to stop, and kill it if that takes longer than `timeout_s`."""
        self._signal(signal.SIGCONT)
        self._signal(self._stops_by)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        self.kill()

    def restart(self) -> None:
        """Restart the process on its port with its data. A running process is stopped first."""
        if self.alive:
            self.stop()
        self.start()

    def _log_of_this_start(self) -> str:
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def log_tail(self, lines: int = _LOG_LINES) -> str:
        """Return the last log lines of the latest start."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, end - _LOG_BYTES))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])

    def _failed(self, how: str) -> ServerStartError:
        self.kill()
        # Searches the whole log: the bind error may be far above the tail.
        log = self._log_of_this_start()
        taken = any(sign in log for sign in _ADDRESS_IN_USE)
        kind = PortTakenError if taken else ServerStartError
        return kind(f"{self.name} {how}. The end of its log, {self.log}:\n{self.log_tail()}")

    def _exit_code(self) -> int | None:
        return None if self._process is None else self._process.returncode

    def _signal(
        self, number: signal.Signals, *, must_run: bool = False, send: Callable[[int, int], None] = os.killpg
    ) -> None:
        if self.alive and self._process is not None:
            # Its pid cannot be reused before it is reaped.
            send(self._process.pid, number)
        elif must_run:
            raise StreamGroupError(f"cannot send {number.name} to {self.name}: it is not running. Call restart() first")

    def _is_stopped(self) -> bool:
        """Return whether every thread of the process is stopped.

        A signal is sent before the threads of its receiver act on it: a paused broker accepted one more record. The
        kernel reports a stop when the last thread has stopped. With WNOWAIT the report stays, also for the next pause,
        until SIGCONT ends it; without WEXITED the exit status stays for `Popen`. Python before 3.13 has no `waitid` on
        macOS, so a pause does not wait there.
        """
        assert self._process is not None
        if not hasattr(os, "waitid"):
            return True
        with contextlib.suppress(ChildProcessError):  # it has ended
            return os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT | os.WNOHANG) is not None
        return False

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait()
        self._dismiss_watchdog()

    def _dismiss_watchdog(self) -> None:
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.communicate()
            self._watchdog = None

    def _watch(self, group: int) -> None:
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG, "streamgroup-watchdog", str(group)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


class LocalServer(ABC):
    """A server of one process on a port of 127.0.0.1, with its data in a directory.

    A given `data_dir` is kept and can be started again. Without one the data lie in a temporary directory, which is
    removed with the server unless its start failed.
    """

    _NAME: ClassVar[str]

    def __init__(self, data_dir: str | Path | None, start_timeout_s: float, port: int | None = None) -> None:
        self._given_dir = Path(data_dir).absolute() if data_dir is not None else None
        self._start_timeout_s = start_timeout_s
        self._fixed_port = port
        self._dir: Path | None = None
        self._process: ServerProcess | None = None
        self.port = 0

    @property
    def pid(self) -> int | None:
        """The id of its process."""
        return self._started().pid

    @property
    def alive(self) -> bool:
        """True if its process exists (it may be paused)."""
        return self._process is not None and self._process.alive

    @property
    def log(self) -> Path:
        return self._started().log

    def start(self) -> Self:
        """Start the server and wait until it serves. Raises ServerStartError with the end of the log."""
        if self.alive:
            raise ConfigError(f"cannot start {self._NAME}: it already runs on port {self.port}")
        self._dir = home = self._given_dir or Path(tempfile.mkdtemp(prefix=f"streamgroup-{self._NAME.lower()}-"))
        home.mkdir(parents=True, exist_ok=True)
        self._prepare(home)

        def start_process() -> None:
            self.port = self._fixed_port or free_ports(1)[0]
            self._process = self._make_process(home)
            self._process.start()

        on_free_ports(start_process, fixed=self._fixed_port is not None)
        return self

    def stop(self) -> None:
        """Stop the server, and remove its data unless the caller gave a `data_dir`."""
        if self._process is not None:
            self._process.stop() if self._given_dir else self._process.kill()
        if self._dir is not None and self._given_dir is None:
            shutil.rmtree(self._dir, ignore_errors=True)

    def kill(self) -> None:
        """Kill the server (SIGKILL), as a crash does. Data and port stay."""
        self._started().kill()

    def restart(self) -> None:
        """Restart the server with its data and port, and wait until it serves. A running one is stopped first."""
        self._started().restart()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _started(self) -> ServerProcess:
        if self._process is None:
            raise ConfigError(
                f"this {type(self).__name__} is not started: use it in a `with` statement, or call start()"
            )
        return self._process

    @abstractmethod
    def _prepare(self, home: Path) -> None:
        """Write into the directory what the server needs before its first start. Called at each `start`."""

    @abstractmethod
    def _make_process(self, home: Path) -> ServerProcess:
        """Return the process that listens on `self.port`. Called again if another process has taken the port."""

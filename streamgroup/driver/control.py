"""The control channel: how the rest of an application speaks with a coordinator.

A Unix socket in a directory of mode 0700, one per run, with a token beside it (0600). Both are found by the pid of the
driver's JVM, which is the coordinator's parent, and the run id in a query's offset documents. Messages are JSON;
nothing is ever unpickled.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import stat
import tempfile
import threading
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, Protocol

from streamgroup.errors import StreamGroupError, TransportError

log = logging.getLogger("streamgroup")

LARGEST_MESSAGE = 1 << 20
PATIENCE_S = 5.0
"""How long either side waits for the other's message."""


class Controlled(Protocol):
    """What a coordinator offers to the channel."""

    @property
    def run(self) -> str:
        """The run's id."""

    def drain(self, timeout: float) -> dict[str, Any]:
        """Stop planning, commit what sinks, leave."""

    def status(self) -> dict[str, Any]:
        """What the member is doing."""


def directory(jvm_pid: int) -> Path:
    """Where the channels of one driver lie."""
    return Path(tempfile.gettempdir()) / f"streamgroup-{os.getuid()}" / str(jvm_pid)


def drivers() -> list[int]:
    """The pids of the JVMs on this machine and of this user that have channels, or had when they were killed."""
    home = directory(0).parent
    return sorted(int(path.name) for path in home.glob("[0-9]*") if path.name.isdigit())


def make_private(path: Path) -> None:
    """Make a directory that is this user's alone. Raises PermissionError where there is one that is not."""
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()  # a link is anybody's to make, and what it leads to would be swept
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{path} is not a private directory of this user")


def runs(jvm_pid: int) -> list[str]:
    """The runs of one driver that can be spoken with."""
    return sorted(path.stem for path in directory(jvm_pid).glob("*.sock"))


def ask(jvm_pid: int, run: str, request: str, *, patience: float = PATIENCE_S, **arguments: Any) -> dict[str, Any]:
    """Send one request to a run's coordinator and wait for the answer.

    Raises TransportError where there is no such run (any more) or it does not answer within `patience` seconds,
    StreamGroupError where the coordinator refuses.
    """
    base = directory(jvm_pid) / run
    who = f"the coordinator of run {run} (driver pid {jvm_pid})"
    try:
        token = base.with_suffix(".token").read_text()
        with Client(str(base.with_suffix(".sock")), "AF_UNIX") as connection:
            connection.send_bytes(json.dumps({"token": token, "request": request, **arguments}).encode())
            if not connection.poll(patience):
                raise TransportError(f"{who} has not answered to {request} within {patience:.0f} s")
            answer: dict[str, Any] = json.loads(connection.recv_bytes(LARGEST_MESSAGE))
    except (OSError, EOFError) as error:
        raise TransportError(
            f"{who} cannot be reached: {error!r}. Its query has ended, or runs on another machine or as another user"
        ) from None
    if "error" in answer:
        raise StreamGroupError(answer["error"])
    return answer


def _sweep(home: Path) -> None:
    """Remove what coordinators of drivers left that were killed."""
    for left in home.iterdir():
        if left.name.isdigit() and not Path(f"/proc/{left.name}").exists() and Path("/proc/self").exists():
            shutil.rmtree(left, ignore_errors=True)


class ControlServer:
    """Serves one coordinator's channel in threads of its own, for as long as the process lives."""

    def __init__(self, coordinator: Controlled, jvm_pid: int) -> None:
        self._coordinator = coordinator
        self._base = directory(jvm_pid) / coordinator.run
        self._token = secrets.token_hex(32)
        self._listener: Listener | None = None

    def start(self) -> None:
        """Open the channel. Where that fails the query goes on without it: it can still be stopped, not drained."""
        try:
            make_private(self._base.parent.parent)
            make_private(self._base.parent)
            _sweep(self._base.parent.parent)
            descriptor = os.open(self._base.with_suffix(".token"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(self._token)
            self._listener = listener = Listener(str(self._base.with_suffix(".sock")), "AF_UNIX")
            self._base.with_suffix(".sock").chmod(0o600)
        except OSError as error:
            log.warning("no control channel, this query can be stopped but not drained: %s", error)
            return
        threading.Thread(target=self._serve, args=(listener,), name="streamgroup-control", daemon=True).start()

    def close(self) -> None:
        """Remove the channel's files; the directory goes with its last run."""
        listener, self._listener = self._listener, None
        if listener is not None:  # it removes its socket itself, and would complain at exit where that is gone
            with suppress(OSError):
                listener.close()
        for suffix in (".sock", ".token"):
            with suppress(OSError):
                self._base.with_suffix(suffix).unlink()
        with suppress(OSError):
            self._base.parent.rmdir()

    def _serve(self, listener: Listener) -> None:
        while True:
            try:
                connection = listener.accept()
            except OSError as error:
                if self._listener is None:  # closed
                    return
                log.warning("the control channel has ended, this query can be stopped but not drained: %s", error)
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: Connection[Any, Any]) -> None:
        with connection, suppress(OSError, EOFError):
            if not connection.poll(PATIENCE_S):
                return
            try:
                answer = self._carry_out(json.loads(connection.recv_bytes(LARGEST_MESSAGE)))
            except (StreamGroupError, ValueError, TypeError) as error:
                answer = {"error": str(error)}
            connection.send_bytes(json.dumps(answer).encode())

    def _carry_out(self, message: Any) -> dict[str, Any]:
        token = message.get("token") if isinstance(message, dict) else None
        if not isinstance(token, str) or not secrets.compare_digest(token, self._token):
            raise ValueError("not the token of this run")
        match message:
            case {"request": "drain", "timeout": int() | float() as timeout}:
                return self._coordinator.drain(float(timeout))
            case {"request": "status"}:
                return self._coordinator.status()
        raise ValueError(f"not a request of this channel: {message.get('request')!r}")

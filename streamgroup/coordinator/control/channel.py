"""The control channel, by which drains, listeners and the CLI send requests to a coordinator.

Each coordinator process has one channel: a Unix socket in a directory of mode 0700, with a token in a second file
(0600). Clients find both files by the pid of the driver's JVM and by the run id, which a query's offset documents
contain. A run id identifies one start of a query. Messages are JSON: unpickling would let another process run code.
"""

from __future__ import annotations

import json
import logging
import math
import os
import secrets
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from streamgroup.errors import ConfigError, StreamGroupError, TransportError
from streamgroup.kafka.net import local
from streamgroup.model import TopicPartition

log = logging.getLogger("streamgroup")

LARGEST_MESSAGE = 1 << 22
"""Maximum bytes of a message: the offset document of some 50 000 partitions fits."""
_LISTENED = ".listened"
FAILURES = ".failures"
"""Suffix of the file that stores the failures of a driver's queries."""
FAILURES_KEPT_S = 3600.0
"""Seconds for which an ended driver's failures are kept, counted from its last failure."""
_BACKLOG = 16
_MOST_DIGITS = 10
"""Digits of a partition's number, which is an int32."""
_WITHOUT = "the query continues and can be stopped, but not drained or paused, and commits only at the next trigger"
MESSAGE_TIMEOUT_S = 5.0
"""How long either side waits for the first byte of a message, and then for its last byte."""
LONGEST_DRAIN_S = 604_800
"""A week. A drain must end, and the poll of a socket counts milliseconds in 32 bits."""
KEEP_EVERY_S = 60.0
"""How often a channel touches its files: systemd-tmpfiles deletes files that are untouched for 10 days."""
LAST_ANSWERS_TIMEOUT_S = 0.5
"""How long `close` waits until pending responses are sent."""


class ControlledRun(Protocol):
    """The methods that the control channel calls on the coordinator process to serve requests."""

    @property
    def run(self) -> str:
        """Id of this start of the query."""

    def sunk(self, document: Mapping[str, Any], batch: int | None, query: Mapping[str, Any]) -> dict[str, Any]:
        """Take the listener's report that Spark has completed the batch of `document` (R15)."""

    def ranges(self) -> dict[str, Any]:
        """Return the ranges of the batch in flight."""

    def log_ends(self) -> dict[str, Any]:
        """List the log end offsets of the owned partitions; return `ends` in the format of Spark's connector."""

    def drain(self, timeout: float, *, ends: bool = False) -> dict[str, Any]:
        """Stop planning, commit the last batch and leave the group. With `ends` the query ends once `end` is called."""

    def end(self) -> dict[str, Any]:
        """End the query: all of its coordinator processes are drained."""

    def pause(self, partitions: Collection[TopicPartition] | None, *, is_paused: bool) -> dict[str, Any]:
        """Pause the reading of `partitions`, or resume it; None means the entire query."""

    def status(self) -> dict[str, Any]:
        """Return the state of the member, its positions and its events."""


def directory(jvm_pid: int) -> Path:
    """Return the directory that contains the control channels of one driver."""
    return Path(tempfile.gettempdir()) / f"streamgroup-{os.getuid()}" / str(jvm_pid)


class NoAnswerError(TransportError):
    """A coordinator process exists but does not respond: it is stopped, hung or too busy."""


def drivers() -> list[int]:
    """Return the pids of this user's JVMs on this machine that have control channels, or had some when killed."""
    home = directory(0).parent
    if not is_private(home):
        return []
    return sorted(int(path.name) for path in home.glob("[0-9]*") if path.name.isdigit())


def make_private(path: Path) -> None:
    """Make a directory that only this user can use. Raises PermissionError if `path` exists and is not private."""
    path.mkdir(mode=0o700, exist_ok=True)
    _require_private(path)


def _require_private(path: Path) -> None:
    found = path.lstat()  # not stat: another user may have made a link, and its target would be swept
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{path} is not a private directory of this user")


def is_private(path: Path) -> bool:
    """Return whether a directory belongs to this user, and no other user can use it."""
    try:
        _require_private(path)
    except OSError:
        return False
    return True


def runs(jvm_pid: int) -> list[str]:
    """Return the run ids of the driver's coordinator processes that have a control channel."""
    home = directory(jvm_pid)
    if not (is_private(home.parent) and is_private(home)):  # another user may have put sockets there
        return []
    return sorted(path.stem for path in home.glob("*.sock"))


def ask(
    jvm_pid: int, run: str, request: str, *, answer_timeout: float = MESSAGE_TIMEOUT_S, **arguments: Any
) -> dict[str, Any]:
    """Send one request to the coordinator process of `run`, and return its response.

    Raises NoAnswerError if no response arrives within `answer_timeout` seconds, TransportError if the process cannot be
    reached, and StreamGroupError if it refuses the request.
    """
    base = directory(jvm_pid) / run
    who = f"the coordinator of run {run} (driver pid {jvm_pid})"
    try:
        _require_private(base.parent.parent)
        _require_private(base.parent)
        token = base.with_suffix(".token").read_text()
        with local.connect(base.with_suffix(".sock"), min(answer_timeout, MESSAGE_TIMEOUT_S)) as connection:
            connection.send_bytes(json.dumps({"token": token, "request": request, **arguments}).encode())
            if not connection.poll(answer_timeout):
                raise NoAnswerError(f"{who} has not responded to request {request} within {answer_timeout:.0f} s")
            answer = read_message(connection.recv_bytes(LARGEST_MESSAGE))
    except (BlockingIOError, TimeoutError):
        raise NoAnswerError(f"{who} does not respond: its process may be stopped or hung") from None
    except ValueError as error:
        raise TransportError(
            f"cannot read the response of {who} to request {request}: {error}. It may run another "
            f"release of streamgroup"
        ) from None
    except (OSError, EOFError) as error:
        raise TransportError(
            f"cannot reach {who}: {error!r}. Its query has ended, or runs on another machine or as another user"
        ) from None
    if "error" in answer:
        raise StreamGroupError(answer["error"])
    return answer


def read_message(data: bytes) -> dict[str, Any]:
    """Parse a request or a response as a JSON object. Raises ValueError if `data` is not a JSON object."""
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError("invalid message on the control channel: too many nested levels") from None
    if not isinstance(value, dict):
        raise ValueError("invalid message on the control channel: expected a JSON object")
    return value


class Survey(NamedTuple):
    """The result of `survey`: the status of each coordinator that responded, and the run ids of the others."""

    statuses: dict[str, dict[str, Any]]
    silent: list[str]
    """Run ids of processes that exist but did not respond: they are stopped, hung or too busy."""


def statuses(jvm_pid: int, timeout: float = MESSAGE_TIMEOUT_S, deadline: float = math.inf) -> dict[str, dict[str, Any]]:
    """Return by run id the status of each coordinator of a driver that responds.

    `survey` explains the arguments.
    """
    return survey(jvm_pid, timeout, deadline).statuses


def survey(jvm_pid: int, timeout: float = MESSAGE_TIMEOUT_S, deadline: float = math.inf) -> Survey:
    """Request the status of each coordinator of a driver, waiting up to `timeout` seconds for each.

    After `deadline` (`time.monotonic()`) no further request is sent.
    """
    found = Survey({}, [])
    for run in runs(jvm_pid):
        left = min(timeout, deadline - time.monotonic())
        if left <= 0:
            break
        try:
            found.statuses[run] = ask(jvm_pid, run, "status", answer_timeout=left)
        except NoAnswerError:
            found.silent.append(run)
        except (StreamGroupError, ValueError):  # it was killed and left its socket behind, or it is ending
            continue
    return found


def announce_listener(jvm_pid: int, cores: int) -> None:
    """Announce to every coordinator of this driver that a listener reports completed batches.

    `cores`: the number of cores of the application's executors. Raises OSError if the directory cannot be created,
    PermissionError if it is not private.
    """
    home = directory(jvm_pid).parent
    make_private(home)
    marker = home / f"{jvm_pid}{_LISTENED}"
    written = marker.with_suffix(f".{threading.get_ident()}")
    written.touch(0o600)
    written.write_text(str(cores), encoding="ascii")
    written.replace(marker)


def unannounce_listener(jvm_pid: int) -> None:
    """Take back `announce_listener`: the listener was removed."""
    home = directory(jvm_pid).parent
    with suppress(OSError):
        (home / f"{jvm_pid}{_LISTENED}").unlink()
    with suppress(OSError):
        home.rmdir()


def is_listened(jvm_pid: int) -> bool:
    """Return whether a listener is registered in this driver (`streamgroup.listen`)."""
    return (directory(jvm_pid).parent / f"{jvm_pid}{_LISTENED}").exists()


def cores_announced(jvm_pid: int) -> int | None:
    """Return how many cores the executors had when the listener last announced itself; None without a listener."""
    try:
        return int((directory(jvm_pid).parent / f"{jvm_pid}{_LISTENED}").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def partition_of(name: object) -> TopicPartition:
    """Return the partition of a name such as `orders-0`. Raises ValueError for any other text."""
    topic, _, number = name.rpartition("-") if isinstance(name, str) else ("", "", "")
    if not topic or not (number.isascii() and number.isdecimal()) or len(number) > _MOST_DIGITS:
        raise ValueError(f"invalid topic-partition {name!r}: expected a topic, a hyphen and a number, such as orders-0")
    return TopicPartition(topic, int(number))


def _sweep(home: Path) -> None:
    """Remove the files of coordinators and listeners whose driver was killed, and old failures of ended drivers."""
    for left in home.iterdir():
        name = left.name.partition(".")[0]
        if not name.isdigit() or not has_ended(int(name)):
            continue
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        elif not is_kept(left):
            left.unlink(missing_ok=True)


def has_ended(pid: int) -> bool:
    """Return whether no process has this id. Returns False on systems without /proc, where this is unknown."""
    return not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists()


def is_kept(path: Path) -> bool:
    """Return whether `path`, a file of an ended driver, stores failures that are recent enough to keep."""
    try:
        return path.name.endswith(FAILURES) and path.stat().st_mtime > time.time() - FAILURES_KEPT_S
    except FileNotFoundError:
        return False


class ControlServer:
    """Serves the control channel of one coordinator in separate threads, until the process ends."""

    def __init__(self, coordinator: ControlledRun, jvm_pid: int) -> None:
        self._coordinator = coordinator
        self._base = directory(jvm_pid) / coordinator.run
        self._token = secrets.token_hex(32)
        self._lock = threading.Lock()
        """Held while the channel's files are made, kept or removed."""
        self._listener: local.Listener | None = None
        self._answering: set[Future[None]] = set()
        """Done when the answer to a request is sent: `close` waits for them."""
        self._is_warned = False

    def start(self) -> None:
        """Open the channel. If that fails, the query continues without it: it can be stopped, but not drained."""
        try:
            with self._lock:
                make_private(self._base.parent.parent)
                _sweep(self._base.parent.parent)
                self._listener = self._open()
        except (OSError, ConfigError) as error:
            log.warning(
                "cannot open the control channel of run %s: %s. Without the channel %s",
                self._base.name,
                error,
                _WITHOUT,
            )
            return
        threading.Thread(target=self._serve, name="streamgroup-control", daemon=True).start()

    def _open(self) -> local.Listener:
        """Create the channel's directories, token and socket, as far as they are missing."""
        make_private(self._base.parent.parent)
        make_private(self._base.parent)
        with suppress(FileExistsError):
            descriptor = os.open(self._base.with_suffix(".token"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(self._token)
        return local.Listener(self._base.with_suffix(".sock"), _BACKLOG, KEEP_EVERY_S, MESSAGE_TIMEOUT_S)

    def _keep(self) -> None:
        """Touch all files of the driver's coordinators and listener; create this channel's again if they are gone."""
        with self._lock:
            listener = self._listener
            if listener is None:  # closed
                return
            try:
                if not (self._base.with_suffix(".token").exists() and self._base.with_suffix(".sock").exists()):
                    self._base.with_suffix(".sock").unlink(missing_ok=True)
                    self._listener = self._open()
                    listener.close()
                    log.warning(
                        "the files of the control channel in %s were deleted: created them again", self._base.parent
                    )
                home = self._base.parent
                for path in (home.parent, home, home.with_name(home.name + _LISTENED), *home.iterdir()):
                    with suppress(FileNotFoundError):
                        os.utime(path, follow_symlinks=False)
            except (OSError, ConfigError) as error:
                if not self._is_warned:
                    log.warning(
                        "cannot preserve the files of the control channel in %s: %s. Without the channel %s",
                        self._base.parent,
                        error,
                        _WITHOUT,
                    )
                self._is_warned = True

    def close(self) -> None:
        """Remove the channel's files; the last channel of the driver removes the directory, too.

        Waits up to LAST_ANSWERS_TIMEOUT_S for pending responses: a process that ends after a drain must still report
        it.
        """
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        wait(self._answering.copy(), LAST_ANSWERS_TIMEOUT_S)
        for suffix in (".sock", ".token"):
            with suppress(OSError):
                self._base.with_suffix(suffix).unlink()
        with suppress(OSError):
            self._base.parent.rmdir()

    def _serve(self) -> None:
        kept: float | None = None
        while (listener := self._listener) is not None:
            now = time.monotonic()
            if kept is None:
                kept = now
            elif now - kept >= KEEP_EVERY_S:
                kept = now
                self._keep()
                continue  # with the listener that the channel has now
            try:
                connection = listener.accept()
            except OSError as error:
                if self._listener is not None:
                    log.warning(
                        "the control channel of run %s has failed: %s. Without the channel %s",
                        self._base.name,
                        error,
                        _WITHOUT,
                    )
                return
            if connection is not None:
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: local.MessageSocket) -> None:
        with connection, suppress(OSError, EOFError):
            if not connection.poll(MESSAGE_TIMEOUT_S):
                return
            message = connection.recv_bytes(LARGEST_MESSAGE)
            sent: Future[None] = Future()
            self._answering.add(sent)
            try:
                connection.send_bytes(json.dumps(self._answer_to(message)).encode())
            finally:
                self._answering.discard(sent)
                sent.set_result(None)

    def _answer_to(self, message: bytes) -> dict[str, Any]:
        try:
            return self._carry_out(read_message(message))
        except (StreamGroupError, ValueError, TypeError) as error:
            return {"error": str(error)}

    def _carry_out(self, message: Mapping[str, Any]) -> dict[str, Any]:
        token = message.get("token")
        if not isinstance(token, str) or not secrets.compare_digest(token, self._token):
            raise ValueError("invalid token for this run")
        match message:
            case {"request": "sunk", "document": dict(document), "batch": int() | None as batch, "query": dict(query)}:
                return self._coordinator.sunk(document, batch, query)
            case {"request": "ranges" | "log_ends" as what}:
                return self._coordinator.ranges() if what == "ranges" else self._coordinator.log_ends()
            case {"request": "drain", "timeout": int() | float() as timeout}:
                # Refuses NaN, and a negative number of hundreds of digits, which is not a float.
                if not -LONGEST_DRAIN_S <= timeout <= LONGEST_DRAIN_S:
                    raise ValueError(f"invalid drain timeout {timeout}: expected at most {LONGEST_DRAIN_S} seconds")
                return self._coordinator.drain(float(timeout), ends=message.get("ends") is True)
            case {"request": "end"}:
                return self._coordinator.end()
            case {"request": "pause", "partitions": list() | None as names, "paused": bool() as is_paused}:
                partitions = None if names is None else [partition_of(name) for name in names]
                return self._coordinator.pause(partitions, is_paused=is_paused)
            case {"request": "status"}:
                return self._coordinator.status()
        raise ValueError(f"unknown request on the control channel: {message.get('request')!r}")

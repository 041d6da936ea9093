"""Claims ensure that a Spark application has one member per group, unless each member has its own name (R28).

A claim is a locked file in the private directory of the driver's JVM. The coordinator process holds the lock, and the
kernel releases it when that process ends, even if it is killed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from streamgroup.coordinator.control.channel import make_private
from streamgroup.errors import ConfigError
from streamgroup.options.default_mode import MODE_FUNCTION, MODE_VARIABLE

log = logging.getLogger("streamgroup")

TAKE_TIMEOUT_S = 5.0
"""Spark starts a query's new process while the previous one may still be leaving its group."""
_POLL_S = 0.05
_MOST_BYTES = 4096


class Claim:
    """Reserves the member name `member` in `group` for one query of this Spark application.

    `""` is the member without a name (option `group.member`). Two queries of one application would otherwise share the
    partitions of the group by mistake.
    """

    def __init__(self, home: Path, group: str, member: str, run: str) -> None:
        name = hashlib.sha256(json.dumps([group, member]).encode()).hexdigest()[:24]
        self._path = home / f"{name}.claim"
        self._group, self._member, self._run = group, member, run
        self._held: int | None = None

    def take(self, is_over: Callable[[], bool] = lambda: False, timeout: float | None = None) -> None:
        """Take the claim; wait up to `timeout` seconds (TAKE_TIMEOUT_S) for an earlier process that leaves the group.

        Raises ConfigError if another process still has the claim after that. Returns without the claim if its file
        cannot be created, or once `is_over()` returns True.
        """
        timeout_s = TAKE_TIMEOUT_S if timeout is None else timeout
        began: float | None = None
        try:
            make_private(self._path.parent.parent)
            make_private(self._path.parent)
            while not self._taken():
                if is_over():
                    return
                now = time.monotonic()
                began = now if began is None else began
                if now - began >= timeout_s:
                    raise ConfigError(self._refusal(_holder_of(self._path)))
                time.sleep(_POLL_S)
        except OSError as error:
            log.warning(
                "group %s: cannot check for another query of this application in the group: %s", self._group, error
            )

    def release(self) -> None:
        """Release the claim and delete its file."""
        held, self._held = self._held, None
        if held is None:
            return
        with suppress(OSError):
            self._path.unlink()  # still locked: a run that waits for this file sees that it was replaced
        os.close(held)

    def _taken(self) -> bool:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(descriptor, self._path):  # its holder has removed it meanwhile
                os.close(descriptor)
                return False
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"run": self._run, "pid": os.getpid()}).encode(), 0)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._held = descriptor
        return True

    def _refusal(self, holder: str) -> str:
        if self._member:
            who = (
                f"another query of this Spark application is already the member {self._member!r} of this group "
                f"({holder})"
            )
            ways = "give each of them another name: "
        else:
            who = f"another query of this Spark application is already a member of this group ({holder})"
            ways = "give each its own name: "
        return (
            f"group {self._group!r}: {who}. Two members of one group share the group's partitions, so neither reads "
            "all of them. If you have started one query twice, stop the first: for query in spark.streams.active: "
            "query.stop(). If each query must read all partitions, as with format('kafka'), set "
            f".option('group.mode', 'off') or give each query its own kafka.group.id. {MODE_FUNCTION}(spark, 'off') "
            f"sets the mode of all queries of a session, and {MODE_VARIABLE}=off in the driver's environment sets it "
            "for all sessions. group.mode=commit reads all partitions and commits. If the queries are to share the "
            f"partitions, {ways}.option('group.member', '<name>'). A query with two sources of one group, as a "
            "self-join has, is two members as well"
        )


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _holder_of(path: Path) -> str:
    """Return which process has the claim, as written in its file, for example `run 5f… in process 4711`."""
    try:
        with path.open("rb") as file:
            holder = json.loads(file.read(_MOST_BYTES))
        return f"run {holder['run']} in process {holder['pid']}"
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return "unknown run"

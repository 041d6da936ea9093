"""Drains all coordinators of a query together (R30), and stores the failures of a driver's queries in a file.

A query has one coordinator process for each of its sources.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from streamgroup.coordinator.control import channel
from streamgroup.coordinator.control.channel import FAILURES, directory, has_ended, is_kept, is_private, make_private
from streamgroup.errors import StreamGroupError
from streamgroup.monitoring.query_totals import QueryFailure

log = logging.getLogger("streamgroup")

ANSWER_GRACE_S = 5.0
"""Seconds after the timeout of a drain within which its response may still arrive."""
_ASKER_GRACE_S = 5.0
"""Seconds after that within which the requesting thread must return."""
POLL_S = 0.05
_NO_ANSWER = "its coordinator has not responded"


def drain_together(
    pid: int,
    runs: Sequence[str],
    timeout: float,
    *,
    ends: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Drain the coordinators `runs` of the driver `pid` at the same time; return their responses in that order.

    No coordinator plans while another one waits for its last batch. A coordinator that refuses or has ended counts as
    not drained, and `why` in its response gives the reason. With `ends`, Spark's next call to one of the drained
    coordinators ends the query. `meanwhile` is called every POLL_S seconds.
    """
    answers: list[dict[str, Any]] = [{"drained": False, "why": _NO_ANSWER} for _ in runs]

    def drain(number: int) -> None:
        try:
            answers[number] = channel.ask(
                pid, runs[number], "drain", answer_timeout=timeout + ANSWER_GRACE_S, timeout=timeout, ends=ends
            )
        except StreamGroupError as error:
            answers[number]["why"] = str(error)

    threads = [
        threading.Thread(target=drain, args=(n,), name="streamgroup-drain", daemon=True) for n in range(len(runs))
    ]
    for thread in threads:
        thread.start()
    began: float | None = None
    while any(thread.is_alive() for thread in threads):
        now = time.monotonic()
        began = now if began is None else began
        if now - began >= timeout + ANSWER_GRACE_S + _ASKER_GRACE_S:
            break
        meanwhile()
        threads[0].join(POLL_S) if threads[0].is_alive() else time.sleep(POLL_S)
    if ends:
        _end(pid, runs)
    return list(answers)


def _end(pid: int, runs: Sequence[str]) -> None:
    for run in runs:
        try:
            channel.ask(pid, run, "end")
        except StreamGroupError as error:  # the query has already ended
            log.debug("%s", error)


# --- failures of queries ---------------------------------------------------------------------------------------------

MOST = 20
"""Maximum number of failures in the file of a driver; the newest are kept."""
_MOST_BYTES = 1 << 20
_lock = threading.Lock()
"""Held while a file is replaced: each session of an application has a listener with its own thread."""


def record_failure(jvm_pid: int, failure: QueryFailure) -> None:
    """Append a failure to the file of this driver.

    Raises OSError, or PermissionError if the directory is not private.
    """
    home = directory(jvm_pid).parent
    make_private(home)
    path = home / f"{jvm_pid}{FAILURES}"
    with _lock:
        known = [asdict(one) for one in _failures_in(path)]
        lines = [json.dumps(one) for one in [*known, asdict(failure)][-MOST:]]
        descriptor, new = tempfile.mkstemp(prefix=f"{jvm_pid}.", suffix=".new", dir=home)  # of mode 0600
        with os.fdopen(descriptor, "w") as file:
            file.write("\n".join(lines) + "\n")
        Path(new).replace(path)


def recorded_failures() -> list[QueryFailure]:
    """Return the recorded failures of this user's drivers on this machine, the oldest first."""
    home = directory(0).parent
    if not is_private(home):
        return []
    files = [
        path
        for path in home.glob(f"*{FAILURES}")
        if (pid := path.name.removesuffix(FAILURES)).isdigit() and (not has_ended(int(pid)) or is_kept(path))
    ]
    found = [failure for path in sorted(files) for failure in _failures_in(path)]
    return sorted(found, key=lambda failure: failure.at)


def _failures_in(path: Path) -> Iterator[QueryFailure]:
    """Yield the failures in a file. A line in the format of another release is skipped."""
    with suppress(OSError, UnicodeDecodeError), path.open() as file:
        for line in file.read(_MOST_BYTES).splitlines():
            with suppress(ValueError, TypeError, KeyError, RecursionError):
                yield _failure_of(json.loads(line))


def _failure_of(value: dict[str, Any]) -> QueryFailure:
    groups = tuple(map(str, value["groups"]))
    return QueryFailure(float(value["at"]), str(value["query"]), groups, str(value["error"]), str(value["text"]))

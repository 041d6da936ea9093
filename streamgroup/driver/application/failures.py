"""Files by which other processes of this user learn of the errors that have ended the queries of a driver.

The coordinator's control channel ends with its query, so it cannot tell. Each driver has one file, of its newest
failures. It counts while the driver lives, and for an hour after the last failure.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from streamgroup.driver.application.control import FAILURES, directory, has_ended, is_kept, is_private, make_private
from streamgroup.monitoring.query_failures import QueryFailure

MOST = 20
"""Failures that the file of a driver keeps, the newest ones."""
_MOST_BYTES = 1 << 20
_lock = threading.Lock()
"""Held while a file is replaced: each session of an application has a listener, with a thread of its own."""


def record_failure(jvm_pid: int, failure: QueryFailure) -> None:
    """Add a failure to the file of this driver. Raises OSError, PermissionError if the directory is not private."""
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
    """Return the failures that the files of this user's drivers on this machine hold, the oldest first."""
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
    """Yield the failures of a file. A line that another release wrote in another way is left out."""
    with suppress(OSError, UnicodeDecodeError), path.open() as file:
        for line in file.read(_MOST_BYTES).splitlines():
            with suppress(ValueError, TypeError, KeyError, RecursionError):
                yield _failure_of(json.loads(line))


def _failure_of(value: dict[str, Any]) -> QueryFailure:
    groups = tuple(map(str, value["groups"]))
    return QueryFailure(float(value["at"]), str(value["query"]), groups, str(value["error"]), str(value["text"]))

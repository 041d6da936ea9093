"""Files by which other processes of this user learn of the errors that have ended the queries of a driver.

The coordinator's control channel ends with its query, so it cannot tell. Each driver has one file, of its newest
failures, which outlives the driver by an hour.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from streamgroup.driver.application.control import FAILURES, directory, is_private, make_private
from streamgroup.monitoring.query_failures import QueryFailure

MOST = 20
"""Failures that the file of a driver keeps, the newest ones."""
_MOST_BYTES = 1 << 20


def record_failure(jvm_pid: int, failure: QueryFailure) -> None:
    """Add a failure to the file of this driver. Raises OSError, PermissionError if the directory is not private."""
    home = directory(jvm_pid).parent
    make_private(home)
    path = home / f"{jvm_pid}{FAILURES}"
    known = [asdict(one) for one in _failures_in(path)]
    lines = [json.dumps(one) for one in [*known, asdict(failure)][-MOST:]]
    new = path.with_suffix(f"{FAILURES}.new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write("\n".join(lines) + "\n")
    new.replace(path)


def recorded_failures() -> list[QueryFailure]:
    """Return the failures that the files of this user's drivers on this machine hold, the oldest first."""
    home = directory(0).parent
    if not is_private(home):
        return []
    found = [failure for path in sorted(home.glob(f"*{FAILURES}")) for failure in _failures_in(path)]
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

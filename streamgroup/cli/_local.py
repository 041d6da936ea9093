"""What coordinators on this machine tell of themselves: they are asked through their control channels."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import Any

from streamgroup.cli._group_tables import Trouble
from streamgroup.driver import control
from streamgroup.errors import StreamGroupError

ANSWER_S = 2.0
"""A coordinator that does not answer at once is busy ending; the others are not kept waiting for it."""


def troubles(groups: Collection[str], deadline: float) -> dict[str, Trouble]:
    """The counters of the members of `groups` whose coordinators run on this machine under this user, by member id.

    `deadline` is on the monotonic clock; coordinators that have not answered until then are left out.
    """
    return {
        status["member"]: status["trouble"]
        for status in _statuses(deadline)
        if status.get("group") in groups and status.get("member") and isinstance(status.get("trouble"), dict)
    }


def _statuses(deadline: float) -> Iterator[dict[str, Any]]:
    for pid in control.drivers():
        for run in control.runs(pid):
            patience = min(ANSWER_S, deadline - time.monotonic())
            if patience <= 0:
                return
            try:
                yield control.ask(pid, run, "status", patience=patience)
            except (StreamGroupError, ValueError):  # killed, and its socket left behind; or ending just now
                continue

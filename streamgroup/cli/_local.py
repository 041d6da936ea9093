"""The status of coordinators on this machine, read through their control channels."""

from __future__ import annotations

from collections.abc import Collection

from streamgroup.cli._group_tables import Trouble
from streamgroup.driver.application import control

ANSWER_S = 2.0
"""How long to wait for one coordinator. One that does not answer at once is ending, and must not delay the others."""


def troubles(groups: Collection[str], deadline: float) -> dict[str, Trouble]:
    """Return the event counts of members of `groups` by member id, for coordinators of this user on this machine.

    `deadline` is on the monotonic clock. A coordinator that has not answered by then is left out.
    """
    return {
        status["member"]: status["trouble"]
        for pid in control.drivers()
        for status in control.statuses(pid, ANSWER_S, deadline).values()
        if status.get("group") in groups and status.get("member") and isinstance(status.get("trouble"), dict)
    }

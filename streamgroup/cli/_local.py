"""What coordinators on this machine tell of themselves: they are asked through their control channels."""

from __future__ import annotations

from collections.abc import Collection

from streamgroup.cli._group_tables import Trouble
from streamgroup.driver.application import control

ANSWER_S = 2.0
"""A coordinator that does not answer at once is busy ending; the others are not kept waiting for it."""


def troubles(groups: Collection[str], deadline: float) -> dict[str, Trouble]:
    """The counters of the members of `groups` whose coordinators run on this machine under this user, by member id.

    `deadline` is on the monotonic clock; coordinators that have not answered until then are left out.
    """
    return {
        status["member"]: status["trouble"]
        for pid in control.drivers()
        for status in control.statuses(pid, ANSWER_S, deadline).values()
        if status.get("group") in groups and status.get("member") and isinstance(status.get("trouble"), dict)
    }

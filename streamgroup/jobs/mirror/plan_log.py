"""The plans of a mirror as numbered files of one directory, which all members share."""

from __future__ import annotations

import re
from collections.abc import Callable

from streamgroup.errors import ConfigError
from streamgroup.jobs.mirror.plan import MirrorPlan
from streamgroup.jobs.sinkguard import Files

_NAME = re.compile(r"(\d{1,9})\.json")


def latest(files: Files, directory: str) -> tuple[int, MirrorPlan]:
    """Return the newest plan and its number, or an empty plan and -1. Raises ConfigError if its file is damaged."""
    numbers = [int(found[1]) for name in files.names(directory) if (found := _NAME.fullmatch(name))]
    if not numbers:
        return -1, MirrorPlan()
    path = f"{directory}/{max(numbers)}.json"
    try:
        return max(numbers), MirrorPlan.from_json(files.read(path) or "")
    except ValueError as error:
        raise ConfigError(
            f"cannot read the plan of the mirror in {path}: {error}. Restore the file, or remove it to go back to the "
            "plan before"
        ) from None


def settle(files: Files, directory: str, make: Callable[[MirrorPlan], MirrorPlan]) -> MirrorPlan:
    """Return the plan that `make` makes of the newest one, after it has been written.

    Members that plan at the same time agree: each number is created once, and the member that comes second plans again
    on top of the other's.
    """
    while True:
        number, before = latest(files, directory)
        plan = make(before)
        if plan == before or files.create(f"{directory}/{number + 1}.json", plan.to_json()):
            return plan

"""Coordinators of this machine that are asked for their counters."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamgroup.cli import groups as module
from streamgroup.coordinator.control import channel
from tests.unit.coordinator.channels import JVM, FakeCoordinator, home, serve

__all__ = ["home", "serve"]

COUNTERS = {"rebalance": {"count": 1, "last": "now", "reason": "the query starts"}}


def tell(coordinator: FakeCoordinator, **status: Any) -> None:
    coordinator.status = lambda: status  # type: ignore[method-assign]


def troubles(*groups: str, within: float = 5.0) -> dict[str, Any]:
    return dict(module.troubles(set(groups), time.monotonic() + within))


def test_members_of_the_groups_asked_for_are_found_by_their_ids(serve: Callable[..., FakeCoordinator]) -> None:
    for number, (group, member) in enumerate([("g", "m-1"), ("other", "m-2"), ("g", "")]):
        tell(serve(f"r{number}"), group=group, member=member, trouble=COUNTERS)
    tell(serve("older"), group="g", member="m-3")
    assert troubles("g") == {"m-1": COUNTERS}
    assert troubles("g", "other").keys() == {"m-1", "m-2"}
    assert troubles("g", within=0.0) == {}


def test_killed_and_busy_coordinators_are_left_out(
    serve: Callable[..., FakeCoordinator], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.2)
    busy = serve("busy")
    (home / str(JVM) / "killed.sock").touch()
    busy.may_answer.clear()
    tell(serve("r1"), group="g", member="m-1", trouble=COUNTERS)
    assert troubles("g") == {"m-1": COUNTERS}
    busy.may_answer.set()


@pytest.mark.usefixtures("home")
def test_without_any_driver_there_are_no_coordinators() -> None:
    assert channel.drivers() == []
    assert troubles("g") == {}

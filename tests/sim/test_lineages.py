"""When the checker takes two members of one lineage for a violation (R28)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.fakes.group import GroupState
from tests.sim.clock import SimulatedClock
from tests.sim.lineages import GRACE_S, LOOK_EVERY_S, Lineages

SESSION_S = 6.0
TOO_LONG_S = SESSION_S + GRACE_S


class Copy(SimpleNamespace):
    """A member with a copy of the checkpoint, whose query goes on."""

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __init__(self, run: str) -> None:
        super().__init__(
            alive=True,
            failure=None,
            run=SimpleNamespace(shutdown=SimpleNamespace(wanted=False)),
            query=SimpleNamespace(is_paused=False),
            network=SimpleNamespace(latency=lambda: 0.001, cut_until=0.0),
            ledger=SimpleNamespace(lineage="lineage", run=run),
            hear=lambda act: act(),
            post=lambda event: None,
        )


class TwoCopies:
    """A world of two such members, in which no broker describes the group."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.found_at: list[float] = []
        world = SimpleNamespace(
            clock=self.clock,
            settings=SimpleNamespace(
                registry=None, session_s=SESSION_S, dead_member_s=SESSION_S, describes_groups=True, consumers=None
            ),
            broker=SimpleNamespace(group=SimpleNamespace(state=GroupState.STABLE), loaded_at=1e9),
            keeper=SimpleNamespace(is_put_out=lambda process: False),
            checker=SimpleNamespace(has_twins=lambda *pair: self.found_at.append(self.clock.now)),
        )
        self.lineages = Lineages(cast("Any", world))
        self.second = cast("Any", Copy("q1"))
        self.lineages.processes = [cast("Any", Copy("q0")), self.second]


@pytest.fixture
def world() -> TwoCopies:
    return TwoCopies()


def test_copies_beside_each_other_for_too_long_are_a_violation(world: TwoCopies) -> None:
    world.clock.run_until(LOOK_EVERY_S + TOO_LONG_S)
    assert not world.found_at
    world.clock.run_until(2 * LOOK_EVERY_S + TOO_LONG_S)
    assert world.found_at


def test_the_wait_begins_anew_where_a_description_failed_between_two_looks(world: TwoCopies) -> None:
    asked_at = 4.5
    world.clock.run_until(asked_at)
    world.lineages.ask(world.second, 1)
    failed_at = asked_at + 2.3  # two seconds without an answer, and a retry; the next look is at 7
    world.clock.run_until(failed_at)
    world.lineages.assigned(world.second)
    world.clock.run_until(failed_at + TOO_LONG_S)
    assert not world.found_at
    world.clock.run_until(failed_at + TOO_LONG_S + 2 * LOOK_EVERY_S)
    assert world.found_at

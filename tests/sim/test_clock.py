"""The simulated clock ends a world that repeats something in no time, and a simulated connection keeps the order."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from streamgroup.group.events import Lane
from tests.sim import checker as words
from tests.sim.checker import Violation
from tests.sim.clock import Endless, SimulatedClock, Sleep, Steps, Thread, Until
from tests.sim.network import Line, Network
from tests.sim.runs import plan_of
from tests.sim.world import World


def test_a_timer_that_is_due_again_at_once_ends_the_world() -> None:
    clock = SimulatedClock()

    def again() -> None:
        clock.after(0.0, again)

    clock.after(3.0, again)
    with pytest.raises(Endless, match="more than 10000 events at this instant"):
        clock.run_until(10.0)
    assert clock.now == 3.0


def test_a_thread_whose_waits_are_over_at_once_ends_the_world() -> None:
    clock = SimulatedClock()

    def steps() -> Steps:
        while True:
            yield Until(lambda: True, 1.0)

    Thread(clock, steps(), lambda act: act(), lambda error: None)
    with pytest.raises(Endless, match="waits of <generator"):
        clock.run_until(10.0)


def test_many_events_of_many_instants_are_not_endless() -> None:
    clock = SimulatedClock()

    def steps() -> Steps:
        for _ in range(20_000):
            yield Sleep(0.001)

    Thread(clock, steps(), lambda act: act(), lambda error: None)
    clock.run_until(30.0)
    assert clock.events > 20_000


def test_an_endless_world_is_a_violation() -> None:
    plan = plan_of(0)
    world = World(plan.seed, plan.settings)

    def director(_: World) -> Steps:
        while True:
            yield Sleep(0.0)

    with pytest.raises(Violation, match=f"^{words.ENDLESS} at 0.000"):
        world.run(5.0, director=director)


def test_a_process_that_is_killed_in_its_pause_takes_no_request_when_the_pause_ends() -> None:
    """It would commit after its successor."""
    plan = plan_of(0)
    world = World(plan.seed, plan.settings)
    killed = []

    def director(world: World) -> Steps:
        query = world.queries[0]
        query.start()
        yield Sleep(3.0)
        assert query.process is not None
        killed.append(query.process)
        query.pause(10.0)
        query.drain(5.0)
        query.kill_coordinator()
        query.resume()

    world.run(5.0, director=director)
    assert [process.run.shutdown.wanted for process in killed] == [False]


def test_nothing_overtakes_what_a_connection_has_held_up_when_it_stalls_no_more() -> None:
    clock = SimulatedClock()
    served: list[str] = []

    def serve(node: int, request: str, answer: Callable[[int], None], process: Any) -> None:
        served.append(request)
        answer(0)

    broker: Any = SimpleNamespace(crashed=(), version=lambda api: 0, handle=serve)
    process: Any = SimpleNamespace(hear=lambda act: act(), answered=lambda line, token, response: None)
    line = Line(Network(clock, random.Random(1), 0.01), broker, process, Lane.COORDINATOR, 1)

    def send(request: str) -> None:
        asked: Any = SimpleNamespace(token=len(line.unanswered), api=None, build=lambda version: request)
        line.send(asked)

    line.stall(5.0)
    send("first")
    clock.run_until(1.0)
    line.heal()
    send("second")
    clock.run_until(10.0)
    assert served == ["first", "second"]

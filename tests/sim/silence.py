"""Spark's silence (R27): a driver that hangs, a JVM that is stopped, and what the checker holds the run to then.

Mirrors the thread of `coordinator/process.py` that looks at the silence. Where that changes, this file changes with it.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from streamgroup.coordinator.run import interface as io
from streamgroup.coordinator.run.lifecycle import LEAVE_TIMEOUT_S, RunState
from tests.sim.clock import Act
from tests.sim.settings import Settings

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.world import Query, World

LOOK_EVERY_S = 1.0
"""How often a process looks at the silence; the real one does so five times as often."""
GRACE_S = 2 * LOOK_EVERY_S + LEAVE_TIMEOUT_S
"""A look finds a stopped JVM, a later one the end of its time; then the member commits and leaves."""


def with_silence(settings: Settings, chance: random.Random) -> Settings:
    """Set `group.maxSilence` in some worlds, without a change to what else their seeds draw.

    It is longer than the longest trigger: a member that leaves before every trigger never proves a batch.
    """
    return replace(settings, max_silence_s=chance.choice((6.0, 10.0, 20.0)) if chance.random() < 0.3 else None)


class Driver:
    """The driver of one query: Spark's thread in it may hang, and its JVM may be stopped."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._hangs_until: float | None = None
        self._backlog: list[Act] = []
        self.stopped_since: float | None = None
        """When the JVM was stopped, None while it runs."""

    def hang(self, seconds: float, *, stopped: bool) -> None:
        """Spark's thread stands still for so long. `stopped`: the whole JVM does (state T)."""
        clock = self._query.clock
        if self._hangs_until is not None or self._query.process is None:
            return
        self._hangs_until = until = clock.now + seconds
        self.stopped_since = clock.now if stopped else None
        what = "its JVM is stopped" if stopped else "hangs"
        clock.note(self._query.name, f"{what} for {seconds:.1f} s")
        clock.at(until, lambda: self.wake() if self._hangs_until == until else None)

    def wake(self) -> None:
        """Spark's thread goes on."""
        if self._hangs_until is not None:
            self._query.clock.note(self._query.name, "goes on")
        self._hangs_until = self.stopped_since = None
        backlog, self._backlog = self._backlog, []
        for act in backlog:
            self.gate(act)

    def forget(self) -> None:
        """The run is over, and its JVM with it."""
        self._hangs_until = self.stopped_since = None
        self._backlog = []

    def gate(self, act: Act) -> None:
        """Spark's thread does `act`, after a pause of all processes and after the hang.

        A call of Spark that is under way is served by the coordinator process, which does not hang.
        """
        self._query.gate(partial(self._pass, act))

    def _pass(self, act: Act) -> None:
        process = self._query.process
        is_served = process is not None and process.alive and process.calling
        if self._hangs_until is not None and not is_served:
            self._backlog.append(act)
        else:
            act()

    def report(self, act: Act) -> None:
        """The listener does `act`. Spark runs it in a thread of its own, which stops with the JVM alone."""
        if self.stopped_since is not None:
            self._backlog.append(act)
        else:
            act()


class SparkSilence:
    """How long Spark has not called one process, as the world sees it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._calls: set[int] = set()
        self._since: float | None = None
        self._is_away = False
        """Whether the run has paused, and its member has not been seen in the group since."""
        process.later(LOOK_EVERY_S, self._look)

    def begin_call(self, call: int) -> None:
        self._calls.add(call)
        self._since = None

    def end_call(self, call: int) -> None:
        """The run has answered a call; Spark may not take the answer before it goes on."""
        if call in self._calls:
            self._calls.remove(call)
            self._since = self._process.clock.now

    def _look(self) -> None:
        process = self._process
        was_paused = self._is_paused
        process.post(io.SilenceLook(process.query.driver.stopped_since is not None))
        if self._is_paused and not was_paused:
            self._leaves()
        process.later(LOOK_EVERY_S, self._look)

    @property
    def _is_paused(self) -> bool:
        return self._process.run.shutdown.state is RunState.PAUSED

    def _leaves(self) -> None:
        """The member leaves in order: what it had in flight may be repeated, if Spark was silent at all."""
        process = self._process
        process.clock.note(process.name, "leaves, as Spark is silent")
        self._is_away = True
        if self._due is not None and process.clock.now >= self._due - 1e-6:
            process.license()
            process.world.checker.excuse(process)

    @property
    def _due(self) -> float | None:
        """When Spark will have been silent, or stopped, for too long (R27)."""
        settings, stopped_since = self._process.settings, self._process.query.driver.stopped_since
        times = []
        if settings.max_silence_s is not None and self._since is not None:
            times.append(self._since + settings.max_silence_s)
        if stopped_since is not None:
            seen_since = max(stopped_since, self._process.query.resumed_at)  # it looks once it goes on itself
            times.append(seen_since + settings.session_s)
        return min(times, default=None)

    def is_overdue(self, sent_at: float, *, leaving: bool) -> bool:
        """Whether a member that sends a request then should have left by that time.

        In ZooKeeper the request that leaves waits for the answer to the one before it, a session timeout at most.
        """
        due, process = self._due, self._process
        if due is None or process.run.shutdown.wanted or process.failure is not None:
            return False
        grace_s = GRACE_S + (process.settings.session_s if leaving else 0.0)
        return sent_at > max(due, process.query.resumed_at) + grace_s

    @property
    def is_missing(self) -> bool:
        """Whether it has left, and is not a member again."""
        process = self._process
        if not process.alive or process.run.shutdown.wanted or process.failure is not None:
            return False
        if self._is_away and not self._is_paused and process.world.keeper.is_member(process):
            self._is_away = False
        return self._is_away


def missing(world: World) -> list[str]:
    """The processes that left while Spark was silent, and that are not back."""
    return [q.process.name for q in world.queries if q.process is not None and q.process.silence.is_missing]

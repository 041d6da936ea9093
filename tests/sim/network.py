"""The simulated network: one connection for each lane of a process, as the group's thread keeps them.

Within a connection the order is kept, and a broker answers one request at a time. A connection may stall (both ways),
be cut off, or break: then answers are lost, and requests that were under way have arrived, or not, or arrive *late*.
A connection that the process gives up is reset (R18): nothing under way on it arrives any more.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from streamgroup.group.events import Lane, Send
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest
from tests.sim.clock import SimulatedClock

if TYPE_CHECKING:
    from tests.sim.broker import SimBroker

LATE_S = 3.0
"""How late a request of a broken connection may still arrive; commits arrive in time or never (R18 stands on that)."""


class Sender(Protocol):
    """The owner of a connection: a process, or one of its threads."""

    name: str

    def hear(self, act: Callable[[], None]) -> None:
        """Something reaches it."""

    def answered(self, line: Line, token: int, response: Any) -> None:
        """A request is answered."""

    def broken(self, line: Line, reason: str) -> None:
        """A connection has broken."""

    def came_late(self) -> None:
        """A request of a broken connection has arrived later than one of a newer connection may have."""


class Network:
    """Latencies and faults between one process and the servers."""

    def __init__(self, clock: SimulatedClock, chance: random.Random, latency_s: float) -> None:
        self.clock = clock
        self._chance = chance
        self._latency_s = latency_s
        self.cut_until = 0.0
        """The process reaches no server until then."""

    def latency(self) -> float:
        """Seconds that a message is under way."""
        return self._latency_s * (0.5 + self._chance.random())

    @property
    def longest_s(self) -> float:
        """The longest that a message is under way, where nothing stalls."""
        return 1.5 * self._latency_s

    def chance(self) -> float:
        return self._chance.random()


class Stalling(ABC):
    """A connection that may stall, both ways or for answers alone."""

    def __init__(self, network: Network) -> None:
        self.stalled_until = 0.0
        self.answers_stalled_until = 0.0
        self._network = network

    def stall(self, seconds: float, *, answers_only: bool = False) -> None:
        """Nothing comes through for so long, or no answer does."""
        until = self._network.clock.now + seconds
        self.answers_stalled_until = max(self.answers_stalled_until, until)
        if not answers_only:
            self.stalled_until = max(self.stalled_until, until)

    def heal(self) -> None:
        self.stalled_until = self.answers_stalled_until = 0.0

    @abstractmethod
    def break_(self, reason: str) -> None:
        """The connection breaks by itself: its process hears of it."""


class Line(Stalling):
    """One connection of a process to a node."""

    def __init__(self, network: Network, broker: SimBroker, process: Sender, lane: Lane, node: int) -> None:
        super().__init__(network)
        self.lane = lane
        self.node = node
        self.open = True
        self.unanswered: dict[int, Send] = {}
        self._broker = broker
        self._process = process
        self._reset = False
        self._broken_at = 0.0
        self._busy = False
        self._inbox: deque[tuple[int, Any]] = deque()
        self._outward = network.clock.now + 2 * network.latency()  # the handshake
        self._back = 0.0
        self._held_until = 0.0

    def send(self, send: Send) -> None:
        """Put a request on the connection."""
        network = self._network
        request = send.build(self._broker.version(send.api))
        self.unanswered[send.token] = send
        self._outward = max(self._outward, network.clock.now + network.latency())
        network.clock.at(self._outward, partial(self._arrive, send.token, request))

    def _delayed(self, act: Callable[[], None], stalled_until: float) -> bool:
        network = self._network
        until = max(stalled_until, network.cut_until)
        if network.clock.now < until:
            self._held_until = max(self._held_until, until)
            network.clock.at(until, act)
            return True
        return False

    def heal(self) -> None:
        """End the stall. Later messages arrive after those that it delayed."""
        super().heal()
        self._outward, self._back = max(self._outward, self._held_until), max(self._back, self._held_until)

    def _arrive(self, token: int, request: Any) -> None:
        if self._reset or (self.open and self._delayed(partial(self._arrive, token, request), self.stalled_until)):
            return
        if not self.open:
            self._arrive_broken(token, request)
        elif self.lane is not Lane.ANY and self.node in self._broker.crashed:
            self.break_("connection refused")
        elif self._busy:
            self._inbox.append((token, request))
        else:
            self._serve(token, request)

    def _arrive_broken(self, token: int, request: Any) -> None:
        """The connection broke while this was under way: it got lost, or the broker has read it and answers nobody."""
        network = self._network
        fate = network.chance()
        commit = isinstance(request, OffsetCommitRequest)
        held_up = network.clock.now > self._broken_at + network.longest_s  # by a stall
        if fate < 0.5 or (commit and held_up):
            return
        in_time = fate < 0.75 or commit
        late = 0.0 if in_time else network.chance() * LATE_S

        def serve() -> None:
            if self.node not in self._broker.crashed:
                if not in_time:
                    self._process.came_late()
                    network.clock.note(self._process.name, f"a late {type(request).__name__} arrives")
                self._broker.handle(self.node, request, lambda response: None, self._process)

        network.clock.after(late, serve)

    def _serve(self, token: int, request: Any) -> None:
        self._busy = True
        self._broker.handle(self.node, request, partial(self._answer, token), self._process)

    def _answer(self, token: int, response: Any) -> None:
        network = self._network
        self._busy = False
        if self.open:
            self._back = max(self._back, network.clock.now + network.latency())
            network.clock.at(self._back, partial(self._deliver, token, response))
        if self._inbox and not self._reset:
            waiting = self._inbox.popleft()
            network.clock.after(0, lambda: self._arrive(*waiting))

    def _deliver(self, token: int, response: Any) -> None:
        if self.open and not self._delayed(partial(self._deliver, token, response), self.answers_stalled_until):
            self._process.hear(partial(self._process.answered, self, token, response))

    def break_(self, reason: str) -> None:
        if self.open:
            self.open, self._broken_at = False, self._network.clock.now
            self._process.hear(partial(self._process.broken, self, reason))

    def abandon(self, *, reset: bool) -> None:
        """The process is done with it: `reset` takes back what is under way, else it may still arrive."""
        self.open = False
        self._reset = reset
        if reset:
            self._inbox.clear()

"""A client of the simulated ZooKeeper with its connection: what kazoo does for a process, event by event.

One connection at a time, in order both ways. It may stall, be cut off, or break: what was under way is then lost, or
carried out and answered to nobody, or left lying and carried out when the session is connected again. The client pings;
without an answer it gives the connection up, which its session outlives: it is *suspended*, connects again, and hears
only then that the session has expired. Watches are gone with the connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from streamgroup.group.registry import events as rv
from tests.fakes.zookeeper import Connection, Session
from tests.sim.clock import Act, SimulatedClock
from tests.sim.network import Network, Stalling
from tests.sim.zookeeper import SimZooKeeper

RETRY_S = 0.3
"""Between two attempts to connect, about."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A request that will have no answer; it may have been carried out."""

    reason: str


Serve = Callable[[Session, "Wire"], Any]
Answer = Callable[[Any], None]


class _Way:
    """One direction of a connection: what is under way arrives in order, and not before the way is free."""

    def __init__(self, network: Network, blocked_until: Callable[[], float]) -> None:
        self._network = network
        self._blocked_until = blocked_until
        self._acts: deque[tuple[float, Act]] = deque()
        self._due = 0.0

    def put(self, act: Act) -> None:
        clock = self._network.clock
        self._due = max(self._due, clock.now + self._network.latency())
        self._acts.append((self._due, act))
        clock.at(self._due, self._arrive)

    def _arrive(self) -> None:
        clock = self._network.clock
        while self._acts and self._acts[0][0] <= clock.now:
            until = self._blocked_until()
            if clock.now < until:
                clock.at(until, self._arrive)
                return
            self._acts.popleft()[1]()


class Wire(Stalling, Connection):
    """One connection of a client, which holds its session's watches."""

    def __init__(self, client: Client) -> None:
        Stalling.__init__(self, client.network)
        Connection.__init__(self)
        self.client = client
        self.session: Session | None = None
        self.open = True
        self.unanswered: deque[Answer] = deque()
        self.outward = _Way(client.network, self._outward_blocked)
        self.backward = _Way(client.network, self._backward_blocked)
        self._closed_by_server = False

    # -- to the server ------------------------------------------------------------------------------------------------

    def _outward_blocked(self) -> float:
        return max(self.stalled_until, self._network.cut_until, self.client.zookeeper.away_until)

    def send(self, serve: Serve, answer: Answer) -> None:
        self.unanswered.append(answer)
        self.outward.put(partial(self._arrive, serve))

    def _arrive(self, serve: Serve) -> None:
        session, zookeeper = self.session, self.client.zookeeper
        assert session is not None
        if self._closed_by_server or session.connection is not self:
            return  # the session is on another connection by now, or over
        if not self.open:  # the connection broke before it came, or after
            fate = self._network.chance()
            if fate < 0.5:
                if fate < 0.1:
                    self.client.lying.append(serve)
                return
            zookeeper.heard_late_of(session)
        else:
            zookeeper.heard_of(session)
        result = serve(session, self)
        self.back(partial(self._answered, result))

    # -- to the client ------------------------------------------------------------------------------------------------

    def _backward_blocked(self) -> float:
        return max(self.answers_stalled_until, self._network.cut_until) if self.open else 0.0

    def back(self, act: Act) -> None:
        """`act` in the client's process, after all that came before."""
        self.backward.put(partial(self._deliver, act))

    def _deliver(self, act: Act) -> None:
        if self.open:
            self.client.hear(lambda: act() if self.open else None)

    def _answered(self, result: Any) -> None:
        self.unanswered.popleft()(result)

    def changed(self, path: str, *, of_children: bool) -> None:
        """A watch has fired; the event comes before any answer that shows the change."""
        self.back(partial(self.client.fired, path, of_children))

    def dropped(self) -> None:
        """The server has closed it: the client hears of that, if anything reaches it."""
        self._closed_by_server = True
        self.back(partial(self.client.disconnected, self, "the server has closed the connection"))

    # -- faults -------------------------------------------------------------------------------------------------------

    def break_(self, reason: str) -> None:
        if self.open:
            self.close()
            self.client.hear(partial(self.client.disconnected, self, reason))

    def close(self) -> None:
        """It is gone. Sent requests may still be carried out, until the server notices or the session moves on."""
        self.open = False
        self.outward.put(self._noticed)

    def _noticed(self) -> None:
        if self.session is not None and self.session.connection is self:
            self.session.connection = None


class Client:
    """See the module. `told` hears what becomes of the session, `fired` of watches (whether of a node's children), both
    in the process; `hear` lets things reach the process: now, after a pause, or never."""

    def __init__(
        self,
        zookeeper: SimZooKeeper,
        network: Network,
        owner: Any,
        timeout_s: float,
        *,
        hear: Callable[[Act], None],
        told: Callable[[rv.RegistryEvent], None],
        fired: Callable[[str, bool], None],
    ) -> None:
        self.zookeeper = zookeeper
        self.network = network
        self.clock: SimulatedClock = network.clock
        self.hear = hear
        self.told = told
        self.fired = fired
        self.session: Session | None = None
        """The newest session that it has heard of, living or not."""
        self.wire: Wire | None = None
        self.fragile = False
        """The connection breaks soon after the next request."""
        self._owner = owner
        self._timeout_s = timeout_s
        self.lying: list[Serve] = []
        """Requests that are carried out first when the session is connected again; nobody waits for them any more."""
        self._over = False

    @property
    def is_connected(self) -> bool:
        return self.wire is not None and not self._over

    # -- sessions -----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect, until it is closed or the session has expired; then in a new one."""
        self._connect()

    def _connect(self) -> None:
        network = self.network
        wire = Wire(self)
        self.clock.after(2 * network.latency(), partial(self.hear, partial(self._reach, wire)))

    def _reach(self, wire: Wire) -> None:
        """A server may be reached, or nobody answers."""
        zookeeper = self.zookeeper
        if self._over:
            return
        if self.clock.now < self.network.cut_until or zookeeper.is_away:
            wait = RETRY_S * (0.5 + self.network.chance())
            self.clock.after(wait, partial(self.hear, self._connect))
            return
        known = self.session
        session = zookeeper.open(self._owner, self._timeout_s) if known is None else zookeeper.session(known.session_id)
        if session is not None:
            wire.session = session
            zookeeper.attach(session, wire)
            lying, self.lying = self.lying, []
            for serve in lying:
                wire.outward.put(partial(self._late, serve, session, wire))
        wire.back(partial(self._connected, wire, session))

    def _late(self, serve: Serve, session: Session, wire: Wire) -> None:
        if session.connection is wire:
            serve(session, wire)

    def _connected(self, wire: Wire, session: Session | None) -> None:
        if self._over:
            return
        if session is None:
            self.session = None
            self.lying.clear()
            self.told(rv.Expired("the session has expired"))
            return
        began = self.session is None
        self.session, self.wire = session, wire
        self.told(rv.SessionBegan(session.session_id, int(self._timeout_s * 1000)) if began else rv.Resumed())
        self._ping(wire, answered=True)

    def disconnected(self, wire: Wire, reason: str) -> None:
        """The connection is lost: what is unanswered fails."""
        if self.wire is not wire:
            return
        self.wire = None
        wire.close()
        self._fail(wire.unanswered, reason)
        if not self._over:
            self.told(rv.Suspended(reason))
            self._connect()

    def _fail(self, answers: deque[Answer], reason: str) -> None:
        while answers:
            answers.popleft()(Loss(reason))

    def _ping(self, wire: Wire, *, answered: bool) -> None:
        """A third of the session after the last ping: its answer is there, or the connection is given up."""
        if self.wire is not wire:
            return
        if not answered:
            self.disconnected(wire, "no answer to a ping")
            return
        heard: list[Any] = []
        wire.send(lambda session, wire: None, heard.append)
        pinged = partial(self.hear, lambda: self._ping(wire, answered=bool(heard)))
        self.clock.after(self._timeout_s / 3, pinged)

    def close(self, closed: Act) -> None:
        """End the session in order; `closed` hears when that has come about, or cannot."""
        self._over = True
        if self.wire is None:
            self.clock.after(0, partial(self.hear, closed))
        else:
            self.wire.send(lambda session, wire: self.zookeeper.end(session), lambda result: closed())

    def die(self) -> None:
        """The process is gone: the system closes its connection, the session stays until its time is over."""
        self._over = True
        if self.wire is not None:
            self.wire.close()
            self.wire = None

    # -- requests -----------------------------------------------------------------------------------------------------

    def request(self, serve: Serve, answer: Answer) -> None:
        """Have `serve` carried out by the server; `answer` hears what it returned, or a `Loss`: at once where there is
        no connection."""
        if self._over or self.wire is None:
            answer(Loss("the connection is lost"))
            return
        self.wire.send(serve, answer)
        if self.fragile:
            self.fragile = False
            soon = 3 * self.network.latency() * self.network.chance()
            self.clock.after(soon, partial(self.wire.break_, "connection reset by peer"))

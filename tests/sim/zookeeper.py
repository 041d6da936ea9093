"""A simulated ZooKeeper: the server of the unit tests, with time. Sessions expire, and the servers may be away.

A session that reconnects takes what is under way on its old connection with it (nothing of that is carried out
afterwards). The connections are `tests/sim/zkclient.py`'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from streamgroup.znodes import Operation
from tests.fakes.zookeeper import Connection, Session, ZooKeeper
from tests.sim.clock import SimulatedClock

TICK_S = 0.5
"""Sessions expire at the ticks of the server: up to so much later than they might."""


class SimZooKeeper(ZooKeeper):
    """See the module. `written` is told of each transaction: by whom, and what."""

    def __init__(self, clock: SimulatedClock, written: Callable[[Session | None, Sequence[Operation]], None]) -> None:
        super().__init__()
        self.clock = clock
        self.away_until = 0.0
        """No server answers until then."""
        self.renewed_at = -1e9
        """When the sessions went on after the servers had been away, or began anew with another leader."""
        self.late_at: dict[Any, float] = {}
        """By client: when the last packet of a connection that it had given up, or died with, renewed its session."""
        self._tell = written

    def written(self, session: Session | None, operations: Sequence[Operation]) -> None:
        self._tell(session, operations)

    # -- sessions -----------------------------------------------------------------------------------------------------

    @property
    def is_away(self) -> bool:
        return self.clock.now < self.away_until

    def open(self, client: Any = None, timeout_s: float = 0.0) -> Session:
        session = super().open(client, timeout_s)
        self.heard_of(session)
        self._watch_deadline(session)
        return session

    def attach(self, session: Session, connection: Connection) -> None:
        super().attach(session, connection)
        self.heard_of(session)

    def heard_of(self, session: Session) -> None:
        """Its client has sent something."""
        session.deadline = math.ceil((self.clock.now + session.timeout_s) / TICK_S) * TICK_S

    def heard_late_of(self, session: Session) -> None:
        """The packets that its client's system had yet to send have arrived, and count as any others do."""
        self.late_at[session.client] = self.clock.now
        self.heard_of(session)

    def _watch_deadline(self, session: Session) -> None:
        def look() -> None:
            if session.session_id not in self._sessions:
                return
            if self.is_away:
                self.clock.at(self.away_until, look)
            elif self.clock.now >= session.deadline:
                self._expire(session)
            else:
                self.clock.at(session.deadline, look)

        self.clock.at(session.deadline, look)

    def go_away(self, seconds: float, *, election: bool) -> None:
        """The servers are gone for so long. With an `election` all connections break and every session begins anew
        with the new leader; else they stand still, and sessions whose time was over meanwhile expire."""
        self.away_until = max(self.away_until, self.clock.now + seconds)
        self.clock.at(self.away_until, self._elected if election else self._expire_overdue)
        if election:
            for session in tuple(self._sessions.values()):
                if session.connection is not None:
                    session.connection.dropped()

    def come_back(self) -> None:
        """End an absence now. Sessions expire, or begin anew, when it was to end."""
        if self.is_away:
            self.away_until = self.renewed_at = self.clock.now

    def _elected(self) -> None:
        self.renewed_at = self.clock.now
        for session in self._sessions.values():
            self.heard_of(session)

    def _expire_overdue(self) -> None:
        """Before anything is read that waits in the sockets."""
        self.renewed_at = self.clock.now
        for session in tuple(self._sessions.values()):
            if not self.is_away and self.clock.now >= session.deadline:
                self._expire(session)

    def _expire(self, session: Session) -> None:
        self.clock.note("zookeeper", f"session {session.session_id} of {session.client} expired")
        self.end(session)

"""The brokers of Kafka 0.7 and 0.8 as ZooKeeper knows them: ephemeral, back only when what they left there is gone."""

from __future__ import annotations

import json

from streamgroup.model import Dialect
from streamgroup.znodes import Create, Operation, Set
from tests.fakes.zookeeper import Session
from tests.sim.broker import Logs
from tests.sim.bytelogs import Logs07
from tests.sim.clock import SimulatedClock
from tests.sim.nodes import BROKERS, TOPICS, Nodes
from tests.sim.zookeeper import SimZooKeeper

_SESSION_S = 6.0
_BEAT_S = 1.5


class OldBrokers:
    """The brokers' registrations; a broker that is away is none of the cluster's."""

    def __init__(self, clock: SimulatedClock, zookeeper: SimZooKeeper, nodes: Nodes, logs: Logs, count: int) -> None:
        self._clock = clock
        self._zookeeper = zookeeper
        self._nodes = nodes
        self._logs = logs
        self._sessions: dict[int, Session] = {}
        self._up = set(range(count))
        self._returning: set[int] = set()
        """Brokers that were away, and have yet to register."""
        for path in (BROKERS, TOPICS):
            zookeeper.ensure(None, path)
        for topic in logs.counts:
            self._register_topic(topic)
        for broker in range(count):
            self._register(broker)
        self._beat()

    def go(self, broker: int, *, in_order: bool) -> None:
        """A broker stops, or dies: then it is in ZooKeeper until its session is over."""
        if broker in self._up and len(self._up) > 1:
            self._clock.note("zookeeper", f"broker {broker} is gone")
            self._up.discard(broker)
            if isinstance(self._logs, Logs07):
                self._logs.away.add(broker)
            if in_order:
                self._zookeeper.end(self._sessions[broker])

    def come(self, broker: int) -> None:
        """It starts; where its own registration still stands it does not, and is started again later."""
        if broker in self._sessions and broker not in self._up:
            self._up.add(broker)
            self._returning.add(broker)
            self._beat_of(broker)

    def all_come(self) -> None:
        for broker in tuple(self._sessions):
            self.come(broker)

    def grew(self, topic: str) -> None:
        """A topic has more partitions; in 0.7 it is on another broker."""
        if isinstance(self._logs, Logs07):
            for broker in self._logs.hosts[topic]:
                if broker not in self._sessions:
                    self._up.add(broker)
                    self._register(broker)
                elif broker in self._up:
                    self._zookeeper.transact(self._sessions[broker], [self._hosted(topic, broker)])
        else:
            self._register_topic(topic)

    def __len__(self) -> int:
        return len(self._sessions)

    def _beat(self) -> None:
        if not self._zookeeper.is_away:
            for broker in sorted(self._up):
                self._beat_of(broker)
        self._clock.after(_BEAT_S, self._beat)

    def _beat_of(self, broker: int) -> None:
        session = self._sessions[broker]
        if self._zookeeper.session(session.session_id) is None:  # also where it has expired under a living broker
            self._register(broker)
        elif broker not in self._returning:
            self._zookeeper.heard_of(session)

    def _register(self, broker: int) -> None:
        session = self._sessions[broker] = self._zookeeper.open(f"broker {broker}", _SESSION_S)
        operations: list[Operation] = [Create(f"{BROKERS}/{broker}", self._nodes.broker(broker), ephemeral=True)]
        self._returning.discard(broker)
        if isinstance(self._logs, Logs07):
            if broker in self._logs.away:
                self._logs.away.discard(broker)
                self._logs.back_at[broker] = self._clock.now
            operations += [self._hosted(topic, broker) for topic, on in self._logs.hosts.items() if broker in on]
        for operation in operations:
            self._zookeeper.transact(session, [operation])

    def _hosted(self, topic: str, broker: int) -> Operation:
        return Create(f"{TOPICS}/{topic}/{broker}", str(self._logs.counts[topic]).encode(), ephemeral=True)

    def _register_topic(self, topic: str) -> None:
        path, data = f"{TOPICS}/{topic}", b""
        if self._nodes.dialect is Dialect.KAFKA:
            partitions = {str(p): [p % len(self._up)] for p in range(self._logs.counts[topic])}
            data = json.dumps({"version": 1, "partitions": partitions}).encode()
        if self._zookeeper.transact(None, [Create(path, data)]) is not None:
            self._zookeeper.transact(None, [Set(path, data)])

"""A consumer of Kafka's own from before 0.9, as `ZookeeperConsumerConnector` behaves: no generation, no fence.

It registers, claims what falls to it, tries 4 times at intervals of 2 s, and then gives up: it owns nothing until the
next change. It reads the offsets before it claims, commits what it has consumed every few seconds and whoever owns the
partition meanwhile. So it may repeat, and make others repeat; it loses nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from streamgroup.advice import StoredIn
from streamgroup.group.registry import events as rv
from streamgroup.model import Dialect, OffsetRange, TopicPartition
from streamgroup.znodes import Create, Delete, Set
from tests.fakes.zookeeper import Session
from tests.sim.clock import Act, Sleep, Steps, Thread, Until, raise_failure
from tests.sim.network import Network
from tests.sim.nodes import TOPICS, chunk
from tests.sim.settings import ConsumerSettings
from tests.sim.zkclient import Client, Loss, Wire

if TYPE_CHECKING:
    from tests.sim.registry import SimRegistry
    from tests.sim.world import World

RETRIES = 4
BACKOFF_S = 2.0
FETCH_S = 0.25
FOREVER_S = 1e9

Asked = Generator[Sleep | Until, None, Any]


class _Failed(Exception):
    """A rebalance found something missing: it is tried again."""


class OldConsumer:
    """One connector over its runs; `position` is what its application has consumed of what it owns."""

    def __init__(self, world: World, registry: SimRegistry, settings: ConsumerSettings) -> None:
        self.world = world
        self.clock = world.clock
        self.settings = settings
        self.name = settings.name
        self.running = False
        self.held_down = False
        self.positions: dict[TopicPartition, int] = {}
        self.has_given_up = False
        """All its tries have failed: it owns nothing until the next change."""
        self._registry = registry
        self._nodes = registry.nodes
        self._zookeeper = registry.zookeeper
        self._chance = random.Random(f"{world.seed} {self.name}")
        self._runs = 0
        self._network = Network(world.clock, self._chance, world.settings.latency_s)
        self.client: Client | None = None
        self._threads: list[Thread] = []
        self._paused_until: float | None = None
        self._backlog: list[Act] = []
        self._id = ""
        self._fetching = False
        self._triggered = self._registers = False
        self._seen: dict[str, object] = {}

    def __str__(self) -> str:
        return self.name

    # -- running ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.running or self.held_down:
            return
        self._runs += 1
        self.running = True
        self._fetching = self._triggered = self._registers = self.has_given_up = False
        self._seen.clear()
        self._id = f"{self._registry.group}_{self.name}-{int(self.clock.now * 1000)}-{self._runs:08x}"
        self.clock.note(self.name, f"starts as {self._id}")
        client = self.client = Client(
            self._zookeeper,
            self._network,
            self,
            self.world.settings.session_s,
            hear=partial(self._hear, self._runs),
            told=self._told,
            fired=self._fired,
        )
        client.open()
        self._threads = [Thread(self.clock, steps, self.gate, raise_failure) for steps in self._all_threads()]

    def _all_threads(self) -> Sequence[Steps]:
        return self._rebalances(), self._fetches(), self._commits()

    def _hear(self, run: int, act: Act) -> None:
        if self.running and run == self._runs:
            self.gate(partial(self._heard, run, act))

    def _heard(self, run: int, act: Act) -> None:
        if self.running and run == self._runs:
            act()
            for thread in self._threads:
                thread.look()

    def gate(self, act: Act) -> None:
        if self._paused_until is not None:
            self._backlog.append(act)
        else:
            act()

    def pause(self, seconds: float) -> None:
        if self._paused_until is None and self.running:
            self._paused_until = until = self.clock.now + seconds
            self.clock.at(until, lambda: self.resume() if self._paused_until == until else None)

    def resume(self) -> None:
        if self._paused_until is not None:
            self._paused_until = None
            backlog, self._backlog = self._backlog, []
            for act in backlog:
                self.gate(act)

    def cut(self, seconds: float) -> None:
        self._network.cut_until = max(self._network.cut_until, self.clock.now + seconds)

    def heal(self) -> None:
        self._network.cut_until = 0.0
        if self.client is not None and self.client.wire is not None:
            self.client.wire.heal()

    def kill(self) -> None:
        """kill -9: what it has registered lingers until its session is over."""
        if not self.running:
            return
        self.running = self._fetching = False
        self.clock.note(self.name, "is down")
        if self.client is not None:
            self.client.die()
        for thread in self._threads:
            thread.kill()
        self.positions.clear()
        self._paused_until, self._backlog = None, []
        self.clock.after(self.world.restart_s(), self.start)

    def stop(self) -> None:
        """`shutdown`: it commits, and ends its session."""
        if self.running:
            for thread in self._threads:
                thread.kill()
            self._threads = [Thread(self.clock, self._shutdown(), self.gate, raise_failure)]

    def _shutdown(self) -> Steps:
        self._fetching = False
        yield from self._commit()
        closed: list[bool] = []
        if self.client is not None:
            self.client.close(lambda: closed.append(True))
        yield Until(lambda: bool(closed), 1.0)
        self.kill()

    # -- ZooKeeper ----------------------------------------------------------------------------------------------------

    def _told(self, event: rv.RegistryEvent) -> None:
        match event:
            case rv.SessionBegan():  # `resetState`, whatever a rebalance is at meanwhile
                self._registers = self._triggered = True
                self._fetching = False
                self.positions.clear()
            case rv.Resumed():  # Java's client registers its watches again, and hears what they missed
                for path in tuple(self._seen):
                    self._watch(path)
            case rv.Expired() if self.client is not None:
                self.client.open()

    def _fired(self, path: str, of_children: bool) -> None:
        self._watch(path)
        self._triggered = True

    def _watch(self, path: str) -> None:
        """Look again, with a watch; where it is not as it was seen before, all is rebalanced."""
        before = self._seen.get(path)

        def looked(now: Any) -> None:
            if isinstance(now, Loss):
                self._seen.setdefault(path, now)  # looked at again when it is connected again
                return
            self._seen[path] = now
            self._triggered |= before is not None and now != before

        assert self.client is not None
        self.client.request(self._read(path), looked)

    def _read(self, path: str) -> Callable[[Session, Wire], Any]:
        """Of a topic's nodes in 0.8 the data counts, of all others the children."""
        zookeeper = self._zookeeper
        if self._nodes.dialect is Dialect.KAFKA and path.startswith(TOPICS):
            return lambda session, wire: getattr(zookeeper.data(path, wire), "data", b"")
        return lambda session, wire: getattr(zookeeper.children(path, wire), "children", ())

    def _ask(self, serve: Callable[[Session, Wire], Any]) -> Asked:
        """Have it done; where the connection is lost, again when it is back (`retryUntilConnected`)."""
        while True:
            answers: list[Any] = []
            client = self.client
            assert client is not None
            yield Until(lambda client=client: client.is_connected, FOREVER_S)  # type: ignore[misc]
            client.request(serve, answers.append)
            yield Until(lambda answers=answers: bool(answers), FOREVER_S)  # type: ignore[misc]
            if not isinstance(answers[0], Loss):
                return answers[0]

    def _look(self, path: str) -> Asked:
        zookeeper = self._zookeeper
        return self._ask(lambda session, wire: zookeeper.data(path))

    def _children(self, path: str) -> Asked:
        return self._ask(lambda session, wire: self._zookeeper.names(path))

    def _create(self, path: str, data: bytes) -> Asked:
        """`createEphemeralPathExpectConflict`: whether it is there now, and its own."""

        def serve(session: Session, wire: Wire) -> bool:
            zookeeper = self._zookeeper
            zookeeper.ensure(session, path.rpartition("/")[0])
            refused = zookeeper.transact(session, [Create(path, data, ephemeral=True)])
            there = zookeeper.data(path)
            return refused is None or (there is not None and there.data == data)

        return self._ask(serve)

    # -- rebalancing --------------------------------------------------------------------------------------------------

    def _rebalances(self) -> Steps:
        while True:
            yield Until(lambda: self._triggered, FOREVER_S)
            self._triggered = False
            if self._registers:
                yield from self._register()
            yield from self._rebalance()

    def _register(self) -> Steps:
        self._registers = False
        data = self._nodes.subscription(self.settings.topics, self.settings.streams)
        yield from self._ask(lambda session, wire: self._zookeeper.ensure(session, self._nodes.ids))
        yield from self._create(f"{self._nodes.ids}/{self._id}", data)
        self._seen.clear()
        for path in (self._nodes.ids, *(f"{TOPICS}/{topic}" for topic in self.settings.topics)):
            self._watch(path)

    def _rebalance(self) -> Steps:
        self.has_given_up = False
        for attempt in range(RETRIES):
            try:
                done = yield from self._try()
            except _Failed:
                done = False
            if done:
                self.clock.note(self.name, f"owns {', '.join(map(str, self.positions)) or 'nothing'}")
                return
            self.clock.note(self.name, f"cannot rebalance, try {attempt + 1}")
            yield Sleep(BACKOFF_S)
        self.has_given_up = True
        self.clock.note(self.name, "gives up")

    def _try(self) -> Asked:
        consumers = yield from self._streams()
        share: dict[TopicPartition, str] = {}
        for topic in self.settings.topics:
            partitions: list[TopicPartition] = yield from self._partitions(topic)
            threads = sorted(f"{consumer}-{n}" for consumer, streams in consumers for n in range(streams.get(topic, 0)))
            mine = [f"{self._id}-{n}" for n in range(self.settings.streams)]
            if not set(mine) <= set(threads):
                raise _Failed
            share |= {tp: thread for thread in mine for tp in chunk(partitions, threads, thread)}
        self._fetching = False
        yield from self._commit()
        for tp in tuple(self.positions):
            if tp in self.positions:  # not where a new session has made it forget them
                yield from self._release([tp])
        positions = {}
        for tp in share:
            positions[tp] = (yield from self._committed(tp)) or self._smallest(tp)
        owned = []
        for tp, thread in share.items():
            if (yield from self._create(self._nodes.owner(tp), thread.encode())):
                owned.append(tp)
        if len(owned) < len(share):
            yield from self._release(owned)
            return False
        self.positions, self._fetching = positions, True
        return True

    def _smallest(self, tp: TopicPartition) -> int:
        """`autooffset.reset`."""
        return self.world.logs.range(tp).earliest

    def _streams(self) -> Asked:
        consumers = []
        for name in (yield from self._children(self._nodes.ids)):
            node = yield from self._look(f"{self._nodes.ids}/{name}")
            if node is None:
                raise _Failed
            consumers.append((name, self._nodes.streams(node.data)))
        return consumers

    def _partitions(self, topic: str) -> Asked:
        """The topic's partitions in their order: of names in 0.7, of numbers in 0.8."""
        return self._ask(lambda session, wire: self._registry.partitions(topic))

    def _release(self, partitions: Sequence[TopicPartition]) -> Steps:
        """Deletes the owner nodes, without a look at whose they are: by now they may be another's."""
        for tp in partitions:
            yield from self._ask(partial(self._delete, tp))
            self.positions.pop(tp, None)

    def _delete(self, tp: TopicPartition, session: Session, wire: Wire) -> None:
        path = self._nodes.owner(tp)
        node = self._zookeeper.data(path)
        if node is not None and node.owner != session.session_id:
            self.clock.note(self.name, f"deletes the owner node of {tp}, which is not its own")
            self._registry.disowned(node.owner, tp)
        self._zookeeper.transact(session, [Delete(path)])

    # -- consuming ----------------------------------------------------------------------------------------------------

    def _fetches(self) -> Steps:
        while True:
            yield Sleep(FETCH_S)
            for tp, position in tuple(self.positions.items()) if self._fetching else ():
                most = 1000 if self.world.calm else self.settings.chunk
                until = self.world.logs.behind(tp, position, most)
                if until > position:
                    self.world.checker.consumed(OffsetRange(tp, position, until))
                    self.positions[tp] = until

    def _commits(self) -> Steps:
        while True:
            yield Sleep(self.settings.autocommit_s)
            yield from self._commit()

    def _commit(self) -> Steps:
        """Each offset of what it owns, moved or not: to Kafka, and then to ZooKeeper, where the group has both."""
        for tp in tuple(self.positions):
            if tp not in self.positions:
                continue
            offset, stored_in = self.positions[tp], self._registry.settings.stored_in
            if stored_in is not StoredIn.ZOOKEEPER:
                yield from self._ask_brokers(partial(self._store, tp, offset))
            if stored_in is not StoredIn.KAFKA:
                yield from self._ask(partial(self._put, self._nodes.offset(tp), str(offset).encode()))

    def _committed(self, tp: TopicPartition) -> Asked:
        """The larger of what the group's stores have."""
        stored_in, found = self._registry.settings.stored_in, None
        if stored_in is not StoredIn.ZOOKEEPER:
            found = yield from self._ask_brokers(partial(self._registry.stored_offset, tp))
        if stored_in is StoredIn.KAFKA:
            return found
        node = yield from self._look(self._nodes.offset(tp))
        return found if node is None else max(int(node.data), found or 0)

    def _ask_brokers(self, serve: Callable[[], Any]) -> Asked:
        """Have the coordinator of the offsets do it; again where it does not answer."""
        broker, network = self._registry.offsets, self._network
        assert broker is not None
        while True:
            yield Sleep(network.latency())
            if self.clock.now >= network.cut_until and broker.is_available:
                answer = serve()
                yield Sleep(network.latency())
                return answer
            yield Sleep(BACKOFF_S)

    def _store(self, tp: TopicPartition, offset: int) -> None:
        session = self.client.session if self.client is not None else None
        self._registry.stored_by_consumer(self.name, 0 if session is None else session.session_id, {tp: offset})

    def _put(self, path: str, data: bytes, session: Session, wire: Wire) -> None:
        zookeeper = self._zookeeper
        if zookeeper.transact(session, [Set(path, data)]) is not None:
            zookeeper.ensure(session, path.rpartition("/")[0])
            zookeeper.transact(session, [Create(path, data)])

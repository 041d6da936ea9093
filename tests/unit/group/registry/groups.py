"""Groups for tests: machines at a ZooKeeper in memory, topics, brokers, consumers of another make."""

from __future__ import annotations

import itertools
import random
from typing import Any, TypeVar

from streamgroup.group import events as ev
from streamgroup.group.offsets.store import Answer, CommitOffsets, OffsetsCommitted, Outcome
from streamgroup.group.offsets.zookeeper import ZooKeeperOffsetStore
from streamgroup.group.registry import events as zk
from streamgroup.group.registry import nodes as f
from streamgroup.group.registry.membership import RegistryMembership
from streamgroup.group.registry.nodes import GroupPaths, Incarnation
from streamgroup.group.registry.view import owner_subtrees, subtrees, view_of
from streamgroup.group.timing import MemberConfig
from streamgroup.kafka.wire import registrations
from streamgroup.logformat import KAFKA07_LOG
from streamgroup.model import CommittedOffset, Dialect, TopicPartition
from streamgroup.znodes import Create, Delete
from tests.fakes.zookeeper import Client, Connection, Session, ZooKeeper

A = TypeVar("A")

GROUP = "g"
OWN_TOKENS = 1 << 32
"""As in group/member.py."""
OLD = GroupPaths(GROUP, Dialect.KAFKA07)


def of(actions: list[Any], kind: type[A]) -> list[A]:
    return [action for action in actions if isinstance(action, kind)]


def tps(*names: str) -> tuple[TopicPartition, ...]:
    """`t:0-1` is broker 0's partition 1 of t."""
    split = (name.split(":") for name in names)
    return tuple(TopicPartition(topic, registrations.partition_in(KAFKA07_LOG, name)) for topic, name in split)


class Cluster:
    """Brokers of 0.7 and their topics as ZooKeeper has them, members, real consumers; time, which passes for all."""

    def __init__(self) -> None:
        self.zk = ZooKeeper()
        self.now = 100.0
        self.members: list[One] = []
        self.real: list[RealConsumer] = []
        self._ids = itertools.count(1)

    def broker(self, number: int, **topics: int) -> Session:
        """A broker registers with so many partitions of each topic; its session."""
        session = self.zk.open()
        self.zk.put(f"{registrations.BROKERS}/{number}", f"h-{number}:h{number}:9092", session)
        for topic, count in topics.items():
            self.zk.put(f"{registrations.TOPICS}/{topic}/{number}", str(count), session)
        return session

    def member(self, name: str = "", topics: tuple[str, ...] = ("t",), *, start: bool = True, **config: Any) -> One:
        """A member of ours; ids sort by `name`, or as they come."""
        one = One(self, name or f"m{next(self._ids):02}", topics, **config)
        self.members.append(one)
        if start:
            one.start()
        return one

    def run(self, seconds: float = 0.0) -> None:
        """Everything that is under way is done; time goes on by so much, from wake to wake."""
        until = self.now + seconds
        for _ in range(100_000):
            turns = [one.turn() for one in self.members]
            if any(turns):
                continue
            due = [one.wake_at for one in self.members if one.wake_at is not None]
            due += [one.due for one in self.real if one.due is not None]
            if not due or min(due) > until:
                self.now = until
                return
            self.now = max(self.now, min(due))
            for one in self.members:
                if one.wake_at is not None and one.wake_at <= self.now:
                    one.step(ev.Tick())
            for real in self.real:
                real.tick()
        raise AssertionError("it never comes to rest")


class One:
    """A machine, its client, and what it has told."""

    def __init__(self, cluster: Cluster, name: str, topics: tuple[str, ...], **config: Any) -> None:
        self.cluster = cluster
        self.name = name
        self.topics = topics
        self.client = Client(cluster.zk)
        self._made = itertools.count(1)
        settings = MemberConfig(GROUP, **({"session_timeout_ms": 6_000, "heartbeat_interval_ms": 2_000} | config))
        self.machine = RegistryMembership(settings, random.Random(1), OLD, self._incarnation)
        self.out: list[Any] = []
        """All that it has wanted."""
        self.store = ZooKeeperOffsetStore(OLD)
        self.answers: list[Answer] = []
        """The store's."""
        self.held: frozenset[TopicPartition] = frozenset()
        """As the member plans it: told, and not taken back since."""
        self.committed: frozenset[TopicPartition] = frozenset()
        """As its ledger has it: until the next assignment, or a loss."""
        self.wake_at: float | None = None
        self._sends = OWN_TOKENS
        self._owned: dict[TopicPartition, int] = {}

    def _incarnation(self) -> Incarnation:
        return Incarnation(f"{self.name}.{next(self._made)}", 1_700_000_000_000)

    def start(self) -> None:
        self.step(ev.Start(self.topics))

    @property
    def id(self) -> str:
        return self.machine.member_id

    def step(self, event: Any) -> list[Any]:
        """The machine hears an event."""
        actions = self.machine.step(event, self.cluster.now)
        self.wake_at = next((a.time for a in actions if isinstance(a, ev.WakeAt)), None)
        self.want(*actions)
        return actions

    def want(self, *actions: Any) -> None:
        """As the member has its store follow, and the thread carries out."""
        for wanted in actions:
            self.take(self.store.follow(wanted))
            self._carry_out((wanted,))

    def take(self, outcome: Outcome) -> None:
        self.answers += outcome.answers
        self._carry_out(outcome.actions)

    def _carry_out(self, actions: tuple[Any, ...]) -> None:
        for action in actions:
            self.out.append(action)
            match action:
                case zk.OpenSession() | zk.CloseSession() | zk.ReadSubtrees() | zk.Transact():
                    self.client.carry_out(action)
                case ev.Assigned():
                    self.held = self.committed = frozenset(action.partitions)
                    self._see_kept(action)
                case ev.Joining():
                    self.held = frozenset()
                case ev.Lost() | ev.Left():
                    self.held = self.committed = frozenset()

    def _see_kept(self, told: ev.Assigned) -> None:
        """A partition that is reported as kept has had the same owner node since the assignment before."""
        nodes = {tp: self.cluster.zk.data(OLD.owner(tp)) for tp in told.partitions}
        session = self.client.session
        mine = {tp: node for tp, node in nodes.items() if node and session and node.owner == session.session_id}
        made = {tp: node.czxid for tp, node in mine.items()}
        broken = [tp for tp in told.kept & made.keys() if self._owned.get(tp) != made[tp]]
        assert not broken, f"{self.name}: {broken} were not owned without a break"
        self._owned = made

    def turn(self) -> bool:
        """One request is served or one event heard."""
        if self.client.events:
            self.hear(self.client.events.popleft())
            return True
        if self.client.wanted and self.client.session is None and not self.client.connected:
            self.client.connect()
            return True
        return self.client.serve()

    def hear(self, event: Any) -> None:
        """An event of the session, as the thread hands it on."""
        taken = self.store.takes(event)
        self.take(self.store.hear(event, self.cluster.now))
        if not taken:
            self.step(event)

    def commit(self, offset: int, *partitions: TopicPartition, metadata: str = "") -> int:
        """The member commits this offset of all that its ledger has (or of `partitions`); the token of the request."""
        self._sends += 1
        offsets = {tp: CommittedOffset(offset, metadata) for tp in sorted(partitions or self.committed)}
        commit = CommitOffsets(self._sends, GROUP, self.id, self.machine.generation, offsets, 5_000)
        self.take(self.store.commit(commit, self.cluster.now))
        return self._sends

    def codes(self, token: int) -> dict[TopicPartition, int] | None:
        """The answer to a commit; None while there is none."""
        for answer in self.answers:
            if isinstance(answer, OffsetsCommitted) and answer.token == token:
                return {tp: verdict.code for tp, verdict in answer.verdicts.items()}
        return None

    def last(self, kind: type[A]) -> A:
        return of(self.out, kind)[-1]

    def notes(self) -> str:
        return "\n".join(note.text for note in of(self.out, ev.Note))


class RealConsumer(Connection):
    """A consumer as Kafka's own: at each change it gives everything up and claims what it computes, 4 times in 8 s."""

    TRIES, BACKOFF_S = 4, 2.0

    def __init__(self, cluster: Cluster, name: str, *topics: str) -> None:
        super().__init__()
        self.cluster, self.zk = cluster, cluster.zk
        self.id, self.topics = name, topics
        self.session = self.zk.open()
        self.owned: set[TopicPartition] = set()
        self.failed = 0
        self.due: float | None = None
        self._tries = 0
        self.zk.attach(self.session, self)
        self.zk.put(OLD.consumer(name), f.registration(Dialect.KAFKA07, topics, 0), self.session)
        cluster.real.append(self)
        self.rebalance_soon()

    def changed(self, path: str, *, of_children: bool) -> None:
        self.rebalance_soon()

    def rebalance_soon(self) -> None:
        """In a thread of its own."""
        self._tries, self.due = self.TRIES, self.cluster.now

    def tick(self) -> None:
        if self.due is not None and self.cluster.now >= self.due:
            self._rebalance()

    def _rebalance(self) -> None:
        for tp in sorted(self.owned):
            self.zk.transact(self.session, [Delete(OLD.owner(tp))])
        self.owned.clear()
        watched = self.zk.read(subtrees(OLD, self.topics), self)
        view = view_of(OLD, watched | self.zk.read(owner_subtrees(OLD, self.topics, watch=False)))
        mine = {tp: thread for tp, thread in view.shares().items() if f.consumer_of(thread) == self.id}
        for tp, thread in mine.items():
            claim = Create(OLD.owner(tp), f.owner_data(thread), ephemeral=True)
            if self.zk.transact(self.session, [claim], (OLD.owners(tp.topic),)) is None:
                self.owned.add(tp)
        self._tries -= 1
        if self.owned == mine.keys():
            self.due = None
            return
        for tp in sorted(self.owned):
            self.zk.transact(self.session, [Delete(OLD.owner(tp))])
        self.owned.clear()
        self.due = self.cluster.now + self.BACKOFF_S if self._tries else None
        self.failed += not self._tries

    def kill(self) -> None:
        self.due = None
        self.cluster.real.remove(self)
        self.zk.end(self.session)


# -- two brokers with three partitions each of t -----------------------------------------------------------------------

ALL = tps("t:0-0", "t:0-1", "t:0-2", "t:1-0", "t:1-1", "t:1-2")


def cluster() -> Cluster:
    made = Cluster()
    made.broker(0, t=3)
    made.broker(1, t=3)
    return made


def group(*names: str, **config: Any) -> tuple[Cluster, list[One]]:
    """Members in a cluster, each with its share."""
    made = cluster()
    members = [made.member(name, **config) for name in names]
    made.run(1)
    return made, members


def owners(made: Cluster, topic: str = "t") -> dict[str, str]:
    paths = {name: made.zk.get(f"{OLD.owners(topic)}/{name}") for name in made.zk.names(OLD.owners(topic))}
    return {name: data.decode() for name, data in paths.items() if data is not None}


def plan(member: One) -> None:
    member.step(ev.Planned())
    member.step(ev.Asked())


def agrees(made: Cluster) -> None:
    """Every partition is held by one member, and its node says so."""
    held = [tp for member in made.members for tp in member.held]
    assert sorted(held) == sorted(ALL)
    for member in made.members:
        assert all(made.zk.get(OLD.owner(tp)) == f"{member.id}-0".encode() for tp in member.held)


def linger(made: Cluster, *partitions: TopicPartition) -> Session:
    """Owner nodes of a dead consumer whose session has yet to expire."""
    ghost = made.zk.open()
    for tp in partitions:
        made.zk.put(OLD.owner(tp), "ghost-0", ghost)
    return ghost

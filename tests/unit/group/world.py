"""Queries of one group in memory: real members, a coordinator that keeps offsets, and time that only goes on when told.

A query here is Spark: it asks for batches, sinks them and remembers how far it is. Messages go through their bytes.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

from streamgroup.coordinator.planning.batch import next_document, replay_ranges
from streamgroup.errors import StreamGroupError
from streamgroup.group import events as ev
from streamgroup.group.consumer_membership import ConsumerMembership
from streamgroup.group.ledger import Ledger
from streamgroup.group.member import Member, MemberAction, Resolve
from streamgroup.group.membership import Membership
from streamgroup.group.offsets.kafka import KafkaOffsetStore
from streamgroup.group.start_positions import Origin
from streamgroup.group.timing import MemberConfig
from streamgroup.kafka.wire.messages.group import JoinGroupRequest
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from streamgroup.model import (
    INITIAL_DOCUMENT,
    CommittedOffset,
    Document,
    OffsetRange,
    PartitionInfo,
    TopicInfo,
    TopicPartition,
)
from tests.fakes.consumer_group import ConsumerGroup, Release
from tests.fakes.group_coordinator import ScriptedCoordinator, through_bytes
from tests.fakes.offsets import OFFSETS_VERSION

SESSION_S = 45.0
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)

COOPERATIVE: dict[str, Any] = {"strategies": ("cooperative-sticky",)}
"""The config of a query whose batches go on through rebalances."""


class NoJitter:
    def next(self) -> float:
        return 0.1

    def reset(self) -> None:
        pass


def member_of(membership: Any, ledger: Ledger, instance_id: str | None = None) -> Member:
    return Member(
        membership,
        ledger,
        KafkaOffsetStore(),
        instance_id=instance_id,
        session_timeout_s=SESSION_S,
        request_timeout_ms=30_000,
        backoff=NoJitter(),
    )


class QueryRun:
    """One run of a query: Spark, its sink and the member. `start` is the newest document in Spark's commits."""

    membership: Membership | ConsumerMembership

    def __init__(self, world: GroupWorld, name: str, start: Document, topics: tuple[str, ...], **config: Any) -> None:
        self.world = world
        self.name = name
        self.topics = topics
        self.start = start
        self.ledger = Ledger("g", name, "lineage")
        machine = Membership if world.coordinator.consumers is None else ConsumerMembership
        self.membership = machine(MemberConfig("g", **config), random.Random(name))
        self.member = member_of(self.membership, self.ledger, config.get("instance_id"))
        self.handed: tuple[OffsetRange, ...] = ()
        self.log: list[MemberAction] = []
        self.failure: StreamGroupError | None = None

    @property
    def held(self) -> list[int]:
        return [tp.partition for tp in sorted(self.ledger.held)]

    @property
    def positions(self) -> dict[int, int]:
        return {tp.partition: p.offset for tp, p in self.ledger.positions().items()}

    def act(self, actions: list[MemberAction]) -> None:
        self.world.carry_out(self, actions)
        self.world.run()

    def poll(self) -> bool:
        """`latestOffset` up to where a plan may be made."""
        self.act(self.member.batch_completed(self.start, self.world.now))
        return self.member.may_plan(self.world.now)

    def plan(self) -> Document | None:
        if not self.poll():
            return None
        document = next_document(
            self.start,
            group="g",
            lineage=self.ledger.lineage,
            run=self.ledger.run,
            positions=self.ledger.positions(),
            ends=self.world.ends,
        )
        if document is not None:
            self.act(self.member.planned(document, self.world.now))
        return document

    def ask(self, document: Document) -> None:
        """`partitions` of a document planned here."""
        self.handed, actions = self.member.handed_out(document, self.world.now)
        self.act(actions)

    def replay(self, document: Document, seen: dict[TopicPartition, CommittedOffset] | None = None) -> None:
        """`partitions` of a document that another run planned."""
        seen = dict(self.world.coordinator.offsets) if seen is None else seen
        self.handed = tuple(replay_ranges(document, seen))
        self.act(self.member.replayed(self.start, document, self.handed, seen, self.world.now))

    def sink(self, document: Document) -> None:
        self.world.sunk += [(r.partition.partition, offset) for r in self.handed for offset in range(r.start, r.until)]
        self.start, self.handed = document, ()

    def leave(self) -> None:
        """The end of a run: the last commit, and LeaveGroup."""
        self.act(self.member.farewell(self.world.now))
        self.act(self.member.step(ev.Stop(), self.world.now))

    def begin(self) -> Document:
        """A batch that is in flight."""
        document = self.plan()
        assert document is not None, f"{self.name} may not plan, or nothing is new"
        self.ask(document)
        return document

    def batch(self) -> Document:
        """A whole batch, up to the commit in Spark's log; the proof comes with the next `poll`."""
        document = self.begin()
        self.sink(document)
        return document


class GroupWorld:
    """Topic t, its coordinator, queries, and the time that they live in."""

    def __init__(self, partitions: int = 2, end: int = 0, **config: Any) -> None:
        self.config = config
        """Of all queries, as in MemberConfig."""
        self.coordinator = ScriptedCoordinator()
        self.partitions = partitions
        self.topic_id = "id"
        self.more: dict[str, int] = {}
        """The numbers of partitions of topics besides t."""
        self.ends = {TopicPartition("t", n): end for n in range(partitions)}
        self.latest = True
        self.queries: list[QueryRun] = []
        self.sunk: list[tuple[int, int]] = []
        self.now = 100.0
        self.queue: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.silent: set[type[Any]] = set()
        """APIs whose requests are handled, but whose answers never come."""
        self.deaf: set[type[Any]] = set()
        """APIs whose requests never arrive."""
        self.join_version: int | None = None
        """Of JoinGroup; None: the highest that we speak."""
        self.most: int | None = None
        """The highest version of the APIs of members that the coordinator supports; None: of all that we speak."""
        self.held_back: list[Callable[[], None]] | None = None
        """Answers to OffsetFetch, while it is a list."""

    def query(
        self,
        name: str,
        start: Document = INITIAL_DOCUMENT,
        *,
        join: bool = True,
        topics: tuple[str, ...] = ("t",),
        **config: Any,
    ) -> QueryRun:
        """A query's run; `config` as in MemberConfig."""
        query = QueryRun(self, name, start, topics, **self.config | config)
        self.queries.append(query)
        if join:
            self.join(query)
        return query

    def join(self, query: QueryRun) -> None:
        query.act(query.member.step(ev.Start(query.topics), self.now))
        self.tell_topics(query)

    def topics(self) -> dict[str, TopicInfo]:
        """The topics that there are. All but t have an id with their name."""
        counts = {"t": self.partitions, **self.more}
        infos = {name: tuple(PartitionInfo(n, n % 2, 1) for n in range(count)) for name, count in counts.items()}
        others = {name: str(uuid.uuid5(uuid.NAMESPACE_URL, name)) for name in counts}
        ids = others | {"t": self.topic_id}
        return {name: TopicInfo(name, of, ids[name]) for name, of in infos.items() if of}

    def tell_topics(self, query: QueryRun) -> None:
        asked = frozenset({"t", *self.more})
        query.act(query.member.step(ev.MetadataRefreshed(self.topics(), asked), self.now))

    def produce(self, count: int) -> None:
        self.ends = {tp: end + count for tp, end in self.ends.items()}

    def die(self, query: QueryRun) -> None:
        """The process is killed; its session is over."""
        self.queries.remove(query)
        if query.membership.member_id in self.coordinator.keeper.members:
            self.coordinator.expel(query.membership.member_id)
        self.run()

    def repeated(self) -> list[tuple[int, int]]:
        return sorted({record for record in self.sunk if self.sunk.count(record) > 1})

    def missing(self, start: int = 0) -> set[tuple[int, int]]:
        every = {(tp.partition, offset) for tp, end in self.ends.items() for offset in range(start, end)}
        return every - set(self.sunk)

    # -- the thread of the group --------------------------------------------------------------------------------------

    def run(self, seconds: float = 0.0) -> None:
        """Deliver everything, then let the time go on."""
        end = self.now + seconds
        for _ in range(20_000):
            while self.queue:
                self.queue.pop(0)()
            due = min([*self._wakes(), *(at for at, _ in self.timers)], default=end + 1)
            if due > end:
                self.now = end
                return
            self.now = max(self.now, due)
            self._fire()
        raise AssertionError("the group does not come to rest")

    def _wakes(self) -> list[float]:
        return [q.member.wake_at for q in self.queries if q.member.wake_at is not None]

    def _fire(self) -> None:
        ripe = [timer for timer in self.timers if timer[0] <= self.now]
        self.timers = [timer for timer in self.timers if timer[0] > self.now]
        self.queue += [action for _, action in ripe]
        for query in self.queries:
            if query.member.wake_at is not None and query.member.wake_at <= self.now:
                self.carry_out(query, query.member.step(ev.Tick(), self.now))

    def carry_out(self, query: QueryRun, actions: list[MemberAction]) -> None:
        query.log += actions
        for action in actions:
            match action:
                case ev.Send():
                    self.send(query, action)
                case ev.NeedTopics(_, urgent=True):
                    self.queue.append(lambda: self.tell_topics(query))
                case Resolve():
                    self.queue.append(lambda wanted=action: self.resolve(query, wanted))  # type: ignore[misc]
                case ev.Fail(error):
                    query.failure = error

    def resolve(self, query: QueryRun, wanted: Resolve) -> None:
        latest = {
            tp: self.ends[tp] if self.latest and o is Origin.STARTING else 0 for tp, o in wanted.partitions.items()
        }
        query.act(query.member.resolved(wanted.generation, latest, self.now))

    def tell(self, query: QueryRun, event: ev.Event) -> None:
        if query in self.queries:
            self.carry_out(query, query.member.step(event, self.now))

    def send(self, query: QueryRun, send: ev.Send) -> None:
        offsets = send.api in {OffsetFetchRequest, OffsetCommitRequest}
        version = OFFSETS_VERSION if offsets else send.api.VERSIONS[1]
        if send.api is JoinGroupRequest and self.join_version is not None:
            version = self.join_version
        if not offsets and self.most is not None:
            version = max(send.api.VERSIONS[0], min(version, self.most))

        def reply(response: Any) -> None:
            answer = lambda: self.tell(query, ev.RequestAnswered(send.token, response, version))  # noqa: E731
            if send.api is OffsetFetchRequest and self.held_back is not None:
                self.held_back.append(answer)
            elif send.api in self.silent:
                late()
            else:
                self.queue.append(answer)

        def late() -> None:
            due = self.now + send.timeout_ms / 1000
            self.timers.append((due, lambda: self.tell(query, ev.RequestFailed(send.token, "no answer in time"))))

        request = send.build(version)
        if send.api in self.deaf:
            late()
        else:
            self.queue.append(lambda: through_bytes(self.coordinator, request, version, reply))


class ConsumerWorld(GroupWorld):
    """The same, where the members use the consumer protocol and `release` says which brokers there are."""

    def __init__(self, partitions: int = 2, end: int = 0, release: Release | None = None, **config: Any) -> None:
        super().__init__(partitions, end, **config)
        self.topic_id = str(uuid.uuid5(uuid.NAMESPACE_URL, "t"))
        self.group = self.coordinator.consumers = ConsumerGroup(
            WorldClock(self), self.topics, session_s=SESSION_S, release=release or Release()
        )

    def join(self, query: QueryRun) -> None:
        """Spark has asked for a batch, so the member knows the checkpoint before it joins."""
        query.poll()
        super().join(query)

    def epochs(self) -> dict[str, int]:
        """The epoch of each query, as its member has it."""
        return {query.name: query.ledger.generation for query in self.queries}


class WorldClock:
    """The time of a world, for the timers of its group."""

    def __init__(self, world: GroupWorld) -> None:
        self._world = world

    @property
    def now(self) -> float:
        return self._world.now

    def at(self, time: float, act: Callable[[], None]) -> None:
        self._world.timers.append((time, act))

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        self.at(self.now + seconds, act)

    def note(self, who: str, what: str) -> None:
        pass


def offsets(world: GroupWorld) -> dict[int, int]:
    return {tp.partition: committed.offset for tp, committed in world.coordinator.offsets.items()}


def founded(partitions: int = 2, records: int = 10, **config: Any) -> tuple[GroupWorld, QueryRun]:
    """A query that has started at the logs' ends, 0, and has `records` new ones in each partition."""
    world = GroupWorld(partitions, **config)
    query = world.query("A")
    assert query.poll()
    world.produce(records)
    return world, query


def sends(query: QueryRun, api: type[object]) -> int:
    return sum(isinstance(action, ev.Send) and action.api is api for action in query.log)

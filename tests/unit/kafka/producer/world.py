"""Simulated clusters, networks and applications around one producer: one seed is one world.

Connections deliver in order. A request that was on its way when its connection broke is lost, or processed late, after
requests of the next connection. An answer on its way is lost.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from streamgroup.errors import DeliveryTimeoutError, ErrorCode, ProduceError
from streamgroup.kafka.producer import events as ev
from streamgroup.kafka.producer.batch import ProducerBatch
from streamgroup.kafka.producer.config import Idempotence, ProducerConfig
from streamgroup.kafka.producer.machine import Producer
from streamgroup.kafka.wire.messages import produce as messages
from streamgroup.kafka.wire.messages.produce import LeaderIdAndEpoch, PartitionProduceResponse, ProduceResponse
from streamgroup.model import PartitionInfo, TopicInfo, TopicPartition
from tests.unit.kafka.producer.broker import Era, Partition, Sealed

TOPIC = "t"
MOST_STEPS = 20_000
APPENDED_YET = (
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
"""Codes that a leader may answer although it has appended the batch."""


@dataclass(frozen=True)
class Records:
    """A payload."""

    uids: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.uids)

    @property
    def size(self) -> int:
        return 10 * len(self.uids)


@dataclass(frozen=True)
class Faults:
    """The probabilities of one world."""

    cut: float = 0.0
    """Of a lost connection, at each request."""
    move: float = 0.0
    """Of a leader that moves, at each request and partition."""
    odd: float = 0.0
    """Of an error after the append, at each request and partition."""
    isr: float = 0.0
    """Of too few replicas for a while."""
    pause: float = 0.0
    """Of a broker that stops for a while, at each request."""
    throttle: float = 0.0
    down: float = 0.0
    """Of a broker that refuses connections for a while."""
    restart: float = 0.0
    """Of a broker that crashes and starts again at once, at each request."""
    expiry: float = 0.0
    """Of a long silence after which the brokers have forgotten the producer."""
    fenced: float = 0.0
    """Of another producer that takes the id, at each append."""


@dataclass
class Plan:
    """One world: the producer's configuration, the cluster and its faults."""

    config: ProducerConfig
    faults: Faults
    era: Era = Era.MODERN
    nodes: int = 3
    partitions: int = 2
    appends: int = 25
    version: int = 12
    first_epoch: int = 0
    most_records: int = 1_000
    longest_pause_s: float = 0.5


@dataclass
class Outcome:
    """The fate of a batch."""

    uids: tuple[int, ...]
    offset: int | None = None
    """None: failed."""
    error: ProduceError | None = None


@dataclass
class Connection:
    """A connection to one broker."""

    generation: int = 0
    arrives_at: float = 0.0
    answers_at: float = 0.0


@dataclass
class ProducerSimulation:
    """The simulation of one plan."""

    plan: Plan
    seed: int
    make: Callable[[ProducerConfig, random.Random], Producer] = Producer
    now: float = 100.0
    wrong: list[str] = field(default_factory=list)
    outcomes: dict[TopicPartition, list[Outcome]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.producer = self.make(self.plan.config, random.Random(self.seed))
        self.parts = {
            TopicPartition(TOPIC, n): Partition(n % self.plan.nodes, most_records=self.plan.most_records)
            for n in range(self.plan.partitions)
        }
        self.connections = {node: Connection() for node in range(self.plan.nodes)}
        self.stopped_until = dict.fromkeys(range(self.plan.nodes), 0.0)
        self.down_until = dict.fromkeys(range(self.plan.nodes), 0.0)
        self.muted_until = dict.fromkeys(range(self.plan.nodes), 0.0)
        self.in_flight: dict[int, set[int]] = {node: set() for node in range(self.plan.nodes)}
        self.heap: list[tuple[float, int, Callable[[], None]]] = []
        self.counter = itertools.count()
        self.uids = dict.fromkeys(self.parts, 0)
        self.ids = itertools.count(7_000)
        self.wake: float | None = None
        self.steps = 0
        self.quiet = False
        """Whether the faults are over."""

    # -- the application ----------------------------------------------------------------------------------------------

    def run(self) -> ProducerSimulation:
        """Append everything, flush, wait until all is resolved; then check."""
        at = self.now
        for _ in range(self.plan.appends):
            at += self.rng.choice((0.0, 0.001, 0.02, 0.3))
            if self.rng.random() < self.plan.faults.expiry:
                at += self.rng.choice((200.0, 4_000.0))
                self.at(at - 1.0, self.forget_producers)
            self.at(at, self.append)
        self.at(at + 3.0, self.end_faults)
        self.at(at, lambda: self.step(ev.Flush()))
        while self.steps < MOST_STEPS:
            due = self.heap[0][0] if self.heap else float("inf")
            if self.wake is not None and self.wake < due:
                self.now = max(self.now, self.wake)
                self.step(ev.Tick())
            elif self.heap:
                self.now, _, do = heapq.heappop(self.heap)
                do()
            else:
                break
            if self.done():
                break
        self.check()
        return self

    def done(self) -> bool:
        return self.quiet and not self.heap and not self.producer.unresolved

    def at(self, time: float, do: Callable[[], None]) -> None:
        heapq.heappush(self.heap, (time, next(self.counter), do))

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        self.at(self.now + seconds, do)

    def append(self) -> None:
        payloads = []
        for partition in self.parts:
            for _ in range(self.rng.randint(0, 3)):
                first = self.uids[partition]
                self.uids[partition] += self.rng.randint(1, 3)
                payloads.append((partition, Records(tuple(range(first, self.uids[partition])))))
        if self.rng.random() < self.plan.faults.fenced and not self.quiet:
            self.fence()
        self.step(ev.Append(payloads))

    def end_faults(self) -> None:
        self.quiet = True

    def forget_producers(self) -> None:
        if not self.producer.unresolved:
            for partition in self.parts.values():
                partition.producers.clear()

    def fence(self) -> None:
        """Another process has got hold of the id and raised its epoch."""
        for partition in self.parts.values():
            for entry in partition.producers.values():
                entry.epoch += 1_000
                entry.last.clear()

    # -- the shell ----------------------------------------------------------------------------------------------------

    def step(self, event: ev.Event) -> None:
        self.steps += 1
        self.wake = None
        for action in self.producer.step(event, self.now):
            self.carry_out(action)

    def carry_out(self, action: ev.Action) -> None:
        match action:
            case ev.WakeAt(time=time):
                self.wake = time
            case ev.Send():
                self.send(action)
            case ev.Disconnect(node=node):
                self.in_flight[node].clear()
                self.connections[node] = Connection(self.connections[node].generation + 1)
            case ev.ReadMetadata():
                self.after(self.rng.uniform(0.001, 0.05), self.metadata)
            case ev.GetProducerId():
                self.after(self.rng.uniform(0.001, 0.05), self.give_id)
            case ev.Split(batch=batch):
                uids = self.records(batch)
                half = len(uids) // 2
                parts = (Records(uids[:half]), Records(uids[half:]))
                self.after(0.001, lambda: self.step(ev.SplitInto(batch, parts)))
            case ev.Delivered(batch=batch, base_offset=offset):
                self.resolved(batch, Outcome(self.records(batch), offset))
            case ev.Failed(batch=batch, error=error):
                self.resolved(batch, Outcome(self.records(batch), None, error))

    @staticmethod
    def records(batch: ProducerBatch) -> tuple[int, ...]:
        return tuple(uid for payload in batch.payloads for uid in payload.uids)  # type: ignore[attr-defined]

    def resolved(self, batch: ProducerBatch, outcome: Outcome) -> None:
        self.outcomes.setdefault(batch.partition, []).append(outcome)
        late = self.now - batch.created_at - self.plan.config.delivery_timeout_ms / 1000
        if late > 1e-6:
            self.wrong.append(f"{batch} was resolved {late:.3f} s late")

    def metadata(self) -> None:
        if self.chance(0.1):
            self.step(ev.MetadataFailed("no broker answers"))
            return
        infos = []
        for tp, partition in self.parts.items():
            electing = self.chance(0.05)
            infos.append(PartitionInfo(tp.partition, -1 if electing else partition.leader, partition.leader_epoch))
        self.step(ev.MetadataRead({TOPIC: TopicInfo(TOPIC, tuple(infos))}, frozenset({TOPIC})))

    def give_id(self) -> None:
        if self.chance(0.2):
            code = self.rng.choice((13, 14, 15, -1))
            self.step(ev.ProducerIdRefused(code))
        else:
            self.step(ev.ProducerIdGiven(next(self.ids), self.plan.first_epoch))

    def chance(self, probability: float) -> bool:
        return not self.quiet and self.rng.random() < probability

    # -- the network --------------------------------------------------------------------------------------------------

    def send(self, send: ev.Send) -> None:
        node, faults = send.node, self.plan.faults
        connection = self.connections[node]
        generation = connection.generation
        self.watch(send)
        connected = bool(self.in_flight[node])
        self.in_flight[node].add(send.token)
        if self.now < self.down_until[node] and not self.quiet:
            self.after(0.001, lambda: self.disconnect(node, generation, written=connected))
            return
        batches = [
            Sealed(b.partition, self.records(b), b.identity.producer_id, b.identity.epoch, b.base_sequence)
            for b in send.batches
        ]
        arrives = max(connection.arrives_at, self.now + self.rng.uniform(0.001, 0.02))
        if self.chance(faults.pause):
            self.stopped_until[node] = self.now + self.rng.uniform(0, self.plan.longest_pause_s)
        arrives = max(arrives, self.stopped_until[node])
        connection.arrives_at = arrives
        self.at(arrives, lambda: self.arrive(send.token, node, generation, batches))
        if self.chance(faults.cut):
            self.after(self.rng.uniform(0, 0.05), lambda: self.disconnect(node, generation, written=True))
        if self.chance(faults.down):
            self.down_until[node] = self.now + self.rng.uniform(0, 1.0)
            self.after(0.002, lambda: self.disconnect(node, generation, written=True))
        if self.chance(faults.restart):
            self.after(self.rng.uniform(0, 0.05), lambda: self.restart(node))

    def restart(self, node: int) -> None:
        for partition in self.parts.values():
            if partition.leader == node:
                partition.restart()
        self.disconnect(node, self.connections[node].generation, written=True)

    def watch(self, send: ev.Send) -> None:
        if len(self.in_flight[send.node]) >= self.plan.config.max_in_flight:
            self.wrong.append(f"{len(self.in_flight[send.node]) + 1} requests in flight to broker {send.node}")
        if self.now < self.muted_until[send.node] - 1e-9:
            self.wrong.append(f"a request to broker {send.node} within its throttle time")
        if len({batch.partition for batch in send.batches}) != len(send.batches):
            self.wrong.append("two batches of one partition in a request")

    def disconnect(self, node: int, generation: int, written: bool) -> None:
        connection = self.connections[node]
        if connection.generation == generation:
            self.connections[node] = Connection(generation + 1)
            self.in_flight[node].clear()
            self.step(ev.Disconnected(node, "reset by peer", written))

    def arrive(self, token: int, node: int, generation: int, batches: list[Sealed], late: bool = False) -> None:
        """A request reaches its broker. That of a broken connection is lost, processed, or processed late."""
        broken = self.connections[node].generation != generation
        if broken and not late:
            fate = self.rng.randrange(3)
            if fate == 0:
                return
            if fate == 1:
                delay = self.rng.uniform(0, 1.0)
                self.after(delay, lambda: self.arrive(token, node, generation, batches, late=True))
                return
        answers = [self.write(node, batch) for batch in batches]
        throttle = self.rng.randint(1, 300) if self.chance(self.plan.faults.throttle) else 0
        topics = (messages.TopicProduceResponse(name=TOPIC, partition_responses=tuple(answers)),)
        response = ProduceResponse(responses=topics, throttle_time_ms=throttle)
        if not broken:
            connection = self.connections[node]
            connection.answers_at = max(connection.answers_at, self.now + self.rng.uniform(0.001, 0.02))
            self.at(connection.answers_at, lambda: self.answer(token, node, generation, response))

    def answer(self, token: int, node: int, generation: int, response: ProduceResponse) -> None:
        if self.connections[node].generation == generation:
            self.in_flight[node].discard(token)
            if self.plan.version >= 6:
                self.muted_until[node] = max(self.muted_until[node], self.now + response.throttle_time_ms / 1000)
            self.step(ev.Answered(token, response, self.plan.version))

    def write(self, node: int, batch: Sealed) -> PartitionProduceResponse:
        """The leader's answer, after it has appended the batch or not."""
        partition = self.parts[batch.partition]
        number = batch.partition.partition
        if partition.leader != node:
            return self.not_leader(number, partition)
        if self.chance(self.plan.faults.isr):
            partition.min_isr_until = self.now + self.rng.uniform(0, 0.6)
        if self.now < partition.min_isr_until and not self.quiet:
            return PartitionProduceResponse(index=number, error_code=ErrorCode.NOT_ENOUGH_REPLICAS, base_offset=-1)
        if self.chance(self.plan.faults.move):
            if self.rng.random() < 0.5:
                partition.append(batch, self.plan.era)  # replicated, but not acknowledged
            partition.leader = (node + 1) % self.plan.nodes
            partition.leader_epoch += 1
            return self.not_leader(number, partition)
        code, offset = partition.append(batch, self.plan.era)
        if code == ErrorCode.NONE and self.chance(self.plan.faults.odd):
            return PartitionProduceResponse(index=number, error_code=self.rng.choice(APPENDED_YET), base_offset=-1)
        return PartitionProduceResponse(index=number, error_code=code, base_offset=offset)

    def not_leader(self, number: int, partition: Partition) -> PartitionProduceResponse:
        named = self.plan.version >= 10 and self.rng.random() < 0.5
        leader = LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)
        return PartitionProduceResponse(
            index=number,
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            base_offset=-1,
            current_leader=leader if named else LeaderIdAndEpoch(),
        )

    # -- the checker --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check the conditions of every world; `wrong` has those that do not hold."""
        if self.steps >= MOST_STEPS:
            self.wrong.append("it never ends")
        if self.producer.unresolved or self.producer.buffered_bytes:
            self.wrong.append(f"{self.producer.unresolved} batches, {self.producer.buffered_bytes} bytes unresolved")
        for tp, partition in self.parts.items():
            self.check_partition(tp, partition.log)

    def check_partition(self, tp: TopicPartition, log: list[int]) -> None:
        outcomes = self.outcomes.get(tp, [])
        resolved = sorted(uid for outcome in outcomes for uid in outcome.uids)
        if resolved != list(range(self.uids[tp])):
            self.wrong.append(f"{tp}: records resolved twice or never: {resolved}")
        at: dict[int, int] = {}
        for offset, uid in enumerate(log):
            at.setdefault(uid, offset)
        idempotent = self.plan.config.idempotence is not Idempotence.OFF
        delivered = [uid for outcome in outcomes if outcome.offset is not None for uid in outcome.uids]
        if idempotent and len(at) != len(log):
            self.wrong.append(f"{tp}: duplicates in {log}")
        if any(uid not in at for uid in delivered):
            self.wrong.append(f"{tp}: acknowledged and not there: {sorted(set(delivered) - set(at))}")
        keeps_order = idempotent or self.plan.config.max_in_flight == 1
        order = [at[uid] for uid in sorted(delivered) if uid in at]
        # A late request under another id is not fenced: a batch that has failed may still come behind later ones.
        fences = idempotent and not self.plan.faults.fenced and self.plan.first_epoch == 0
        if keeps_order and (order != sorted(order) or (fences and log != sorted(log))):
            self.wrong.append(f"{tp}: out of order: {log}")
        for outcome in outcomes:
            self.check_outcome(tp, outcome, log)

    def check_outcome(self, tp: TopicPartition, outcome: Outcome, log: list[int]) -> None:
        error = outcome.error
        if error is None:
            offset = -1 if outcome.offset is None else outcome.offset
            if offset >= 0 and tuple(log[offset : offset + len(outcome.uids)]) != outcome.uids:
                self.wrong.append(f"{tp}: {outcome.uids} is not at offset {offset}")
        elif not error.maybe_written and not set(outcome.uids).isdisjoint(log):
            self.wrong.append(f"{tp}: {outcome.uids} is there, although: {error}")
        elif self.gaps_are_ours and error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self.is_sure(error):
            self.wrong.append(f"{tp}: a gap by the producer's own fault: {error}")

    @staticmethod
    def is_sure(error: ProduceError) -> bool:
        return not error.maybe_written and not isinstance(error, DeliveryTimeoutError)

    @property
    def gaps_are_ours(self) -> bool:
        """Brokers of 0.11 answer so to a producer that they have forgotten, too."""
        return not (self.plan.era is Era.FIRST and self.plan.faults.expiry)

    def failures(self) -> list[Any]:
        """The batches that were not delivered."""
        return [o for outcomes in self.outcomes.values() for o in outcomes if o.offset is None]


# -- the worlds by seed, and the check of one -------------------------------------------------------------------------

Make = Callable[[ProducerConfig, random.Random], Producer]


def mild(seed: int) -> Plan:
    """Every fault that passes within delivery.timeout.ms: everything is delivered, once and in order."""
    rng = random.Random(f"mild {seed}")
    config = ProducerConfig(
        delivery_timeout_ms=60_000,
        request_timeout_ms=1_000,
        linger_ms=rng.choice((0, 5)),
        batch_size=rng.choice((20, 60, 200)),
        max_in_flight=rng.choice((1, 2, 5, 5)),
    )
    return Plan(
        config,
        Faults(
            cut=0.08, move=0.05, odd=0.04, isr=0.04, pause=0.03, throttle=0.05, down=0.02, restart=0.02, expiry=0.02
        ),
        era=rng.choice((Era.MIDDLE, Era.MODERN)),
        version=rng.choice((5, 9, 12)),
        most_records=rng.choice((1_000, 4)),
        appends=rng.choice((8, 16)),
    )


def without_restarts(seed: int) -> Plan:
    """As `mild`, but brokers never restart: they remember the last batches of a producer."""
    plan = mild(seed)
    return replace(plan, faults=replace(plan.faults, restart=0.0))


def harsh(seed: int) -> Plan:
    """Faults that outlast the timeouts, and brokers that forget the producer or are told to fence it."""
    rng = random.Random(f"harsh {seed}")
    config = ProducerConfig(
        delivery_timeout_ms=rng.choice((700, 1_500, 4_000)),
        request_timeout_ms=rng.choice((300, 600)),
        linger_ms=rng.choice((0, 5)),
        batch_size=rng.choice((20, 60, 200)),
        max_in_flight=rng.choice((1, 2, 5, 5)),
        retries=rng.choice((2**31 - 1, 3)),
    )
    return Plan(
        config,
        Faults(
            cut=0.1, move=0.06, odd=0.05, isr=0.1, pause=0.1, throttle=0.05, down=0.05, restart=0.03, expiry=0.1,
            fenced=rng.choice((0.0, 0.05)),
        ),
        era=rng.choice(list(Era)),
        version=rng.choice((5, 9, 12)),
        first_epoch=rng.choice((0, 0, 32_765, 32_767)),
        most_records=rng.choice((1_000, 4, 2)),
        longest_pause_s=rng.choice((0.5, 2.5)),
        appends=rng.choice((8, 16)),
    )  # fmt: skip


def without_idempotence(seed: int) -> Plan:
    """As `mild`: nothing acknowledged is lost, and with one request in flight the order is kept."""
    plan = mild(seed)
    rng = random.Random(f"plain {seed}")
    config = ProducerConfig(
        idempotence=Idempotence.OFF,
        delivery_timeout_ms=60_000,
        request_timeout_ms=1_000,
        batch_size=rng.choice((20, 60)),
        max_in_flight=rng.choice((1, 5)),
    )
    return Plan(config, plan.faults, version=plan.version, appends=plan.appends)


def wrong_in(plan: Plan, seed: int, make: Make = Producer) -> list[str]:
    """The faults found in one world. A defect that raises is wrong, too."""
    try:
        world = ProducerSimulation(plan, seed, make).run()
    except (AssertionError, ValueError, IndexError) as error:
        return [f"raised {error!r}"]
    late = [f"{o.uids} failed: {o.error}" for o in world.failures()] if plan.config.delivery_timeout_ms > 50_000 else []
    return world.wrong + late


def first_wrong(plan: Callable[[int], Plan], seeds: range, make: Make = Producer) -> str | None:
    """The first of `seeds` in whose world something is wrong, and what; None where all is right."""
    for seed in seeds:
        wrong = wrong_in(plan(seed), seed, make)
        if wrong:
            return f"{plan.__name__} {seed}: {wrong[0]}"
    return None

"""The faults of a world: drawn from the seed as a list, so that a failing one is made small by leaving faults out."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamgroup.group.events import Lane
from tests.fakes.zookeeper import Connection, Session
from tests.sim.network import Line
from tests.sim.offsets import BrokerCalls
from tests.sim.registrylines import RegistryLines
from tests.sim.spark import POINTS, TABLE_POINTS, TRANSACTION_POINTS, Checkpoint, Directory
from tests.sim.world import Query, World
from tests.sim.zkclient import Client

REQUESTS = ("OffsetCommit", "OffsetCommit", "OffsetFetch", "JoinGroup", "SyncGroup", "Heartbeat", "DescribeGroups")
"""While one of these is under way a query may be killed, too."""
OF_CONSUMERS = (
    "OffsetCommit",
    "OffsetCommit",
    "OffsetFetch",
    *("ConsumerGroupHeartbeat",) * 3,
    "ConsumerGroupDescribe",
)
"""The same, under the consumer protocol."""
OF_REGISTRY = ("OffsetCommit", "OffsetCommit", "OffsetFetch", "ReadSubtrees", "Transact", "Transact")
"""The same, where the group is in ZooKeeper."""
OF_TABLE = ("ClaimRows", "CommitRows", "COMMIT", "COMMIT", "COMMIT")
"""The same, of the offset table."""
OF_TRANSACTIONS = ("InitProducerId", "Produce", "Produce", "TxnOffsetCommit", "EndTxn", "EndTxn")
"""The same, of a transaction."""
KILLS = ("machine", "machine", "coordinator", "jvm")


@dataclass(frozen=True)
class Fault:
    """`kind` befalls the query of this number at `at`; how long and in which way say `amount` (0 to 1) and `way`."""

    at: float
    kind: str
    query: int
    amount: float
    way: int

    def befall(self, world: World) -> None:
        query = world.queries[self.query % len(world.queries)]
        world.clock.note("fault", str(self))
        ANY[self.kind][1](world, query, self)

    def __str__(self) -> str:
        return f"{self.kind} q{self.query} {self.amount:.2f} {self.way}"


def _kill(world: World, query: Query, fault: Fault) -> None:
    _end(query, KILLS[fault.way % len(KILLS)])


def _end(query: Query, how: str) -> None:
    {"machine": query.kill, "coordinator": query.kill_coordinator, "jvm": query.stop}[how]()


def _kill_at_point(world: World, query: Query, fault: Fault) -> None:
    requests = OF_CONSUMERS if world.settings.consumers else REQUESTS
    points: Sequence[str] = (*POINTS, *(requests if world.settings.registry is None else OF_REGISTRY))
    if world.settings.in_table:
        points = (*TABLE_POINTS, *REQUESTS, *OF_TABLE)
    if world.settings.in_transaction:
        points = (*TRANSACTION_POINTS, *requests, *OF_TRANSACTIONS)
    how = KILLS[fault.way // len(points) % len(KILLS)]
    query.armed[points[fault.way % len(points)]] = lambda: _end(query, how)


def _stop(world: World, query: Query, fault: Fault) -> None:
    query.stop()


def _drain(world: World, query: Query, fault: Fault) -> None:
    query.drain(0.2 + 20.0 * fault.amount**2)


def _pause(world: World, query: Query, fault: Fault) -> None:
    query.pause(2.5 * world.settings.session_s * fault.amount)


def _hang(world: World, query: Query, fault: Fault) -> None:
    """Spark's thread stands still; the coordinator process goes on."""
    most = world.settings.max_silence_s or world.settings.session_s
    query.driver.hang(2.5 * most * fault.amount, stopped=False)


def _stop_jvm(world: World, query: Query, fault: Fault) -> None:
    """SIGSTOP to the driver's JVM alone."""
    query.driver.hang(3.0 * world.settings.session_s * fault.amount, stopped=True)


def _zombie(world: World, query: Query, fault: Fault) -> None:
    """The query sleeps, is taken for dead and started on another machine, from the same checkpoint; then it wakes."""
    world.replace(query, 3.0 * world.settings.session_s * fault.amount)


def _break(world: World, query: Query, fault: Fault) -> None:
    """A connection breaks, now or when something is under way on it."""
    lane = list(Lane)[fault.way % 3]
    if query.process is None:
        return
    line = query.process.line(lane)
    if fault.way // 3 % 3:
        query.process.lines.fragile.add(lane)
    elif line is not None:
        line.break_("connection reset by peer")


def _stall(world: World, query: Query, fault: Fault) -> None:
    line = query.process.line(list(Lane)[fault.way % 3]) if query.process else None
    if line is not None:
        line.stall(1.5 * world.settings.session_s * fault.amount, answers_only=fault.way // 3 % 2 == 0)


def _cut(world: World, query: Query, fault: Fault) -> None:
    if query.process is not None:
        query.process.cut(2.0 * world.settings.session_s * fault.amount)


def _move(world: World, query: Query, fault: Fault) -> None:
    crash = fault.way % 2 == 0
    node = world.broker.move(crash=crash, load_s=4.0 * fault.amount)
    for each in world.queries:
        for lane in (Lane.COORDINATOR, Lane.JOIN) if crash and each.process is not None else ():
            line = each.process.line(lane) if each.process is not None else None
            if isinstance(line, Line) and line.node == node:
                line.break_("the broker is gone")


def _grow(world: World, query: Query, fault: Fault) -> None:
    topics = sorted(world.logs.counts)
    world.grow(topics[fault.way % len(topics)], 1 + fault.way % 2)


def _copy(world: World, query: Query, fault: Fault) -> None:
    """The query is killed and goes on from a copy of another's checkpoint, and of its output, or with none."""
    query.kill()
    source = world.queries[fault.way % len(world.queries)]
    query.checkpoint = source.checkpoint.copy()
    query.directory = Directory(set(source.directory.seen) if fault.amount < 0.5 else set())


def _restore(world: World, query: Query, fault: Fault) -> None:
    """The query is killed and goes on from what its checkpoint was."""
    query.kill()
    query.checkpoint = query.checkpoint.copy(1 + fault.way % 5)


def _forget(world: World, query: Query, fault: Fault) -> None:
    """The query is killed and its checkpoint deleted, its output or not."""
    query.kill()
    query.checkpoint = Checkpoint()
    if fault.way % 2:
        query.directory = Directory()


def _reset(world: World, query: Query, fault: Fault) -> None:
    chance = random.Random(fault.way)
    offsets = {tp: int(end * chance.random()) for tp, end in world.logs.ends.items() if chance.random() < 0.7}
    near = {tp: max(0, end - chance.randint(0, 12)) for tp, end in world.logs.ends.items() if tp in offsets}
    ends = [chance.choice(("kill", "stop", "drain")) for _ in world.queries]
    world.operate(near if fault.amount < 0.5 else offsets, ends)


def _guests(world: World, query: Query, fault: Fault) -> None:
    """A consumer joins the group of a query that is not a member, whose commits are refused until it has left."""
    broker = world.broker
    broker.guests_until = max(broker.guests_until, world.clock.now + 2.0 * world.settings.session_s * fault.amount)


# -- of the brokers that keep the offsets of a group in ZooKeeper ------------------------------------------------------


def _calls(world: World, query: Query, fault: Fault) -> BrokerCalls | None:
    lines = query.process.lines if query.process is not None else None
    return lines.calls[fault.way % 5 == 0] if isinstance(lines, RegistryLines) and lines.calls else None


def _move_offsets(world: World, query: Query, fault: Fault) -> None:
    """Another broker becomes the coordinator of the offsets, by a crash or in order."""
    broker, crash = world.registry.offsets, fault.way % 2 == 0
    if broker is None:
        return
    node = broker.move(crash=crash, load_s=6.0 * fault.amount)
    for each in world.queries if crash else ():
        lines = each.process.lines if each.process is not None else None
        for calls in lines.calls if isinstance(lines, RegistryLines) else ():
            calls.break_off(node)


def _break_offsets(world: World, query: Query, fault: Fault) -> None:
    """A connection to these brokers breaks, now or when a request is under way on it."""
    calls = _calls(world, query, fault)
    if calls is None:
        return
    if fault.way // 5 % 3:
        calls.fragile = True
    else:
        calls.break_off()


def _stall_offsets(world: World, query: Query, fault: Fault) -> None:
    calls = _calls(world, query, fault)
    if calls is not None:
        calls.stall(1.5 * world.settings.session_s * fault.amount, answers_only=fault.way // 5 % 2 == 0)


# -- of an offset table ------------------------------------------------------------------------------------------------


def _database_away(world: World, query: Query, fault: Fault) -> None:
    world.table.go_away(1.5 * world.settings.session_s * fault.amount**2)


def _lose_commit(world: World, query: Query, fault: Fault) -> None:
    """The connection breaks with the next COMMIT or EndTxn: it is carried out, or not, or late."""
    query.loses_commit = True


def _break_table(world: World, query: Query, fault: Fault) -> None:
    """A connection to the database breaks: the coordinator process's at its next request, or the sink's now."""
    if fault.way % 3 and query.process is not None and query.process.table is not None:
        query.process.table.fragile = True
    elif query.connection is not None:
        query.connection.lose()


def _expire_group(world: World, query: Query, fault: Fault) -> None:
    chance = random.Random(fault.way)
    ends = [chance.choice(("kill", "stop", "pause", "pause")) for _ in world.queries]
    offsets = {tp: chance.randint(0, end) for tp, end in world.logs.ends.items()} if fault.amount < 0.3 else {}
    world.expire_group(ends, offsets)


# -- of transactions ---------------------------------------------------------------------------------------------------


def _move_transactions(world: World, query: Query, fault: Fault) -> None:
    """Another broker becomes the transaction coordinator, by a crash or in order."""
    world.transactions.move(crash=fault.way % 2 == 0, load_s=5.0 * fault.amount)


def _break_transaction(world: World, query: Query, fault: Fault) -> None:
    """The connection breaks with the next request of a transaction: it is carried out, or not, or late."""
    query.breaks_transaction = True


def _fail_task(world: World, query: Query, fault: Fault) -> None:
    """The next task fails before, between or after its requests."""
    query.fails_task = True


# -- of ZooKeeper ------------------------------------------------------------------------------------------------------


def _session(query: Query) -> Session | None:
    client = query.process.lines.client if query.process is not None else None
    return client.session if isinstance(client, Client) else None


def _expire(world: World, query: Query, fault: Fault) -> None:
    """The session is over, by an operator's will or a server's clock: its process cannot know before it hears of it."""
    session = _session(query)
    if session is not None:
        query.haunted_at = world.clock.now
        world.registry.zookeeper.end(session)


def _take_over(world: World, query: Query, fault: Fault) -> None:
    """A second client connects to the session (its machine was copied), and may end it."""
    session = _session(query)
    zookeeper = world.registry.zookeeper
    if session is not None and zookeeper.session(session.session_id) is session:
        zookeeper.attach(session, Connection())
        if fault.way % 2:
            world.clock.after(fault.amount, lambda: _end_session(world, query, session))


def _end_session(world: World, query: Query, session: Session) -> None:
    query.haunted_at = world.clock.now
    world.registry.zookeeper.end(session)


def _servers_away(world: World, query: Query, fault: Fault) -> None:
    seconds = (1.5 if fault.way % 2 else 0.5) * world.settings.session_s * fault.amount
    world.registry.zookeeper.go_away(seconds, election=fault.way // 2 % 2 == 0)


def _broker_away(world: World, query: Query, fault: Fault) -> None:
    brokers = world.registry.brokers
    broker = fault.way % len(brokers)
    brokers.go(broker, in_order=fault.way // 7 % 2 == 0)
    world.clock.after(2.0 * world.settings.session_s * fault.amount, lambda: brokers.come(broker))


def _consumer(world: World, query: Query, fault: Fault) -> None:
    """Something befalls a real consumer."""
    if world.consumers:
        consumer = world.consumers[fault.way % len(world.consumers)]
        seconds = 2.5 * world.settings.session_s * fault.amount
        acts = (consumer.kill, consumer.stop, lambda: consumer.pause(seconds), lambda: consumer.cut(seconds))
        acts[fault.way // 2 % len(acts)]()


Kinds = dict[str, tuple[int, Callable[[World, Query, Fault], None]]]

_OF_ALL: Kinds = {
    "kill": (6, _kill),
    "kill at a point": (8, _kill_at_point),
    "stop": (4, _stop),
    "drain": (3, _drain),
    "pause": (6, _pause),
    "zombie": (3, _zombie),
    "break": (8, _break),
    "stall": (8, _stall),
    "cut": (5, _cut),
}
_OF_KAFKA: Kinds = {"move the coordinator": (3, _move)}
_OF_CHECKPOINTS: Kinds = {
    "add partitions": (2, _grow),
    "copy a checkpoint": (2, _copy),
    "restore a checkpoint": (2, _restore),
    "delete a checkpoint": (2, _forget),
    "reset offsets": (1, _reset),
}
_OF_ZOOKEEPER: Kinds = {
    "expire a session": (4, _expire),
    "take a session over": (3, _take_over),
    "servers away": (3, _servers_away),
    "broker away": (3, _broker_away),
    "befall a consumer": (8, _consumer),
}
FAULTS: Kinds = _OF_ALL | _OF_KAFKA | _OF_CHECKPOINTS
"""By name: how often (of all), and what it does."""
REGISTRY_FAULTS: Kinds = _OF_ALL | _OF_CHECKPOINTS | _OF_ZOOKEEPER
"""The same, where the group is in ZooKeeper."""
LONE_FAULTS: Kinds = {
    **{kind: fault for kind, fault in FAULTS.items() if kind not in {"zombie", "copy a checkpoint"}},
    "reset offsets": (3, _reset),
    "guests in the group": (3, _guests),
}
"""The same, of a query that is not a member: nothing fences a second one on the same checkpoint."""

TABLE_FAULTS: Kinds = {
    **FAULTS,
    "database away": (4, _database_away),
    "lose a COMMIT": (6, _lose_commit),
    "break a connection to the database": (6, _break_table),
    "expire the group": (3, _expire_group),
}
"""The same, of a group whose offsets are in a table of a database."""

TRANSACTION_FAULTS: Kinds = {
    **FAULTS,
    "move the transactions": (3, _move_transactions),
    "lose an EndTxn": (6, _lose_commit),
    "break a connection of a transaction": (6, _break_transaction),
    "fail a task": (6, _fail_task),
}
"""The same, of a group whose offsets are committed in transactions."""

SILENCES: Kinds = {"hang the driver": (2, _hang), "stop the JVM": (2, _stop_jvm)}
"""The faults of Spark alone (R27)."""

OFFSETS: Kinds = {
    "move the offsets": (3, _move_offsets),
    "break a connection for offsets": (4, _break_offsets),
    "stall a connection for offsets": (4, _stall_offsets),
}
"""The faults of the brokers that keep the offsets of a group in ZooKeeper, and of the connections to them."""

ANY: Kinds = FAULTS | REGISTRY_FAULTS | LONE_FAULTS | TABLE_FAULTS | TRANSACTION_FAULTS | SILENCES | OFFSETS


def draw(chance: random.Random, seconds: float, queries: int, of: Kinds = FAULTS) -> tuple[Fault, ...]:
    """The faults of a seed, in order. They come in bursts: most of what goes wrong, goes wrong while something does."""
    kinds, weights = list(of), [weight for weight, _ in of.values()]
    faults = []
    for _ in range(chance.choice((0, 4, 8, 12, 16))):
        at = chance.uniform(1.0, seconds)
        for kind in chance.choices(kinds, weights, k=chance.choice((1, 1, 2, 4))):
            faults.append(Fault(at, kind, chance.randrange(queries), chance.random(), chance.randrange(1 << 16)))
            at += chance.expovariate(1.0)
    return tuple(sorted((fault for fault in faults if fault.at < seconds), key=lambda fault: fault.at))


def with_silences(faults: tuple[Fault, ...], chance: random.Random, seconds: float, queries: int) -> tuple[Fault, ...]:
    """Add silences of Spark in some worlds, without a change to what else their seeds draw."""
    added = list(faults)
    for _ in range(chance.choice((0, 0, 1, 2, 4))):
        (kind,) = chance.choices(list(SILENCES), [weight for weight, _ in SILENCES.values()])
        added.append(Fault(chance.uniform(1.0, seconds), kind, chance.randrange(queries), chance.random(), 0))
    return tuple(sorted(added, key=lambda fault: fault.at))


def with_offsets(faults: tuple[Fault, ...], chance: random.Random, seconds: float, queries: int) -> tuple[Fault, ...]:
    """Add faults of the brokers that keep the offsets, without a change to what else the seed draws."""
    added = list(faults)
    for _ in range(chance.choice((0, 3, 6, 12))):
        (kind,) = chance.choices(list(OFFSETS), [weight for weight, _ in OFFSETS.values()])
        at, query, amount = chance.uniform(1.0, seconds), chance.randrange(queries), chance.random()
        added.append(Fault(at, kind, query, amount, chance.randrange(1 << 16)))
    return tuple(sorted(added, key=lambda fault: fault.at))

"""The settings of a world: drawn from the seed, or given by a scenario."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from streamgroup.advice import OffsetLocation, StoredIn
from streamgroup.group.timing import MemberConfig
from streamgroup.model import Dialect
from streamgroup.options.types import GroupMode
from tests.fakes.consumer_group import Release

GROUP_ID = "g"
QUESTION_S = 60.0
"""`default.api.timeout.ms`."""
JOIN_TIMEOUT_S = 60.0
"""`group.joinTimeout`."""
MARGIN_S = 4.0
"""How much longer than a session a run waits for a dead member of the consumer protocol, whose last heartbeat may be
late. It is 15 s in `assemble`, where a session takes 45 s."""
METADATA_AGE_S = 5.0
"""`metadata.max.age.ms`, shorter than Kafka's, as are the times below: a minute here is a day in production."""


EAGER = ("streamgroup-range", "range", "roundrobin")
COOPERATIVE = ("cooperative-sticky",)


class Kind(Enum):
    """The system that keeps the group of a world."""

    KAFKA = "kafka"
    ZOOKEEPER = "zookeeper"
    ALONE = "alone"
    """Nobody: the one query is not a member (`modes.py`)."""
    CONSUMERS = "consumers"
    """Kafka, and the members use the consumer protocol."""
    TRANSACTIONS = "transactions"
    """Kafka, and each sink commits its records and offsets in a transaction of Kafka (`transactions.py`)."""
    TABLE = "table"
    """Kafka, and the offsets are in a table of a database (`table.py`)."""


@dataclass(frozen=True)
class QuerySettings:
    """One query: `file_sink` writes a batch at once and remembers its number, else rows are side effects, range by
    range, as with foreachBatch."""

    name: str
    instance_id: str | None = None
    file_sink: bool = False
    trigger_s: float = 0.5
    task_s: float = 0.3
    max_offsets: int | None = None
    listener: bool = False
    """A listener tells the coordinator of each batch that has sunk (R15)."""
    empty_first: bool = False
    """Spark runs an empty batch 0 where `latestOffset` returned `start` at first."""
    available_now: bool = False
    """Trigger.AvailableNow: a run ends when it has read what there was at its start; the supervisor starts another."""
    once: bool = False
    """Trigger.Once: a run ends after one batch, be it a replay; the supervisor starts another."""
    collects_rows: bool = False
    """With an offset table: the tasks are over before the sink's transaction begins. Else it is open meanwhile."""


@dataclass(frozen=True)
class ConsumerSettings:
    """A real consumer in a group in ZooKeeper, with so many streams of each of these topics."""

    name: str
    topics: tuple[str, ...]
    streams: int = 1
    autocommit_s: float = 2.0
    chunk: int = 5
    """So many records of a partition it hands on at a time."""


@dataclass(frozen=True)
class RegistrySettings:
    """A group in ZooKeeper. In 0.7 each of the `brokers` has the topics' partitions for itself."""

    dialect: Dialect = Dialect.KAFKA07
    brokers: int = 2
    consumers: tuple[ConsumerSettings, ...] = ()
    stored_in: StoredIn = StoredIn.ZOOKEEPER
    """Where the offsets are: in Kafka, or in both (`kafka.dual.commit.enabled`), with brokers from 0.8.2 on."""
    kafka_is_ahead: bool = False
    """Whether the group has gone on in Kafka alone before it commits to both: what ZooKeeper has is older."""


@dataclass(frozen=True)
class Settings:
    """One world."""

    queries: tuple[QuerySettings, ...]
    topics: Mapping[str, int] = field(default_factory=lambda: {"a": 2})
    starting_latest: bool = False
    join_version: int = 9
    initial_delay_s: float = 0.0
    latency_s: float = 0.02
    produce_every_s: float = 1.0
    produce_most: int = 6
    session_s: float = 6.0
    heartbeat_s: float = 2.0
    max_poll_s: float = 20.0
    rebalance_wait_s: float = 3.0
    request_timeout_ms: int = 4_000
    strategies: tuple[str, ...] = EAGER
    registry: RegistrySettings | None = None
    """None: the group is Kafka's own."""
    consumers: Release | None = None
    """The members use the consumer protocol, with brokers of this release. None: the classic one."""
    topic_ids: bool = True
    """False: brokers before 2.8."""
    mode: GroupMode = GroupMode.MEMBER
    """`group.mode`."""
    max_silence_s: float | None = None
    """`group.maxSilence` (R27)."""
    describes_groups: bool = False
    """Whether runs may describe their group (R28). Where they may not, a copied checkpoint is accepted."""
    in_transaction: bool = False
    """`offsets.store=transaction` (R38)."""
    transactions_v2: bool = True
    """False: brokers with transactions V1."""
    transaction_timeout_s: float = 15.0
    """`kafka.transaction.timeout.ms`."""
    in_table: bool = False
    """`offsets.store`: the offsets are in a table of a database, and each sink is a transaction there (R37)."""

    @property
    def is_member(self) -> bool:
        return self.mode is GroupMode.MEMBER

    @property
    def dead_member_s(self) -> float:
        """How long a run waits for a dead member, as `assemble._dead_member_s`."""
        return self.session_s + (MARGIN_S if self.consumers is not None else 0.0)

    @property
    def group_id(self) -> str:
        """Empty in mode `off`."""
        return "" if self.mode is GroupMode.OFF else GROUP_ID

    @property
    def location(self) -> OffsetLocation:
        """Where the group's offsets are."""
        return OffsetLocation(self.group_id, StoredIn.KAFKA if self.registry is None else self.registry.stored_in)

    def member_config(self, instance_id: str | None) -> MemberConfig:
        return MemberConfig(
            self.group_id,
            instance_id=instance_id,
            session_timeout_ms=int(self.session_s * 1000),
            heartbeat_interval_ms=int(self.heartbeat_s * 1000),
            max_poll_interval_ms=int(self.max_poll_s * 1000),
            rebalance_wait_ms=int(self.rebalance_wait_s * 1000),
            strategies=self.strategies,
            request_timeout_ms=self.request_timeout_ms,
            dead_member_s=self.session_s + 15,
        )


def draw(chance: random.Random) -> Settings:
    """The settings of a seed of a group that is Kafka's own."""
    queries = _queries(chance, static=chance.random() < 0.35)
    topics = {"a": chance.randint(1, 4)}
    if chance.random() < 0.3:
        topics["b"] = chance.randint(1, 2)
    return Settings(
        queries=queries,
        topics=topics,
        starting_latest=chance.random() < 0.4,
        join_version=chance.choice((5, 8, 9, 9)),
        initial_delay_s=chance.choice((0.0, 0.5)),
        latency_s=chance.choice((0.005, 0.02, 0.1)),
        produce_every_s=chance.choice((0.5, 1.0, 3.0)),
        max_poll_s=chance.choice((7.0, 20.0)),
        rebalance_wait_s=chance.choice((0.5, 3.0)),
        strategies=COOPERATIVE if chance.random() < 0.4 else EAGER,
    )


def draw_of_consumers(chance: random.Random) -> Settings:
    """The settings of a seed of a group of the consumer protocol: Kafka 4.3, 4.2, or 4.0 and 4.1."""
    release = chance.choice((Release(interval_s=1.0), Release(window=False), Release(window=False, rejoins=False)))
    return replace(draw(chance), consumers=release)


def draw_of_transactions(chance: random.Random) -> Settings:
    """The settings of a seed of a group whose offsets are committed in transactions. In every fourth world members use
    the consumer protocol. Runs may describe their group: copies of a checkpoint have one transactional id."""
    settings = (draw_of_consumers if chance.random() < 0.25 else draw)(chance)
    return replace(
        settings,
        queries=tuple(replace(query, file_sink=False) for query in settings.queries),
        in_transaction=True,
        transactions_v2=settings.consumers is not None or chance.random() < 0.5,
        transaction_timeout_s=chance.choice((8.0, 15.0, 60.0)),
    )


def draw_of_table(chance: random.Random) -> Settings:
    """The settings of a seed of a group whose offsets are in a table of a database."""
    settings = draw(chance)
    queries = tuple(
        replace(query, file_sink=False, collects_rows=chance.random() < 0.6)  # the sink is the database
        for query in settings.queries
    )
    settings = replace(settings, queries=queries, in_table=True)
    if chance.random() < 0.2:
        query = replace(queries[0], instance_id=None)
        settings = replace(settings, queries=(query,), mode=GroupMode.COMMIT)
    return settings


def draw_of_registry(chance: random.Random) -> Settings:
    """The settings of a seed of a group in ZooKeeper: no member is static, real consumers may be among them."""
    dialect = chance.choice((Dialect.KAFKA07, Dialect.KAFKA07, Dialect.KAFKA))
    brokers = chance.choice((1, 2, 2, 3))
    topics = {"a": chance.randint(1, 3 if dialect is Dialect.KAFKA07 else 6)}
    if chance.random() < 0.3:
        topics["b"] = chance.randint(1, 2)
    consumers = tuple(
        ConsumerSettings(
            name=f"c{n}",
            topics=tuple(topics) if chance.random() < 0.7 else ("a",),
            streams=chance.choice((1, 1, 2)),
            autocommit_s=chance.choice((1.0, 3.0, 10.0)),
            chunk=chance.choice((2, 5, 20)),
        )
        for n in range(chance.choice((0, 0, 1, 1, 2)))
    )
    return Settings(
        queries=_queries(chance, static=False),
        topics=topics,
        starting_latest=chance.random() < 0.4,
        latency_s=chance.choice((0.005, 0.02, 0.1)),
        produce_every_s=chance.choice((0.5, 1.0, 3.0)),
        max_poll_s=chance.choice((7.0, 20.0)),
        rebalance_wait_s=chance.choice((0.5, 3.0, 15.0)),
        registry=RegistrySettings(dialect, brokers, consumers),
    )


def with_offsets(settings: Settings, chance: random.Random) -> Settings:
    """Let Kafka keep the offsets in most groups that Kafka 0.8 and ZooKeeper have, without a change to what else their
    seeds draw."""
    registry = settings.registry
    if registry is None or registry.dialect is Dialect.KAFKA07:
        return settings
    stored_in = chance.choice((StoredIn.ZOOKEEPER, StoredIn.KAFKA, StoredIn.KAFKA, StoredIn.BOTH, StoredIn.BOTH))
    is_ahead = stored_in is StoredIn.BOTH and chance.random() < 0.4
    return replace(settings, registry=replace(registry, stored_in=stored_in, kafka_is_ahead=is_ahead))


def with_triggers(settings: Settings, chance: random.Random) -> Settings:
    """Give some worlds queries under AvailableNow or Once, without a change to what else their seeds draw."""
    queries = settings.queries
    if chance.random() < 0.2:
        queries = tuple(replace(query, available_now=chance.random() < 0.6) for query in queries)
    if chance.random() < 0.15:
        # Without a listener only the next run commits the batch. Several such queries that start again and again get
        # other partitions each time, so that the group's commits would never move.
        queries = tuple(
            replace(q, once=True, listener=True) if not q.available_now and chance.random() < 0.6 else q
            for q in queries
        )
    return replace(settings, queries=queries)


def _queries(chance: random.Random, *, static: bool) -> tuple[QuerySettings, ...]:
    file_sinks = chance.random() < 0.35
    slow = chance.random() < 0.2
    listener = chance.random() < 0.3
    trigger_s = chance.choice((0.1, 0.5, 1.0, 3.0))
    return tuple(
        QuerySettings(
            name=f"q{n}",
            instance_id=f"s{n}" if static and chance.random() < 0.8 else None,
            file_sink=file_sinks and chance.random() < 0.7,
            trigger_s=trigger_s * (0.5 + chance.random()),
            task_s=chance.choice((2.0, 5.0)) if slow else chance.choice((0.05, 0.3, 1.0)),
            max_offsets=chance.choice((None, None, 3, 10)),
            listener=listener,
            empty_first=chance.random() < 0.2,
        )
        for n in range(chance.choice((1, 2, 2, 3, 3, 4, 5)))
    )

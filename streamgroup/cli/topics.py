"""`streamgroup topics`: list, describe and change the topics of a cluster."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import click

from streamgroup.cli._click import (
    OUTPUT,
    Column,
    Partition,
    SectionedCommand,
    flag,
    json_option,
    json_rows,
    option,
    table,
    timeout_option,
)
from streamgroup.cli._cluster import ClusterAddress, cluster_options, opened
from streamgroup.errors import StreamGroupError
from streamgroup.frozen import frozen
from streamgroup.kafka.cluster.changes import BROKERS_DEFAULT, create_topics, delete_topics, grow_topics
from streamgroup.kafka.cluster.interface import Cluster, kafka_of
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.cluster.transactions import HeldUp, OpenTransaction, held_up
from streamgroup.model import (
    EARLIEST,
    LATEST,
    Broker,
    ClusterSnapshot,
    Dialect,
    PartitionInfo,
    TopicInfo,
    TopicPartition,
)
from streamgroup.options.types import Isolation
from streamgroup.text import counted, host_port

_ACTIONS = "Actions (give one)"
_TOPICS = "Which topics"
_CHANGES = "Settings of --create and --alter"


class NoSuchTopic(StreamGroupError):
    """A topic of the command line does not exist."""


@frozen
class PartitionRow:
    """One partition. Its offsets are None without a leader. In Kafka 0.7 `name` is `1-2`: partition 2 of broker 1."""

    topic: TopicInfo
    info: PartitionInfo
    name: Partition
    leader: Broker | None
    earliest: int | None
    latest: int | None


def _numbers(of: Callable[[PartitionRow], Sequence[int]]) -> Callable[[PartitionRow], str | None]:
    return lambda row: ",".join(map(str, of(row))) or None


COLUMNS: tuple[Column[PartitionRow], ...] = (
    Column("TOPIC", "topic", lambda row: row.topic.name),
    Column("PARTITION", "partition", lambda row: row.name),
    Column("LEADER", "leader", lambda row: None if row.leader is None else row.leader.node_id),
    Column("ADDRESS", "address", lambda row: row.leader and host_port(row.leader.host, row.leader.port), verbose=True),
    Column(
        "LEADER-EPOCH",
        "leader_epoch",
        lambda row: row.info.leader_epoch if row.info.leader_epoch >= 0 else None,
        verbose=True,
    ),
    Column("REPLICAS", "replicas", _numbers(lambda row: row.info.replicas), if_any=True),
    Column("ISR", "isr", _numbers(lambda row: row.info.in_sync), if_any=True),
    Column("LOG-START-OFFSET", "log_start_offset", lambda row: row.earliest),
    Column("LOG-END-OFFSET", "log_end_offset", lambda row: row.latest),
    Column("TOPIC-ID", "topic_id", lambda row: row.topic.topic_id or None, verbose=True),
)


@frozen
class TransactionRow:
    """An open transaction in a partition, at `now_ms`. `abort` is the command that aborts it; empty if unknown."""

    found: HeldUp
    now_ms: int
    abort: str

    @property
    def state(self) -> str | None:
        """Return the coordinator's word, `Hanging`, or None if it is unknown."""
        if self.found.is_hanging:
            return "Hanging"
        return None if self.found.transaction is None else self.found.transaction.state

    @property
    def age_s(self) -> int | None:
        """Return the seconds since it began, for a hanging one since its newest record; None if unknown."""
        since = None if self.found.producer is None else self.found.producer.last_timestamp_ms
        if self.found.transaction is not None and not self.found.is_hanging:
            since = self.found.transaction.started_ms
        return None if since is None or since < 0 else max(0, self.now_ms - since) // 1000

    @property
    def next_step(self) -> str:
        """Return what ends the transaction: what to wait for, or a command."""
        found, known = self.found, self.found.transaction
        if found.producer is None:
            return f"the producer of the open transaction is unknown: {found.problem}"
        unlisted = f"no broker lists a transaction of producer id {found.producer.identity.producer_id}"
        if found.is_hanging:
            why = f"{unlisted}. If this user may describe all transactional ids, abort it"
            if known is not None:
                why = "its coordinator does not have this partition in an open transaction. Abort it"
            return f"hanging: {why}: {self.abort}"
        if found.problem:
            return f"{found.problem}. Wait until its producer ends it. To abort it: {self.abort}"
        if known is None:
            return f"{unlisted}. Run the command as a user that may describe all transactional ids (Describe)"
        return self._of_coordinated(known)

    def _of_coordinated(self, known: OpenTransaction) -> str:
        if known.is_overdue(self.now_ms):
            return (
                f"older than its timeout of {known.timeout_ms // 1000} s. Restart the broker that is its coordinator, "
                f"or upgrade it (KAFKA-19999). To abort it: {self.abort}"
            )
        if known.state != "Ongoing":
            return "its coordinator is writing its end to the partitions. Wait until that is done"
        left = max(0, known.started_ms + known.timeout_ms - self.now_ms) // 1000
        return (
            f"wait until its producer ends it, or until the brokers abort it after its timeout, in {left} s. If the "
            "producer has stopped, start it again with this transactional id: that aborts the transaction"
        )


def _of_producer(of: Callable[[Any], Any]) -> Callable[[TransactionRow], Any]:
    return lambda row: None if row.found.producer is None else of(row.found.producer)


def _of_transaction(of: Callable[[Any], Any]) -> Callable[[TransactionRow], Any]:
    return lambda row: None if row.found.transaction is None else of(row.found.transaction)


OPEN_TRANSACTIONS: tuple[Column[TransactionRow], ...] = (
    Column("TOPIC", "topic", lambda row: row.found.partition.topic),
    Column("PARTITION", "partition", lambda row: row.found.partition.partition),
    Column("LAST-STABLE-OFFSET", "last_stable_offset", lambda row: row.found.stable),
    Column("LOG-END-OFFSET", "log_end_offset", lambda row: row.found.end),
    Column("WAITING", "waiting", lambda row: row.found.end - row.found.stable),
    Column("TRANSACTIONAL-ID", "transactional_id", _of_transaction(lambda one: one.transactional_id)),
    Column("STATE", "state", lambda row: row.state),
    Column("AGE-S", "age_s", lambda row: row.age_s),
    Column("PRODUCER-ID", "producer_id", _of_producer(lambda one: one.identity.producer_id)),
    Column("START-OFFSET", "start_offset", _of_producer(lambda one: one.start_offset)),
    Column("PRODUCER-EPOCH", "producer_epoch", _of_producer(lambda one: one.identity.epoch), verbose=True),
    Column("COORDINATOR-EPOCH", "coordinator_epoch", _of_producer(lambda one: one.coordinator_epoch), verbose=True),
    Column("LAST-TIMESTAMP", "last_timestamp_ms", _of_producer(lambda one: one.last_timestamp_ms), verbose=True),
    Column("TIMEOUT-MS", "timeout_ms", _of_transaction(lambda one: one.timeout_ms), verbose=True),
)
"""The columns of --open-transactions. WAITING is the number of offsets that consumers of read_committed wait for."""
_NEXT_STEP: Column[TransactionRow] = Column("NEXT-STEP", "next_step", lambda row: row.next_step)


@click.command(
    cls=SectionedCommand,
    examples={
        "streamgroup topics -b localhost:9092 --list": "the names of all topics",
        "streamgroup topics -b localhost:9092 --describe --topic orders": "the partitions of one topic",
        "streamgroup topics -b localhost:9092 --open-transactions --topic orders": "why consumers of read_committed "
        "wait",
        "streamgroup topics -b localhost:9092 --create --topic orders --partitions 6": "a new topic",
    },
)
@flag(_ACTIONS, "--list", "list_topics", help="List the names of all topics.")
@flag(_ACTIONS, "--describe", help="Show leader, replicas and log offsets of each partition, of all topics or --topic.")
@flag(
    _ACTIONS,
    "--open-transactions",
    help="Show the open and hanging transactions at which consumers with isolation.level=read_committed wait, and what "
    "ends them; of all topics or --topic.",
)
@option(_ACTIONS, "--create", "action", flag_value="create", help="Create --topic with --partitions.")
@option(_ACTIONS, "--alter", "action", flag_value="alter", help="Raise the number of partitions of --topic.")
@option(_ACTIONS, "--delete", "action", flag_value="delete", help="Delete --topic with all its records.")
@option(
    _TOPICS,
    "--topic",
    "names",
    multiple=True,
    metavar="TOPIC",
    help="Topic to describe, create, alter or delete; repeatable. Only --describe and --open-transactions have a "
    "default: all topics.",
)
@flag(
    _TOPICS,
    "--exclude-internal",
    help="With --list, --describe and --open-transactions: leave out Kafka's internal topics.",
)
@option(
    _CHANGES,
    "--partitions",
    type=click.IntRange(1),
    metavar="N",
    help="Number of partitions. Required by --create and --alter; with --alter it is the new total.",
)
@option(
    _CHANGES,
    "--replication-factor",
    type=click.IntRange(1, 32_767),
    metavar="N",
    help="With --create: replicas of each partition. Required by brokers before 2.4.  [default: the broker's]",
)
@option(
    _CHANGES,
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="With --create: a configuration of the topic, such as retention.ms=3600000; repeatable.",
)
@flag(_CHANGES, "--if-not-exists", help="With --create: a topic that exists already is not an error.")
@flag(OUTPUT, "--verbose", help="Show more columns: broker addresses, leader epochs, topic ids.")
@json_option("Print all columns as JSON; an unknown value is null.")
@cluster_options
@timeout_option(10_000, "How long the whole command may take.")
def topics(
    *,
    where: ClusterAddress,
    list_topics: bool,
    describe: bool,
    open_transactions: bool,
    action: str | None,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    exclude_internal: bool,
    verbose: bool,
    timeout: int,
    as_json: bool,
) -> None:
    """List, describe, create, alter or delete topics.

    The cluster may run any Kafka from 0.7 on. --create and --delete need brokers of 0.10.1 or later, --alter 1.0.
    --open-transactions names producers of brokers since 2.8, and transactional ids since 3.0.
    """
    if list_topics + describe + open_transactions + (action is not None) != 1:
        raise click.UsageError("choose one of --list, --describe, --open-transactions, --create, --alter and --delete")
    change = TopicChange(action or "", names, partitions, replication_factor, configs, if_not_exists)
    if action is None and change != TopicChange("", names):
        raise click.UsageError("--partitions requires --create or --alter; the settings of a topic require --create")
    if action is not None:
        change.check()
    if list_topics and (names or verbose):
        raise click.UsageError("--topic and --verbose require --describe or --open-transactions")
    with closing(opened(where, "streamgroup-topics", timeout)) as cluster:
        deadline = cluster.deadline(timeout)
        if action is not None:
            carry_out(change, kafka_of(cluster, deadline), deadline, as_json=as_json)
            return
        snapshot = cluster.snapshot(names or None, deadline)
        shown = [snapshot.topics[name] for name in sorted(snapshot.topics)]
        if exclude_internal:
            shown = [topic for topic in shown if not topic.internal]
        if list_topics:
            click.echo(json.dumps([t.name for t in shown]) if as_json else "\n".join(t.name for t in shown))
            return
        if open_transactions:
            has_none = snapshot.dialect is Dialect.KAFKA07
            open_ones = [] if has_none else _transactions(kafka_of(cluster, deadline), snapshot, shown, deadline, where)
            click.echo(_shown(open_ones, verbose=verbose, as_json=as_json))
        else:
            rows = partition_rows(shown, snapshot, *_log_ends(cluster, snapshot, shown, deadline))
            listed = (
                json.dumps(json_rows(COLUMNS, rows), indent=2) if as_json else table(COLUMNS, rows, verbose=verbose)
            )
            click.echo(listed)
    if missing := sorted(set(names) - snapshot.topics.keys()):
        raise NoSuchTopic("; ".join(f"topic {name!r} does not exist" for name in missing))


def _transactions(
    cluster: KafkaCluster,
    snapshot: ClusterSnapshot,
    shown: Sequence[TopicInfo],
    deadline: float,
    where: ClusterAddress,
) -> list[TransactionRow]:
    """Return the open transactions of the partitions with a leader."""
    now_ms = int(time.time() * 1000)
    found = held_up(cluster, _led(snapshot, shown), deadline, now_ms)
    return [TransactionRow(one, now_ms, _abort(one, cluster, where)) for one in found]


def _abort(found: HeldUp, cluster: KafkaCluster, where: ClusterAddress) -> str:
    """Return the command of Kafka that aborts a transaction; empty if its producer is unknown."""
    if found.producer is None:
        return ""
    words = ["kafka-transactions.sh", "--bootstrap-server", str(cluster)]
    words += [] if where.command_config is None else ["--command-config", str(where.command_config)]
    words += ["abort", "--topic", found.partition.topic, "--partition", str(found.partition.partition)]
    return shlex.join([*words, "--start-offset", str(found.producer.start_offset)])


def _shown(rows: Sequence[TransactionRow], *, verbose: bool, as_json: bool) -> str:
    if as_json:
        return json.dumps(json_rows((*OPEN_TRANSACTIONS, _NEXT_STEP), rows), indent=2)
    if not rows:
        return "No open transaction: consumers of read_committed can read to the end of each partition."
    steps = [f"{row.found.partition}: {row.next_step}" for row in rows]
    return "\n".join([table(OPEN_TRANSACTIONS, rows, verbose=verbose), "", *steps])


def partition_rows(
    shown: Sequence[TopicInfo],
    snapshot: ClusterSnapshot,
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> list[PartitionRow]:
    """Return a row for each partition, by topic and number."""
    return [
        PartitionRow(
            topic,
            info,
            snapshot.log_format.partition_label(info.partition),
            snapshot.brokers.get(info.leader),
            earliest.get(tp),
            latest.get(tp),
        )
        for topic in shown
        for info in topic.partitions
        for tp in (TopicPartition(topic.name, info.partition),)
    ]


def _led(snapshot: ClusterSnapshot, shown: Sequence[TopicInfo]) -> list[TopicPartition]:
    partitions = [TopicPartition(topic.name, info.partition) for topic in shown for info in topic.partitions]
    return [tp for tp in partitions if snapshot.leader(tp) is not None]


def _log_ends(
    cluster: Cluster, snapshot: ClusterSnapshot, shown: Sequence[TopicInfo], deadline: float
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the first offsets and the end offsets of the partitions with a leader."""
    led = _led(snapshot, shown)
    ends = []
    for at in (EARLIEST, LATEST):
        listed = cluster.list_offsets(dict.fromkeys(led, at), Isolation.READ_UNCOMMITTED, deadline) if led else {}
        ends.append({tp: answer.offset for tp, answer in listed.items()})
    return ends[0], ends[1]


_ORDER = (
    "Warning: records with a key may now go to another partition than those before, and their order across both is lost"
)


@frozen
class TopicChange:
    """One change of topics that the command line requests. `action` is `create`, `alter` or `delete`."""

    action: str
    names: tuple[str, ...]
    partitions: int | None = None
    replication_factor: int | None = None
    configs: tuple[str, ...] = ()
    if_not_exists: bool = False

    def check(self) -> None:
        """Raise UsageError for options that the action does not accept, and for missing ones."""
        if not self.names:
            raise click.UsageError(f"--{self.action} requires --topic")
        if self.partitions is None and self.action in ("create", "alter"):
            raise click.UsageError(f"--{self.action} requires --partitions")
        if self.partitions is not None and self.action == "delete":
            raise click.UsageError("--delete does not take --partitions")
        if self.action != "create" and (self.replication_factor is not None or self.configs or self.if_not_exists):
            raise click.UsageError("--replication-factor, --config and --if-not-exists require --create")
        for config in self.configs:
            if not config.partition("=")[0] or "=" not in config:
                raise click.UsageError(f"invalid value {config!r} for --config: expected NAME=VALUE")


def carry_out(change: TopicChange, cluster: KafkaCluster, deadline: float, *, as_json: bool) -> None:
    """Make the change, and print what was done. Raises StreamGroupError."""
    lines = _lines(change, cluster, deadline)
    click.echo(json.dumps({change.action: list(change.names), "messages": lines}) if as_json else "\n".join(lines))
    if change.action == "alter":
        click.echo(_ORDER, err=True)


def _lines(change: TopicChange, cluster: KafkaCluster, deadline: float) -> Sequence[str]:
    counts = dict.fromkeys(change.names, change.partitions or 0)
    match change.action:
        case "create":
            configs = dict(config.split("=", 1) for config in change.configs)
            factor = BROKERS_DEFAULT if change.replication_factor is None else change.replication_factor
            made = create_topics(
                cluster, counts, deadline, replication_factor=factor, configs=dict.fromkeys(change.names, configs)
            )
            if (there := sorted(set(change.names) - made)) and not change.if_not_exists:
                raise click.ClickException(f"topic {there[0]!r} exists already. Set --if-not-exists to pass over it")
            return [f"{'Created topic' if name in made else 'There is a topic'} {name}." for name in change.names]
        case "alter":
            grow_topics(cluster, counts, deadline)
            return [f"Topic {name} has {counted(count, 'partition')}." for name, count in counts.items()]
        case _:
            delete_topics(cluster, change.names, deadline)
            return [f"Deleted topic {name}." for name in change.names]

"""`streamgroup topics`: list, describe and change the topics of a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

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
from streamgroup.kafka.cluster.changes import BROKERS_DEFAULT, create_topics, delete_topics, grow_topics
from streamgroup.kafka.cluster.interface import Cluster, kafka_of
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.model import EARLIEST, LATEST, Broker, ClusterSnapshot, PartitionInfo, TopicInfo, TopicPartition
from streamgroup.options.types import Isolation
from streamgroup.text import counted, host_port

_ACTIONS = "Actions (give one)"
_TOPICS = "Which topics"
_CHANGES = "Settings of --create and --alter"


class NoSuchTopic(StreamGroupError):
    """A topic of the command line does not exist."""


@dataclass(frozen=True, slots=True)
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


@click.command(
    cls=SectionedCommand,
    examples={
        "streamgroup topics -b localhost:9092 --list": "the names of all topics",
        "streamgroup topics -b localhost:9092 --describe --topic orders": "the partitions of one topic",
        "streamgroup topics -b localhost:9092 --create --topic orders --partitions 6": "a new topic",
    },
)
@flag(_ACTIONS, "--list", "list_topics", help="List the names of all topics.")
@flag(_ACTIONS, "--describe", help="Show leader, replicas and log offsets of each partition, of all topics or --topic.")
@option(_ACTIONS, "--create", "action", flag_value="create", help="Create --topic with --partitions.")
@option(_ACTIONS, "--alter", "action", flag_value="alter", help="Raise the number of partitions of --topic.")
@option(_ACTIONS, "--delete", "action", flag_value="delete", help="Delete --topic with all its records.")
@option(
    _TOPICS,
    "--topic",
    "names",
    multiple=True,
    metavar="TOPIC",
    help="Topic to describe, create, alter or delete; repeatable. Only --describe has a default: all topics.",
)
@flag(_TOPICS, "--exclude-internal", help="With --list and --describe: leave out Kafka's internal topics.")
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
    """
    if list_topics + describe + (action is not None) != 1:
        raise click.UsageError("choose one of --list, --describe, --create, --alter and --delete")
    change = TopicChange(action or "", names, partitions, replication_factor, configs, if_not_exists)
    if action is None and change != TopicChange("", names):
        raise click.UsageError("--partitions requires --create or --alter; the settings of a topic require --create")
    if action is not None:
        change.check()
    if list_topics and (names or verbose):
        raise click.UsageError("--topic and --verbose require --describe")
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
        rows = partition_rows(shown, snapshot, *_log_ends(cluster, snapshot, shown, deadline))
        click.echo(json.dumps(json_rows(COLUMNS, rows), indent=2) if as_json else table(COLUMNS, rows, verbose=verbose))
    if missing := sorted(set(names) - snapshot.topics.keys()):
        raise NoSuchTopic("; ".join(f"topic {name!r} does not exist" for name in missing))


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


def _log_ends(
    cluster: Cluster, snapshot: ClusterSnapshot, shown: Sequence[TopicInfo], deadline: float
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the first offsets and the end offsets of the partitions with a leader."""
    partitions = [TopicPartition(topic.name, info.partition) for topic in shown for info in topic.partitions]
    led = [tp for tp in partitions if snapshot.leader(tp) is not None]
    ends = []
    for at in (EARLIEST, LATEST):
        listed = cluster.list_offsets(dict.fromkeys(led, at), Isolation.READ_UNCOMMITTED, deadline) if led else {}
        ends.append({tp: answer.offset for tp, answer in listed.items()})
    return ends[0], ends[1]


_ORDER = (
    "Warning: records with a key may now go to another partition than those before, and their order across both is lost"
)


@dataclass(frozen=True, slots=True)
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

"""`streamgroup topics`: the topics of a cluster and their partitions, and changes of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import click

from streamgroup.cli._cluster import ClusterAddress, cluster_options, opened
from streamgroup.cli._tables import Column, PartitionName, json_rows, table
from streamgroup.cli._topic_changes import TopicChange, carry_out
from streamgroup.cluster.interface import Cluster, kafka_of
from streamgroup.errors import StreamGroupError
from streamgroup.model import EARLIEST, LATEST, Broker, ClusterSnapshot, PartitionInfo, TopicInfo, TopicPartition
from streamgroup.options.types import Isolation


class NoSuchTopic(StreamGroupError):
    """A topic of the command line does not exist."""


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition. Its offsets are None without a leader. In Kafka 0.7 `name` is `1-2`: partition 2 of broker 1."""

    topic: TopicInfo
    info: PartitionInfo
    name: PartitionName
    leader: Broker | None
    earliest: int | None
    latest: int | None


def _numbers(of: Callable[[PartitionRow], Sequence[int]]) -> Callable[[PartitionRow], str | None]:
    return lambda row: ",".join(map(str, of(row))) or None


COLUMNS: tuple[Column[PartitionRow], ...] = (
    Column("TOPIC", "topic", lambda row: row.topic.name),
    Column("PARTITION", "partition", lambda row: row.name),
    Column("LEADER", "leader", lambda row: None if row.leader is None else row.leader.node_id),
    Column("ADDRESS", "address", lambda row: row.leader and f"{row.leader.host}:{row.leader.port}", verbose=True),
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


@click.command()
@cluster_options
@click.option("--list", "list_topics", is_flag=True, help="List the names of the topics.")
@click.option("--describe", is_flag=True, help="Describe partitions: leaders, replicas, log offsets.")
@click.option("--create", "action", flag_value="create", help="Create topics.")
@click.option("--alter", "action", flag_value="alter", help="Give topics more partitions.")
@click.option("--delete", "action", flag_value="delete", help="Delete topics with all their records.")
@click.option(
    "--topic", "names", multiple=True, metavar="TOPIC", help="Topic to describe or change; repeatable.  [default: all]"
)
@click.option("--partitions", type=click.IntRange(1), help="With --create and --alter: how many partitions.")
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 32_767),
    help="With --create: replicas of each partition. Brokers before 2.4 need it; later ones have a default.",
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="With --create: a setting of the topic; repeatable.",
)
@click.option("--if-not-exists", is_flag=True, help="With --create: pass over topics that exist.")
@click.option("--exclude-internal", is_flag=True, help="Leave out Kafka's internal topics.")
@click.option("--verbose", is_flag=True, help="Show more columns: broker addresses, leader epochs, topic ids.")
@click.option(
    "--timeout", type=click.IntRange(1), default=10_000, show_default=True, help="Milliseconds for the whole command."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON with all columns; an unknown value is null.")
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
    """List, describe, create, grow or delete topics.

    The cluster may run any Kafka from 0.7 on. Brokers create topics from 0.10.1 on, and more partitions from 1.0 on.
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

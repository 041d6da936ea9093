"""The changes of `streamgroup topics`: --create, --alter and --delete, as in kafka-topics.sh."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import click

from streamgroup.cluster.kafka import KafkaCluster
from streamgroup.cluster.topic_changes import BROKERS_DEFAULT, create_topics, delete_topics, grow_topics
from streamgroup.counting import counted

_ORDER = (
    "Warning: records with a key may now go to another partition than those before, and their order across both is lost"
)


@dataclass(frozen=True, slots=True)
class TopicChange:
    """One change of topics, as the command line wants it. `action` is `create`, `alter` or `delete`."""

    action: str
    names: tuple[str, ...]
    partitions: int | None = None
    replication_factor: int | None = None
    configs: tuple[str, ...] = ()
    if_not_exists: bool = False

    def check(self) -> None:
        """Raise UsageError for options that the action does not take or lacks."""
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
